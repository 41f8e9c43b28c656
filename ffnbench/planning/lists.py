"""Lists and ranges as they are typed: `1,128`, `1..4096` (doubling), `2688..2752/8` (by steps), mixed. Pure.

The one reader of them, for flags, for keys of variants and for Python. A range is written out as texts, and each is
read as if it had been typed alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeVar

from ffnbench.errors import FfnbenchError
from ffnbench.request import EXAMPLES, TAKE_LISTS, Request, spelling
from ffnbench.units import COUNTS

T = TypeVar("T")
MOST_CELLS = 100_000
RANGES = "1..4096 doubles, 2688..2752/8 goes by steps of 8; words stand in a list with commas"
_END = re.compile(rf"(\d{{0,15}}(?:\.\d{{0,15}})?)({'|'.join(COUNTS)}|K)?", re.ASCII)


def is_range(text: str) -> bool:
    """Whether it begins as a number and goes on: a path such as `../old` is none."""
    return ".." in text and text.strip()[:1].isdigit()


def written_out(lead: str, parts: list[str]) -> list[str]:
    """The values of a list, ranges among them, as they would be typed one by one. `lead` stands before it: `--d-ff `,
    `@d_ff=`. Raises FfnbenchError for a range that can't be, and before anything is written out for too many values.
    """
    found = [_range(lead, part) if ".." in part else part for part in parts]
    count = sum(1 if isinstance(one, str) else one.count for one in found)
    if count > MOST_CELLS:
        raise too_many(count, f"{lead}{','.join(parts)[:60]}")
    return [text for one in found for text in ((one,) if isinstance(one, str) else one.texts())]


def too_many(count: int, of: str) -> FfnbenchError:
    """What to say of so many cells."""
    hint = "a longer step or fewer values; without a step a range doubles: 1..4096 has 13"
    return FfnbenchError(f"{of} makes {count:,} cells, and a sweep has at most {MOST_CELLS:,}", hint)


@dataclass(frozen=True, slots=True)
class _Range:
    """From first to last, both with it: doubling without a step, and then last stands at the end in any case."""

    first: Fraction
    last: Fraction
    step: Fraction | None

    @property
    def count(self) -> int:
        return sum(1 for _ in self._doubling()) if self.step is None else (self.last - self.first) // self.step + 1

    def _doubling(self) -> Iterator[Fraction]:
        value = self.first
        while value < self.last:
            yield value
            value *= 2
        yield self.last

    def texts(self) -> Iterator[str]:
        """Its values as they would be typed."""
        step = self.step
        values = self._doubling() if step is None else (self.first + i * step for i in range(self.count))
        return map(_text, values)


def _text(number: Fraction) -> str:
    return str(number.numerator) if number.denominator == 1 else repr(float(number))


def _range(lead: str, text: str) -> _Range:
    """Raises FfnbenchError for what is no range, never ends, or goes down; the hint can be typed as it is."""
    ends, slash, by = text.partition("/")
    first, _, last = (part.strip() for part in ends.partition(".."))
    low, high, step = _number(first), _number(last), _number(by) if slash else None

    def wrong(why: str, hint: str, *better: Fraction | str) -> FfnbenchError:
        shown = [one if isinstance(one, str) else _text(one) for one in better]
        return FfnbenchError(f"{lead}{text} {why}", f"{hint}: {lead}{'..'.join(shown)}")

    if low is not None and not last:
        raise wrong("never ends: it has no last value", "say where", max(low, Fraction(1)), 64 * max(low, Fraction(1)))
    if high and not first:
        raise wrong("has no first value", "say where", min(high, Fraction(1)), high)
    if low is None or high is None or (slash and step is None):
        raise FfnbenchError(f"{lead}{text} is no range of numbers", RANGES)
    if low > high:
        begin = high or min(low, Fraction(1)) if step is None else high
        raise wrong("goes down", "write it upwards", begin, _text(low) + (f"/{by}" if step else ""))
    if step == 0:
        better = max(Fraction((high - low) // 4), Fraction(1)) if (high - low) >= 1 else (high - low) / 4 or Fraction(1)
        raise wrong("never ends: its step is 0", "a step is above 0", low, f"{_text(high)}/{_text(better)}")
    if not low and high and step is None:
        begin = min(Fraction(1), high / 8)
        raise wrong(
            "never ends: 0 doubled is 0", "begin above 0, or give a step", Fraction(1) if high >= 1 else begin, high
        )
    return _Range(low, high, step)


def _number(text: str) -> Fraction | None:
    """`1`, `0.5`, `2Ki`; None for what is no number of a range."""
    found = _END.fullmatch(text.strip())
    if not found or not found[1].strip("."):
        return None
    return Fraction(found[1]) * COUNTS.get({"K": "k"}.get(found[2], found[2]), 1)


def several(name: str, value: Any, read: Callable[[Any], T]) -> tuple[T, ...]:
    """The values of a field that may be a list, each read and once; a text is cut at its commas and its ranges written
    out. Raises FfnbenchError where one is empty.
    """
    lead = f"{spelling(name)} "
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",")]
        value = written_out(lead, value) if any(".." in part for part in value) else value
    values = value if isinstance(value, tuple | list) else (value,)
    if not values or "" in values:
        typed = ",".join(map(str, values))
        hint = f"a list has commas and no spaces: {lead}{EXAMPLES[name]}"
        raise FfnbenchError(f"{lead}{typed!r} has an empty value", hint)
    if len(values) > MOST_CELLS:
        raise too_many(len(values), lead.strip())
    return tuple(dict.fromkeys(map(read, values)))


def refuse_lists(request: Request, *names: str) -> None:
    """Raise FfnbenchError for a list in one of these fields of a request."""
    for name in names:
        value = getattr(request, name)
        if isinstance(value, tuple | list) or (isinstance(value, str) and ("," in value or is_range(value))):
            text = value if isinstance(value, str) else ",".join(map(str, value))
            raise FfnbenchError(f"{spelling(name)} takes one value here, not {text!r}", TAKE_LISTS)
