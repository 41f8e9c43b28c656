"""The arguments of a Python call, made of the same bundles as the flags: their types, their defaults, their meaning.

A field of a request is an argument of the same name. Where a flag takes a list, so does its argument.
"""

from __future__ import annotations

import inspect
import operator
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from difflib import get_close_matches
from functools import cache
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from ffnbench.errors import FfnbenchError, WrongArgument
from ffnbench.ffn.dtypes import DTYPES
from ffnbench.ffn.imported import D_FF_NAMES, D_MODEL_NAMES
from ffnbench.ffn.moe import Routing
from ffnbench.ffn.spec import Init
from ffnbench.ffn.width_rules import Match
from ffnbench.plan import MODE_ALIASES, Backend, Cache, MatmulPrecision, Mode, Time, values_of
from ffnbench.planning.variant_text import ALL
from ffnbench.python.targets import variant_text, variants_text
from ffnbench.request import Flag, Request
from ffnbench.units import read_count, read_percent, read_seconds

R = TypeVar("R", bound=Request)
PATHS = ("preset", "config", "baseline", "current", "saved")  # whose value may be a path
PYTHONS = ("base_python", "head_python", "base_source", "head_source")
SWITCHES = ("quiet", "wait")  # of every call that measures, and of no request
FILES = PATHS + PYTHONS
NAMED = "help() of the function shows its arguments"
PAIRED = "range_"  # whose two numbers may be given as a pair
OBJECTS = {"variants": "Variants", "variant": "Variant", "activations": "Activations"}
ELSEWHERE = {  # what other libraries call an argument
    **dict.fromkeys(D_MODEL_NAMES, "d_model"),
    **dict.fromkeys(D_FF_NAMES, "d_ff"),
    **dict.fromkeys(("sequence_length", "max_seq_len", "seqlen", "n_tokens", "tokens"), "seq_len"),
    **dict.fromkeys(("batch_size", "batchsize", "bs"), "batch"),
    **dict.fromkeys(("num_threads", "n_threads"), "threads"),
}
CHOICES = {  # what a type checker lets an argument be, and a shell offers, by the argument
    "match": values_of(Match), "mode": (*values_of(Mode), *MODE_ALIASES), "dtype": DTYPES.spellings(),
    "time": values_of(Time), "cache": values_of(Cache), "matmul_precision": values_of(MatmulPrecision),
    "backend": (*values_of(Backend), ALL), "init": values_of(Init), "routing": values_of(Routing),
}  # fmt: skip
# with what can only be its value: behind `=`, a number, a list
FLAG = re.compile(r"--(no-)?([a-z][a-z-]*)(?:=([^\s,;]*[^\s,;.])| (\d[\w.%]*|[\w.:]+(?:,[\w.:]+)+))?")
MEANINGS = {  # of fields that are no flags
    "baseline": "A .json that a report's `save` wrote, or `ffnbench compare ... -o baseline.json`.",
    "current": "A saved run to hold against it, in place of measuring now.",
    "variant": "One variant: a name, 'package.module:Class', 'file.py:Class', or the class itself.",
}


