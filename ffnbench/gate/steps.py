"""Where the runs of a row step from one level to another, and by how much. Pure.

The search is ruptures' (Truong, Oudre, Vayatis 2020): PELT over absolute deviations from medians, which one odd run does
not move. What a level costs is in units of the scatter between runs, and the penalty is what keeps unchanged code
without a step: `python benchmarks/steps.py` holds both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from statistics import fmean, median

from ffnbench.errors import FfnbenchError, need_room
from ffnbench.gate.history import PRIOR, PRIOR_FREEDOM, Change, change_between, history_of
from ffnbench.stats.interval import CONFIDENCE, Mean

SHORTEST = 2  # runs of a level: one run by itself is no step
PENALTY = 6.0  # of a further level, in scatters
NO_RUPTURES = FfnbenchError("steps are found by ruptures, which is not installed", "pip install 'ffnbench[history]'")


@dataclass(frozen=True, slots=True)
class Step:
    """From the run at `at` on the row has another level than before."""

    at: int
    change: Change


def refuse_without_ruptures() -> None:
    """Raise FfnbenchError where steps can't be found."""
    if find_spec("ruptures") is None:
        raise NO_RUPTURES


def steps_of(runs: Sequence[Mean]) -> list[Step]:
    """The steps of a row's runs, the oldest first; each change leaves out 0 with the stated confidence."""
    places = _places(runs)
    while True:
        steps = _between(runs, places)
        unclear = [step for step in steps if abs(step.change.difference.mean) <= step.change.difference.half(CONFIDENCE)]
        if not unclear:
            return steps
        places.remove(min(unclear, key=lambda step: abs(step.change.difference.mean)).at)


def scatter(runs: Sequence[Mean]) -> float:
    """How far runs of one level lie about it: of successive differences, as absolute values, and of the prior."""
    prior = PRIOR**2 + median(run.error**2 for run in runs)
    apart = fmean(abs(b.mean - a.mean) for a, b in pairwise(runs)) * math.sqrt(math.pi) / 2
    freedom = history_of(runs).between.freedom
    return math.sqrt((PRIOR_FREEDOM * prior + (freedom - PRIOR_FREEDOM) * apart**2) / freedom)


def _places(runs: Sequence[Mean]) -> list[int]:
    """The first run of each level but the first."""
    if len(runs) < 2 * SHORTEST:
        return []
    need_room()
    import numpy as np
    import ruptures  # type: ignore[import-untyped,import-not-found,unused-ignore]

    series = np.array([run.mean for run in runs]) / scatter(runs)
    found = ruptures.Pelt(model="l1", min_size=SHORTEST, jump=1).fit(series.reshape(-1, 1)).predict(pen=PENALTY)
    return list(found[:-1])


def _between(runs: Sequence[Mean], places: Sequence[int]) -> list[Step]:
    """The change from each level to the next, with what moves between runs in its interval."""
    ends = [0, *places, len(runs)]
    levels = [history_of(runs[start:end]).over_runs for start, end in pairwise(ends)]
    return [Step(at, change_between(old, new)) for at, (old, new) in zip(places, pairwise(levels), strict=True)]
