"""What the runs of a file say of one row: its mean, how far runs of unchanged code move apart, what has changed. Pure.

A shared machine has states that outlast a run, and the workers of one run can't show them. So the variance between runs
is estimated from the baseline's own runs, with its own degrees of freedom. A few runs say little about a variance: what
they show is drawn towards a prior, as if the prior had been seen in PRIOR_FREEDOM + 1 runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from ffnbench.metrics import LATENCY
from ffnbench.result import Estimate, Report
from ffnbench.stats.interval import CONFIDENCE, Mean, Part, whole
from ffnbench.stats.rounds import Row, table_of

# sd of a log ratio between runs. On the reference machine, at d_model 768, swiglu / relu moved by 0.47 % (60 checks),
# by 0.53 % (9 saved runs), gelu / relu by 0.1 %; three degrees of freedom make the interval 1.6 times as wide.
PRIOR, PRIOR_FREEDOM = 0.004, 3
SECONDS = "seconds"  # the metric of a row whose own time is followed, in place of its ratio


@dataclass(frozen=True, slots=True)
class Change:
    """The log of a row then and now, and their difference."""

    before: float
    now: float
    difference: Mean

    def estimate(self) -> Estimate:
        """now over before, with the stated Student interval; without one where either is of a single process."""
        value, interval = math.exp(self.difference.mean), self.difference.interval(CONFIDENCE)
        if interval is None:
            return Estimate(value=value)
        return Estimate(value=value, low=math.exp(interval[0]), high=math.exp(interval[1]))


def change_between(old: Mean, new: Mean) -> Change:
    """The change from one run to another, each known by its own workers alone."""
    known = old.freedom > 0 and new.freedom > 0
    return Change(old.mean, new.mean, new.less(old) if known else Mean(new.mean - old.mean, math.inf, 0.0))


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

    def change(self, now: Mean) -> Change:
        """From the mean of the runs to a run of today."""
        mean = self._moved(self.mean, self.own, 1 + 1 / self.effective)
        return Change(self.mean, now.mean, now.less(mean))

    @property
    def over_runs(self) -> Mean:
        """The mean over the runs, with what moves between them in its error."""
        return self._moved(self.mean, self.own, 1 / self.effective)

    def _moved(self, mean: float, own: Part, times: float) -> Mean:
        """A mean with so many times the variance between runs, every part with its own degrees of freedom."""
        error = whole((Part(times * self.between.variance, self.between.freedom), own))
        return Mean(mean, math.sqrt(error.variance), error.freedom)


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
    seen = 2 * (len(runs) - 1) ** 2 / (3 * len(runs) - 4)  # degrees of freedom of their mean
    return Part((PRIOR_FREEDOM * PRIOR**2 + seen * found) / (PRIOR_FREEDOM + seen), PRIOR_FREEDOM + seen)


def row_of(report: Report, label: str, metric: str = LATENCY) -> Mean | None:
    """The log of a row's ratio to the reference, or of its seconds, over clean rounds; None where there are none, and
    where one of the two computes something else.
    """
    return None if mismatch_of_row(report, label, metric) else rounds_of_row(report, label, metric).mean()


def mismatch_of_row(report: Report, label: str, metric: str) -> str:
    """How a row's answer, or that of its reference, differs from what it should be; empty where it does not."""
    reference = report.plan.reference_of(label) if metric == LATENCY else label
    return report.mismatch(label) or report.mismatch(reference)


def rounds_of_row(report: Report, label: str, metric: str) -> Row:
    """The rounds of a row: of its ratio to the reference, or of its seconds."""
    table = table_of(report)
    return table.ratio(label, report.plan.reference_of(label)) if metric == LATENCY else table.seconds(label)


def ratios_over_runs(report: Report) -> dict[str, History]:
    """For each row that is compared, the history of its ratio over all runs of a file."""
    histories = {}
    for case in report.plan.shown:
        if report.plan.is_reference(case.label):
            continue
        means = [mean for run in report.runs if (mean := row_of(run, case.label)) and mean.freedom > 0]
        if means:
            histories[case.label] = history_of(means)
    return histories
