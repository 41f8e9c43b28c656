"""Widths at which variants take as long as the reference: the next one to try, and what
the run at the widths found says of them. Pure.

Time is taken as linear in d_ff: a constant and a slope. From one measured width the
slope follows as if there were no constant; from two it is that of the line through
them. If one width takes less time than the reference and one takes more, the next one
lies between them. Else it lies beyond them, and the slope is kept within what matrix
products have, so that noise can't lead to a width far away.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from ffnbench.ffn.width_rules import round_nearest
from ffnbench.result import LONGEST_BUDGET_S, Figures, Report

BY_TIME = "matched by time"  # what the sizing of such a case says
# the limits of a slope beyond the measured widths, relative to the slope that the time
# would have without a constant
LEAST_SLOPE, MOST_SLOPE = 0.2, 1.5
# the next width is at most so many times the nearest one that was measured
WIDEST = 2.0
MOST_SEARCHES = 3  # runs that look for widths, before the one that is reported
SEARCH_SHARE = 0.2  # of the budget, for each of these runs
# a ratio to the reference no further from 1 needs no other width: half of `same`
NEAR_ENOUGH = 0.01


@dataclass(frozen=True, slots=True)
class Trial:
    """A width that was measured, and its time divided by the reference's."""

    d_ff: int
    ratio: float


def next_width(trials: Sequence[Trial], multiple: int) -> int:
    """The width to measure next, a multiple of `multiple`, from at least one trial.

    It is the multiple nearest to where the time should equal the reference's, or the
    one below if that is expected to take longer. A measured width whose ratio is near
    enough to 1 is given back.
    """
    means = _by_width(trials)
    nearest = min(means, key=lambda trial: abs(math.log(trial.ratio)))
    if abs(nearest.ratio - 1) <= NEAR_ENOUGH:
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
    if expected > 1 + NEAR_ENOUGH:
        chosen = max(multiple, chosen - multiple)
    return chosen


def _by_width(trials: Iterable[Trial]) -> list[Trial]:
    """One trial a width, whose ratio is the mean of all that were measured there."""
    ratios: dict[int, list[float]] = {}
    for trial in trials:
        ratios.setdefault(trial.d_ff, []).append(trial.ratio)
    return [Trial(d_ff, fmean(values)) for d_ff, values in ratios.items()]


def _bracket(trials: Sequence[Trial]) -> tuple[Trial, Trial] | None:
    """The largest width that takes no longer than the reference, and the smallest one
    above it; None if one of the two was not measured.
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
    """How much the ratio rises for each unit of d_ff, if all trials are on one side of
    1: by the line through the two trials whose ratios are nearest to 1.
    """
    without_constant = nearest.ratio / nearest.d_ff
    if not others:
        return without_constant
    second = min(others, key=lambda trial: abs(math.log(trial.ratio)))
    least, most = LEAST_SLOPE * without_constant, MOST_SLOPE * without_constant
    return min(most, max(least, _secant(nearest, second)))


def with_matched(figures: Figures, report: Report) -> Figures:
    """The figures with the rows whose widths were found by time.

    The report is that of the last run, which has a part of the budget. So the budget
    that would decide its rows is raised to that of all runs.
    """
    figures = replace(figures, matched=_params_of_matched(report))
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


def _params_of_matched(report: Report) -> dict[str, float | None]:
    """By how much the parameters of each row whose width was found by time exceed those
    of the reference, as a share; None where they are not known.
    """
    shares: dict[str, float | None] = {}
    for case in report.plan.shown:
        if case.sizing.how != BY_TIME or report.comparison(case.label) is None:
            continue
        params = report.cost(case.label).params
        of_reference = report.cost(report.plan.reference_of(case.label)).params
        shares[case.label] = None
        if params and of_reference:
            shares[case.label] = params / of_reference - 1
    return shares
