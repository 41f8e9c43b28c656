"""Which commit is the first slow one, as noisy probes tell it, and which commit to probe next. Pure.

Commits stand in order, 1 to `count`, behind a good one. Either none is slower than it, or from one on all are, by a
step of unknown size. A probe is weighed by its error and never believed. The step's size has a normal prior, and is
integrated out in closed form.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from ffnbench.result import Estimate
from ffnbench.stats.interval import CONFIDENCE

# sd of the log of a ratio between runs of unchanged code: PRIOR of stats/history.py, times the quantile of Student's t
# at its degrees of freedom over a normal's (0.004 * 3.18 / 1.96)
BETWEEN_RUNS = 0.0065
STEP_SD = 0.1  # of the log of a step before it is known
NO_STEP = 0.5  # probability that there is none, before anything is known
NORMAL = 1.96  # standard errors in half a 95 % interval


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The log of a commit's time over the good one's, and its error, with what moves between runs."""

    commit: int
    log: float
    error: float


def result_of(commit: int, low: float, high: float) -> ProbeResult:
    """What the 95 % interval of a run's ratio tells."""
    ends = math.log(low), math.log(high)
    return ProbeResult(commit, sum(ends) / 2, math.hypot((ends[1] - ends[0]) / 2 / NORMAL, BETWEEN_RUNS))


@dataclass(frozen=True, slots=True)
class Posterior:
    """How likely each commit is the first slow one; `probabilities[0]` is that of none.

    `groups` are commits that no probe can tell apart: one that can be probed, and those right before it that can't.
    """

    probabilities: tuple[float, ...]
    results: tuple[ProbeResult, ...]
    groups: tuple[range, ...]

    def probability_of(self, commits: range) -> float:
        """The probability that the first slow commit is one of these."""
        return math.fsum(self.probabilities[commits.start : commits.stop])

    @property
    def likeliest(self) -> range:
        """The group that is most likely to hold the first slow commit."""
        return max(self.groups, key=self.probability_of)

    @property
    def left(self) -> range:
        """The shortest range of commits that holds the first slow one with 95 %, where there is one."""
        sums = [0.0, *accumulate(map(self.probability_of, self.groups))]
        part = CONFIDENCE * sums[-1]
        ends = ((i, bisect_left(sums, min(sums[-1], below + part))) for i, below in enumerate(sums[:-1]))
        ranges = [range(self.groups[i].start, self.groups[j - 1].stop) for i, j in ends if sums[j] - sums[i] >= part]
        return min(ranges, key=len)

    @property
    def next(self) -> int:
        """The commit whose probe leaves the least entropy to expect. Of probes with one error it is the one that is as
        likely slow as not; the first of all is the last commit, which tells whether there is a step.
        """
        ends = [group[-1] for group in self.groups]
        if not self.results:
            return ends[-1]
        slow = list(accumulate(self.probabilities[1:]))  # of each commit, how likely it is slow
        return min(ends, key=lambda commit: (abs(slow[commit - 1] - 0.5), -commit))

    def step(self, first: int) -> Estimate:
        """How much slower commits are from that one on, were it the first slow one: a ratio."""
        weight, pull = _weighed(self.results, first)
        return _ratio(weight + STEP_SD**-2, pull)

    def found(self) -> range | None:
        """The group that holds the first slow commit with 95 %."""
        best = self.likeliest
        return best if self.probability_of(best) >= CONFIDENCE else None

    def at_end(self) -> Estimate | None:
        """How much slower the last commit is than the good one, by its own probes alone; None without any."""
        last = len(self.probabilities) - 1
        weight, pull = _weighed(self.results, last)
        return _ratio(weight, pull) if weight else None

    def without_step(self, limit: float) -> bool:
        """Whether the last commit is slower by no more than the limit, which is a share."""
        end = self.at_end()
        return end is not None and end.high is not None and end.high <= 1 + limit

    def tolerance(self, limit: float) -> float:
        """The share that the next probe is to decide at: the limit itself at the last commit; elsewhere half of the
        step, or of the limit where the step is smaller, as far from none as from all of it.
        """
        if self.next == len(self.probabilities) - 1:
            return limit
        return max(limit, self.step(self.likeliest[-1]).value - 1) / 2


def posterior_of(count: int, results: Iterable[ProbeResult], skipped: Collection[int] = ()) -> Posterior:
    """What results say of so many commits, of which some can't be probed; the last one can."""
    known = tuple(results)
    logs = [math.log(NO_STEP)]
    for first in range(1, count + 1):
        weight, pull = _weighed(known, first)
        fits = pull**2 / (weight + STEP_SD**-2) / 2 - math.log1p(weight * STEP_SD**2) / 2  # against no step
        logs.append(math.log((1 - NO_STEP) / count) + fits)
    most = max(logs)
    weights = [math.exp(log - most) for log in logs]
    total = math.fsum(weights)
    ends = [commit for commit in range(1, count + 1) if commit not in skipped or commit == count]
    groups = tuple(range(before + 1, end + 1) for before, end in zip([0, *ends], ends, strict=False))
    return Posterior(tuple(weight / total for weight in weights), known, groups)


def _weighed(results: Sequence[ProbeResult], first: int) -> tuple[float, float]:
    """Of the results from a commit on, the sum of weights and of weighted logs."""
    of = [one for one in results if one.commit >= first]
    return math.fsum(one.error**-2 for one in of), math.fsum(one.log * one.error**-2 for one in of)


def _ratio(weight: float, pull: float) -> Estimate:
    mean, half = pull / weight, NORMAL * weight**-0.5
    return Estimate(value=math.exp(mean), low=math.exp(mean - half), high=math.exp(mean + half))
