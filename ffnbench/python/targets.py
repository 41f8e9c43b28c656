"""Objects of Python as variants: a class, or a function, becomes the text that a worker finds it by.

A worker is another process: it imports `package.module:Class`, or runs `file.py:Class`. What stands in no file that it
could read is refused, with what to do.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from ffnbench.activations.table import ACTIVATIONS
from ffnbench.errors import FfnbenchError, WrongArgument

CELL = "write the cell to a file: begin it with `%%writefile mine.py`, run it, then name it as 'mine.py:{name}'"
FILE = "save it to a file, for example mine.py, and name it as 'mine.py:{name}'"
SEPARATORS = set(",@=")


def variant_text(given: Any) -> str:
    """One variant as it is typed; raises FfnbenchError for what a worker can't find, or what is none."""
    if isinstance(given, str):
        return given
    if isinstance(given, os.PathLike):
        return _path(str(os.fspath(given)))
    if hasattr(given, "named_parameters") and not inspect.isclass(given):
        kind = type(given).__name__
        raise WrongArgument(
            f"an instance of {kind} is no variant: each worker makes its own",
            f"give the class, {kind}, or a function that makes one",
        )
    if name := _activation_of_torch(given):
        return name
    if not callable(given):
        raise WrongArgument(f"{given!r} is no variant", "give a name, a class of torch.nn.Module, or a function")
    return target_of(given)


def variants_text(given: Any) -> str:
    """A comma separated list of one variant, several, or {label: variant}."""
    if isinstance(given, Mapping):
        return ",".join(f"{_label(label)}={_one_of(label, variant_text(one))}" for label, one in given.items())
    if isinstance(given, str) or callable(given) or not hasattr(given, "__iter__") or _is_module(given):
        return variant_text(given)
    return ",".join(map(variant_text, given))


def _one_of(label: object, text: str) -> str:
    """A variant that gets a label; raises WrongArgument for a list, or for one that has a label."""
    if "," in text or "=" in text.partition("@")[0]:
        raise WrongArgument(
            f"{text!r} under the label {str(label)!r} is more than one variant's name", "a label for each"
        )
    return text


def target_of(given: Any) -> str:
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
    if loaded is None or _found(loaded, name) != given:  # a bound method is a new object each time, and equal
        hint = FILE.format(name=name) if module == "__main__" else f"import it again: from {module} import {name}"
        raise FfnbenchError(f"a worker can't find {name!r}: that name in {module!r} is something else now", hint)
    return f"{_path(_source(loaded, module, name))}:{name}"


def _path(text: str) -> str:
    """A path as part of a variant; raises FfnbenchError for signs that a list of variants is read by."""
    if SEPARATORS & set(text):
        raise FfnbenchError(f"the path {text!r} holds one of , @ =", "move the file to a path without them")
    return text


def _activation_of_torch(given: Any) -> str:
    """The name of the activation that a class or a function of torch is: `gelu` of nn.GELU and F.gelu; else empty.

    torch.relu is a built-in method that names no module, so its name is looked up in torch.
    """
    torch, name = sys.modules.get("torch"), getattr(given, "__name__", "")
    if torch is None or not isinstance(name, str):
        return ""
    for place in (torch, torch.nn, torch.nn.functional):
        if getattr(place, name, None) is given:
            plain = name.lower().replace("_", "")  # LeakyReLU is leaky_relu
            return next((one.name for one in ACTIVATIONS if one.name.replace("_", "") == plain), "")
    return ""


def _source(loaded: ModuleType, module: str, name: str) -> str:
    """The module by its name; the file of the script that runs, and of those beside it that a worker would not find."""
    file = getattr(loaded, "__file__", None)
    if module == "__main__":
        spec = getattr(loaded, "__spec__", None)
        if spec is not None and spec.name and spec.name != "__main__":  # python -m package.module
            return str(spec.name)
        if not file or not Path(file).is_file():
            hint = CELL if "IPython" in sys.modules else FILE
            raise FfnbenchError(f"a worker can't import {name!r}: it is in no file", hint.format(name=name))
        return _shown(Path(file))
    if file and "." not in module and Path(file).suffix == ".py" and _only_beside_script(Path(file)):
        return _shown(Path(file))
    if file and "." in module:
        _let_workers_find(Path(file), module)
    return module


def _let_workers_find(file: Path, module: str) -> None:
    """A package that is importable here because it stands beside the script, or in a folder put on sys.path: workers
    inherit the folder by PYTHONPATH, which changes nothing in this process.
    """
    root = file.resolve().parents[module.count(".") + (file.name == "__init__.py")]
    known = [Path.cwd(), *(Path(path).resolve() for path in _python_path())]
    if root in known or any(root.is_relative_to(Path(prefix).resolve()) for prefix in {sys.prefix, sys.base_prefix}):
        return
    if str(root) in [str(Path(path).resolve()) for path in sys.path]:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(root), *_python_path()])


def _python_path() -> list[str]:
    return [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]


def _only_beside_script(file: Path) -> bool:
    """Whether it is importable here because it stands beside the script, which is no reason for a worker."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    folder = file.resolve().parent
    given = [Path(path).resolve() for path in _python_path()]
    return bool(script) and folder == Path(str(script)).resolve().parent and folder not in (Path.cwd(), *given)


def _shown(file: Path) -> str:
    """A path from here where that is shorter to read, else the whole."""
    whole = file.resolve()
    return str(whole.relative_to(Path.cwd())) if whole.is_relative_to(Path.cwd()) else str(whole)


def _found(loaded: ModuleType, name: str) -> Any:
    found: Any = loaded
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _label(given: object) -> str:
    """A label of the user's; raises FfnbenchError for signs that a list of variants is read by."""
    text = str(given)
    if not text or SEPARATORS & set(text):
        raise WrongArgument(f"the label {text!r} can't be told from a variant", "use letters, digits, - and _")
    return text


def _is_module(given: Any) -> bool:
    return hasattr(given, "named_parameters")