class TypeText(str):
    """The type of an argument, shown as it is written and without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a call: the field that it fills, the type that is shown, what it means."""

    name: str
    field: Field[Any]
    hint: Any
    kind: TypeText
    default: Any
    help: str
    takes_list: bool

    @property
    def base(self) -> type:
        """What a single value of it is."""
        return _single(self.hint)

    def value(self, given: Any) -> Any:
        """The value as a request holds it; raises WrongArgument for one of another kind."""
        if given is None and (self.default is None or type(None) in get_args(self.hint)):
            return () if isinstance(self.field.default, tuple) else None
        if self.field.name == "variants":
            return variants_text(given)
        if self.field.name in OBJECTS:
            return variants_text(given) if self.field.name == "activations" else variant_text(given)
        if isinstance(given, Mapping) and _is_tuple(self.hint) and self.base is str:
            between = ":" if ":VALUE" in _flag(self.field).metavar else "="
            return tuple(f"{key}{between}{one}" for key, one in given.items())
        if isinstance(given, str) and "," in given and self.takes_list and self.base is int:
            given = given.split(",")
        if _is_list(given):
            return self._several(list(given))
        one = self._one(given)
        return (one,) if isinstance(self.field.default, tuple) else one

    def _several(self, given: list[Any]) -> Any:
        if self.field.name == PAIRED and len(given) == 2:
            return ":".join(f"{float(one):g}" for one in given)
        if not self.takes_list:
            raise WrongArgument(f"{self.name} takes one value, not {given!r}", "give one at a time")
        if not given:
            raise WrongArgument(f"{self.name} is an empty list", "leave it out for the default")
        made = [self._one(one) for one in given]
        if not _is_tuple(self.hint):
            return ",".join(made)
        return made[0] if len(made) == 1 and not isinstance(self.field.default, tuple) else tuple(made)

    def _one(self, given: Any) -> Any:
        """A single value as a request holds it; a text may have a unit, as that of a flag may."""
        how = self.field.metadata.get("flag")
        if how and how.metavar.endswith("PCT%") and isinstance(given, int | float) and not isinstance(given, bool):
            given = f"{given:g}"  # percent or a share? the reader of the text asks
        read = UNITS.get(how.metavar if how and self.base is float else self.base.__name__)
        if read is not None and isinstance(given, str):
            try:
                return read(given)
            except FfnbenchError as problem:
                raise WrongArgument(f"{self.name}: {problem.message}", problem.hint) from None
        try:
            return READERS[self.base](given)
        except (TypeError, ValueError):
            noun = "a path" if self.field.name in FILES else NOUNS[self.base]
            hint = (
                f"save it first: {self.name}=report.save('{self.name}.json')" if hasattr(given, "save") else self._hint
            )
            raise WrongArgument(f"{self.name} must be {noun}, not {shown(given)}", hint) from None

    @property
    def _hint(self) -> str:
        """What to give in place of a value of another kind."""
        if self.base is bool:
            return "give True or False"
        how, choices = self.field.metadata.get("flag"), CHOICES.get(self.field.name)
        example = EXAMPLES.get(how.metavar if how else "", EXAMPLES.get(self.base, ""))
        return f"for example {choices[0]!r}" if choices else f"for example {example}" if example else NAMED


def arguments_of(kind: type[Request], hidden: tuple[str, ...] = ()) -> dict[str, Argument]:
    """The arguments that fill a request, by name, in the order of its fields."""
    return _arguments_of(kind, hidden)  # type: ignore[arg-type]


@cache
def _arguments_of(kind: Any, hidden: tuple[str, ...]) -> dict[str, Argument]:
    hints, found = get_type_hints(kind), {}
    for field in fields(kind):
        how = field.metadata.get("flag")
        if field.name in hidden or (how is None and field.name not in (*PATHS, *OBJECTS)):
            continue
        hint, name = hints[field.name], field.name.rstrip("_")
        default = None if isinstance(field.default, tuple) else field.default
        default = inspect.Parameter.empty if default == "" or default is MISSING else default
        listed = _is_tuple(hint) or (_single(hint) is str and how is not None and how.metavar == "LIST")
        found[name] = Argument(name, field, hint, _type(field, hint, listed), default, _help(field), listed)
    return found


def request_of(kind: type[R], given: Mapping[str, Any], hidden: tuple[str, ...] = (), also: Sequence[str] = ()) -> R:
    """The request that the arguments of a call make; raises WrongArgument for a name that none has (`also`: others)."""
    known = arguments_of(kind, hidden)
    for name in given:
        if name not in known:
            raise unknown_argument(name, [*known, *also])
    return kind(**{known[name].field.name: known[name].value(one) for name, one in given.items()})


def unknown_argument(name: str, known: Sequence[str]) -> WrongArgument:
    """What to say of an argument that a call does not have."""
    near = [ELSEWHERE[name]] if ELSEWHERE.get(name) in known else get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else NAMED
    return WrongArgument(f"unexpected argument {name!r}", hint)


def as_python(text: str, known: Mapping[str, Argument]) -> str:
    """A message that names flags, with the arguments of a call in their places; what stands in backticks stays."""

    def one(found: re.Match[str]) -> str:
        name, value = found[2].replace("-", "_"), found[3] or found[4]
        if name not in known and name not in SWITCHES:
            return found[0]
        if value is not None:
            is_number = value.replace(".", "", 1).isdigit()
            return f"{name}={value if is_number else repr(value)}"
        return f"{name}=False" if found[1] else name

    parts = text.split("`")
    return "`".join(part if place % 2 else FLAG.sub(one, part) for place, part in enumerate(parts))


