"""How much is enough: rounds for a placement, placements for a worker, workers for a run. Pure; the runner asks and
does what it is told.

Three scatters make a ratio uncertain: that of rounds, which more of them shrink, that between placements of a worker's
tensors in memory, which more placements shrink, and that between workers, which only more workers do. All are estimated
from the clean rounds so far, and the cheapest way to the wanted precision is taken. Looking at the
data to decide when to stop costs a little confidence; verdict.level pays it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from statistics import median

from ffnbench.plan import Plan, Protocol
from ffnbench.result import Sample
from ffnbench.stats.interval import (
    MEDIAN_COST,
    UNKNOWN,
    Value,
    WeightedMean,
    between_placements,
    mean_of,
    student,
    value_of,
    variance,
    within_variance,
)
from ffnbench.stats.rounds import Placed, row_of_case, whole_rounds
from ffnbench.stats.verdict import level

MOST_ROUNDS, MOST_WORKERS = 240, 48
ROUNDS_EACH = (3, 4, 5, 6, 8, 10, 15, 20, 30)  # of a placement
FIRST_LOOK = 4  # a scatter of three values is too uncertain to stop on
# the scatter between processes before it is known: 0.5 %, as if two workers had shown it
PRIOR_BETWEEN, PRIOR_WEIGHT = 0.005**2, 2
PRIOR_PLACEMENT = 0.01**2  # between placements, likewise
FIXED_EACH = 5  # rounds of a placement where the rounds are given
Answered = Callable[[Plan, Sequence[Sample]], str]  # whether the question is answered, in a word


@dataclass(frozen=True, slots=True)
class Amount:
    """How much a worker makes: rounds on each placement, placements."""

    rounds_each: int
    placements: int

    @property
    def rounds(self) -> int:
        """Of the whole worker."""
        return self.rounds_each * self.placements


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds that a worker costs beside its rounds (start, warm-up, checks), and that a round and a placement cost."""

    worker_s: float
    round_s: float
    placement_s: float = 0.0

    def seconds(self, amount: Amount) -> float:
        """One worker with that much."""
        return self.worker_s + amount.placements * self.placement_s + amount.rounds * self.round_s


@dataclass(frozen=True, slots=True)
class Scatter:
    """Variances of the log ratio that is hardest to pin down: of one round, between placements, between workers."""

    within: float
    between: float
    placement: float = 0.0

    def of_worker(self, made: Amount | Advance) -> float:
        """Variance of a worker's value, the median of its rounds."""
        return self.between + MEDIAN_COST * (self.placement / made.placements + self.within / made.rounds)


@dataclass(frozen=True, slots=True)
class Way:
    """How the rest of a run should go: what the next worker makes, workers in all, whether that is foreseen to do."""

    amount: Amount
    workers: int
    precise: bool


TYPICAL = Amount(rounds_each=5, placements=4)


def scatter(plan: Plan, samples: Sequence[Sample]) -> Scatter:
    """The variances of the row with the largest sum, the control left out; `within` is 0 where nothing is compared."""
    return scatter_of(_rows(plan, samples))


def scatter_of(rows: Iterable[Sequence[Placed]]) -> Scatter:
    """The variances of the row with the largest sum, from what the workers of each row made."""
    found = [_scatter_of(workers) for workers in rows if workers]
    unknown = Scatter(0.0, PRIOR_BETWEEN, PRIOR_PLACEMENT)
    return max(found, key=lambda scatter: scatter.of_worker(TYPICAL), default=unknown)


def _scatter_of(workers: Sequence[Placed]) -> Scatter:
    """All three of one row; what few values show is drawn towards the prior."""
    found, freedom = between_placements(workers)
    moves = freedom or len(workers) < 2  # what stays in one place scatters between workers alone
    placement = _drawn(PRIOR_PLACEMENT, found, freedom) if moves else 0.0
    values = [value_of(placed, placement) for placed in workers]
    within = median(within_variance(placed) for placed in workers)
    return Scatter(within, _drawn(PRIOR_BETWEEN, *_between(values)), placement)


def _between(values: Sequence[Value]) -> tuple[float, int]:
    """Variance between workers beyond what their own rounds and placements explain, and its degrees of freedom."""
    if len(values) < 2:
        return 0.0, 0
    explained = sum(value.variance for value in values) / len(values)
    return max(0.0, variance([value.log for value in values]) - explained), len(values) - 1


def _drawn(prior: float, found: float, freedom: int) -> float:
    """What was found, and the prior as if PRIOR_WEIGHT further values had shown it."""
    return (PRIOR_WEIGHT * prior + freedom * found) / (PRIOR_WEIGHT + freedom)


def _rows(plan: Plan, samples: Sequence[Sample]) -> list[list[Placed]]:
    """For each row what its workers made in clean rounds, none for a row that has no clean ones; a case that stands
    alone is taken by its seconds.
    """
    rounds = whole_rounds(samples, plan.protocol)
    labels = [case.label for case in plan.shown if case.label in rounds]
    compared = [label for label in labels if not plan.is_reference(label)] if plan.compared else labels
    return [list(row_of_case(plan, rounds, label).clean.values()) for label in compared]


def fixed_amount(protocol: Protocol) -> Amount:
    """The rounds that a protocol without a precision asks for, on as many placements as the least number of rounds."""
    each = min(FIXED_EACH, protocol.rounds)
    return Amount(rounds_each=each, placements=math.ceil(protocol.rounds / each))


