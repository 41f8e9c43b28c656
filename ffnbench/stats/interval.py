"""Independent values, one a worker, some surer than others -> their weighted mean, its error, its degrees of freedom.

A worker that a neighbour disturbed says less than a quiet one, and its own rounds show it. So each value is weighted
by what its rounds leave uncertain and by the scatter between workers (random effects, Paule & Mandel 1982); the error
is that of Hartung & Knapp (2001). Their n - 1 degrees of freedom cover too little where few workers carry the weight,
and the effective number of Kish (1965) too much; the middle of both keeps 95 % in the selftest's worlds. Among workers
that are equally sure all this is Student's interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import median

from ffnbench.errors import need_room

MEDIAN_COST = math.pi / 2  # variance of a median against that of a mean
UNKNOWN = 50.0  # half-width of a log that says nothing: more than any ratio
LEAST_SCATTER = 0.003  # a floor by choice: among workers that are surer than that, their own rounds decide no weight


@dataclass(frozen=True, slots=True)
class Value:
    """What one worker says, and the variance that its own rounds leave."""

    log: float
    variance: float = 0.0


@dataclass(frozen=True, slots=True)
class WeightedMean:
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

    def paid(self, confidence: float, stated: float) -> WeightedMean:
        """With the error so much larger that the stated interval is as wide as that of the confidence: what looking
        several times costs.
        """
        if self.freedom <= 0 or confidence == stated:
            return self
        return replace(self, error=self.error * student(self.freedom, confidence) / student(self.freedom, stated))

    def p_value(self) -> float:
        """Two-sided p of mean 0."""
        return min(1.0, 2 * WeightedMean(abs(self.mean), self.error, self.freedom).p_above(0.0))

    def p_above(self, limit: float) -> float:
        """One-sided p of "the mean is at most the limit"; 1 for a single value."""
        need_room()
        from scipy.special import stdtr

        if self.freedom <= 0:
            return 1.0
        if not self.error:
            return 0.0 if self.mean > limit else 1.0
        return float(stdtr(self.freedom, -(self.mean - limit) / self.error))


@lru_cache(maxsize=4096)
def student(freedom: float, confidence: float) -> float:
    """The two-sided quantile of Student's t."""
    need_room()
    from scipy.special import stdtrit  # 0.2 s, paid while nothing is measured

    return float(stdtrit(freedom, 0.5 + confidence / 2))


@dataclass(frozen=True, slots=True)
class Summary:
    """All that matters of a worker's rounds: the median over all of them, the variance of one round, and of each
    placement the number of rounds and their median.

    A mean over placements of the medians of a few rounds would let a burst in.
    """

    log: float
    within: float
    rounds: tuple[int, ...]
    medians: tuple[float, ...]

    def value(self, placement: float) -> Value:
        """What the worker says. `placement` is the variance between placements."""
        whole = sum(self.rounds)
        effective = whole**2 / sum(n**2 for n in self.rounds)  # placements, were they of equal length
        return Value(self.log, MEDIAN_COST * (placement / effective + self.within / whole))


def summary_of(placed: Sequence[Sequence[float]]) -> Summary:
    """The summary of a worker, from the logs of its rounds by placement."""
    medians = tuple(map(median, placed))
    return Summary(
        log=median([log for logs in placed for log in logs]),
        within=_within(placed, medians),
        rounds=tuple(map(len, placed)),
        medians=medians,
    )


def value_of(placed: Sequence[Sequence[float]], placement: float) -> Value:
    """What a worker says, from the logs of its rounds by placement."""
    return summary_of(placed).value(placement)


def mean_of(workers: Iterable[Sequence[Sequence[float]]]) -> WeightedMean:
    """The mean over workers of what each says, from the logs of their rounds by placement."""
    return mean_of_summaries(list(map(summary_of, workers)))


def mean_of_summaries(workers: Sequence[Summary]) -> WeightedMean:
    """The same, from their summaries."""
    placement, _ = _between_placements(workers)
    return weighted_mean(worker.value(placement) for worker in workers)


