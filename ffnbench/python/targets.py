"""Objects of Python as variants: a class, or a function, becomes the text that a worker finds it by.

A worker is another process: it imports `package.module:Class`, or runs `file.py:Class`. What stands in no file that it
could read is refused, with what to do.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

from ffnbench.common.errors import FfnbenchError, WrongArgument

CELL = "write the cell to a file: begin it with `%%writefile mine.py`, run it, then name it as 'mine.py:{name}'"
FILE = "save it to a file, for example mine.py, and name it as 'mine.py:{name}'"


def variants_text(given: Any) -> str:
    """A comma separated list of one variant, several, or {label: variant}."""
    if isinstance(given, Mapping):
        return ",".join(f"{label}={variant_text(one)}" for label, one in given.items())
    if isinstance(given, str) or callable(given) or not hasattr(given, "__iter__"):
        return variant_text(given)
    return ",".join(map(variant_text, given))


def variant_text(given: Any) -> str:
    """One variant as it is typed; raises FfnbenchError for what a worker can't find, or what is none."""
    if isinstance(given, str | os.PathLike):
        return os.fspath(given)
    if hasattr(given, "named_parameters") and not inspect.isclass(given):
        kind = type(given).__name__
        raise WrongArgument(
            f"an instance of {kind} is no variant: each worker makes its own",
            f"give the class, {kind}, or a function that makes one",
        )
    if not callable(given):
        what = f"the module {given.__name__!r}" if isinstance(given, ModuleType) else repr(given)
        raise WrongArgument(f"{what} is no variant", "give a name, a class of torch.nn.Module, or a function")
    return _target_of(given)


def _target_of(given: Any) -> str:
    """`package.module:Class` or `path/file.py:Class` of a class or a function; raises FfnbenchError where none is."""
    name, module = getattr(given, "__qualname__", None), getattr(given, "__module__", None)
    if not isinstance(name, str) or not isinstance(module, str):
        raise FfnbenchError(
            f"a worker can't find {given!r}: it has no name of its own", "define it with `def` or `class` in a file"
        )
    if "<" in name:
        inner = name.rpartition(".")[2]
        what = "a lambda" if inner == "<lambda>" else f"{inner!r}, which is defined within a function,"
        raise FfnbenchError(f"a worker can't find {what} by its name", "define it with a name at the top of a file")
    loaded = sys.modules.get(module)
    try:
        same = attrgetter(name)(loaded) == given  # a bound method is a new object each time, and equal
    except AttributeError:
        same = False
    if loaded is None or not same:
        hint = FILE.format(name=name) if module == "__main__" else f"import it again: from {module} import {name}"
        raise FfnbenchError(f"a worker can't find {name!r}: that name in {module!r} is something else now", hint)
    return f"{_source(loaded, module, name)}:{name}"


def _source(loaded: ModuleType, module: str, name: str) -> str:
    """The module by its name, or the file of the script that runs."""
    file = getattr(loaded, "__file__", None)
    if module != "__main__":
        if file:
            _let_workers_find(Path(file), module)
        return module
    spec = getattr(loaded, "__spec__", None)
    if spec is not None and spec.name and spec.name != "__main__":  # python -m package.module
        return str(spec.name)
    if not file or not Path(file).is_file():
        hint = CELL if "IPython" in sys.modules else FILE
        raise FfnbenchError(f"a worker can't import {name!r}: it is in no file", hint.format(name=name))
    whole = Path(file).resolve()
    return str(whole.relative_to(Path.cwd())) if whole.is_relative_to(Path.cwd()) else str(whole)


def _let_workers_find(file: Path, module: str) -> None:
    """A module that is importable here because it stands beside the script, or in a folder put on sys.path: workers
    inherit the folder by PYTHONPATH, which changes nothing in this process.
    """
    root = file.resolve().parents[module.count(".") + (file.name == "__init__.py")]
    inherited = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    known = [Path.cwd(), *(Path(path).resolve() for path in inherited)]
    if root in known or any(root.is_relative_to(Path(prefix).resolve()) for prefix in {sys.prefix, sys.base_prefix}):
        return
    if root in [Path(path).resolve() for path in sys.path]:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(root), *inherited])