@dataclass(frozen=True, slots=True)
class Advance:
    """How far a run is: whole workers, the clean rounds and placements of one of them on average, and seconds until the
    first, or the next, of the others begins.
    """

    workers: int = 0
    elapsed_s: float = 0.0
    rounds: float = 1.0
    placements: float = 1.0


def wanted(protocol: Protocol, found: Scatter, pace: Pace, done: Advance = Advance()) -> Way:
    """The cheapest way to the precision, as far as it can be told now."""
    if protocol.precision is None:
        return Way(fixed_amount(protocol), protocol.workers, precise=True)
    return _cheapest(protocol, found, pace, done)


def limit_met(plan: Plan, samples: Sequence[Sample], fits: bool, answered: Answered | None = None) -> str:
    """Which limit a run has met after whole workers: budget, workers, or what `answered` says; else nothing.

    `plan` holds the cases that have not failed, `fits` says whether a further worker would end within the budget. Never
    before the protocol's fewest workers.
    """
    return limit_after(whole_workers(plan, samples), plan.protocol, fits, lambda: (answered or precise)(plan, samples))


def limit_after(workers: int, protocol: Protocol, fits: bool, said: Callable[[], str]) -> str:
    """Which limit a run has met after so many workers; `said` is asked where it is time to look."""
    if protocol.precision is None:
        return "workers" if workers >= protocol.workers else ""
    if workers < protocol.workers:
        return ""
    if workers in looks() and (word := said()):
        return word
    if not fits:
        return "budget"
    return "workers" if workers >= MOST_WORKERS else ""


def precise(plan: Plan, samples: Sequence[Sample]) -> str:
    """`precision` where every ratio is known to the protocol's."""
    assert plan.protocol.precision is not None
    means = [mean_of(workers) if workers else None for workers in _rows(plan, samples)]
    return "precision" if half_width(means, plan.protocol) <= plan.protocol.precision else ""


@cache
def looks() -> tuple[int, ...]:
    """After how many workers the precision is looked at: each at first, then rarer, for each look costs confidence."""
    found = [FIRST_LOOK]
    while found[-1] < MOST_WORKERS:
        found.append(max(found[-1] + 1, found[-1] * 5 // 4))
    return tuple(found)


def half_width(means: Iterable[WeightedMean | None], protocol: Protocol) -> float:
    """Half the widest interval of a ratio, relative; infinite for fewer than two workers, or none."""
    halves = [mean.half(level(protocol)) if mean else math.inf for mean in means]
    return max((math.expm1(half) if half < UNKNOWN else math.inf for half in halves), default=0.0)


def hoped_for(protocol: Protocol, found: Scatter, pace: Pace) -> WeightedMean:
    """How well a run of the protocol's budget can know a log ratio at best; its mean is 0."""
    way = _cheapest(replace(protocol, precision=0.0), found, pace, Advance())
    return WeightedMean(0.0, math.sqrt(found.of_worker(way.amount) / way.workers), way.workers - 1)


def whole_workers(plan: Plan, samples: Sequence[Sample]) -> int:
    """How many workers have measured every case of a plan whole."""
    rounds = whole_rounds(samples, plan.protocol)
    return min((len(rounds.get(case.label, {})) for case in plan.cases), default=0)


def _cheapest(protocol: Protocol, found: Scatter, pace: Pace, done: Advance) -> Way:
    """What the next workers make, and workers in all: the least time to the precision, or the narrowest interval within
    what is left of the budget.
    """
    assert protocol.precision is not None
    assert protocol.budget_s is not None
    left_s = protocol.budget_s - done.elapsed_s
    quantiles = _quantiles(level(protocol))
    known = done.workers / found.of_worker(done) if done.workers else 0.0
    least = min(MOST_WORKERS, max(protocol.workers, done.workers + 1))
    options = []
    for amount in _amounts(protocol.rounds):
        seconds = pace.seconds(amount)
        affordable = int(left_s / seconds) if seconds else MOST_WORKERS
        most = max(least, min(MOST_WORKERS, done.workers + affordable))
        if amount.rounds > protocol.rounds and (most - done.workers) * seconds > left_s:
            continue
        one = found.of_worker(amount)
        for workers in range(least, most + 1):
            half = quantiles[workers] / math.sqrt(known + (workers - done.workers) / one)
            if half <= protocol.precision and workers >= FIRST_LOOK:
                break
        options.append(
            (max(protocol.precision, half), (workers - done.workers) * seconds, amount.rounds, workers, amount)
        )
    half, *_, workers, amount = min(options, key=lambda option: option[:4])
    return Way(amount, workers, precise=half <= protocol.precision)


@lru_cache(maxsize=16)
def _quantiles(confidence: float) -> tuple[float, ...]:
    """Student's, by number of workers."""
    return (math.inf, math.inf, *(student(n - 1, confidence) for n in range(2, MOST_WORKERS + 1)))


@lru_cache(maxsize=16)
def _amounts(fewest_rounds: int) -> tuple[Amount, ...]:
    """What a worker may make: from the fewest rounds on, in steps that grow."""
    found = {Amount(rounds_each=fewest_rounds, placements=1)}
    for each in ROUNDS_EACH:
        placements = max(1, math.ceil(fewest_rounds / each))
        while each * placements <= MOST_ROUNDS:
            found.add(Amount(rounds_each=each, placements=placements))
            placements = max(placements + 1, placements * 9 // 8)
    return tuple(sorted(found, key=lambda amount: (amount.rounds, amount.placements)))
