"""Types of the arguments of Python calls, and what makes of a value the text that would
be typed for it.

A text is read as on the command line, so that `d_model=64`, `d_model="64"` and
`--d-model 64` are the same.
"""

from __future__ import annotations

import inspect
import operator
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from ffnbench.common.errors import FfnbenchError, WrongArgument
from ffnbench.planning.fields import read, takes_several, types_of
from ffnbench.request import Request

if TYPE_CHECKING:
    import torch
    from torch import nn

StrPath = str | os.PathLike[str]
Variant = StrPath | Callable[..., "nn.Module | torch.Tensor"]
Variants = Variant | Sequence[Variant] | Mapping[str, Variant]
Activation = StrPath | Callable[..., "torch.Tensor"]
Activations = Activation | Sequence[Activation]
Int = int | str
Ints = Int | Sequence[Int]
Float = float | str
Texts = str | Sequence[str]
Pairs = str | Sequence[str] | Mapping[str, str]
Match = Literal["params", "flops", "none"]
Mode = Literal["forward", "train", "backward", "inference", "training"]
Modes = Mode | Sequence[Mode]
DTypeName = Literal[
    "float64",
    "float32",
    "bfloat16",
    "float16",
    "double",
    "fp64",
    "float",
    "fp32",
    "bf16",
    "half",
    "fp16",
]
DType: TypeAlias = "DTypeName | torch.dtype"
DTypes: TypeAlias = "DType | Sequence[DType]"
Device: TypeAlias = "str | torch.device"
Devices: TypeAlias = "Device | Sequence[Device]"
Backend = Literal[
    "eager", "packed", "packed-up-gate", "compile", "onednn", "ort", "openvino", "all"
]
Backends = Backend | Sequence[Backend]
WeightFormatName = Literal["none", "int8-dynamic", "int8", "int4"]
WeightFormats = WeightFormatName | Sequence[WeightFormatName]

R = TypeVar("R", bound=Request)
ARGUMENTS_HINT = "help() of the function shows its arguments"
# what stands between name and value, where a mapping may be given
PAIR_SEPARATORS = {"tolerance": "=", "base_env": ":"}


def request_from_arguments(kind: type[R], given: Mapping[str, Any]) -> R:
    """Make a request of the arguments of a call; those that are no fields of it are
    left out. Raises FfnbenchError for a value that its field can't have.
    """
    values = {}
    for field in fields(kind):
        name = field.name.rstrip("_")
        if name not in given:
            continue
        value = given[name]
        if value is None and field.default in (None, ()):
            continue
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and types_of(kind, field.name) == (str,):
            raise WrongArgument(f"{name} can't be {value!r}", "give a text")
        typed = value if isinstance(value, bool) else texts_of(kind, field.name, value)
        values[field.name] = read(kind, field.name, typed)
    return kind(**values)


def texts_of(kind: type[Request], name: str, value: Any) -> list[str]:
    """The value as the texts that would be typed for the argument `name`; raises
    WrongArgument for several values of an argument that takes one.
    """
    if name in ("variants", "activations"):
        return [variants_text(value)]
    if name == "variant":
        return [variant_text(value)]
    if isinstance(value, Mapping) and name in PAIR_SEPARATORS:
        return [f"{key}{PAIR_SEPARATORS[name]}{item}" for key, item in value.items()]
    if isinstance(value, str | os.PathLike) or not hasattr(value, "__iter__"):
        return [argument_text(name, value)]
    # `1..4096`, so that a long range is no long text
    if isinstance(value, range) and len(value) > 1:
        value = [f"{min(value)}..{max(value)}/{abs(value.step)}"]
    texts = [argument_text(name, item) for item in value]
    if name == "range_" and len(texts) == 2:
        return [":".join(texts)]
    if not takes_several(types_of(kind, name)):
        raise WrongArgument(
            f"{name.rstrip('_')} takes one value, not {value!r}", "give one at a time"
        )
    return texts or [""]


def argument_text(name: str, value: Any) -> str:
    """One value as it would be typed: a text, a path, a number, or a dtype or device of
    torch. Raises WrongArgument for any other.
    """
    if isinstance(value, str | os.PathLike):
        return os.fspath(value)
    kind = type(value)
    if kind.__module__ == "torch" and kind.__name__ in ("dtype", "device"):
        return str(value).removeprefix("torch.")
    try:
        if hasattr(value, "__index__"):
            return str(operator.index(value))
        return f"{float(value)!r}"
    except (TypeError, ValueError):
        if hasattr(value, "save"):
            hint = f"save it first: {name}=report.save('{name}.json')"
        else:
            hint = ARGUMENTS_HINT
        raise WrongArgument(
            f"{name.rstrip('_')} can't be {_value_in_message(value)}", hint
        ) from None


