"""How much is enough: rounds for a worker, workers for a run. Pure; the runner asks and does what it is told.

Two scatters make a ratio uncertain: that of rounds within a worker, which more rounds shrink, and that between
workers, which only more workers do. Both are estimated from what was measured so far, and the cheapest way to the
wanted precision is taken. Looking at the data to decide when to stop costs a little confidence; verdict.level pays it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median, variance

from ffnbench.plan import Plan, Protocol
from ffnbench.result import Sample
from ffnbench.stats.interval import MEDIAN_COST, UNKNOWN, robust_variance, student, value_of, weighted_mean
from ffnbench.stats.verdict import level, paired_logs, whole_rounds

MOST_ROUNDS, MOST_WORKERS = 60, 48
FIRST_LOOK = 4  # a scatter of three values is too uncertain to stop on
# the scatter between processes before it is known: 0.5 %, as if two workers had shown it
PRIOR_BETWEEN, PRIOR_WEIGHT = 0.005**2, 2
Answered = Callable[[Plan, Sequence[Sample]], str]  # whether the question is answered, in a word


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds that a worker costs beside its rounds (start, warm-up, checks), and that a round costs."""

    worker_s: float
    round_s: float

    def seconds(self, rounds: int) -> float:
        """One worker with that many rounds."""
        return self.worker_s + rounds * self.round_s


@dataclass(frozen=True, slots=True)
class Scatter:
    """Variances of the log ratio that is hardest to pin down: of one round in a worker, and between workers."""

    within: float
    between: float

    def of_worker(self, rounds: int) -> float:
        """Variance of a worker's value, the median of so many rounds."""
        return self.between + MEDIAN_COST * self.within / rounds


def scatter(plan: Plan, samples: Sequence[Sample]) -> Scatter:
    """Both variances of the row with the largest sum, the control left out; zeros where nothing can be compared."""
    worst = Scatter(0.0, PRIOR_BETWEEN)
    for logs in _rows(plan, samples):
        within = median(robust_variance(v) for v in logs)
        rounds = min(map(len, logs))
        found = _between([median(v) for v in logs], MEDIAN_COST * within / rounds)
        worst = max(worst, Scatter(within, found), key=lambda s: s.of_worker(rounds))
    return worst


def _rows(plan: Plan, samples: Sequence[Sample]) -> list[list[list[float]]]:
    """For each row the logs of its ratio, by worker; a case that stands alone is taken by its seconds."""
    rounds = whole_rounds(samples, plan.protocol)
    if not plan.compared:
        alone = [rounds[case.label] for case in plan.shown if case.label in rounds]
        return [[[math.log(v) for v in values.values()] for values in found.values()] for found in alone]
    labels = [case.label for case in plan.shown if not plan.is_reference(case.label) and case.label in rounds]
    rows = [list(paired_logs(rounds[label], rounds.get(plan.reference_of(label), {})).values()) for label in labels]
    return [row for row in rows if row]


def rounds_wanted(protocol: Protocol, found: Scatter, pace: Pace) -> int:
    """How many rounds a worker should make: those of the cheapest way to the precision."""
    if protocol.precision is None:
        return protocol.rounds
    return _cheapest(protocol, found, pace)[0]


def workers_wanted(protocol: Protocol, found: Scatter, pace: Pace) -> int:
    """How many workers the run will take in all, as far as can be told now: for progress and for starting them."""
    if protocol.precision is None:
        return protocol.workers
    return _cheapest(protocol, found, pace)[1]


def limit_met(
    plan: Plan, samples: Sequence[Sample], elapsed_s: float, pace: Pace, rounds: int, answered: Answered | None = None
) -> str:
    """Which limit a run has met after whole workers: budget, workers, or what `answered` says; else nothing.

    `plan` holds the cases that have not failed. Never before the protocol's fewest workers; a further one is begun
    only if it will end within the budget.
    """
    protocol = plan.protocol
    rounds_by_case = whole_rounds(samples, protocol)
    workers = min((len(rounds_by_case.get(case.label, {})) for case in plan.cases), default=0)
    if protocol.precision is None:
        return "workers" if workers >= protocol.workers else ""
    assert protocol.budget_s is not None
    if workers < protocol.workers:
        return ""
    if workers in looks() and (said := (answered or precise)(plan, samples)):
        return said
    if elapsed_s + pace.seconds(rounds) > protocol.budget_s:
        return "budget"
    return "workers" if workers >= MOST_WORKERS else ""


def precise(plan: Plan, samples: Sequence[Sample]) -> str:
    """`precision` where every ratio is known to the protocol's."""
    assert plan.protocol.precision is not None
    return "precision" if _half_width(plan, samples) <= plan.protocol.precision else ""


def looks() -> list[int]:
    """After how many workers the precision is looked at: each at first, then rarer, for each look costs confidence."""
    found = [FIRST_LOOK]
    while found[-1] < MOST_WORKERS:
        found.append(max(found[-1] + 1, found[-1] * 5 // 4))
    return found


def _half_width(plan: Plan, samples: Sequence[Sample]) -> float:
    """Half the widest interval of a ratio, relative; infinite for fewer than two workers."""
    widest = 0.0
    for logs in _rows(plan, samples):
        half = weighted_mean(map(value_of, logs)).half(level(plan.protocol))
        widest = max(widest, math.expm1(half) if half < UNKNOWN else math.inf)
    return widest


def finest_error(protocol: Protocol, found: Scatter, pace: Pace) -> float:
    """The standard error of a log ratio that a run of the protocol's budget can hope for at best."""
    rounds, workers = _cheapest(replace(protocol, precision=0.0), found, pace)
    return math.sqrt(found.of_worker(rounds) / workers)


def _cheapest(protocol: Protocol, found: Scatter, pace: Pace) -> tuple[int, int]:
    """Rounds a worker and workers: the least time to the precision, or the narrowest interval within the budget."""
    assert protocol.precision is not None
    assert protocol.budget_s is not None
    confidence = level(protocol)
    options = []
    for rounds in range(protocol.rounds, MOST_ROUNDS + 1):
        seconds, variance_of_one = pace.seconds(rounds), found.of_worker(rounds)
        most = max(protocol.workers, min(MOST_WORKERS, int(protocol.budget_s / seconds) if seconds else MOST_WORKERS))
        if rounds > protocol.rounds and most * seconds > protocol.budget_s:
            break
        widths = {
            n: student(n - 1, confidence) * math.sqrt(variance_of_one / n) for n in range(protocol.workers, most + 1)
        }
        enough = [n for n, width in widths.items() if n >= FIRST_LOOK and width <= protocol.precision]
        workers = min(enough, default=most)
        reached = max(protocol.precision, widths[workers])
        options.append((reached, workers * seconds, rounds, workers))
    _, _, rounds, workers = min(options)
    return rounds, workers


def _between(values: list[float], explained: float) -> float:
    """Variance between workers beyond what their own rounds explain, drawn towards the prior while workers are few."""
    if len(values) < 2:
        return PRIOR_BETWEEN
    beyond = max(0.0, variance(values) - explained)
    freedom = len(values) - 1
    return (PRIOR_WEIGHT * PRIOR_BETWEEN + freedom * beyond) / (PRIOR_WEIGHT + freedom)
