"""How a value becomes what a plan holds, whether it was typed or passed from Python:
`--d-model 64`, `d_model="64"` and `d_model=64` are the same. Pure.

A reader of a text takes the name that errors show (`--d-model`, `@d_ff`) and the text.
`one` and `many` make of it the reader of a flag, which takes the name of the flag
(`d_model`) and its value.
"""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from fractions import Fraction
from itertools import product
from math import prod
from typing import Any, TypeVar

from ffnbench.common.choices import MODE_ALIASES, Mode
from ffnbench.common.errors import FfnbenchError, WrongArgument
from ffnbench.common.names import choose, hint_for, normalise
from ffnbench.common.units import (
    COUNT_SUFFIXES,
    read_count,
    read_number,
    read_percent,
    read_seconds,
    require_positive,
)

T = TypeVar("T")
E = TypeVar("E", bound=Enum)
ReadText = Callable[[str, str], T]
ReadFlag = Callable[[str, Any], T]

MOST_CELLS = 100_000  # of a sweep, and so the most values of a list
ONE_HINT = "`ffnbench compare` and `ffnbench cost` take lists"
EMPTY_HINT = "give a value, or leave it out; perhaps a variable of the shell is not set"
DEVICES = ("auto", "cpu", "cuda")  # as torch calls them; ROCm's are cuda
MODES: Mapping[str, Mode] = {**{str(mode): mode for mode in Mode}, **MODE_ALIASES}
EXAMPLES = {  # of lists
    "d_model": "512,1024..4096",
    "dtype": "float32,bfloat16",
    "mode": "forward,train",
    "threads": "1,2..8",
    "batch": "1,8..64",
    "seq_len": "1,128..1024",
    "elements": "4096,64Ki..1Mi",
    "d_ff": "2688..2752/8",
    "device": "cpu,cuda",
    "backend": "eager,packed",
    "weights": "none,int8,int4",
}
_NUMBERED = re.compile(r"cuda:[0-9]{1,4}")


def spelling(name: str) -> str:
    """The flag of an argument: `d_ff` is `--d-ff`."""
    return "--" + name.rstrip("_").replace("_", "-")


# Readers of one text


def _with_name(read: Callable[[str], T]) -> ReadText[T]:
    def read_named(name: str, text: str) -> T:
        try:
            return read(text)
        except FfnbenchError as problem:
            raise FfnbenchError(f"{name}: {problem.message}", problem.hint) from None

    return read_named


count = _with_name(read_count)
number = _with_name(read_number)
seconds = _with_name(read_seconds)
percent = _with_name(read_percent)


def positive(name: str, text: str) -> int:
    """A positive whole number; raises FfnbenchError for any other text."""
    if re.fullmatch("0[0-9]+", text):
        raise FfnbenchError(
            f"{name}: {text!r} is not a whole number",
            "write 4096: a comma separates the values of a list",
        )
    return require_positive(name, count(name, text))


def member(kind: type[E], what: str) -> ReadText[E]:
    """The reader of a member of an enum, which errors call `what`."""
    return lambda name, text: choose(kind, what, text)


def plain(name: str, text: str) -> str:
    """The text as it is."""
    return text


def dtype(name: str, text: str) -> str:
    """The name of a dtype, as torch has it; raises FfnbenchError for what is none."""
    from ffnbench.ffn.spec import DTYPES

    return DTYPES.canonical(text)


def mode_of(name: str, text: str) -> Mode:
    """A mode by its name or by an alias; raises FfnbenchError for what is none."""
    word = normalise(text)
    if word not in MODES:
        every = "modes: forward (inference), train (training), backward"
        raise FfnbenchError(f"unknown mode {text!r}", hint_for(word, MODES, every))
    return MODES[word]


