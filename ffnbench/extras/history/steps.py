"""Where the runs of a row step from one level to another, and by how much. Pure.

The search is that of ruptures (Truong, Oudre, Vayatis 2020): PELT over absolute deviations from medians, which one odd
run does not move. `python benchmarks/steps.py` says how often it is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

from ffnbench.result import CONFIDENCE, Estimate
from ffnbench.stats.history import PRIOR, PRIOR_FREEDOM, change_between, history_of
from ffnbench.stats.interval import Mean

SHORTEST = 2  # runs of a level: one run by itself is no step
PENALTY = 6.0  # of a further level, in scatters between runs


@dataclass(frozen=True, slots=True)
class Shift:
    """From the run at `at` on a row has another level: its change, without an interval where that is exact."""

    at: int
    change: Estimate


def steps_of(runs: Sequence[Mean]) -> list[Shift]:
    """The steps of a row's runs, the oldest first, whose interval leaves out that nothing has changed."""
    if len(runs) < 2 * SHORTEST:
        return []
    import numpy as np
    import ruptures  # type: ignore[import-untyped,import-not-found,unused-ignore]

    series = np.array([[run.mean] for run in runs]) / scatter(runs)
    ends = ruptures.Pelt(model="l1", min_size=SHORTEST, jump=1).fit_predict(series, PENALTY)
    levels = [history_of(runs[start:end]).over_runs for start, end in pairwise([0, *ends])]
    steps = []
    for at, (old, new) in zip(ends, pairwise(levels), strict=False):
        change = change_between(old, new)
        if change.difference.p_value() < 1 - CONFIDENCE:
            steps.append(Shift(at, change.estimate()))
    return steps


def scatter(runs: Sequence[Mean]) -> float:
    """How far runs of one level lie about it: a standard deviation of logs.

    It is estimated by successive differences, absolute ones, which a step and odd runs move less than squares; it is
    drawn towards the prior of a baseline's runs with what these leave uncertain themselves.
    """
    prior = PRIOR**2 + median(run.error**2 for run in runs)
    mean_difference = fmean(abs(later.mean - earlier.mean) for earlier, later in pairwise(runs))
    seen = mean_difference * math.sqrt(math.pi) / 2  # of normal values
    freedom = history_of(runs).between.freedom
    return math.sqrt((PRIOR_FREEDOM * prior + (freedom - PRIOR_FREEDOM) * seen**2) / freedom)