def within_variance(placed: Sequence[Sequence[float]]) -> float:
    """Variance of one round about its placement's median, by the median of absolute deviations: a burst in a few rounds
    is not the scatter of the rest. Placements of one round say nothing of it.
    """
    return _within(placed, list(map(median, placed)))


def _within(placed: Sequence[Sequence[float]], medians: Sequence[float]) -> float:
    found = list(zip(placed, medians, strict=True))
    apart = [deviation for logs, middle in found for deviation in _deviations(logs, middle)]
    if apart and (half := median(apart)):
        return float((1.4826 * half) ** 2)
    rest = [log - middle for logs, middle in found for log in logs]
    return _about_mean(rest) / len(rest)


def _deviations(logs: Sequence[float], middle: float) -> list[float]:
    """How far each round is from their median, so scaled that few rounds give what many do.

    Among an odd number one is the median itself, and left out. Among an even one the median lies between two of them
    and is too near to both: by 2 for two rounds, by 1 + 3.4 / n for n of them (by simulation, normal; within 5 %).
    """
    n = len(logs)
    found = [abs(log - middle) for log in logs]
    if n % 2:
        found.remove(0.0)
        return found
    scale = math.sqrt(2 if n == 2 else 1 + 3.4 / n)
    return [scale * deviation for deviation in found]


def variance(values: Sequence[float]) -> float:
    """Of a sample of at least two; statistics.variance is exact, and forty times slower."""
    return _about_mean(values) / (len(values) - 1)


def _about_mean(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values)


def between_placements(workers: Iterable[Sequence[Sequence[float]]]) -> tuple[float, int]:
    """Variance between the placements of a worker beyond what their rounds explain, and its degrees of freedom.

    It is one for all workers: a worker has too few placements to know its own. A placement says nothing of another
    process, so it is never counted as a worker.
    """
    return _between_placements(map(summary_of, workers))


def _between_placements(workers: Iterable[Summary]) -> tuple[float, int]:
    excess, freedom = 0.0, 0
    for worker in workers:
        more = len(worker.rounds) - 1
        if not more:
            continue
        explained = sum(MEDIAN_COST * worker.within / n for n in worker.rounds) / (more + 1)
        excess += more * (variance(worker.medians) - explained)
        freedom += more
    return (max(0.0, excess / freedom) if freedom else 0.0), freedom


def weighted_mean(values: Iterable[Value]) -> WeightedMean:
    """The weighted mean of one or more values; raises ValueError for none."""
    found = list(values)
    if not found:
        raise ValueError("no value")
    logs = [value.log for value in found]
    own = [value.variance + LEAST_SCATTER**2 for value in found]
    weights = _weights(logs, own)
    mean = _mean(logs, weights)
    if len(found) == 1:
        return WeightedMean(mean, math.inf, 0.0)
    spread = sum(w * (log - mean) ** 2 for w, log in zip(weights, logs, strict=True))
    effective = 1 / sum(w * w for w in weights)
    return WeightedMean(mean, math.sqrt(spread / (len(found) - 1)), (len(found) + effective) / 2 - 1)


def _weights(logs: list[float], own: list[float]) -> list[float]:
    """Inverse variances, their sum 1; the variance between workers is the one that explains the scatter they have."""

    def weights(between: float) -> list[float]:
        inverse = [1 / (between + variance) for variance in own]
        whole = sum(inverse)
        return [w / whole for w in inverse]

    def excess(between: float) -> float:
        inverse = [1 / (between + variance) for variance in own]
        mean = sum(w * log for w, log in zip(inverse, logs, strict=True)) / sum(inverse)
        return sum(w * (log - mean) ** 2 for w, log in zip(inverse, logs, strict=True)) - (len(logs) - 1)

    low, high = 0.0, _about_mean(logs) / len(logs) + max(own)
    if excess(0.0) <= 0:
        return weights(0.0)
    while excess(high) > 0:
        high *= 2
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return weights((low + high) / 2)


def _mean(logs: list[float], weights: list[float]) -> float:
    return sum(w * log for w, log in zip(weights, logs, strict=True))
