"""Independent values, one a worker -> their mean, its error, its degrees of freedom.

The interval is Student's over workers. Workers that were forked from one starter share what that one has drawn once,
its address layout: so there are a few starters, and what differs between them is a part of the error, estimated
together with a prior, since two or three of them show little.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import median

CONFIDENCE = 0.95  # of every interval, as stated
MEDIAN_COST = math.pi / 2  # variance of a median against that of a mean
UNKNOWN = 50.0  # half-width of a log that says nothing: more than any ratio
# the standard deviation between starters before it is known, as if so many degrees of freedom had shown it
STARTERS_SD, STARTERS_FREEDOM = 0.003, 3


@dataclass(frozen=True, slots=True)
class Value:
    """What one worker says, and the number of its starter."""

    log: float
    starter: int


@dataclass(frozen=True, slots=True)
class Part:
    """One part of an error: a variance, and the degrees of freedom that it is known with."""

    variance: float
    freedom: float


def whole(parts: Iterable[Part]) -> Part:
    """Parts that are independent together, the degrees of freedom by Satterthwaite (1946)."""
    found = [part for part in parts if part.variance]
    total = math.fsum(part.variance for part in found)
    if not total:
        return Part(0.0, 1.0)
    return Part(total, total**2 / math.fsum(part.variance**2 / part.freedom for part in found))


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean of independent values with its standard error; `freedom` 0 is a single value."""

    mean: float
    error: float
    freedom: float

    def half(self, confidence: float) -> float:
        """Half the two-sided Student interval; infinite for a single value."""
        return min(UNKNOWN, student(self.freedom, confidence) * self.error) if self.freedom > 0 else math.inf

    def interval(self, confidence: float) -> tuple[float, float] | None:
        """Both ends, or None for a single value."""
        half = self.half(confidence)
        return (self.mean - half, self.mean + half) if math.isfinite(half) else None

    def inflated(self, confidence: float) -> Mean:
        """With the error so much larger that the interval of CONFIDENCE is as wide as that of this one: what looking
        several times costs.
        """
        if self.freedom <= 0:
            return self
        return replace(self, error=self.error * (student(self.freedom, confidence) / student(self.freedom, CONFIDENCE)))

    def less(self, other: Mean) -> Mean:
        """The difference to a mean that is independent of this one, its degrees of freedom by Welch (1947)."""
        error = whole((Part(self.error**2, self.freedom), Part(other.error**2, other.freedom)))
        return Mean(self.mean - other.mean, math.sqrt(error.variance), error.freedom)

    def p_value(self) -> float:
        """Two-sided p of mean 0."""
        return min(1.0, 2 * Mean(abs(self.mean), self.error, self.freedom).p_above(0.0))

    def p_above(self, limit: float) -> float:
        """One-sided p of "the mean is at most the limit"; 1 for a single value."""
        from scipy.special import stdtr

        if self.freedom <= 0:
            return 1.0
        if not self.error:
            return 0.0 if self.mean > limit else 1.0
        return float(stdtr(self.freedom, -(self.mean - limit) / self.error))


@lru_cache(maxsize=4096)
def student(freedom: float, confidence: float) -> float:
    """The two-sided quantile of Student's t."""
    from scipy.special import stdtrit  # 0.2 s, paid while nothing is measured

    return float(stdtrit(freedom, 0.5 + confidence / 2))


def mean_of(values: Iterable[Value]) -> Mean:
    """The mean over workers; raises ValueError for none.

    Workers of one starter are one group. Where each has a starter of its own that is Student's interval; else the error
    has two parts, of workers within a group and of groups.
    """
    groups: dict[int, list[float]] = defaultdict(list)
    for value in values:
        groups[value.starter].append(value.log)
    logs = [log for group in groups.values() for log in group]
    if not logs:
        raise ValueError("no value")
    mean, count = math.fsum(logs) / len(logs), len(logs)
    if count == 1:
        return Mean(mean, math.inf, 0.0)
    if len(groups) == count:
        return Mean(mean, math.sqrt(variance(logs) / count), count - 1)
    within = Part(math.fsum(map(_squares, groups.values())) / (count - len(groups)), count - len(groups))
    starters = _between(list(groups.values()), mean, within.variance)
    share = math.fsum(len(group) ** 2 for group in groups.values()) / count**2
    error = whole(
        (Part(within.variance / count, within.freedom), replace(starters, variance=share * starters.variance))
    )
    return Mean(mean, math.sqrt(error.variance), error.freedom)


def _between(groups: Sequence[Sequence[float]], mean: float, within: float) -> Part:
    """Variance between groups beyond what their workers explain (analysis of variance), drawn towards the prior."""
    more = len(groups) - 1
    found = 0.0
    if more:
        count = sum(map(len, groups))
        size = (count - sum(len(group) ** 2 for group in groups) / count) / more
        apart = math.fsum(len(group) * (math.fsum(group) / len(group) - mean) ** 2 for group in groups) / more
        found = max(0.0, (apart - within) / size)
    freedom = STARTERS_FREEDOM + more
    return Part((STARTERS_FREEDOM * STARTERS_SD**2 + more * found) / freedom, freedom)


def midmean(values: Sequence[float]) -> float:
    """The mean of the middle half (Tukey 1977), a value that lies across its border by its part; the median of fewer
    than four values, of which the middle half would leave out none.
    """
    if len(values) < 4:
        return median(values)
    ranked, cut = sorted(values), len(values) / 4
    whole_cut = int(cut)
    middle = ranked[whole_cut : len(ranked) - whole_cut]
    part = cut - whole_cut
    return (math.fsum(middle) - part * (middle[0] + middle[-1])) / (len(ranked) - 2 * cut)


def variance(values: Sequence[float]) -> float:
    """Of a sample of at least two; statistics.variance is exact, and forty times slower."""
    return _squares(values) / (len(values) - 1)


def _squares(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values)
