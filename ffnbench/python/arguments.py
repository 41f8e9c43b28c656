"""What a Python call may be given: the types of its arguments, and how a value becomes what would be typed.

A text is read as it is on the command line, so that `d_model=64`, `d_model="64"` and `--d-model 64` are one.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from ffnbench.common.errors import WrongArgument
from ffnbench.planning.fields import read, takes_several, types_of
from ffnbench.python.targets import variant_text, variants_text
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
    "float64", "float32", "bfloat16", "float16", "double", "fp64", "float", "fp32", "bf16", "half", "fp16"
]
DType: TypeAlias = "DTypeName | torch.dtype"
DTypes: TypeAlias = "DType | Sequence[DType]"
Device: TypeAlias = "str | torch.device"
Devices: TypeAlias = "Device | Sequence[Device]"
Backend = Literal["eager", "packed", "packed-up-gate", "compile", "onednn", "all"]
Backends = Backend | Sequence[Backend]

R = TypeVar("R", bound=Request)
NAMED = "help() of the function shows its arguments"
BETWEEN = {"tolerance": "=", "base_env": ":"}  # name and value, where a mapping may be given


def asked(kind: type[R], given: Mapping[str, Any]) -> R:
    """A request of the arguments of a call; those that are no fields of it are left out. Raises FfnbenchError."""
    values = {}
    for field in fields(kind):
        name = field.name.rstrip("_")
        if name not in given or (given[name] is None and field.default in (None, ())):
            continue
        value = given[name]
        if isinstance(value, int | float) and not isinstance(value, bool) and types_of(kind, field.name) == (str,):
            raise WrongArgument(f"{name} can't be {value!r}", "give a text")
        typed = value if isinstance(value, bool) else texts_of(kind, field.name, value)
        values[field.name] = read(kind, field.name, typed)
    return kind(**values)


def texts_of(kind: type[Request], name: str, value: Any) -> list[str]:
    """A value as it would be typed."""
    if name in ("variants", "activations"):
        return [variants_text(value)]
    if name == "variant":
        return [variant_text(value)]
    if isinstance(value, Mapping) and name in BETWEEN:
        return [f"{key}{BETWEEN[name]}{item}" for key, item in value.items()]
    if isinstance(value, str | os.PathLike) or not hasattr(value, "__iter__"):
        return [text_of(name, value)]
    if isinstance(value, range) and len(value) > 1:  # as it would be typed, so that none is too long to be read
        value = [f"{min(value)}..{max(value)}/{abs(value.step)}"]
    texts = [text_of(name, item) for item in value]
    if name == "range_" and len(texts) == 2:
        return [":".join(texts)]
    if not takes_several(types_of(kind, name)):
        raise WrongArgument(f"{name.rstrip('_')} takes one value, not {value!r}", "give one at a time")
    return texts or [""]


def text_of(name: str, value: Any) -> str:
    """A text; torch's dtypes and devices, paths and numbers as they are typed."""
    if isinstance(value, str | os.PathLike):
        return os.fspath(value)
    kind = type(value)
    if kind.__module__ == "torch" and kind.__name__ in ("dtype", "device"):
        return str(value).removeprefix("torch.")
    try:
        return str(operator.index(value)) if hasattr(value, "__index__") else f"{float(value)!r}"
    except (TypeError, ValueError):
        hint = f"save it first: {name}=report.save('{name}.json')" if hasattr(value, "save") else NAMED
        raise WrongArgument(f"{name.rstrip('_')} can't be {_shown(value)}", hint) from None


def _shown(value: Any) -> str:
    """A value in a message: as it is written where that is short, else what it is."""
    text = repr(value)
    return text if len(text) <= 60 and "\n" not in text else f"a {type(value).__name__.removeprefix('Shown')}"
