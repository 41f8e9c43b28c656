"""How an estimate reads: with the digits that its interval supports, and a word where a number would pretend."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ffnbench.result import Estimate, Side, Verdict
from ffnbench.units import digits, percent, supported


def seconds_text(estimate: Estimate, size: float) -> str:
    """`24.5 ±0.8%` in units of `size` seconds; `±?` where one worker gives no interval."""
    spread = half_width(estimate)
    if spread is None:
        return f"{digits(estimate.value / size)} ±?"
    return f"{supported(estimate.value / size, spread * estimate.value / size, most=4)} ±{percent(spread)}"


def ratio_text(verdict: Verdict, ratio: Estimate | None) -> str:
    """`1.12 [1.10, 1.14]`, `same [0.997, 1.006]`, and `~ [0.97, 1.06]` where the run can't tell."""
    if verdict is Verdict.REFERENCE:
        return "reference"
    if ratio is None or ratio.low is None or ratio.high is None:
        return "~"
    half = (ratio.high - ratio.low) / 2
    value, low, high = (supported(v, half, most=4) for v in (ratio.value, ratio.low, ratio.high))
    word = {Verdict.SAME: "same", Verdict.UNCLEAR: "~"}.get(verdict, value)
    return f"{word} [{low}, {high}]"


def half_width(estimate: Estimate) -> float | None:
    """Half the interval, relative to the value; None without an interval."""
    return math.sqrt(estimate.high / estimate.low) - 1 if estimate.low and estimate.high else None


LONGEST = 44


def side_lines(sides: Sequence[Side]) -> list[str]:
    """`torch: 2.12.0+cpu (base), 2.13.0+cpu (head)` for everything that is not the same on all sides."""
    facts = [(name, [dict(side.facts)[name] for side in sides]) for name, _ in (sides[0].facts if sides else ())]
    return [f"{name}: {_told(sides, values)}" for name, values in facts]


def _told(sides: Sequence[Side], values: list[str]) -> str:
    """Each value with the sides that have it; long ones are told to differ, not how."""
    if max(map(len, values)) > LONGEST:
        values = [_cut(value, values) for value in values]
    groups: dict[str, list[str]] = {}
    for side, value in zip(sides, values, strict=True):
        groups.setdefault(value, []).append(side.name)
    return ", ".join(f"{value} ({', '.join(names)})" for value, names in groups.items())


def _cut(value: str, others: list[str]) -> str:
    """The part of a long value where it leaves the others."""
    same = next(i for i in range(len(value) + 1) if len({other[: i + 1] for other in others}) > 1)
    start = max(0, same - LONGEST // 4)
    part = value[start : start + LONGEST]
    return "…" * bool(start) + part + "…" * (start + LONGEST < len(value))