def device_of(name: str, text: str) -> str:
    """The name of a device as torch has it; raises FfnbenchError for what is none."""
    device = re.sub("^gpu\\b", "cuda", text.lower())
    kind, colon, _ = device.partition(":")
    if kind not in DEVICES or (colon and not _NUMBERED.fullmatch(device)):
        every = "devices: auto, cpu, cuda (NVIDIA's and AMD's GPUs), cuda:0"
        raise FfnbenchError(
            f"unknown device {device!r}", hint_for(kind, DEVICES, every)
        )
    return device


# Readers of flags


def text_of(name: str, value: Any) -> str:
    """One value as it would be typed: a text, a path, a number, or a dtype or device of
    torch. Raises WrongArgument for any other, and FfnbenchError for an empty text.
    """
    if isinstance(value, bool):
        shown = str(value).lower()
        raise WrongArgument(f"{spelling(name)} can't be {shown!r}", "give it a value")
    text = _typed_as(value)
    if text is None:
        shown = repr(value)
        if len(shown) > 60 or "\n" in shown:
            shown = f"a {type(value).__name__.removeprefix('Shown')}"
        hint = "help() of the function shows its arguments"
        if hasattr(value, "save"):
            hint = f"save it first: {name}=report.save('{name}.json')"
        raise WrongArgument(f"{spelling(name)} can't be {shown}", hint)
    if not text.strip() or "\0" in text:
        raise FfnbenchError(f"{spelling(name)} has an empty value", EMPTY_HINT)
    return text


def _typed_as(value: Any) -> str | None:
    """The text of a value that can be typed, else None."""
    if isinstance(value, str):
        return value
    kind = type(value)
    if kind.__module__ == "torch" and kind.__name__ in ("dtype", "device"):
        return str(value).removeprefix("torch.")
    if isinstance(value, bytes | bytearray | memoryview | type):
        return None
    try:
        if isinstance(value, os.PathLike):
            return f"{os.fspath(value)}"
        if hasattr(value, "__index__"):
            return str(operator.index(value))
        return repr(float(value))
    except (TypeError, ValueError):
        return None


def texts_of(name: str, value: Any) -> list[str]:
    """The value, or each of several values, as it would be typed."""
    is_one = isinstance(value, str | os.PathLike | bytes | bytearray | Mapping)
    if is_one or not hasattr(value, "__iter__"):
        return [text_of(name, value)]
    return [text_of(name, item) for item in value]


def one(read: ReadText[T]) -> ReadFlag[T]:
    """The reader of a flag that takes one value."""

    def read_flag(name: str, value: Any) -> T:
        texts = texts_of(name, value)
        if len(texts) != 1 or ("," in texts[0] and read is not plain):
            hint = ONE_HINT if name in EXAMPLES else "give one"
            raise FfnbenchError(
                f"{spelling(name)} takes one value here, not {','.join(texts)!r}", hint
            )
        return read(spelling(name), texts[0])

    return read_flag


def many(read: ReadText[T], example: str = "") -> ReadFlag[tuple[T, ...]]:
    """The reader of a flag that takes one value, or a list: each value once. A text is
    cut at its commas, and its ranges are written out.
    """

    def read_flag(name: str, value: Any) -> tuple[T, ...]:
        text = joined(texts_of(name, value))
        flag = spelling(name)
        parts = written_out(f"{flag} ", text, example or EXAMPLES[name])
        try:
            return tuple(dict.fromkeys(read(flag, part) for part in parts))
        except FfnbenchError as problem:
            if len(parts) > 1:
                problem.message += f", in {text!r}"
            raise

    return read_flag


def switch(name: str, value: Any) -> bool:
    """The reader of a flag that is on or off."""
    if not isinstance(value, bool):
        raise FfnbenchError(
            f"{spelling(name)} can't be {value!r}", "it is true or false"
        )
    return value


def texts(name: str, value: Any) -> tuple[str, ...]:
    """The reader of a flag that is repeated."""
    return tuple(texts_of(name, value))


