"""Lists and ranges as they are typed: `1,128`, `1..4096` (doubling), `2688..2752/8` (by steps), mixed. Pure.

The one reader of them, for flags, for keys of variants and for Python. A range is written out as texts, and each is
read as if it had been typed alone. `lead` is what stands before a value: `--d-ff `, `@d_ff=`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeVar

from ffnbench.errors import FfnbenchError
from ffnbench.request import EXAMPLES, TAKE_LISTS, Request, spelling
from ffnbench.units import COUNTS

T = TypeVar("T")
MOST_CELLS = 100_000
_SIZES = {**COUNTS, "K": COUNTS["k"], "": 1}
_END = rf"\s*(\d{{1,15}}(?:\.\d{{1,15}})?)({'|'.join(COUNTS)}|K)?\s*"
_RANGE = re.compile(rf"(?:{_END})?\.\.(?:{_END})?(?:/{_END})?", re.ASCII)


def is_range(text: str) -> bool:
    """Whether it is meant as one: a path such as `../old` is not."""
    return ".." in text and "../" not in text and "/.." not in text


def cut(lead: str, text: str, example: str) -> list[str]:
    """The parts of a list. Raises FfnbenchError for an empty one, whose hint is the example."""
    parts = [part.strip() for part in text.split(",")]
    if "" in parts:
        raise FfnbenchError(f"{lead}{text!r} has an empty value", f"for example {lead}{example}")
    return parts


def written_out(lead: str, text: str, example: str) -> list[str]:
    """The values of a list, ranges among them, as they would be typed one by one. Raises FfnbenchError for an empty
    value, for a range that can't be, and before anything is written out for one of too many values.
    """
    parts = cut(lead, text, example)
    return [text for part in parts for text in (_texts(lead, part, example) if is_range(part) else (part,))]


def too_many(count: int, of: str) -> FfnbenchError:
    """What to say of so many cells."""
    hint = "a longer step or fewer values; without a step a range doubles: 1..4096 has 13"
    return FfnbenchError(f"{of} makes {count:,} cells, and a sweep has at most {MOST_CELLS:,}", hint)


def _texts(lead: str, text: str, example: str) -> list[str]:
    """From first to last, both with it: doubling without a step, and then last stands at the end in any case."""

    def wrong(why: str) -> FfnbenchError:
        return FfnbenchError(f"{lead}{text} {why}", f"for example {lead}{example}")

    found = _RANGE.fullmatch(text)
    if not found:
        raise wrong("is no range of numbers")
    first, last, step = (Fraction(found[i]) * _SIZES[found[i + 1] or ""] if found[i] else None for i in (1, 3, 5))
    if first is None or last is None:
        raise wrong("has no first value" if first is None else "never ends: it has no last value")
    if first > last:
        raise wrong("goes down")
    if step is None:
        if not first and last:
            raise wrong("never ends: 0 doubled is 0")
        values = [first]
        while 2 * values[-1] < last:
            values.append(2 * values[-1])
        values += [last] * (first < last)
    else:
        if not step:
            raise wrong("never ends: its step is 0")
        if first < last < first + step:
            raise wrong("has a step that is longer than the range")
        if (count := (last - first) // step + 1) > MOST_CELLS:
            raise too_many(count, f"{lead}{text}")
        values = [first + i * step for i in range(count)]
    return [str(one.numerator) if one.denominator == 1 else repr(float(one)) for one in values]


def several(name: str, value: Any, read: Callable[[Any], T]) -> tuple[T, ...]:
    """The values of a field that may be a list, each read and once; a text is cut at its commas and its ranges written
    out. Raises FfnbenchError where one is empty.
    """
    if isinstance(value, str) or value in ((), []):
        value = written_out(f"{spelling(name)} ", value or "", EXAMPLES[name])
    values = value if isinstance(value, tuple | list) else (value,)
    if len(values) > MOST_CELLS:
        raise too_many(len(values), spelling(name))
    return tuple(dict.fromkeys(map(read, values)))


def refuse_lists(request: Request, *names: str) -> None:
    """Raise FfnbenchError for a list in one of these fields of a request."""
    for name in names:
        value = getattr(request, name)
        if isinstance(value, tuple | list) or (isinstance(value, str) and ("," in value or is_range(value))):
            text = value if isinstance(value, str) else ",".join(map(str, value))
            raise FfnbenchError(f"{spelling(name)} takes one value here, not {text!r}", TAKE_LISTS)
