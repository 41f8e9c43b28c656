"""Writes frozen dataclasses as plain JSON values, and reads them by their type hints.
Nowhere else does a dict stand for a type.

Nested dataclasses, tuples, optionals, enums and scalars are supported, and unions,
whose members are tried in order (their fields tell them apart). What is unknown is
null.
"""

from __future__ import annotations

import json
import math
import re
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from ffnbench.common.streams import UNSEEN

T = TypeVar("T")
# metadata of a field that came later: left out at its default, as files had it before
LATER = {"later": True}
# metadata of a field that every file has, whatever its default
STATED = {"stated": True}
UNSAVED = {"unsaved": True}  # metadata of a field that stands in no file
# metadata of a dict whose entries stand in files beside the other fields
OTHER_FIELDS = {"others": True}
_hints = cache(get_type_hints)

EXACT_TYPES = {str, int, bool, type(None)}
PLAIN_TYPES = {*EXACT_TYPES, float}


@cache
def saved_fields(kind: Any) -> tuple[Field[Any], ...]:
    """The fields of a dataclass that stand in files under their own names."""
    return tuple(
        each
        for each in fields(kind)
        if not each.metadata.keys() & {"unsaved", "others"}
    )


@cache
def _others_of(kind: Any) -> str:
    """The name of the field whose entries stand in files beside the other fields; ""
    for none.
    """
    for each in fields(kind):
        if "others" in each.metadata:
            return each.name
    return ""


@cache
def _left_out_at(kind: Any) -> list[tuple[str, Any]] | None:
    """The names of the saved fields of a dataclass, each with the value at which a file
    leaves it out, or MISSING where it never does; None for other types.
    """
    of_fields: bool = is_dataclass(kind)
    if not of_fields:
        return None
    return [
        (each.name, each.default if "later" in each.metadata else MISSING)
        for each in saved_fields(kind)
    ]


def encode(value: Any) -> Any:
    """A copy of the value that JSON can hold; it may be made of dataclasses, enums,
    tuples, lists, dicts and scalars.
    """
    kind: Any = type(value)
    if kind in PLAIN_TYPES:
        return value
    saved = _left_out_at(kind)
    if saved is not None:
        data = {}
        for name, left_out_at in saved:
            item = getattr(value, name)
            if left_out_at is MISSING or item != left_out_at:
                data[name] = item if type(item) in PLAIN_TYPES else encode(item)
        others = _others_of(kind)
        if others:
            data |= getattr(value, others)
        return data
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return {key: encode(item) for key, item in value.items()}
    return value


def json_text(value: Any, indent: int | None = None) -> str:
    """The value as a text of strict JSON: NaN and infinity are null, and characters
    that a terminal would obey are escaped.
    """
    try:
        text = json.dumps(value, indent=indent, allow_nan=False, ensure_ascii=False)
    except ValueError:  # seldom: only then is the time spent to look for NaN
        text = json.dumps(
            _finite(value), indent=indent, allow_nan=False, ensure_ascii=False
        )
    return UNSEEN.sub(_escaped, text)


def _escaped(sign: re.Match[str]) -> str:
    if sign[0] == "\n":
        return "\n"
    return f"\\u{ord(sign[0]):04x}"


def _finite(value: Any) -> Any:
    if type(value) in EXACT_TYPES:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


LARGEST_INTEGER = 1 << 63  # nothing that ffnbench counts has a larger number


