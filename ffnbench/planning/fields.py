"""How a text becomes the value of a field of a request: the same for a flag, an
argument of Python and a line of a pyproject.toml. The field's type says how. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from fractions import Fraction
from functools import cache, partial
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from ffnbench.choices import MODE_ALIASES, Mode
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.names import choose, hint_for, normalise
from ffnbench.common.units import (
    COUNT_SUFFIXES,
    read_count,
    read_number,
    read_percent,
    read_seconds,
)
from ffnbench.request import EXAMPLES, TAKE_LISTS, Percent, Seconds, Texts, spelling

NUMBER_READERS: Mapping[Any, Callable[[str], Any]] = {
    int: read_count,
    float: read_number,
    Seconds: read_seconds,
    Percent: read_percent,
}
MODES: Mapping[str, Mode] = {**{str(mode): mode for mode in Mode}, **MODE_ALIASES}
T = TypeVar("T")
MOST_CELLS = 100_000  # of a sweep, and so the most values of a list

_hints = cache(get_type_hints)


def types_of(request: Any, name: str) -> tuple[Any, ...]:
    """The types that the value of a field may have, None left out: `(int, str,
    tuple[int, ...])`.
    """
    hint = _hints(request, include_extras=True)[name]
    if hint in NUMBER_READERS or hint == Texts or get_origin(hint) is tuple:
        return (hint,)
    return tuple(member for member in get_args(hint) if member is not NoneType) or (
        hint,
    )


def takes_several(types: Sequence[Any]) -> bool:
    """Whether a field of these types may have several values."""
    return Texts in types or any(get_origin(member) is tuple for member in types)


def read(request: type[Any], name: str, typed: bool | Sequence[str]) -> Any:
    """The value of a field of a request, from the texts that were typed for it, or for
    a flag without a value from whether it is on. Raises FfnbenchError for a value that
    the field can't have.
    """
    types = types_of(request, name)
    kind = types[0]  # the type of one value
    flag = spelling(name)
    if isinstance(typed, bool):
        if kind is not bool:
            raise FfnbenchError(
                f"{flag} can't be {str(typed).lower()!r}", "give it a value"
            )
        return typed
    if kind is bool:
        raise FfnbenchError(
            f"{flag} can't be {','.join(typed)!r}", "it is true or false"
        )
    is_positional = name in getattr(request, "POSITIONAL", ())
    refuse_empty(name.upper() if is_positional else flag, typed)
    if get_origin(kind) is tuple:
        return tuple(typed)
    # one list of all words, which may have commas at their ends: `relu, gelu ,silu` are
    # three words of a shell; the empty name of `relu,,gelu` stays, and is refused
    text = re.sub(",*\n[\n,]*", ",", "\n".join(typed))
    if takes_several(types):
        if kind in NUMBER_READERS:
            return _numbers(name, text, NUMBER_READERS[kind])
        return text
    if "," in text and (kind is not str or name in EXAMPLES):
        hint = TAKE_LISTS if name in EXAMPLES else "give one"
        raise FfnbenchError(f"{flag} takes one value here, not {text!r}", hint)
    if kind not in NUMBER_READERS:
        return reader_of(kind, name)(text)
    try:
        return NUMBER_READERS[kind](text)
    except FfnbenchError as problem:
        raise FfnbenchError(f"{flag}: {problem.message}", problem.hint) from None


def reader_of(kind: type, name: str) -> Callable[[object], Any]:
    """The function that makes a value of a word: a member of an enum, or the word
    itself.
    """
    if kind is Mode:
        return mode_of
    if issubclass(kind, Enum):
        return partial(choose, kind, name)
    return str


def mode_of(asked: object) -> Mode:
    """A mode by its name or by an alias; raises FfnbenchError for what is none."""
    text = normalise(str(asked))
    if text not in MODES:
        every = "modes: forward (inference), train (training), backward"
        raise FfnbenchError(f"unknown mode {asked!r}", hint_for(text, MODES, every))
    return MODES[text]


def refuse_empty(name: str, texts: Sequence[str]) -> None:
    """Raise FfnbenchError for an empty text, which a shell makes of a variable that is
    not set. `name` is the flag or the positional argument.
    """
    if not all(text.strip() for text in texts):
        raise FfnbenchError(
            f"{name} has an empty value",
            "give a value, or leave it out; perhaps a variable of the shell is not set",
        )


def _numbers(
    name: str, text: str, read: Callable[[str], float]
) -> float | str | tuple[float, ...]:
    """The number in a text, or the numbers where it is a list; the text itself where it
    has a range.
    """

    def read_one(part: str) -> float:
        try:
            if re.fullmatch("0[0-9]+", part):
                raise FfnbenchError(
                    f"{part!r} is not a whole number",
                    "write 4096: a comma separates the values of a list",
                )
            return read(part)
        except FfnbenchError as problem:
            message = f"{spelling(name)}: {problem.message}"
            if part != text:
                message += f", in {text!r}"
            raise FfnbenchError(
                message,
                f"{problem.hint}; for example {spelling(name)} {EXAMPLES[name]}",
            ) from None

    numbers = several(name, text, read_one)
    if is_range(text):
        return text
    if len(numbers) == 1:
        return numbers[0]
    return numbers


_SIZES = COUNT_SUFFIXES | {"": 1}
_END = rf"\s*(\d{{1,15}}(?:\.\d{{1,15}})?)({'|'.join(COUNT_SUFFIXES)})?\s*"
_RANGE = re.compile(rf"(?:{_END})?\.\.(?:{_END})?(?:/{_END})?", re.ASCII)


def is_range(text: str) -> bool:
    """Whether a text is meant as a range: a path such as `../old` is not."""
    return ".." in text and "../" not in text and "/.." not in text


def cut(lead: str, text: str, example: str) -> list[str]:
    """The parts of a list. Raises FfnbenchError where one is empty; it shows the text
    and in its hint the example, each behind `lead`, which is the flag or key with what
    divides it from its value.
    """
    parts = [part.strip() for part in text.split(",")]
    if "" in parts:
        raise FfnbenchError(
            f"{lead}{text!r} has an empty value", f"for example {lead}{example}"
        )
    return parts


def written_out(lead: str, text: str, example: str) -> list[str]:
    """The values of a list that may have ranges, as they would be typed one by one.
    Raises FfnbenchError for an empty value and for a range that is none, or that has
    too many values. `lead` and `example` are as for `cut`.
    """
    values = []
    for part in cut(lead, text, example):
        if is_range(part):
            values += _values_of_range(lead, part, example)
        else:
            values.append(part)
    return values


def too_many(count: int, of: str) -> FfnbenchError:
    """The error to raise where `of` would make more cells than a sweep may have."""
    hint = (
        "a longer step or fewer values; without a step a range doubles: 1..4096 has 13"
    )
    return FfnbenchError(
        f"{of} makes {count:,} groups, and a sweep has at most {MOST_CELLS:,}", hint
    )


def _values_of_range(lead: str, text: str, example: str) -> list[str]:
    """The values of `first..last/step`, or without a step those of `first..last`, which
    are first, doubled again and again, and at the end last.
    """

    def wrong(why: str) -> FfnbenchError:
        return FfnbenchError(f"{lead}{text} {why}", f"for example {lead}{example}")

    match = _RANGE.fullmatch(text)
    if match is None:
        raise wrong("is no range of numbers")
    first = _size(match[1], match[2])
    last = _size(match[3], match[4])
    step = _size(match[5], match[6])
    if first is None:
        raise wrong("has no first value")
    if last is None:
        raise wrong("never ends: it has no last value")
    if first > last:
        raise wrong("goes down")
    if step is None:
        if first == 0 < last:
            raise wrong("never ends: 0 doubled is 0")
        values = [first]
        while 2 * values[-1] < last:
            values.append(2 * values[-1])
        if first < last:
            values.append(last)
    else:
        if step == 0:
            raise wrong("never ends: its step is 0")
        if first < last < first + step:
            raise wrong("has a step that is longer than the range")
        count = (last - first) // step + 1
        if count > MOST_CELLS:
            raise too_many(count, f"{lead}{text}")
        values = [first + i * step for i in range(count)]
    return [
        str(value) if value.denominator == 1 else repr(float(value)) for value in values
    ]


def _size(number: str | None, unit: str | None) -> Fraction | None:
    """An end of a range, or its step, from its number and its suffix; None where it is
    left out.
    """
    if number is None:
        return None
    return Fraction(number) * _SIZES[unit or ""]


def several(name: str, value: Any, read: Callable[[Any], T]) -> tuple[T, ...]:
    """The values of a field that may have a list: `read` of each, without repetitions.
    A text is cut at its commas, and its ranges are written out. Raises FfnbenchError
    where a value is empty.
    """
    if isinstance(value, str) or value in ((), []):
        value = written_out(f"{spelling(name)} ", value or "", EXAMPLES[name])
    values = value if isinstance(value, tuple | list) else (value,)
    if len(values) > MOST_CELLS:
        raise too_many(len(values), spelling(name))
    return tuple(dict.fromkeys(map(read, values)))


def has_list(value: Any) -> bool:
    """Whether the value of a field is a list, or the text of one or of a range."""
    if isinstance(value, str):
        return "," in value or is_range(value)
    return isinstance(value, tuple | list)
