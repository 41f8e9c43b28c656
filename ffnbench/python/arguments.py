"""The arguments of a Python call, made of the same bundles as the flags: their types, their defaults, their meaning.

A field of a request is an argument of the same name, and where a flag takes a list, so does its argument. A value
becomes what would be typed, and is read as that is.
"""

from __future__ import annotations

import inspect
import operator
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, fields
from difflib import get_close_matches
from typing import Any

from ffnbench.errors import WrongArgument
from ffnbench.ffn.dtypes import DTYPES
from ffnbench.ffn.imported import D_FF_NAMES, D_MODEL_NAMES
from ffnbench.ffn.moe import Routing
from ffnbench.ffn.spec import Init
from ffnbench.ffn.width_rules import Match
from ffnbench.plan import MODE_ALIASES, Backend, Cache, MatmulPrecision, Mode, Time, values_of
from ffnbench.planning.fields import flag_of, kind_of, read, takes_list
from ffnbench.planning.workload import ALL
from ffnbench.python.targets import variant_text, variants_text
from ffnbench.report.flags import Output

NAMED = "help() of the function shows its arguments"
PAIRED = "range_"  # whose two numbers may be given as a pair
FILES = (
    "preset", "baseline", "current", "model", "base_python", "head_python", "base_source", "head_source",
)  # fmt: skip
TYPES = {  # of arguments that take more than a text
    **dict.fromkeys(FILES, "str | os.PathLike[str]"), "device": "str | torch.device",
    PAIRED: "str | tuple[float, float]", "seq_len": "int | str", "elements": "int | str",
}  # fmt: skip
OBJECTS = {"variants": "Variants", "variant": "Variant", "activations": "Activations"}
ELSEWHERE = {  # what other libraries call an argument
    **dict.fromkeys(D_MODEL_NAMES, "d_model"),
    **dict.fromkeys(D_FF_NAMES, "d_ff"),
    **dict.fromkeys(("sequence_length", "max_seq_len", "seqlen", "n_tokens", "tokens"), "seq_len"),
    **dict.fromkeys(("batch_size", "batchsize", "bs"), "batch"),
    **dict.fromkeys(("num_threads", "n_threads"), "threads"),
    "config": "preset",
}
CHOICES = {  # what a type checker lets an argument be, and a shell offers, by the argument
    "match": values_of(Match), "mode": (*values_of(Mode), *MODE_ALIASES), "dtype": DTYPES.spellings(),
    "time": values_of(Time), "cache": values_of(Cache), "matmul_precision": values_of(MatmulPrecision),
    "backend": (*values_of(Backend), ALL), "init": values_of(Init), "routing": values_of(Routing),
}  # fmt: skip
# with what can only be its value: behind `=`, a number, a list, a target
FLAG = re.compile(
    r"--(no-)?([a-z][a-z-]*)(?:=([^\s,;]*[^\s,;.])| ([\w.:]+(?:[,/][\w.:]+)+|[\w.]+:\w[\w.]*|\d[\w.%]*))?"
)


