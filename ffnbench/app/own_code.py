"""Classes and functions that Python passes in place of names: how a worker finds
them.
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
from ffnbench.plan.reading import joined, text_of
from ffnbench.plan.variants import parts_of


def variants_text(name: str, given: Any) -> str:
    """One variant, several, or {label: variant} as the comma separated list that would
    be typed for the argument `name`. Raises FfnbenchError for a class or function that
    a worker can't find, and for what is no variant.
    """
    if isinstance(given, Mapping):
        texts = [_labelled(name, label, given[label]) for label in given]
        return text_of(name, ",".join(texts))
    if isinstance(given, str) or callable(given) or not hasattr(given, "__iter__"):
        return _variant_text(name, given)
    return text_of(name, joined(_variant_text(name, variant) for variant in given))


def _labelled(name: str, label: Any, given: Any) -> str:
    """One variant with its label; raises WrongArgument for what is no label, and where
    it would be that of several.
    """
    text = _variant_text(name, given)
    if not isinstance(label, str) or not label.strip() or {*label} & {*",=@"}:
        raise WrongArgument(
            f"{label!r} is no label", "a label is a name: {'mine': ...}"
        )
    if len(parts_of(text)) > 1:
        raise WrongArgument(
            f"the label {label!r} is of one variant, not {text!r}",
            "give each its own: {'a': 'relu', 'b': 'gelu'}",
        )
    return f"{label}={text}"


def _variant_text(name: str, given: Any) -> str:
    """One variant as it would be typed."""
    if isinstance(given, str | os.PathLike):
        return text_of(name, given)
    is_instance = hasattr(given, "named_parameters") and not inspect.isclass(given)
    if is_instance or not callable(given):
        shown = f"an instance of {type(given).__name__}" if is_instance else repr(given)
        raise WrongArgument(
            f"{shown} is no variant: each worker makes its own module",
            "give a name, a class of torch.nn.Module, or a function that makes one",
        )
    return _target_of(given)


def _target_of(given: Any) -> str:
    """The target of a class or a function, `package.module:Class` or
    `path/file.py:Class`; raises FfnbenchError where a worker can't find it so.
    """
    name = str(getattr(given, "__qualname__", type(given).__name__))
    module = str(getattr(given, "__module__", ""))
    loaded = sys.modules.get(module)
    try:
        # a bound method is a new object each time, and equal
        is_found = attrgetter(name)(loaded) == given
    except AttributeError:
        is_found = False
    source = _source(loaded, module) if loaded and is_found else ""
    if not source:
        raise FfnbenchError(
            f"a worker can't import {name!r}: no file has it under this name",
            "save it at the top of a file, in a notebook by `%%writefile mine.py`, and name it as 'mine.py:NAME'",
        )
    return f"{source}:{name}"


def _source(loaded: ModuleType, module: str) -> str:
    """The source of a target: the name of its module, or the file of the script that
    runs; "" where there is none.
    """
    file = getattr(loaded, "__file__", None)
    if module != "__main__":
        if file:
            _let_workers_find(Path(file), module)
        return module
    spec = getattr(loaded, "__spec__", None)
    # python -m package.module
    if spec is not None and spec.name and spec.name != "__main__":
        return str(spec.name)
    if not file or not Path(file).is_file():
        return ""
    path = Path(file).resolve()
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _let_workers_find(file: Path, module: str) -> None:
    """Put the folder of a module that is not installed into PYTHONPATH, which workers
    inherit. That changes nothing in this process.
    """
    depth = module.count(".")
    if file.name == "__init__.py":
        depth += 1
    root = file.resolve().parents[depth]
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    prefixes = [Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix)]
    if str(root) not in inherited and not any(map(root.is_relative_to, prefixes)):
        folders = filter(None, (str(root), *inherited))
        os.environ["PYTHONPATH"] = os.pathsep.join(folders)
