"""From independent values, one of each worker, to their mean with its standard error
and degrees of freedom. Pure.

The interval is Student's over workers. Workers forked from one starter share what that
process drew once, its address layout. There are only two or three starters, so the
variance between them is estimated together with a prior, and is a part of the error.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist, fmean, median, stdev

from ffnbench.record.result import CONFIDENCE, Estimate

# variance of the median of normal values over that of their mean
MEDIAN_COST = math.pi / 2
# half the interval of a log, where it says nothing: wider than the log of any ratio
UNKNOWN_HALF_WIDTH = 50.0
# the standard deviation between starters before it is known, as if so many degrees of
# freedom had shown it
STARTERS_SD, STARTERS_FREEDOM = 0.003, 3


@dataclass(frozen=True, slots=True)
class WorkerValue:
    """The value of one worker, a log, and the number of its starter."""

    log: float
    starter: int


@dataclass(frozen=True, slots=True)
class VarianceEstimate:
    """A variance, and the degrees of freedom that it is known with."""

    variance: float
    freedom: float

    def drawn_towards(self, prior: VarianceEstimate) -> VarianceEstimate:
        """The mean of this variance and a prior, weighted by their degrees of freedom,
        which add up.
        """
        freedom = prior.freedom + self.freedom
        weighted = prior.freedom * prior.variance + self.freedom * self.variance
        return VarianceEstimate(weighted / freedom, freedom)


def sum_of_variances(parts: Iterable[VarianceEstimate]) -> VarianceEstimate:
    """The variance of a sum of independent terms, its degrees of freedom by
    Satterthwaite (1946).
    """
    nonzero = [part for part in parts if part.variance]
    total = math.fsum(part.variance for part in nonzero)
    if not total:
        return VarianceEstimate(0.0, 1.0)
    return VarianceEstimate(
        total, total**2 / math.fsum(part.variance**2 / part.freedom for part in nonzero)
    )


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean of independent values, its standard error and its degrees of freedom.
    `freedom` is 0 for a single value, whose error is not known.
    """

    mean: float
    error: float
    freedom: float

    def half_width(self, confidence: float) -> float:
        """Half of the two-sided Student interval; infinite for a single value."""
        if self.freedom <= 0:
            return math.inf
        return min(UNKNOWN_HALF_WIDTH, student(self.freedom, confidence) * self.error)

    def interval(self, confidence: float) -> tuple[float, float] | None:
        """Both ends, or None for a single value."""
        if self.freedom <= 0:
            return None
        half = self.half_width(confidence)
        return self.mean - half, self.mean + half

    def exp(self) -> Estimate:
        """The value whose log this is the mean of, with the interval of CONFIDENCE; a
        single value has none.
        """
        value, interval = math.exp(self.mean), self.interval(CONFIDENCE)
        if interval is None:
            return Estimate(value=value)
        return Estimate(
            value=value, low=math.exp(interval[0]), high=math.exp(interval[1])
        )

    def inflated(self, confidence: float, slack: float = 0.0) -> Mean:
        """The mean with a larger error, so that its interval of CONFIDENCE is as wide
        as its interval of `confidence` was, and half of it wider by `slack`.

        This is what interim analyses and several rows cost: each takes a stricter level
        for the stated one.
        """
        if self.freedom <= 0:
            return self
        stated = student(self.freedom, CONFIDENCE)
        half = student(self.freedom, confidence) * self.error + slack
        return replace(self, error=half / stated)

    def minus(self, other: Mean) -> Mean:
        """This mean minus an independent one, with degrees of freedom by Welch
        (1947).
        """
        parts = (
            VarianceEstimate(self.error**2, self.freedom),
            VarianceEstimate(other.error**2, other.freedom),
        )
        return mean_with_error(self.mean - other.mean, parts)


def estimate_of_values(values: Sequence[float]) -> Estimate:
    """The mean of independent values with Student's interval, which is left out for two
    values: it would say nothing.
    """
    count, mean = len(values), fmean(values)
    if count <= 2:
        return Estimate(value=mean)
    half = student(count - 1, CONFIDENCE) * stdev(values) / math.sqrt(count)
    return Estimate(
        value=mean, low=max(0.0, mean - half), high=mean + half, workers=count
    )


def mean_with_error(mean: float, parts: Iterable[VarianceEstimate]) -> Mean:
    """A mean whose error is the sum of these independent variances."""
    error = sum_of_variances(parts)
    return Mean(mean, math.sqrt(error.variance), error.freedom)


@lru_cache(maxsize=4096)
def student(freedom: float, confidence: float) -> float:
    """The two-sided quantile t of Student's distribution.

    Newton's method begins at the normal quantile, which is less: P(|T| < t) is concave
    in t, so no step goes too far. To load scipy for this would take half a second, in
    which nothing is measured.
    """
    t = NormalDist().inv_cdf(0.5 + confidence / 2)
    a = freedom / 2
    log_scale = math.lgamma(a + 0.5) - math.lgamma(a) - math.lgamma(0.5)
    step = t
    while step > 1e-9 * t:
        rest = t * t / (freedom + t * t)
        x = freedom / (freedom + t * t)
        scale = math.exp(log_scale + a * math.log(x) + math.log(rest) / 2)
        # P(|T| > t) is the incomplete beta function I_x(a, 1/2)
        if x < (a + 1) / (a + 2.5):
            beyond = scale / (a * _beta_fraction(a, 0.5, x))
        else:
            beyond = 1 - 2 * scale / _beta_fraction(0.5, a, rest)
        step = (beyond - (1 - confidence)) * t / (2 * scale)
        t += step
    return t


