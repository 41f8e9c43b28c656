"""Loads the object that `package.module:Attr` or `path/to/file.py:Attr` names. Runs in
a worker.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from ffnbench.common.errors import FfnbenchError
from ffnbench.common.names import did_you_mean

PATH_HINT = "a path is relative to the current folder"
# modules whose lines are no place of a mistake of the user
NOT_THE_USERS = ("ffnbench", "importlib", "torch", "__main__")
INSTALL_HINT = "is it installed in this environment, or in a folder below this one?"


def resolve(target: str) -> Any:
    """Load the class or factory that a target names; raises FfnbenchError where there
    is none.
    """
    source, _, path = target.rpartition(":")
    attribute: Any = _load(source)
    for name in path.split("."):
        if not hasattr(attribute, name):
            known = [each for each in dir(attribute) if not each.startswith("_")]
            near = did_you_mean(name, known)
            raise FfnbenchError(
                f"{source!r} has no {path!r}",
                near or f"is it defined at the top of {source}?",
            )
        attribute = getattr(attribute, name)
    if not callable(attribute) or (
        hasattr(attribute, "named_parameters") and not inspect.isclass(attribute)
    ):
        raise FfnbenchError(
            f"{target!r} is an instance of {type(attribute).__name__}, not a class or a factory",
            "name something that returns an nn.Module when called",
        )
    return attribute


def origin_of(target: str) -> str:
    """The file that a target's module is read from; raises FfnbenchError where it can't
    be loaded.
    """
    resolve(target)
    module = _load(target.rpartition(":")[0])
    return str(Path(module.__file__ or next(iter(module.__path__))).resolve())


def _load(source: str) -> Any:
    is_file_name = source.endswith(".py") or "/" in source
    if not is_file_name:
        return _load_module(source)
    file = Path(source).expanduser().resolve()
    if not os.path.isfile(file):
        raise FfnbenchError(f"there is no file {source!r}", PATH_HINT)
    return _run_file(file, source)


def _load_module(name: str) -> Any:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except Exception as problem:
        missing = problem.name if isinstance(problem, ModuleNotFoundError) else None
        if missing is None:
            hint = f"it is there, and does not load: does `python -c 'import {name}'` work?"
        else:
            itself = f"{name}.".startswith(f"{missing}.")
            if itself:
                hint = INSTALL_HINT
            else:
                hint = f"it needs {missing!r}: is that installed in this environment?"
        raise FfnbenchError(
            f"cannot import {name!r}: {one_line(problem)}", hint
        ) from problem


@cache
def _run_file(file: Path, shown: str) -> Any:
    """Run a file once, among the modules of its own folder: two checkouts may each have
    a kern.py.
    """
    name = f"ffnbench_user_{hashlib.sha256(os.fsencode(file)).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise FfnbenchError(f"{shown!r} is no Python file", "its name ends with .py")
    module = importlib.util.module_from_spec(spec)
    # before it runs: dataclasses and pickle look up the module of a class
    sys.modules[name] = module
    try:
        with _neighbours(file.parent):
            spec.loader.exec_module(module)
    except FfnbenchError as problem:
        # the file calls ffnbench itself, whose hint says more
        raise FfnbenchError(
            f"cannot run {shown!r}: {problem.message}", problem.hint
        ) from problem
    except Exception as problem:
        raise FfnbenchError(
            f"cannot run {shown!r}: {one_line(problem)}", f"does `python {shown}` work?"
        ) from problem
    return module


# folder -> the modules that its files imported from it
_NEIGHBOURS: dict[Path, dict[str, Any]] = {}


@contextmanager
def _neighbours(folder: Path) -> Iterator[None]:
    """Make a folder importable, and take its modules out of sys.modules afterwards, so
    that other folders may have modules of the same names.
    """
    before = set(sys.modules)
    sys.modules.update(_NEIGHBOURS.get(folder, {}))
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        sys.path.append(str(folder))  # for imports that wait until a function runs
        own = {}
        for name, module in list(sys.modules.items()):
            file = str(getattr(module, "__file__", None) or "")
            if name not in before and file.startswith(f"{folder}{os.sep}"):
                own[name] = module
        _NEIGHBOURS.setdefault(folder, {}).update(own)
        for name in own:
            if not name.startswith("ffnbench_user_"):
                del sys.modules[name]


def one_line(problem: BaseException) -> str:
    """An exception as one line: its type, its message, and where in the user's code it
    was raised.
    """
    line = type(problem).__name__
    text = " ".join(str(getattr(problem, "message", problem)).split())[:300]
    if text:
        line += f": {text}"
    return line + raised_at(problem)


def raised_at(problem: BaseException) -> str:
    """The innermost line that is not of ffnbench or torch, as ` (mlp.py, line 12)`; ""
    where there is none.
    """
    place = ""
    for frame, line in traceback.walk_tb(problem.__traceback__):
        if frame.f_globals.get("__name__", "").partition(".")[0] not in NOT_THE_USERS:
            place = f" ({os.path.relpath(frame.f_code.co_filename)}, line {line})"
    return place