def parse(text: str | bytes, *, ours: bool = True) -> Any:
    """Read JSON from elsewhere. A byte order mark is skipped.

    Raises ValueError for two values of one key and for too deep nesting; in files of
    `ours` also for NaN, infinity and numbers that are too large. Configs of models do
    have Infinity.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8")
    numbers: Any = {}
    if ours:
        numbers = {
            "parse_constant": no_number,
            "parse_int": _read_integer,
            "parse_float": _read_float,
        }
    try:
        return json.loads(
            text.removeprefix("\ufeff"), object_pairs_hook=_with_unique_keys, **numbers
        )
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _with_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for key, value in pairs:
        if key in data:
            raise ValueError(f"{key!r} is given twice")
        data[key] = value
    return data


def no_number(name: str) -> Any:
    """Refuse NaN and Infinity, which Python would read; raises ValueError."""
    raise ValueError(f"{name} is no number in JSON")


def _read_integer(text: str) -> int:
    if len(text) > 20 or not -LARGEST_INTEGER <= int(text) < LARGEST_INTEGER:
        raise ValueError(f"{text[:20]} is too large a number")
    return int(text)


def _read_float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is too large a number")
    return number


def decode(kind: type[T], data: Any, where: str = "") -> T:
    """Make a dataclass of what `encode` gave; raises ValueError, which names the field
    that does not fit. `where` is the place of `data`, by itself the name of the kind.
    """
    decoded: T = _decode(kind, data, where or kind.__name__)
    return decoded


def _decode(kind: Any, data: Any, where: str) -> Any:
    if is_dataclass(kind):
        return _decode_dataclass(kind, data, where)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _decode_union(arguments, data, where)
    if origin is tuple and isinstance(data, list | tuple):
        if arguments[1:] == (Ellipsis,):
            return tuple(
                _decode(arguments[0], item, f"{where}[{i}]")
                for i, item in enumerate(data)
            )
        return tuple(
            _decode(of, item, where) for of, item in zip(arguments, data, strict=True)
        )
    if origin is dict and isinstance(data, dict):
        return {
            key: _decode(arguments[1], item, f"{where}[{key!r}]")
            for key, item in data.items()
        }
    if isinstance(kind, type) and issubclass(kind, Enum):
        values = [member.value for member in kind]
        if data not in values:
            raise ValueError(
                f"{where}: expected one of {', '.join(map(str, values))}, found {data!r}"
            )
        return kind(data)
    is_bool = isinstance(data, bool)  # an int to Python, but none in a file
    if kind is float and isinstance(data, int) and not is_bool:
        return float(data)
    if kind is Any:
        return data
    is_of_kind = isinstance(kind, type) and isinstance(data, kind)
    if is_of_kind and not (kind is int and is_bool):
        return data
    raise ValueError(
        f"{where}: expected {getattr(kind, '__name__', kind)}, found {data!r}"
    )


def _decode_dataclass(kind: Any, data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise ValueError(f"{where}: expected an object, found {data!r}")
    hints = _hints(kind)
    saved, others = saved_fields(kind), _others_of(kind)
    names = {each.name for each in saved}
    unnamed = {name: item for name, item in data.items() if name not in names}
    if unnamed and not others:
        raise ValueError(f"{where}: unknown field {min(unnamed)!r}")
    values = {}
    for each in saved:
        place = f"{where}.{each.name}"
        if each.name in data:
            _check_metadata(each.metadata, data[each.name], place)
            values[each.name] = _decode(hints[each.name], data[each.name], place)
        elif _is_required(each):
            raise ValueError(f"{where}: {each.name!r} is missing")
    if others:
        values[others] = _decode(hints[others], unnamed, where)
    return kind(**values)


def _is_required(each: Field[Any]) -> bool:
    """Whether a field must be given."""
    return "stated" in each.metadata or (
        each.default is MISSING and each.default_factory is MISSING
    )


def one_of_names(names: Callable[[], Iterable[str]]) -> dict[str, Any]:
    """Metadata of a text that is one of these names. They are asked for only when a
    file is read.
    """
    return {"among": names}


def least(bound: float) -> dict[str, Any]:
    """Metadata of a number that is not less than this."""
    return {"least": bound}


def _check_metadata(declared: Mapping[str, Any], value: Any, where: str) -> None:
    """Raise ValueError for a value that breaks what its field's metadata declare."""
    if "among" in declared and value is not None:
        names = list(declared["among"]())
        if value not in names:
            raise ValueError(
                f"{where}: expected one of {', '.join(names)}, found {value!r}"
            )
    bound = declared.get("least")
    if bound is not None and isinstance(value, int | float) and not value >= bound:
        raise ValueError(f"{where}: expected at least {bound:g}, found {value!r}")


def _decode_union(choices: tuple[Any, ...], data: Any, where: str) -> Any:
    if data is None and type(None) in choices:
        return None
    possible = [choice for choice in choices if choice is not type(None)]
    is_object = isinstance(data, dict)
    if is_object:
        possible = [choice for choice in possible if is_dataclass(choice)] or possible
    problems = []
    for choice in possible:
        try:
            return _decode(choice, data, where)
        except ValueError as problem:
            problems.append(str(problem))
    if len(problems) == 1 or is_object:
        raise ValueError(problems[0])
    names = [getattr(choice, "__name__", str(choice)) for choice in possible]
    raise ValueError(f"{where}: expected {' or '.join(names)}, found {data!r}")
