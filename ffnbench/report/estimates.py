"""How an estimate reads: with the digits that its interval supports, and a word where a number would pretend."""

from __future__ import annotations

import math

from ffnbench.result import Estimate, Verdict
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
