"""Writes frozen dataclasses as plain JSON values, and reads them by their type hints.
Nowhere else does a dict stand for a type.

Nested dataclasses, tuples, dicts, optionals, enums and scalars are supported, and
unions, whose members are tried in order (their fields tell them apart). A field that is
empty by default (None, 0, "", ()) is left out while it is empty. So is one that
equality ignores: it is computed. A field that is not in a file has its default.
"""

from __future__ import annotations

import json
import math
import re
import types
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache, partial
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from ffnbench.common.streams import UNSEEN

T = TypeVar("T")
# marks a dict field whose entries stand in a file as fields of the object itself
OTHER_FIELDS = {"others": True}
SCALARS = {str, int, float, bool, types.NoneType}
LARGEST_NUMBER = 2.0**63  # nothing that ffnbench counts or measures is larger
hints_of = cache(get_type_hints)


@cache
def saved_fields(kind: type[Any]) -> dict[str, Field[Any]]:
    """The fields of a dataclass that stand in files, by name."""
    return {each.name: each for each in fields(kind) if each.compare}


def encode(value: Any) -> Any:
    """A copy of the value that JSON can hold; it may be made of dataclasses, enums,
    tuples, lists, dicts and scalars.
    """
    if type(value) in SCALARS:
        return value
    if is_dataclass(value):
        data: dict[str, Any] = {}
        for name, each in saved_fields(value.__class__).items():
            item = getattr(value, name)
            encoded = item if type(item) in SCALARS else encode(item)
            if each.metadata == OTHER_FIELDS:
                data |= encoded
            elif encoded or item != each.default:
                data[name] = encoded
        return data
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return {key: encode(item) for key, item in value.items()}
    return value


def decode(kind: type[T], data: Any, where: str = "") -> T:
    """Make a dataclass of what `encode` gave; raises ValueError, which names the field
    that does not fit. `where` is the place of `data`, by itself the name of the kind.
    """
    decoded: T = _decode(kind, data, where or kind.__name__)
    return decoded


def _decode(kind: Any, data: Any, where: str) -> Any:
    if kind is Any or (kind in SCALARS and type(data) is kind):
        return data
    if kind is float and type(data) is int:
        return float(data)
    if is_dataclass(kind):
        return _decode_dataclass(kind, data, where)
    origin, of = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _decode_union(of, data, where)
    if origin is tuple and isinstance(data, list | tuple):
        if of[1:] == (Ellipsis,):
            of = of[:1] * len(data)
        if len(of) != len(data):
            raise ValueError(f"{where}: expected {len(of)} items, found {len(data)}")
        return tuple(
            _decode(kind, item, f"{where}[{index}]")
            for index, (kind, item) in enumerate(zip(of, data, strict=True))
        )
    if origin is dict and isinstance(data, dict):
        return {
            key: _decode(of[1], item, f"{where}[{key!r}]") for key, item in data.items()
        }
    expected = getattr(kind, "__name__", str(kind))
    if isinstance(kind, type) and issubclass(kind, Enum):
        values = [member.value for member in kind]
        if data in values:
            return kind(data)
        expected = f"one of {', '.join(map(str, values))}"
    raise ValueError(f"{where}: expected {expected}, found {data!r}")


def _decode_dataclass(kind: Any, data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise ValueError(f"{where}: expected an object, found {data!r}")
    hints, saved = hints_of(kind), saved_fields(kind)
    unnamed = {name: item for name, item in data.items() if name not in saved}
    others = [name for name in saved if saved[name].metadata == OTHER_FIELDS]
    if unnamed and not others:
        raise ValueError(f"{where}: unknown field {min(unnamed)!r}")
    values = {}
    for name, each in saved.items():
        if name in others:
            values[name] = _decode(hints[name], unnamed, where)
        elif name in data:
            values[name] = _decode(hints[name], data[name], f"{where}.{name}")
        elif each.default is MISSING and each.default_factory is MISSING:
            raise ValueError(f"{where}: {name!r} is missing")
    return kind(**values)


def _decode_union(choices: tuple[Any, ...], data: Any, where: str) -> Any:
    problems = []
    for choice in choices:
        try:
            return _decode(choice, data, where)
        except ValueError as problem:
            problems.append(problem)
    raise problems[0]


def json_text(value: Any, indent: int | None = None) -> str:
    """The value as a text of strict JSON: NaN and infinity are null, and characters
    that a terminal would obey are escaped.
    """
    write = partial(json.dumps, indent=indent, allow_nan=False, ensure_ascii=False)
    try:
        text = write(value)
    except ValueError:  # seldom: only then is the time spent to look for NaN
        text = write(_finite(value))
    return UNSEEN.sub(_escaped, text)


def _escaped(sign: re.Match[str]) -> str:
    return "\n" if sign[0] == "\n" else f"\\u{ord(sign[0]):04x}"


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


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
            "parse_int": partial(_read_number, int),
            "parse_float": partial(_read_number, float),
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


def _read_number(kind: type[int | float], text: str) -> int | float:
    if abs(float(text)) >= LARGEST_NUMBER:
        raise ValueError(f"{text[:20]} is too large a number")
    return kind(text)
