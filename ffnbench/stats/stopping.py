"""How much is enough: how many rounds a worker makes, and the rule by which a run
stops. Pure; the runner asks.

Two scatters make a ratio uncertain: that of rounds, which more rounds make smaller, and
that between workers, which only more workers make smaller. Both are estimated from the
clean rounds so far. The precision is looked at so rarely that a run which stops by it
loses no coverage (tests/run/test_enough.py simulates it).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache
from statistics import fmean, median

from ffnbench.plan.plan import Protocol
from ffnbench.record.result import CONFIDENCE, Run
from ffnbench.stats.interval import (
    MEDIAN_COST,
    UNKNOWN_HALF_WIDTH,
    VarianceEstimate,
    variance,
)
from ffnbench.stats.rounds import (
    Rounds,
    RowLogs,
    compared_rows,
    complete_workers,
    confidences,
    rounds_of,
)

MOST_ROUNDS, MOST_WORKERS = 60, 400
# after so many workers a run may stop: the scatter of fewer is too uncertain
FIRST_ANALYSIS = 6
# a run should have so many workers: a worker makes no more rounds than leave time for
# them, and the scatter of so many can be relied on
WORKERS_WANTED = 8
# the variance between workers before it is known: (2 %)^2, as if two workers had shown
# it
PRIOR_BETWEEN, PRIOR_WEIGHT = 0.02**2, 2
# standard deviation of normal values over their median absolute deviation
NORMAL_MAD = 1.4826
# how many starters a run has at a time, and for how many seconds each forks workers:
# the difference between starters is a part of the error, so a longer run has more
STARTERS, SERVES_S = 2, 20.0


@dataclass(frozen=True, slots=True)
class Pace:
    """The seconds that a worker takes without its rounds (fork, build, warm-up), and
    the seconds of one round.
    """

    worker_s: float
    round_s: float

    def seconds(self, rounds: int) -> float:
        """The seconds of one worker with so many rounds."""
        return self.worker_s + rounds * self.round_s


@dataclass(frozen=True, slots=True)
class Scatter:
    """The variances of a row's log: `within` a worker from round to round, and
    `between` workers.
    """

    within: float
    between: float

    def of_worker(self, rounds: float) -> float:
        """The variance of a worker's value, as if it were the median of its rounds; a
        midmean, of few cases, scatters about as much.
        """
        return self.between + MEDIAN_COST * self.within / rounds


def scatter_of_rounds(rounds: Rounds) -> Scatter:
    """The scatter of the row that needs most workers; a default where no row has clean
    rounds.
    """
    rows = compared_rows(rounds).values()
    scatters = [_scatter_of(row) for row in rows if row.clean]
    return max(
        scatters,
        key=lambda row: row.of_worker(MOST_ROUNDS),
        default=Scatter(0.0, PRIOR_BETWEEN),
    )


def _scatter_of(row: RowLogs) -> Scatter:
    """The scatter of a row: `within` by the median absolute deviation of its rounds,
    `between` drawn towards the prior.
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
    prior = VarianceEstimate(PRIOR_BETWEEN, PRIOR_WEIGHT)
    drawn = VarianceEstimate(between, freedom).drawn_towards(prior)
    return Scatter(within, drawn.variance)


def rounds_wanted(protocol: Protocol, seen: Scatter, pace: Pace, left_s: float) -> int:
    """How many rounds a worker should make, with `left_s` seconds left in the run.

    With the best number a second spent on rounds tells as much as one spent on further
    workers (Cochran, Sampling Techniques, 10.6). But a run should have WORKERS_WANTED
    workers in the time that is left, and a worker makes the protocol's rounds at least.
    """
    if protocol.precision is None or not pace.round_s:
        return protocol.rounds
    best = math.sqrt(
        pace.worker_s / pace.round_s * MEDIAN_COST * seen.within / seen.between
    )
    fitting = (left_s / WORKERS_WANTED - pace.worker_s) / pace.round_s
    return int(max(protocol.rounds, min(best, fitting, MOST_ROUNDS)))


class StopRule(ABC):
    """When a run ends."""

    @abstractmethod
    def limit(self, run: Run, *, fits: bool, expected: int) -> str:
        """Name the limit that a run has reached after a complete worker; an empty text
        means that the run goes on.

        The plan of the run has the cases that have not failed. `fits` says whether one
        more worker would end within the budget, `expected` how many workers the budget
        is enough for.
        """


@dataclass(frozen=True, slots=True)
class FixedWorkers(StopRule):
    """A run ends after so many workers; it has no budget."""

    workers: int

    def limit(self, run: Run, *, fits: bool, expected: int) -> str:
        """`workers`, once there are enough."""
        return "workers" if complete_workers(run) >= self.workers else ""


class UntilAnswered(StopRule):
    """A run ends once its question is answered, which is asked after 6, 7, 8, 10, ...
    workers, or when its budget is over.

    Only the budget ends a run before it has the protocol's fewest workers.
    """

    @abstractmethod
    def answer(self, run: Run, expected: int) -> str:
        """Name what answers the question; an empty text means that nothing does yet."""

    def limit(self, run: Run, *, fits: bool, expected: int) -> str:
        """What `answer` says, `budget` or `workers`."""
        workers = complete_workers(run)
        if workers >= run.plan.protocol.workers:
            if workers in interim_analyses():
                answer = self.answer(run, expected)
                if answer:
                    return answer
            if fits and workers >= MOST_WORKERS:
                return "workers"
        return "" if fits else "budget"


@dataclass(frozen=True, slots=True)
class UntilPrecise(UntilAnswered):
    """A run ends once half the interval of every ratio is at most `precision`, a share
    of the ratio.
    """

    precision: float

    def answer(self, run: Run, expected: int) -> str:
        """`precision` if every row has it; `expected` does not matter."""
        rounds = rounds_of(run)
        of_rows = confidences(rounds)
        for label, row in compared_rows(rounds).items():
            mean, confidence = row.mean(), of_rows.get(label, CONFIDENCE)
            half = mean.half_width(confidence) if mean else math.inf
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
    """After how many workers a run may stop: each number is about a quarter larger than
    the one before.
    """
    workers = [FIRST_ANALYSIS]
    while workers[-1] < MOST_WORKERS:
        workers.append(max(workers[-1] + 1, workers[-1] * 5 // 4))
    return tuple(workers)