def pairs(separator: str) -> ReadFlag[tuple[str, ...]]:
    """The reader of a repeated flag of pairs, for which Python may give a mapping."""

    def read_flag(name: str, value: Any) -> tuple[str, ...]:
        if isinstance(value, Mapping):
            value = [f"{key}{separator}{item}" for key, item in value.items()]
        return texts(name, value)

    return read_flag


# Lists and ranges


def joined(texts: Iterable[str]) -> str:
    """One list of several words, which may have commas at their ends: `relu, gelu
    ,silu`. The empty name of `relu,,gelu` stays.
    """
    return re.sub(",*\n[\n,]*", ",", "\n".join(texts))


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


_SIZES = COUNT_SUFFIXES | {"": 1, None: 1}
_END = rf"\s*(\d{{1,15}}(?:\.\d{{1,15}})?)({'|'.join(COUNT_SUFFIXES)})?\s*"
_RANGE = re.compile(rf"{_END}\.\.{_END}(?:/{_END})?", re.ASCII)


def is_range(text: str) -> bool:
    """Whether a text is meant as a range: a path such as `../old` is not."""
    return ".." in text and "../" not in text and "/.." not in text


def has_list(text: str) -> bool:
    """Whether a text is that of several values."""
    return "," in text or is_range(text)


def written_out(lead: str, text: str, example: str) -> list[str]:
    """The values of a list that may have ranges, as they would be typed one by one.
    Raises FfnbenchError for an empty value, for a range that is none, and for too many
    values. `lead` and `example` are as for `cut`.
    """
    values: list[str] = []
    for part in cut(lead, text, example):
        if is_range(part):
            values += _values_of_range(lead, part, example)
        else:
            values.append(part)
    if len(values) > MOST_CELLS:
        raise too_many(len(values), f"{lead}{text}")
    return values


def _values_of_range(lead: str, text: str, example: str) -> list[str]:
    """The values of `first..last/step`, or without a step those of `first..last`, which
    are first, doubled again and again, and at the end last.
    """
    match = _RANGE.fullmatch(text)
    first, last, step = Fraction(0), Fraction(0), Fraction(0)
    if match is not None:
        first = Fraction(match[1]) * _SIZES[match[2]]
        last = Fraction(match[3]) * _SIZES[match[4]]
        step = Fraction(match[5] or 0) * _SIZES[match[6]]
    doubles = match is not None and match[5] is None
    never_ends = doubles and first == 0
    if match is None or first > last or never_ends or 0 < last - first < step:
        raise FfnbenchError(
            f"{lead}{text} is no range",
            f"FIRST..LAST doubles FIRST until LAST, FIRST..LAST/STEP adds STEP: {lead}{example}",
        )
    if doubles:
        values = [first]
        while 2 * values[-1] < last:
            values.append(2 * values[-1])
        if first < last:
            values.append(last)
    else:
        if not step:
            raise FfnbenchError(
                f"{lead}{text} never ends: its step is 0",
                f"for example {lead}{example}",
            )
        count = (last - first) // step + 1
        if count > MOST_CELLS:
            raise too_many(count, f"{lead}{text}")
        values = [first + i * step for i in range(count)]
    return [
        str(value) if value.denominator == 1 else repr(float(value)) for value in values
    ]


def too_many(count: int, of: str) -> FfnbenchError:
    """The error to raise where `of` would make more cells than a sweep may have."""
    hint = (
        "a longer step or fewer values; without a step a range doubles: 1..4096 has 13"
    )
    return FfnbenchError(
        f"{of} makes {count:,} groups, and a sweep has at most {MOST_CELLS:,}", hint
    )


def combinations(axes: Mapping[str, tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
    """Each combination of the values of these axes, the last axis changing first.
    Raises FfnbenchError for more than a sweep may have, before the first is made.
    """
    count = prod(len(values) for values in axes.values())
    if count > MOST_CELLS:
        sizes = [
            f"{len(axes[name]):,} of {name}" for name in axes if len(axes[name]) > 1
        ]
        raise too_many(count, " x ".join(sizes))
    for values in product(*axes.values()):
        yield dict(zip(axes, values, strict=True))
