"""Computes how likely each commit is the first slow one, from noisy probes, and which
commit to probe next. Pure.

Commits are numbered from 1 to `count`, in their order after a good one. Either none is
slower than the good one, or all from one commit on are, by a step of unknown size. Each
probe is weighted by its error. The size of the step has a normal prior, and is
integrated out in closed form.
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
    """The log of the ratio of a commit's time to that of the good one. `error` is its
    standard error, with the variance between runs.
    """

    commit: int
    log: float
    error: float


def result_of(commit: int, low: float, high: float) -> ProbeResult:
    """The result of a probe, by the 95 % interval of its ratio."""
    low, high = math.log(low), math.log(high)
    within_run = (high - low) / 2 / NORMAL
    return ProbeResult(commit, (low + high) / 2, math.hypot(within_run, BETWEEN_RUNS))


@dataclass(frozen=True, slots=True)
class Posterior:
    """How likely each commit is the first slow one. `probabilities` begins with that of
    no slow commit, so the probability of commit 1 is at place 1.

    The commits of a group can't be told apart by any probe: one that can be probed, and
    those right before it that can't.
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
        """The shortest range of commits that contains the first slow one with a
        probability of 95 %, if there is a slow one.
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
        """The commit whose probe should leave the least entropy.

        If all probes have the same error, that is the commit whose probability of being
        slow is nearest to 0.5. The first probe is that of the last commit, which tells
        whether there is a step.
        """
        ends = [group[-1] for group in self.groups]
        if not self.results:
            return ends[-1]
        # the probability that commit 1, 2, ... is slow
        slow = list(accumulate(self.probabilities[1:]))
        return min(ends, key=lambda commit: (abs(slow[commit - 1] - 0.5), -commit))

    def step(self, first: int) -> Estimate:
        """How much slower commits are from this one on, if it is the first slow one: a
        ratio.
        """
        weight, weighted_log = _sums_from(first, self.results)
        return _ratio(weight + STEP_SD**-2, weighted_log)

    def first_slow(self) -> range | None:
        """The group that contains the first slow commit with a probability of 95 %;
        None where no group does.
        """
        best = self.likeliest
        return best if self.probability_of(best) >= CONFIDENCE else None

    def change_at_end(self) -> Estimate | None:
        """The ratio of the last commit's time to that of the good one, by its own
        probes alone; None without any.
        """
        weight, weighted_log = _sums_from(len(self.probabilities) - 1, self.results)
        return _ratio(weight, weighted_log) if weight else None

    def without_step(self, limit: float) -> bool:
        """Whether it is known that the last commit is slower by no more than the limit,
        which is a share.
        """
        end = self.change_at_end()
        return end is not None and end.high is not None and end.high <= 1 + limit

    def tolerance(self, limit: float) -> float:
        """The change, as a share, at which the next probe decides between slow and not.

        At the last commit it is the limit itself. At another one a probe has to
        distinguish the step from none, so it is the middle: half of the step. A step
        that looks smaller than the limit counts as the limit, since no smaller one is
        searched (benchmarks/bisection.py: with the whole limit in place of its half,
        fewer commits are named).
        """
        if self.next_probe == len(self.probabilities) - 1:
            return limit
        step = self.step(self.likeliest[-1]).value - 1
        return max(limit, step) / 2


def posterior_of(
    count: int, results: Iterable[ProbeResult], skipped: Collection[int] = ()
) -> Posterior:
    """The posterior of `count` commits by these results. `skipped` are commits that
    can't be probed; the last one can always.

    By Bayes' rule: the results are normal, a commit before the first slow one has log
    0, and the normal prior of the step is integrated out.
    """
    results = tuple(results)
    logs = [math.log(NO_STEP)]
    for first in range(1, count + 1):
        weight, weighted_log = _sums_from(first, results)
        # the log of the likelihood, relative to that of no step
        log_likelihood = (
            weighted_log**2 / (weight + STEP_SD**-2) / 2
            - math.log1p(weight * STEP_SD**2) / 2
        )
        logs.append(math.log((1 - NO_STEP) / count) + log_likelihood)
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
    """The sums of the weights (inverse variances) and of the weighted logs, over the
    results from a commit on.
    """
    slow = [result for result in results if result.commit >= first]
    weight = math.fsum(result.error**-2 for result in slow)
    return weight, math.fsum(result.log * result.error**-2 for result in slow)


def _ratio(weight: float, weighted_log: float) -> Estimate:
    mean, half = weighted_log / weight, NORMAL * weight**-0.5
    return Estimate(
        value=math.exp(mean), low=math.exp(mean - half), high=math.exp(mean + half)
    )
