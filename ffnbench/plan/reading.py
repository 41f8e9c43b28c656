"""How a value becomes what a plan holds, whether it was typed or passed from Python:
`--d-model 64`, `d_model="64"` and `d_model=64` are the same. Pure.

A reader of a text takes the name that errors show (`--d-model`, `@d_ff`) and the text.
`one` and `many` make of it the reader of a flag, which takes the name of the flag
(`d_model`) and its value.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from fractions import Fraction
from typing import Any, TypeVar

from ffnbench.common.choices import MODE_ALIASES, Mode
from ffnbench.common.errors import FfnbenchError, WrongArgument
from ffnbench.common.names import choose, hint_for, normalise
from ffnbench.common.units import require_positive

T = TypeVar("T")
E = TypeVar("E", bound=Enum)
ReadText = Callable[[str, str], T]
ReadFlag = Callable[[str, Any], T]

MOST_CELLS = 100_000  # of a sweep, and so the most values of a list
MOST_THREADS = 1024
EMPTY_HINT = "give a value, or leave it out; perhaps a variable of the shell is not set"
DEVICES = ("auto", "cpu", "cuda")  # as torch calls them; ROCm's are cuda
MODES: Mapping[str, Mode] = {**{str(mode): mode for mode in Mode}, **MODE_ALIASES}
LIST_HINT = "a list is 64,128 or relu,gelu; a range is 1..4096 or 64..128/8"


def spelling(name: str) -> str:
    """The flag of an argument: `d_ff` is `--d-ff`."""
    return "--" + name.rstrip("_").replace("_", "-")


# Readers of one text

# 2k is 2,000, 2Ki is 2,048
COUNT_SUFFIXES = {
    "k": 10**3,
    "K": 10**3,
    "M": 10**6,
    "G": 10**9,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
}
TIME_SUFFIXES = (
    {"ms": 0.001}
    | dict.fromkeys(("seconds", "second", "sec", "s"), 1.0)
    | dict.fromkeys(("minutes", "minute", "mins", "min", "m"), 60.0)
    | dict.fromkeys(("hours", "hour", "h"), 3600.0)
    | dict.fromkeys(("days", "day", "d"), 86400.0)
)
_NUMBER = r"(?:\d+\.?\d*|\.\d+)"
_COUNT = re.compile(rf"({_NUMBER})\s*({'|'.join(COUNT_SUFFIXES)})", re.ASCII)
_PART = re.compile(rf"\s*({_NUMBER})\s*({'|'.join(TIME_SUFFIXES)})\s*", re.ASCII)


def count(name: str, text: str) -> int:
    """A whole number: `2048`, `2k` (2,000), `2Ki` (2,048), `1.5M`; raises FfnbenchError
    for what is none.
    """
    with_unit = _COUNT.fullmatch(text.strip())
    if with_unit:
        digits, unit = with_unit.groups()
        exact = Fraction(digits) * COUNT_SUFFIXES[unit]
        if exact.denominator == 1:
            return int(exact)
    try:
        return int(text.strip())
    except ValueError:
        hint = "a count is 2048, 2k (2,000), 2Ki (2,048) or 1M"
        raise _is_no(name, text, "whole number", hint) from None


def number(name: str, text: str) -> float:
    """A number without a unit; raises FfnbenchError for what is none."""
    try:
        return float(text)
    except ValueError:
        raise _is_no(name, text, "number", "a number is 4 or 0.5") from None


def seconds(name: str, text: str) -> float:
    """A time in seconds: `90`, `90s`, `5m`, `1h`, `1m30s`; raises FfnbenchError for
    what is none.
    """
    total, end = 0.0, 0
    last_unit_s = math.inf
    part = _PART.match(text)
    while part and TIME_SUFFIXES[part[2]] < last_unit_s:  # 1h30m, and not 30m1h
        last_unit_s = TIME_SUFFIXES[part[2]]
        total += float(part[1]) * last_unit_s
        end = part.end()
        part = _PART.match(text, end)
    if end and end == len(text):
        return total
    try:
        return float(text)
    except ValueError:
        hint = "a time is 90 (seconds), 90s, 5m, 1h or 1m30s"
        raise _is_no(name, text, "time", hint) from None


def percent(name: str, text: str, hint: str = "a percentage is 1, 1% or 0.5%") -> float:
    """Percent, not a share: `1`, `1%` and `0.5%` are 1, 1 and 0.5; raises FfnbenchError
    with this hint for what is none.
    """
    try:
        return float(text.strip().removesuffix("%"))
    except ValueError:
        raise _is_no(name, text, "percentage", hint) from None


def _is_no(name: str, text: str, what: str, hint: str) -> FfnbenchError:
    return FfnbenchError(f"{name}: {text!r} is not a {what}", hint)


def positive(name: str, text: str) -> int:
    """A positive whole number; raises FfnbenchError for any other text."""
    if re.fullmatch("0[0-9]+", text):
        raise FfnbenchError(
            f"{name}: {text!r} is not a whole number",
            "write 4096: a comma separates the values of a list",
        )
    return require_positive(name, count(name, text))


def threads(name: str, text: str) -> int:
    """A number of threads; raises FfnbenchError for more than any machine has CPUs."""
    value = positive(name, text)
    if value > MOST_THREADS:
        raise FfnbenchError(
            f"{name} {value:,} is out of range", f"give 1 to {MOST_THREADS:,}"
        )
    return value


def member(kind: type[E], what: str) -> ReadText[E]:
    """The reader of a member of an enum, which errors call `what`."""
    return lambda name, text: choose(kind, what, text)


def plain(name: str, text: str) -> str:
    """The text as it is."""
    return text


def dtype(name: str, text: str) -> str:
    """The name of a dtype, as torch has it; raises FfnbenchError for what is none."""
    from ffnbench.ffn.spec import DTYPES

    return DTYPES.canonical(text.removeprefix("torch."))


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
    if not re.fullmatch("auto|cpu|cuda(:[0-9]{1,4})?", device):
        every = "devices: auto, cpu, cuda (NVIDIA's and AMD's GPUs), cuda:0"
        raise FfnbenchError(
            f"unknown device {device!r}", hint_for(device, DEVICES, every)
        )
    return device


# Readers of flags


def text_of(name: str, value: Any) -> str:
    """One value as it would be typed: a text, a path, a number, or a dtype or device of
    torch. A whole float is its integer, as pandas makes floats of counts beside a NaN.
    Raises WrongArgument for any other, and FfnbenchError for an empty text.
    """
    kind = type(value)
    is_typed = (
        isinstance(value, str | os.PathLike)
        or hasattr(kind, "__index__")
        or hasattr(kind, "__float__")
    )
    if isinstance(value, bool) or not (is_typed or kind.__module__ == "torch"):
        shown = repr(value)
        if "\n" in shown:
            shown = f"a {kind.__name__}"
        raise WrongArgument(
            f"{spelling(name)} can't be {shown}",
            "help() of the function shows its arguments",
        )
    text = str(value)
    if isinstance(value, float):
        text = text.removesuffix(".0")
    if not text.strip() or "\0" in text:
        raise FfnbenchError(f"{spelling(name)} has an empty value", EMPTY_HINT)
    return text


def texts_of(name: str, value: Any) -> list[str]:
    """The value, or each of several values, as it would be typed; those of an array or
    a tensor are numbers.
    """
    value = value.tolist() if hasattr(type(value), "tolist") else value
    is_one = isinstance(value, str | os.PathLike | bytes | bytearray | Mapping)
    if is_one or not hasattr(type(value), "__iter__"):
        return [text_of(name, value)]
    return [text_of(name, item) for item in value]


def one(read: ReadText[T]) -> ReadFlag[T]:
    """The reader of a flag that takes one value."""

    def read_flag(name: str, value: Any) -> T:
        texts = texts_of(name, value)
        if len(texts) != 1 or ("," in texts[0] and read is not plain):
            raise FfnbenchError(
                f"{spelling(name)} takes one value here, not {','.join(texts)!r}",
                "give one",
            )
        return read(spelling(name), texts[0])

    return read_flag


def many(read: ReadText[T]) -> ReadFlag[tuple[T, ...]]:
    """The reader of a flag that takes one value, or a list: each value once. A text is
    cut at its commas, and its ranges are written out.
    """

    def read_flag(name: str, value: Any) -> tuple[T, ...]:
        text = joined(texts_of(name, value))
        flag = spelling(name)
        parts = written_out(flag, text)
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


text = one(plain)


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


def cut(name: str, text: str) -> list[str]:
    """The parts of the list of a flag or key; raises FfnbenchError where one is
    empty.
    """
    parts = [part.strip() for part in text.split(",")]
    if "" in parts:
        raise FfnbenchError(f"{name} {text!r} has an empty value".strip(), LIST_HINT)
    return parts


_RANGE = re.compile(r"\s*(\d[^./]*)\.\.(\d[^./]*)(?:/(.+))?", re.ASCII)


def is_range(text: str) -> bool:
    """Whether a text is meant as a range: a path such as `../old` is not."""
    return ".." in text and "../" not in text and "/.." not in text


def written_out(name: str, text: str) -> list[str]:
    """The values of a list that may have ranges, as they would be typed one by one.
    Raises FfnbenchError for an empty value, for a range that is none, and for too many
    values.
    """
    values: list[str] = []
    for part in cut(name, text):
        values += map(str, _values_of_range(name, part)) if is_range(part) else [part]
    return values


def _values_of_range(name: str, text: str) -> Sequence[int]:
    """The values of `first..last/step`, or without a step those of `first..last`, which
    are first, doubled again and again, and at the end last.
    """
    match = _RANGE.fullmatch(text)
    first, last, step = (
        (count(name, end or "0") for end in match.groups()) if match else (0, 0, 0)
    )
    has_step = match is not None and match[3] is not None
    too_long = 0 < last - first < step
    if not 0 < first <= last or too_long or (has_step and step < 1):
        raise FfnbenchError(
            f"{name} {text} is no range",
            "FIRST..LAST doubles FIRST until LAST, as in 1..4096; FIRST..LAST/STEP adds STEP, as in 64..128/8",
        )
    if has_step:
        values = range(first, last + 1, step)
        if len(values) > MOST_CELLS:
            raise too_many(len(values), f"{name} {text}")
        return values
    doubled = [first]
    while 2 * doubled[-1] < last:
        doubled.append(2 * doubled[-1])
    return list(dict.fromkeys((*doubled, last)))


def too_many(count: int, of: str) -> FfnbenchError:
    """The error to raise where `of` would make more cells than a sweep may have."""
    hint = (
        "a longer step or fewer values; without a step a range doubles: 1..4096 has 13"
    )
    return FfnbenchError(
        f"{of} makes {count:,} groups, and a sweep has at most {MOST_CELLS:,}", hint
    )
