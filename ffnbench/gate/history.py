"""What the runs of a baseline say of one row: its mean, and how far runs of unchanged code move apart. Pure.

A shared machine has states that outlast a run, and the workers of one run can't show them. So the variance between runs
is estimated from the baseline's own runs, with its own degrees of freedom. A few runs say little about a variance: what
they show is drawn towards a prior, as if the prior had been seen in PRIOR_FREEDOM + 1 runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean

from ffnbench.stats.interval import Mean, Part, whole

# sd of a log ratio between runs. On the reference machine, at d_model 768, swiglu / relu moved by 0.47 % (60 checks),
# by 0.53 % (9 saved runs), gelu / relu by 0.1 %; three degrees of freedom make the interval 1.6 times as wide.
PRIOR, PRIOR_FREEDOM = 0.004, 3
KEPT = 20  # runs of a baseline, beside the oldest


@dataclass(frozen=True, slots=True)
class History:
    """A row's log ratio in the runs of a baseline.

    `own` is what the workers of the runs leave uncertain of the mean, `between` the variance of one run about the
    others, `effective` the number of runs that the mean is worth.
    """

    mean: float
    own: Part
    between: Part
    effective: float
    runs: int
    oldest: Mean

    def change(self, now: Mean) -> Mean:
        """A run of today less the mean of the baseline's, every part of the error with its own degrees of freedom."""
        moved = replace(self.between, variance=self.between.variance * (1 + 1 / self.effective))
        error = whole((moved, self.own, Part(now.error**2, now.freedom)))
        return Mean(now.mean - self.mean, math.sqrt(error.variance), error.freedom)

    def drift(self, now: Mean) -> Mean:
        """A run of today less the oldest one."""
        old = self.oldest
        alone = replace(self, mean=old.mean, own=Part(old.error**2, old.freedom), effective=1.0)
        return alone.change(now)

    @property
    def over_runs(self) -> Mean:
        """The mean over the runs, with what moves between them in its error."""
        moved = replace(self.between, variance=self.between.variance / self.effective)
        error = whole((moved, self.own))
        return Mean(self.mean, math.sqrt(error.variance), error.freedom)

    def after(self, runs: int) -> History:
        """The history that so many runs like these would make, as far as it can be foretold."""
        freedom = PRIOR_FREEDOM + _seen(runs)
        own = replace(self.own, variance=self.own.variance * self.effective / runs)
        between = replace(self.between, freedom=freedom)
        return replace(self, own=own, between=between, effective=float(runs), runs=runs)


def history_of(runs: Sequence[Mean]) -> History:
    """The history of one or more runs, the oldest first; each has an interval of its own (freedom above 0)."""
    between = _between(runs)
    inverse = [1 / (between.variance + run.error**2) for run in runs]
    weights = [w / math.fsum(inverse) for w in inverse]
    return History(
        mean=math.fsum(w * run.mean for w, run in zip(weights, runs, strict=True)),
        own=whole(Part((w * run.error) ** 2, run.freedom) for w, run in zip(weights, runs, strict=True)),
        between=between,
        effective=1 / math.fsum(w * w for w in weights),
        runs=len(runs),
        oldest=runs[0],
    )


def _between(runs: Sequence[Mean]) -> Part:
    """Variance between runs beyond what their own workers explain, drawn towards the prior.

    It is that of successive differences, with their degrees of freedom (von Neumann and others 1941): runs of code that
    gets slower step by step are not taken for runs that scatter.
    """
    if len(runs) == 1:
        return Part(PRIOR**2, PRIOR_FREEDOM)
    steps = [(b.mean - a.mean) ** 2 / 2 for a, b in pairwise(runs)]
    found = max(0.0, fmean(steps) - fmean(run.error**2 for run in runs))
    seen = _seen(len(runs))
    return Part((PRIOR_FREEDOM * PRIOR**2 + seen * found) / (PRIOR_FREEDOM + seen), PRIOR_FREEDOM + seen)


def _seen(runs: int) -> float:
    """Degrees of freedom of the mean square of their successive differences."""
    return 2 * (runs - 1) ** 2 / (3 * runs - 4) if runs > 1 else 0.0