def _value_in_message(value: Any) -> str:
    """The value as an error shows it: its repr where that is short, else its type."""
    text = repr(value)
    if len(text) <= 60 and "\n" not in text:
        return text
    return f"a {type(value).__name__.removeprefix('Shown')}"


CELL_HINT = "write the cell to a file: begin it with `%%writefile mine.py`, run it, then name it as 'mine.py:{name}'"
SAVE_HINT = "save it to a file, for example mine.py, and name it as 'mine.py:{name}'"


def variants_text(given: Any) -> str:
    """One variant, several, or {label: variant} as the comma separated list that would
    be typed.
    """
    if isinstance(given, Mapping):
        return ",".join(
            f"{label}={variant_text(variant)}" for label, variant in given.items()
        )
    if isinstance(given, str) or callable(given) or not hasattr(given, "__iter__"):
        return variant_text(given)
    return ",".join(map(variant_text, given))


def variant_text(given: Any) -> str:
    """One variant as it would be typed; raises FfnbenchError for a class or function
    that a worker can't find, and for what is no variant.
    """
    if isinstance(given, str | os.PathLike):
        return os.fspath(given)
    if hasattr(given, "named_parameters") and not inspect.isclass(given):
        kind = type(given).__name__
        raise WrongArgument(
            f"an instance of {kind} is no variant: each worker makes its own",
            f"give the class, {kind}, or a function that makes one",
        )
    if not callable(given):
        if isinstance(given, ModuleType):
            what = f"the module {given.__name__!r}"
        else:
            what = repr(given)
        raise WrongArgument(
            f"{what} is no variant",
            "give a name, a class of torch.nn.Module, or a function",
        )
    return _target_of(given)


def _target_of(given: Any) -> str:
    """The target of a class or a function, `package.module:Class` or
    `path/file.py:Class`; raises FfnbenchError where a worker can't find it so.
    """
    name = getattr(given, "__qualname__", None)
    module = getattr(given, "__module__", None)
    if not isinstance(name, str) or not isinstance(module, str):
        raise FfnbenchError(
            f"a worker can't find {given!r}: it has no name of its own",
            "define it with `def` or `class` in a file",
        )
    if "<" in name:
        inner = name.rpartition(".")[2]
        if inner == "<lambda>":
            what = "a lambda"
        else:
            what = f"{inner!r}, which is defined within a function,"
        raise FfnbenchError(
            f"a worker can't find {what} by its name",
            "define it with a name at the top of a file",
        )
    loaded = sys.modules.get(module)
    try:
        # a bound method is a new object each time, and equal
        is_found = attrgetter(name)(loaded) == given
    except AttributeError:
        is_found = False
    if loaded is None or not is_found:
        if module == "__main__":
            hint = SAVE_HINT.format(name=name)
        else:
            hint = f"import it again: from {module} import {name}"
        raise FfnbenchError(
            f"a worker can't find {name!r}: that name in {module!r} is something else now",
            hint,
        )
    return f"{_source(loaded, module, name)}:{name}"


def _source(loaded: ModuleType, module: str, name: str) -> str:
    """The source of a target: the name of its module, or the file of the script that
    runs.
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
        hint = CELL_HINT if "IPython" in sys.modules else SAVE_HINT
        raise FfnbenchError(
            f"a worker can't import {name!r}: it is in no file", hint.format(name=name)
        )
    path = Path(file).resolve()
    if path.is_relative_to(Path.cwd()):
        return str(path.relative_to(Path.cwd()))
    return str(path)


def _let_workers_find(file: Path, module: str) -> None:
    """Put the folder of a module into PYTHONPATH, which workers inherit, if the module
    is importable here only because it stands beside the script, or in a folder that was
    put on sys.path. That changes nothing in this process.
    """
    depth = module.count(".")
    if file.name == "__init__.py":
        depth += 1
    root = file.resolve().parents[depth]
    inherited = [
        path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path
    ]
    importable = [Path.cwd(), *(Path(path).resolve() for path in inherited)]
    prefixes = [Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix)]
    if root in importable or any(map(root.is_relative_to, prefixes)):
        return
    if root in [Path(path).resolve() for path in sys.path]:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(root), *inherited])