def _beta_fraction(a: float, b: float, x: float) -> float:
    """The continued fraction 1 + d1/(1 + d2/(1 + ...)) of the incomplete beta function
    (Abramowitz and Stegun 26.5.8), by Lentz's method.
    """
    value = above = 1.0
    below = change = 0.0
    term = 0
    while abs(change - 1) > 1e-15:
        term += 1
        m = term // 2
        if term % 2:
            numerator = -(a + m) * (a + b + m)
        else:
            numerator = m * (b - m)
        numerator *= x / ((a + term - 1) * (a + term))
        below = 1 / (1 + numerator * below)
        above = 1 + numerator / above
        change = above * below
        value *= change
    return value


@lru_cache(maxsize=1024)
def confidence_of_each(rows: int, together: float = CONFIDENCE) -> float:
    """The confidence of each of the intervals of so many `rows`, all of which hold with
    the confidence `together`.

    The logs of two ratios to one reference have a correlation of 1/2. So the quantile
    is Dunnett's (1955) of normal values, the largest of |z_i - z_0| / sqrt(2). Dunnett
    has one error for all rows. Here each row has an error of its own, so Student's
    interval takes the confidence of that quantile.
    """
    normal = NormalDist()
    # of z_0; the trapezoidal rule is exact to 1e-12 for these steps
    grid = [number / 8 for number in range(-64, 65)]

    def holds(quantile: float) -> float:
        """The probability that no row is beyond the quantile."""
        reach = math.sqrt(2) * quantile
        return math.fsum(
            normal.pdf(z) * (normal.cdf(z + reach) - normal.cdf(z - reach)) ** rows / 8
            for z in grid
        )

    low, high = 0.0, 8.0
    for _ in range(50):
        middle = (low + high) / 2
        if holds(middle) < together:
            low = middle
        else:
            high = middle
    return 2 * normal.cdf(high) - 1


def mean_of(values: Iterable[WorkerValue]) -> Mean:
    """The mean over workers; raises ValueError for none.

    Where each worker has a starter of its own the interval is Student's. Else the error
    has two parts: of workers within a starter, and of starters, whose effects are
    averaged with the shares of the workers that they serve.
    """
    groups: dict[int, list[float]] = defaultdict(list)
    for value in values:
        groups[value.starter].append(value.log)
    logs = [log for group in groups.values() for log in group]
    if not logs:
        raise ValueError("no value")
    count = len(logs)
    mean = math.fsum(logs) / count
    if count == 1:
        return Mean(mean, math.inf, 0.0)
    if len(groups) == count:
        return Mean(mean, math.sqrt(variance(logs) / count), count - 1)
    freedom = count - len(groups)
    within = math.fsum(map(_sum_of_squares, groups.values())) / freedom
    between = _between_starters(list(groups.values()), mean, within)
    weight = math.fsum(len(group) ** 2 for group in groups.values()) / count**2
    return mean_with_error(
        mean,
        (
            VarianceEstimate(within / count, freedom),
            replace(between, variance=weight * between.variance),
        ),
    )


def _between_starters(
    groups: Sequence[Sequence[float]], mean: float, within: float
) -> VarianceEstimate:
    """The variance between starters beyond what their workers explain, drawn towards
    the prior.

    The estimator is the one-way analysis of variance of groups of unequal size;
    `within` is the variance of workers.
    """
    freedom = len(groups) - 1
    between = 0.0
    if freedom:
        count = sum(map(len, groups))
        # the size that groups of one size would have
        size = (count - sum(len(group) ** 2 for group in groups) / count) / freedom
        squares = math.fsum(
            len(group) * (math.fsum(group) / len(group) - mean) ** 2 for group in groups
        )
        between = max(0.0, (squares / freedom - within) / size)
    prior = VarianceEstimate(STARTERS_SD**2, STARTERS_FREEDOM)
    return VarianceEstimate(between, freedom).drawn_towards(prior)


def midmean(values: Sequence[float]) -> float:
    """The mean of the middle half of the values (Tukey 1977). A value that lies across
    the border counts by the part of it that is inside.

    Of fewer than four values it is the median, for the middle half would leave out
    none.
    """
    if len(values) < 4:
        return median(values)
    ranked = sorted(values)
    cut = len(values) / 4  # values left out at each end
    left_out = int(cut)
    part = cut - left_out
    middle = ranked[left_out : len(ranked) - left_out]
    total = math.fsum(middle) - part * (middle[0] + middle[-1])
    return total / (len(ranked) - 2 * cut)


def variance(values: Sequence[float]) -> float:
    """The variance of a sample of at least two values. statistics.variance is exact,
    and forty times slower.
    """
    return _sum_of_squares(values) / (len(values) - 1)


def _sum_of_squares(values: Sequence[float]) -> float:
    """The sum of the squared deviations from the mean."""
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values)
