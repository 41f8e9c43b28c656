"""How much is enough: rounds for a worker, and the rule by which a run stops. Pure; the
runner asks.

Two scatters make a ratio uncertain: that of rounds, which more of them shrink, and that
between workers, which only more workers do. Both are estimated from the clean rounds so
far. The precision is looked at rarely enough that stopping by it costs no coverage
(tests/run/test_enough.py has the simulation).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache
from statistics import fmean, median

from ffnbench.plan import Protocol
from ffnbench.result import CONFIDENCE
from ffnbench.stats.interval import MEDIAN_COST, UNKNOWN_HALF_WIDTH, student, variance
from ffnbench.stats.rounds import RoundTable, RowLogs

MOST_ROUNDS, MOST_WORKERS = 60, 400
FIRST_ANALYSIS = 6  # workers: a scatter of fewer values is too uncertain to stop on
FEWEST_FIXED = 3  # of a fixed number of them, where a budget does not hold them all
SEVERAL = 8  # workers that a run should have: so long a worker may be, at most
# the variance between workers before it is known: (2 %)^2, as if two workers had shown
# it
PRIOR_BETWEEN, PRIOR_WEIGHT = 0.02**2, 2
# standard deviation of normal values over their median absolute deviation
NORMAL_MAD = 1.4826
# starters at a time, and for how long: what they differ by is a part of the error, so a
# longer run has more of them
STARTERS, SERVES_S = 2, 20.0


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds that a worker costs beside its rounds (fork, build, warm-up), and that a
    round costs.
    """

    worker_s: float
    round_s: float

    def seconds(self, rounds: int) -> float:
        """One worker with so many rounds."""
        return self.worker_s + rounds * self.round_s


@dataclass(frozen=True, slots=True)
class Scatter:
    """Variances of the log ratio that is hardest to pin down: of one round, and between
    workers.
    """

    within: float
    between: float

    def of_worker(self, rounds: float) -> float:
        """Variance of a worker's value, the median of its rounds."""
        return self.between + MEDIAN_COST * self.within / rounds


def scatter_of_rounds(table: RoundTable) -> Scatter:
    """The variances of the row with the largest sum, the control left out; `within` is
    0 where nothing is compared.
    """
    scatters = [_scatter_of(row) for row in _compared_rows(table) if row.clean]
    return max(
        scatters,
        key=lambda row: row.of_worker(MOST_ROUNDS),
        default=Scatter(0.0, PRIOR_BETWEEN),
    )


def _scatter_of(row: RowLogs) -> Scatter:
    """The scatter of rounds by the median absolute deviation; that between workers
    drawn towards the prior.
    """
    medians = {worker: median(logs) for worker, logs in row.clean.items()}
    deviations = [
        abs(log - medians[worker]) for worker, logs in row.clean.items() for log in logs
    ]
    within = (NORMAL_MAD * median(deviations)) ** 2
    freedom = len(medians) - 1
    between = 0.0
    if freedom:
        by_rounds = (
            MEDIAN_COST * within * fmean(1 / len(logs) for logs in row.clean.values())
        )
        between = max(0.0, variance(list(medians.values())) - by_rounds)
    return Scatter(
        within,
        (PRIOR_WEIGHT * PRIOR_BETWEEN + freedom * between) / (PRIOR_WEIGHT + freedom),
    )


def _compared_rows(table: RoundTable) -> list[RowLogs]:
    """Of each ratio; of the seconds where nothing is compared."""
    plan = table.plan
    return [
        table.row(label)
        for label in table.labels
        if not (plan.compared and plan.is_reference(label))
    ]


def rounds_wanted(protocol: Protocol, seen: Scatter, pace: Pace, left_s: float) -> int:
    """How many rounds a worker should make.

    A second spent on rounds then tells as much as one spent on further workers
    (Cochran, Sampling Techniques, 10.6). They are no more than leave time for several
    workers.
    """
    if protocol.precision is None or not pace.round_s:
        return protocol.rounds
    best = math.sqrt(
        pace.worker_s / pace.round_s * MEDIAN_COST * seen.within / seen.between
    )
    room = (left_s / SEVERAL - pace.worker_s) / pace.round_s
    return int(max(protocol.rounds, min(best, room, MOST_ROUNDS)))


class StopRule(ABC):
    """When a run ends."""

    @abstractmethod
    def limit(self, table: RoundTable, *, fits: bool, expected: int) -> str:
        """Which limit a run has met after complete workers, in a word; nothing where it
        goes on.

        The table is of the cases that have not failed, `fits` says whether a further
        worker would end within the budget, `expected` how many workers the budget has
        room for.
        """


@dataclass(frozen=True, slots=True)
class FixedWorkers(StopRule):
    """After so many workers, or a few less where the budget does not hold them all."""

    workers: int

    def limit(self, table: RoundTable, *, fits: bool, expected: int) -> str:
        """`workers` or `budget`."""
        workers = table.complete_workers
        if workers >= self.workers or (workers >= FEWEST_FIXED and not fits):
            return "workers"
        return "" if fits else "budget"


class UntilAnswered(StopRule):
    """Once the question is answered, which is asked after 6, 7, 8, 10, ... workers, and
    at the budget's end.

    Nothing but the budget ends a run before it has the protocol's fewest workers.
    """

    @abstractmethod
    def answer(self, table: RoundTable, expected: int) -> str:
        """Whether it is answered, in a word; nothing where it is not."""

    def limit(self, table: RoundTable, *, fits: bool, expected: int) -> str:
        """What `answer` says, `budget` or `workers`."""
        workers = table.complete_workers
        if workers >= table.plan.protocol.workers:
            if workers in interim_analyses():
                answer = self.answer(table, expected)
                if answer:
                    return answer
            if fits and workers >= MOST_WORKERS:
                return "workers"
        return "" if fits else "budget"


@dataclass(frozen=True, slots=True)
class UntilPrecise(UntilAnswered):
    """Once every ratio is known to the precision, a share, by half its interval."""

    precision: float

    def answer(self, table: RoundTable, expected: int) -> str:
        """`precision`, however many workers are expected."""
        for row in _compared_rows(table):
            mean = row.mean()
            half = mean.half_width(CONFIDENCE) if mean else math.inf
            if half >= UNKNOWN_HALF_WIDTH or math.expm1(half) > self.precision:
                return ""
        return "precision"


def stop_rule(protocol: Protocol) -> StopRule:
    """The rule that a protocol states."""
    if protocol.precision is None:
        return FixedWorkers(protocol.workers)
    return UntilPrecise(protocol.precision)


@cache
def interim_analyses() -> tuple[int, ...]:
    """After how many workers a run may stop: often at first, then rarer."""
    workers = [FIRST_ANALYSIS]
    while workers[-1] < MOST_WORKERS:
        workers.append(max(workers[-1] + 1, workers[-1] * 5 // 4))
    return tuple(workers)


def workers_for(wanted: float, row: RowLogs) -> float:
    """How many workers, with as many rounds as these, would know a row to `wanted`,
    half an interval in logs.

    Infinite where no run has so many.
    """
    of_worker = _scatter_of(row).of_worker(fmean(map(len, row.clean.values())))
    for workers in interim_analyses():
        if student(workers - 1, CONFIDENCE) * math.sqrt(of_worker / workers) <= wanted:
            return workers
    return math.inf