def _flag(field: Field[Any]) -> Flag:
    found: Flag = field.metadata["flag"]
    return found


def _help(field: Field[Any]) -> str:
    """The flag's help, its flags spelled as arguments."""
    if "flag" not in field.metadata:
        return MEANINGS.get(field.name, "")
    text = _flag(field).help.replace("\\[", "[").replace(" Repeatable.", "")
    return re.sub(r"--([a-z][a-z-]*)", lambda found: found[1].replace("-", "_"), text)


def _members(hint: Any) -> list[Any]:
    return list(get_args(hint)) if get_origin(hint) in (Union, UnionType) else [hint]


def _is_tuple(hint: Any) -> bool:
    return any(get_origin(one) is tuple for one in _members(hint))


def _single(hint: Any) -> type:
    """int of `int | tuple[int, ...] | None`."""
    first = next(one for one in _members(hint) if one is not type(None))
    return get_args(first)[0] if get_origin(first) is tuple else first  # type: ignore[no-any-return]


def _type(field: Field[Any], hint: Any, listed: bool) -> TypeText:
    single, optional = _single(hint), type(None) in _members(hint) or isinstance(field.default, tuple)
    if field.name in OBJECTS:
        return TypeText(OBJECTS[field.name] + " | None" * optional)
    name = f"{single.__name__} | str" if single in (int, float) else single.__name__
    how = field.metadata.get("flag")
    if field.name in CHOICES:
        name = choice_name(field.name) + " | torch.dtype" * (field.name == "dtype")
    elif field.name == "device":
        name = "str | torch.device"
    elif field.name in FILES:
        name = "str | os.PathLike[str]"
    elif field.name == PAIRED:
        name = "str | tuple[float, float]"
    elif listed and single is str and field.name in ("seq_len", "elements"):
        name = "int | str"
    found = f"{name} | Sequence[{name}]" if listed else name
    if isinstance(field.default, tuple) and how and "=" in how.metavar + how.metavar.replace(":VALUE", "="):
        found += " | Mapping[str, str]"
    return TypeText(f"{found} | None" if optional else found)


def choice_name(argument: str) -> str:
    """What the stub calls the type of one of CHOICES: `MatmulPrecision`."""
    return argument.title().replace("_", "")


def _is_list(given: Any) -> bool:
    return isinstance(given, list | tuple | range | set) or (
        hasattr(given, "__iter__") and not isinstance(given, str | Mapping) and not hasattr(given, "__fspath__")
    )


def shown(given: Any) -> str:
    """A value in a message: as it is written where that is short, else what it is."""
    text = repr(given)
    return text if len(text) <= 60 and "\n" not in text else f"a {type(given).__name__.removeprefix('Shown')}"


def _whole(given: Any) -> int:
    if isinstance(given, bool):
        raise TypeError
    return operator.index(given)


def _number(given: Any) -> float:
    if isinstance(given, bool):
        raise TypeError
    return float(given)


def _truth(given: Any) -> bool:
    if given not in (True, False):
        raise TypeError
    return bool(given)


def _text(given: Any) -> str:
    """A text; torch's dtypes and devices, paths and numbers as they are typed."""
    if isinstance(given, bool) or given is None:
        raise TypeError
    if isinstance(given, str | os.PathLike):
        return os.fspath(given)
    kind = type(given)
    if kind.__module__ == "torch" and kind.__name__ in ("dtype", "device"):
        return str(given).removeprefix("torch.")
    return str(operator.index(given))


READERS: dict[type, Callable[[Any], Any]] = {int: _whole, float: _number, bool: _truth, str: _text}
UNITS: dict[str, Callable[[str], Any]] = {"int": read_count, "TIME": read_seconds, "PCT": read_percent}
NOUNS: dict[type, str] = {int: "a whole number", float: "a number", bool: "True or False", str: "a text"}
EXAMPLES: dict[Any, str] = {int: "512", float: "0.5", "PCT%": "'5%'", "[[CASE:]METRIC=]PCT%": "'latency=5%'"}
