"""Widths at which variants take as long as the reference: the next one to try, and what
the run at the widths found says of them. Pure.

Time is taken as linear in d_ff, a constant and a slope. One measured width gives the
slope that it has without a constant, two give a secant: between a width that takes less
time and one that takes more where both are known, and else beyond them, where the slope
is kept within what matrix products have, so that noise does not lead astray.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from ffnbench.ffn.width_rules import round_nearest
from ffnbench.result import LONGEST_BUDGET_S, Figures, Report

FOUND = "matched by time"  # how such a width is sized
# of the slope that the time has without a constant, what a secant's may be
LEAST_SLOPE, MOST_SLOPE = 0.2, 1.5
WIDEST = 2.0  # times the nearest measured width
MOST_SEARCHES = 3
SEARCH_SHARE = 0.2  # of the budget, for each of them
LONGER = 0.01  # that a width may be expected to take longer: half of `same`


@dataclass(frozen=True, slots=True)
class Trial:
    """A width that was measured, and its time divided by the reference's."""

    d_ff: int
    ratio: float


def next_width(trials: Sequence[Trial], multiple: int) -> int:
    """The multiple at which the time should equal the reference's, from at least one
    trial: the nearest one, or the one below where that would take longer. A measured
    width that is near enough stays.
    """
    means = _by_width(trials)
    nearest = min(means, key=lambda trial: abs(math.log(trial.ratio)))
    if abs(nearest.ratio - 1) <= LONGER:
        return nearest.d_ff
    bracket = _bracket(means)
    if bracket:
        nearest, above = bracket
        slope = _secant(nearest, above)
    else:
        slope = _slope_at(nearest, [trial for trial in means if trial != nearest])
    width = nearest.d_ff + (1 - nearest.ratio) / slope
    chosen = round_nearest(min(width, WIDEST * nearest.d_ff), multiple)
    expected = nearest.ratio + slope * (chosen - nearest.d_ff)
    if expected > 1 + LONGER:
        chosen = max(multiple, chosen - multiple)
    return chosen


def _by_width(trials: Iterable[Trial]) -> list[Trial]:
    """One trial a width, whose ratio is the mean of all that were measured there."""
    ratios: dict[int, list[float]] = {}
    for trial in trials:
        ratios.setdefault(trial.d_ff, []).append(trial.ratio)
    return [Trial(d_ff, fmean(values)) for d_ff, values in ratios.items()]


def _bracket(trials: Sequence[Trial]) -> tuple[Trial, Trial] | None:
    """The largest width that takes no longer, and the smallest above it that does; None
    where either was not measured.
    """
    shorter = [trial for trial in trials if trial.ratio <= 1]
    if not shorter:
        return None
    below = max(shorter, key=lambda trial: trial.d_ff)
    longer = [trial for trial in trials if trial.d_ff > below.d_ff]
    if not longer:
        return None
    return below, min(longer, key=lambda trial: trial.d_ff)


def _secant(first: Trial, second: Trial) -> float:
    """How much the ratio rises from one to the other, for each unit of d_ff."""
    return (second.ratio - first.ratio) / (second.d_ff - first.d_ff)


def _slope_at(nearest: Trial, others: Sequence[Trial]) -> float:
    """How much the ratio rises with d_ff where all trials are on one side of 1: through
    the two that are nearest to it.
    """
    without_constant = nearest.ratio / nearest.d_ff
    if not others:
        return without_constant
    second = min(others, key=lambda trial: abs(math.log(trial.ratio)))
    least, most = LEAST_SLOPE * without_constant, MOST_SLOPE * without_constant
    return min(most, max(least, _secant(nearest, second)))


def with_matched(figures: Figures, report: Report) -> Figures:
    """The figures with the rows whose widths were found by time. The budget that would
    decide rows is that of all runs, of which the last one has a part.
    """
    figures = replace(figures, matched=_more_params(report))
    narrowing = figures.narrowing
    if narrowing is None or narrowing.seconds is None:
        return figures
    share_of_last = 1 - MOST_SEARCHES * SEARCH_SHARE
    seconds = narrowing.seconds / share_of_last
    if seconds > LONGEST_BUDGET_S:
        narrowing = replace(narrowing, seconds=LONGEST_BUDGET_S, is_likely=False)
    else:
        narrowing = replace(narrowing, seconds=seconds)
    return replace(figures, narrowing=narrowing)


def _more_params(report: Report) -> dict[str, float | None]:
    """The rows whose widths were found by time, with their parameters relative to those
    of the reference.
    """
    shares: dict[str, float | None] = {}
    for case in report.plan.shown:
        if case.sizing.how != FOUND or report.comparison(case.label) is None:
            continue
        params = report.cost(case.label).params
        of_reference = report.cost(report.plan.reference_of(case.label)).params
        shares[case.label] = None
        if params and of_reference:
            shares[case.label] = params / of_reference - 1
    return shares
