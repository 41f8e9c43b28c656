"""Which commit is the first slow one, as noisy probes tell it, and which commit to
probe next. Pure.

Commits stand in order, 1 to `count`, behind a good one. Either none is slower than it,
or from one on all are, by a step of unknown size. A probe is weighed by its error and
never believed. The step's size has a normal prior, and is integrated out in closed
form.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import accumulate

from ffnbench.result import CONFIDENCE, Estimate

# sd of the log of a ratio between runs of unchanged code: RUNS_SD of stats/history.py,
# times the quantile of Student's t at its degrees of freedom over a normal's (0.004 *
# 3.18 / 1.96)
BETWEEN_RUNS = 0.0065
STEP_SD = 0.1  # of the log of a step before it is known
NO_STEP = 0.5  # probability that there is none, before anything is known
NORMAL = 1.96  # standard errors in half a 95 % interval


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The log of a commit's time over the good one's, and its error, with what moves
    between runs.
    """

    commit: int
    log: float
    error: float


def result_of(commit: int, low: float, high: float) -> ProbeResult:
    """What the 95 % interval of a run's ratio tells."""
    low, high = math.log(low), math.log(high)
    within_run = (high - low) / 2 / NORMAL
    return ProbeResult(commit, (low + high) / 2, math.hypot(within_run, BETWEEN_RUNS))


@dataclass(frozen=True, slots=True)
class Posterior:
    """How likely each commit is the first slow one; the probability of none stands
    before the first commit's.

    `groups` are commits that no probe can tell apart: one that can be probed, and those
    right before it that can't.
    """

    probabilities: tuple[float, ...]
    results: tuple[ProbeResult, ...]
    groups: tuple[range, ...]

    def probability_of(self, commits: range) -> float:
        """The probability that the first slow commit is one of these."""
        return math.fsum(self.probabilities[commits.start : commits.stop])

    @property
    def no_step(self) -> float:
        """The probability that no commit is slower than the good one."""
        return self.probabilities[0]

    @property
    def likeliest(self) -> range:
        """The group that is most likely to hold the first slow commit."""
        return max(self.groups, key=self.probability_of)

    @property
    def credible_range(self) -> range:
        """The shortest range of commits that holds the first slow one with 95 %, given
        that there is one.
        """
        sums = [0.0, *accumulate(map(self.probability_of, self.groups))]
        wanted = CONFIDENCE * sums[-1]
        shortest = range(self.groups[0].start, self.groups[-1].stop)
        for first, below in enumerate(sums[:-1]):
            last = bisect_left(sums, min(sums[-1], below + wanted))
            commits = range(self.groups[first].start, self.groups[last - 1].stop)
            if sums[last] - below >= wanted and len(commits) < len(shortest):
                shortest = commits
        return shortest

    @property
    def next_probe(self) -> int:
        """The commit whose probe leaves the least entropy to expect.

        Of probes with one error it is the one that is as likely slow as not. The first
        of all is the last commit, which tells whether there is a step.
        """
        ends = [group[-1] for group in self.groups]
        if not self.results:
            return ends[-1]
        # of each commit, how likely it is slow
        slow = list(accumulate(self.probabilities[1:]))
        return min(ends, key=lambda commit: (abs(slow[commit - 1] - 0.5), -commit))

    def step(self, first: int) -> Estimate:
        """How much slower commits are from that one on, were it the first slow one: a
        ratio.
        """
        weight, weighted_log = _sums_from(first, self.results)
        return _ratio(weight + STEP_SD**-2, weighted_log)

    def first_slow(self) -> range | None:
        """The group that holds the first slow commit with 95 %."""
        best = self.likeliest
        return best if self.probability_of(best) >= CONFIDENCE else None

    def change_at_end(self) -> Estimate | None:
        """How much slower the last commit is than the good one, by its own probes
        alone; None without any.
        """
        weight, weighted_log = _sums_from(len(self.probabilities) - 1, self.results)
        return _ratio(weight, weighted_log) if weight else None

    def without_step(self, limit: float) -> bool:
        """Whether the last commit is slower by no more than the limit, which is a
        share.
        """
        end = self.change_at_end()
        return end is not None and end.high is not None and end.high <= 1 + limit

    def tolerance(self, limit: float) -> float:
        """The share that the next probe is to decide at.

        At the last commit it is the limit itself. Elsewhere a probe has to tell the
        step from none, so it is half of the step, as far from 0 as from all of it. A
        step that looks smaller than the limit counts as the limit, for no smaller one
        is looked for (benchmarks/bisection.py: with all of the limit fewer commits are
        named).
        """
        if self.next_probe == len(self.probabilities) - 1:
            return limit
        step = self.step(self.likeliest[-1]).value - 1
        return max(limit, step) / 2


def posterior_of(
    count: int, results: Iterable[ProbeResult], skipped: Collection[int] = ()
) -> Posterior:
    """What results say of so many commits, of which some can't be probed; the last one
    can.

    By Bayes' rule: the results are normal, a commit before the first slow one has log
    0, and the step's normal prior is integrated out.
    """
    results = tuple(results)
    logs = [math.log(NO_STEP)]
    for first in range(1, count + 1):
        weight, weighted_log = _sums_from(first, results)
        # over no step's
        likelihood = (
            weighted_log**2 / (weight + STEP_SD**-2) / 2
            - math.log1p(weight * STEP_SD**2) / 2
        )
        logs.append(math.log((1 - NO_STEP) / count) + likelihood)
    largest = max(logs)
    weights = [math.exp(log - largest) for log in logs]
    total = math.fsum(weights)
    ends = [
        commit
        for commit in range(1, count + 1)
        if commit not in skipped or commit == count
    ]
    groups = tuple(
        range(before + 1, end + 1)
        for before, end in zip([0, *ends], ends, strict=False)
    )
    return Posterior(tuple(weight / total for weight in weights), results, groups)


def _sums_from(first: int, results: Iterable[ProbeResult]) -> tuple[float, float]:
    """Of the results from a commit on, the sum of weights (inverse variances) and of
    weighted logs.
    """
    slow = [result for result in results if result.commit >= first]
    weight = math.fsum(result.error**-2 for result in slow)
    return weight, math.fsum(result.log * result.error**-2 for result in slow)


def _ratio(weight: float, weighted_log: float) -> Estimate:
    mean, half = weighted_log / weight, NORMAL * weight**-0.5
    return Estimate(
        value=math.exp(mean), low=math.exp(mean - half), high=math.exp(mean + half)
    )