class TypeText(str):
    """The type of an argument, shown as it is written and without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a call, of the field that it fills."""

    field: Field[Any]

    @property
    def name(self) -> str:
        """What a caller writes."""
        return self.field.name.rstrip("_")

    @property
    def default(self) -> Any:
        """Its default, or inspect's `empty` where it has to be given."""
        if flag_of(self.field).place and self.field.default == "":
            return inspect.Parameter.empty
        return None if isinstance(self.field.default, tuple) else self.field.default

    @property
    def help(self) -> str:
        """The flag's help, its flags spelled as arguments."""
        text = flag_of(self.field).help.replace(" Repeatable.", "")
        return re.sub(r"--([a-z][a-z-]*)", lambda found: found[1].replace("-", "_"), text)

    @property
    def type(self) -> TypeText:
        """The type as a stub writes it."""
        name, kind = self.field.name, kind_of(self.field)
        optional = " | None" if isinstance(self.field.default, tuple) or "None" in str(self.field.type) else ""
        if name in OBJECTS:
            return TypeText(OBJECTS[name] + optional)
        one = TYPES.get(name) or (f"{kind} | str" if kind in ("int", "float") else kind)
        if name in CHOICES:
            one = choice_name(name) + " | torch.dtype" * (name == "dtype")
        several = f" | Sequence[{one}]" if takes_list(self.field) else ""
        return TypeText(f"{one}{several}{' | Mapping[str, str]' * bool(self._between)}{optional}")

    @property
    def _between(self) -> str:
        """What stands between a name and its value, in a flag of pairs."""
        how = flag_of(self.field).metavar if isinstance(self.field.default, tuple) else ""
        return ":" if ":VALUE" in how else "=" if "=" in how else ""

    def value(self, given: Any) -> Any:
        """The value as a request holds it; raises FfnbenchError for one that can't be."""
        if given is None and self.default is None:
            return self.field.default
        return read(self.field, given if isinstance(given, bool) else self._typed(given))

    def _typed(self, given: Any) -> list[str]:
        """A value as it would be typed."""
        if self.field.name in OBJECTS:
            return [variant_text(given) if self.field.name == "variant" else variants_text(given)]
        if isinstance(given, Mapping) and self._between:
            return [f"{key}{self._between}{one}" for key, one in given.items()]
        if isinstance(given, str | os.PathLike) or not hasattr(given, "__iter__"):
            return [self._text(given)]
        if isinstance(given, range) and len(given) > 1:  # as it would be typed, so that none is too long to be read
            given = [f"{min(given)}..{max(given)}/{abs(given.step)}"]
        texts = [self._text(one) for one in given]
        if self.field.name == PAIRED and len(texts) == 2:
            return [":".join(texts)]
        if not takes_list(self.field):
            raise WrongArgument(f"{self.name} takes one value, not {given!r}", "give one at a time")
        return texts or [""]

    def _text(self, given: Any) -> str:
        """A text; torch's dtypes and devices, paths and numbers as they are typed."""
        if isinstance(given, str | os.PathLike):
            return os.fspath(given)
        kind = type(given)
        if kind.__module__ == "torch" and kind.__name__ in ("dtype", "device"):
            return str(given).removeprefix("torch.")
        try:
            return str(operator.index(given)) if hasattr(given, "__index__") else f"{float(given)!r}"
        except (TypeError, ValueError):
            saved = f"save it first: {self.name}=report.save('{self.name}.json')"
            hint = saved if hasattr(given, "save") else NAMED
            raise WrongArgument(f"{self.name} can't be {shown(given)}", hint) from None


def arguments_of(kind: type, hidden: tuple[str, ...] = ()) -> dict[str, Argument]:
    """The arguments that fill a bundle, by name: those that may be given by place, then the others."""
    found = [Argument(one) for one in fields(kind) if "flag" in one.metadata and one.name not in hidden]
    return {one.name: one for one in sorted(found, key=lambda one: not flag_of(one.field).place)}


FOLLOWING = {name: arguments_of(Output)[name] for name in ("quiet", "wait")}  # of calls that measure, not of a request


def unknown_argument(name: str, known: Sequence[str]) -> WrongArgument:
    """What to say of an argument that a call does not have."""
    near = [ELSEWHERE[name]] if ELSEWHERE.get(name) in known else get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else NAMED
    return WrongArgument(f"unexpected argument {name!r}", hint)


def as_python(text: str, known: Mapping[str, Argument]) -> str:
    """A message that names flags, with the arguments of a call in their places; what stands in backticks stays."""

    def one(found: re.Match[str]) -> str:
        name, value = found[2].replace("-", "_"), found[3] or found[4]
        if name not in known and name not in FOLLOWING:
            return found[0]
        if value is not None:
            is_number = value.replace(".", "", 1).isdigit()
            return f"{name}={value if is_number else repr(value)}"
        return f"{name}=False" if found[1] else name

    parts = text.split("`")
    return "`".join(part if place % 2 else FLAG.sub(one, part) for place, part in enumerate(parts))


def choice_name(argument: str) -> str:
    """What the stub calls the type of one of CHOICES: `MatmulPrecision`."""
    return argument.title().replace("_", "")


def shown(given: Any) -> str:
    """A value in a message: as it is written where that is short, else what it is."""
    text = repr(given)
    return text if len(text) <= 60 and "\n" not in text else f"a {type(given).__name__.removeprefix('Shown')}"
