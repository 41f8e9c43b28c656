"""Numbers for people: SI for counts, IEC for bytes, one scale for a whole column, digits that mean something.

Inside ffnbench every number is in its base unit; these functions are for the edge where somebody reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, isfinite, log10
from statistics import median

Units = Sequence[tuple[str, float]]  # names and sizes, the smallest first
SI = (("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12))
IEC = (("B", 1.0), ("KiB", 2.0**10), ("MiB", 2.0**20), ("GiB", 2.0**30), ("TiB", 2.0**40))
TIME = (("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0))


def scale(values: Sequence[float], units: Sequence[tuple[str, float]]) -> tuple[str, float]:
    """The one unit (name, size) that suits a whole column: the largest that keeps its median at 1 or more."""
    positive = [abs(v) for v in values if v]
    if not positive:
        return "", 1.0
    middle = median(positive)
    return next((unit for unit in reversed(units) if middle >= unit[1]), units[0])


def digits(value: float, significant: int = 3) -> str:
    """A plain decimal with that many significant digits, thousands separated, whole part never rounded away."""
    if not isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    decimals = max(0, significant - 1 - floor(log10(abs(value))))
    return f"{value:,.{min(decimals, 9)}f}"


def decimals(half: float) -> int:
    """How many decimals a half-width supports: to its first digit, and one more where that is a 1."""
    if not (isfinite(half) and half > 0):
        return 3
    exponent = floor(log10(half))
    leading = int(half / 10.0**exponent + 1e-9)
    return min(9, max(0, -exponent + (leading == 1)))


def supported(value: float, half: float, most: int = 5) -> str:
    """A number without the digits that its half-width does not support, and with at most so many."""
    first = floor(log10(abs(value))) if value else 0
    room, least = max(0, most - 1 - first), max(0, 1 - first)  # two digits even where the interval supports none
    return f"{value:,.{max(least, min(decimals(half), room))}f}"


def quantity(value: float, units: Sequence[tuple[str, float]]) -> str:
    """One number with its own unit: `12.0 MiB`, `25.1 ms`, `4.72 M`."""
    name, size = scale([value], units)
    plain = digits(value / size) if size != 1 or value != int(value) else f"{int(value):,}"
    return f"{plain} {name}".rstrip()


def percent(fraction: float) -> str:
    """A fraction as a percentage with two significant digits: 0.0123 -> `1.2%`, 0.37 -> `37%`, 50 -> `>999%`."""
    value = abs(fraction) * 100
    if value >= 999.5:
        return ">999%"
    return f"{value:.0f}%" if value >= 9.95 else f"{value:.1f}%" if value >= 0.095 else f"{value:.2f}%"


def signed_percent(fraction: float) -> str:
    """As `percent`, with a sign; an exact zero is `0%`."""
    return "0%" if fraction == 0 else ("+" if fraction > 0 else "-") + percent(fraction)
