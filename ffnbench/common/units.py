"""Writes numbers as people do: SI for counts, IEC for bytes, one unit for a
whole column, no more digits than are known.

Inside ffnbench every number is in its base unit; these functions are for the places
where somebody reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, isfinite, log10
from statistics import median

from ffnbench.common.errors import FfnbenchError

Units = Sequence[tuple[str, float]]  # names and sizes, the smallest first
GIGA = 1e9
SI = (("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12))
IEC = (
    ("B", 1.0),
    ("KiB", 2.0**10),
    ("MiB", 2.0**20),
    ("GiB", 2.0**30),
    ("TiB", 2.0**40),
)
TIME = (("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0))


def scale(values: Sequence[float], units: Units) -> tuple[str, float]:
    """The one unit (name, size) for a whole column: the largest in which the median of
    its values is 1 or more.
    """
    positive = [abs(v) for v in values if v]
    if not positive:
        return "", 1.0
    middle = median(positive)
    suiting = units[0]
    for name, size in units:
        if middle >= size:
            suiting = name, size
    return suiting


def digits(value: float, significant: int = 3) -> str:
    """A decimal number with this many significant digits, its thousands separated. The
    digits before the point are never rounded.
    """
    if not isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    places = max(0, significant - 1 - floor(log10(abs(value))))
    return f"{value:,.{min(places, 9)}f}"


def decimals(half: float) -> int:
    """How many decimals a number with this half-width may show: up to the first digit
    of the half-width, and one more where that digit is a 1.
    """
    if not (isfinite(half) and half > 0):
        return 3
    exponent = floor(log10(half))
    leading = int(half / 10.0**exponent + 1e-9)
    count = -exponent
    if leading == 1:
        count += 1
    return min(9, max(0, count))


def supported(value: float, half: float, *, least: int = 2, most: int = 5) -> str:
    """A number with the digits that its half-width allows, at least and at most so
    many.
    """
    before_point = floor(log10(abs(value))) + 1 if value else 1
    fewest = max(0, least - before_point)
    highest = max(0, most - before_point)
    return f"{value:,.{max(fewest, min(decimals(half), highest))}f}"


def quantity(value: float, units: Units) -> str:
    """One number with its own unit: `12.0 MiB`, `25.1 ms`, `4.72 M`."""
    name, size = scale([value], units)
    text = digits(value / size)
    if size == 1 and value == int(value):
        text = f"{int(value):,}"
    return f"{text} {name}".rstrip()


def percent(fraction: float) -> str:
    """A fraction as a percentage with two significant digits: 0.0123 -> `1.2%`, 0.37 ->
    `37%`, 50 -> `>999%`.
    """
    value = abs(fraction) * 100
    if value >= 999.5:
        return ">999%"
    if value >= 9.95:
        return f"{value:.0f}%"
    if value >= 0.095:
        return f"{value:.1f}%"
    return f"{value:.2f}%"


def signed_percent(fraction: float) -> str:
    """A fraction as by `percent`, with its sign; an exact zero is `0%`, and a number
    that rounds to zero has no sign.
    """
    if fraction == 0:
        return "0%"
    text = percent(fraction)
    if text == "0.00%":
        return text
    return f"+{text}" if fraction > 0 else f"-{text}"


def counted(number: int, what: str) -> str:
    """A number with its noun: `1 row`, `2 rows`, `4,096 tokens`."""
    if number == 1:
        return f"{number:,} {what}"
    ending = "es" if what.endswith("s") else "s"
    return f"{number:,} {what}{ending}"


LARGEST_SIZE = 10**12  # of a width or a count that a user gives


def require_positive(name: str, value: object) -> int:
    """A width or a count as it was given; raises FfnbenchError unless it is a positive
    integer of at most LARGEST_SIZE.
    """
    hint = "give a whole number, such as 64"
    if type(value) is not int or value < 1:  # nor a bool
        raise FfnbenchError(f"{name} must be a positive integer, not {value!r}", hint)
    if value > LARGEST_SIZE:
        raise FfnbenchError(f"{name} is larger than {LARGEST_SIZE:,}", hint)
    return value
