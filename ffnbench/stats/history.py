"""What the runs of a file say of one row: its mean, how far runs of unchanged code move
apart, what has changed. Pure.

A shared machine has states that outlast a run, and the workers of one run can't show
them. So the variance between runs is estimated from the baseline's own runs, with its
own degrees of freedom. A few runs say little about a variance: what they show is drawn
towards a prior, as if RUNS_FREEDOM + 1 runs had shown the prior.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from ffnbench.record.result import Report
from ffnbench.stats.interval import (
    Mean,
    VarianceEstimate,
    mean_with_error,
    sum_of_variances,
)
from ffnbench.stats.rounds import Rounds, ratio_logs, rounds_of

# the standard deviation of a log ratio between runs before it is known, as if so many
# degrees of freedom had shown it. On the reference machine, at d_model 768, swiglu /
# relu moved by 0.47 % (60 checks), by 0.53 % (9 saved runs), gelu / relu by 0.1 %;
# three degrees of freedom make the interval 1.6 times as wide.
RUNS_SD, RUNS_FREEDOM = 0.004, 3
RUNS_PRIOR = VarianceEstimate(RUNS_SD**2, RUNS_FREEDOM)


@dataclass(frozen=True, slots=True)
class History:
    """A row's log ratio in the runs of a baseline.

    `own` is what the workers of the runs leave uncertain of the mean, `between` the
    variance of one run about the others, `effective` the number of runs that the mean
    is worth.
    """

    mean: float
    own: VarianceEstimate
    between: VarianceEstimate
    effective: float

    def change(self, now: Mean) -> Mean:
        """The difference of a run of today from the mean of the runs."""
        # the variance between runs counts once for today's run, and once over the
        # number of runs for their mean
        before = self._with_variance_between(1 + 1 / self.effective)
        return now.minus(before)

    @property
    def over_runs(self) -> Mean:
        """The mean over the runs, with what moves between them in its error."""
        return self._with_variance_between(1 / self.effective)

    def _with_variance_between(self, times: float) -> Mean:
        """The mean with so many times the variance between runs in its error."""
        between = VarianceEstimate(times * self.between.variance, self.between.freedom)
        return mean_with_error(self.mean, (between, self.own))


def history_of(runs: Sequence[Mean]) -> History:
    """The history of one or more runs, the oldest first, each of several workers
    (freedom above 0).

    The runs are weighted by the inverse of their variance, as in a random-effects
    meta-analysis (DerSimonian and Laird 1986).
    """
    between = _variance_between(runs)
    inverse = [1 / (between.variance + run.error**2) for run in runs]
    total = math.fsum(inverse)
    weighted = [
        (weight / total, run) for weight, run in zip(inverse, runs, strict=True)
    ]
    return History(
        mean=math.fsum(weight * run.mean for weight, run in weighted),
        own=sum_of_variances(
            VarianceEstimate((weight * run.error) ** 2, run.freedom)
            for weight, run in weighted
        ),
        between=between,
        effective=1 / math.fsum(weight**2 for weight, _ in weighted),
    )


def _variance_between(runs: Sequence[Mean]) -> VarianceEstimate:
    """The variance between runs beyond what their own workers explain, drawn towards
    the prior.

    It is that of successive differences, with their degrees of freedom (von Neumann and
    others 1941): runs of code that gets slower step by step are not taken for runs that
    scatter.
    """
    if len(runs) == 1:
        return RUNS_PRIOR
    squares = [
        (later.mean - earlier.mean) ** 2 / 2 for earlier, later in pairwise(runs)
    ]
    between = max(0.0, fmean(squares) - fmean(run.error**2 for run in runs))
    # of a variance that is estimated by successive differences
    freedom = 2 * (len(runs) - 1) ** 2 / (3 * len(runs) - 4)
    return VarianceEstimate(between, freedom).drawn_towards(RUNS_PRIOR)


def mean_of_row(report: Report, rounds: Rounds, label: str) -> Mean | None:
    """The mean of the log of a row's ratio to the reference, over clean rounds.

    None where it has no interval: there are fewer than two workers with clean rounds,
    or the output of the row or of its reference is wrong.
    """
    mean = ratio_logs(rounds, label, report.plan.reference_of(label)).mean()
    if mean is None or mean.freedom <= 0 or mismatch_of_row(report, label):
        return None
    return mean


def mismatch_of_row(report: Report, label: str) -> str:
    """How the output of a row or of its reference differs from what it should be; empty
    if neither does.
    """
    return report.mismatch(label) or report.mismatch(report.plan.reference_of(label))


def histories_of(report: Report) -> dict[str, History]:
    """For each row that is compared, the history of its ratio over the runs of a file
    that have an interval of it; a row of which none has is left out.
    """
    runs = [(run, rounds_of(run)) for run in report.runs]
    histories = {}
    for case in report.plan.shown:
        means = [mean_of_row(run, rounds, case.label) for run, rounds in runs]
        known = [mean for mean in means if mean]
        if known and not report.plan.is_reference(case.label):
            histories[case.label] = history_of(known)
    return histories
