"""The samples of a run by case, worker and round: which of them are clean, and the logs
of each row by worker. Pure.

A sample is clean if the worker's threads waited for a CPU during no more than
MOST_WAITED of its time, and nothing such as heat or a power brake held the device's
clocks down. Heavy products keep a card at its power limit whoever runs them, and no
wait would help: that is reported, and leaves a sample clean. A row's round is clean if
its own sample and its reference's are. How long a sample took is no reason to leave it
out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from ffnbench.plan.metrics import LATENCY
from ffnbench.plan.plan import CONTROL, Plan
from ffnbench.record.result import (
    CONFIDENCE,
    MOST_WAITED,
    POWER_CAP,
    Estimate,
    Run,
    Sample,
)
from ffnbench.stats.interval import (
    Mean,
    WorkerValue,
    confidence_of_each,
    mean_of,
    midmean,
)

FEWEST_CLEAN = 4  # a worker with fewer clean rounds has no value
# the share of a row's rounds that should be clean: if fewer are, the row is undecided
# for the disturbance, and not for want of rounds
ENOUGH_CLEAN = 0.5
# if so few cases share a round, the value of a worker is the mean of the middle half of
# its rounds; with more cases two samples of a round lie further apart in time, the
# tails are heavier, and the median scatters less. A robust fit of a worker's
# rounds and cases (Huber, k 0.7) scatters as much between workers, 1.01 times in 62
# rows of committed runs, 1.00 in 36 others: a ratio is made of its two rows alone.
FEW_CASES = 3

# the seconds of a call of one case, by worker and round; None where it is not clean
Seconds = Mapping[int, Mapping[int, float | None]]
# what makes one value of the logs of a worker's rounds
Centre = Callable[[Sequence[float]], float]


@dataclass(frozen=True, slots=True)
class Rounds:
    """The rounds of a run, of one metric of time: the seconds of each case by its
    label, and the starter of each worker.
    """

    plan: Plan
    seconds: Mapping[str, Seconds]
    starters: Mapping[int, int]

    @property
    def labels(self) -> list[str]:
        """The rows that were measured, in the plan's order."""
        return [case.label for case in self.plan.shown if case.label in self.seconds]


@dataclass(frozen=True, slots=True)
class RowLogs:
    """The logs of a row by worker, over clean rounds: of its ratio to another row, or
    of its seconds.

    A worker is in `clean` if it has FEWEST_CLEAN clean rounds, or half of its rounds if
    it made few. `workers`, `rounds` and `clean_rounds` are of all
    workers, also of those that are not in `clean`.
    """

    clean: Mapping[int, Sequence[float]]
    workers: int
    rounds: int
    clean_rounds: int
    starters: Mapping[int, int]
    centre: Centre

    @property
    def disturbed(self) -> bool:
        """Whether too few of all rounds are clean, or fewer than two workers have
        enough of them. If such a row is not decided, more rounds would not have helped.
        """
        return self.clean_rounds < ENOUGH_CLEAN * self.rounds or self.lacks_clean

    @property
    def lacks_clean(self) -> bool:
        """Whether fewer than two workers have enough clean rounds; if there is a single
        worker, whether that one has too few.
        """
        return len(self.clean) < min(2, self.workers)

    def mean(self) -> Mean | None:
        """The mean over workers, each of which gives the centre of its rounds; None
        where there are none.
        """
        if not self.clean:
            return None
        return mean_of(
            WorkerValue(self.centre(logs), self.starters[worker])
            for worker, logs in self.clean.items()
        )

    def estimate(
        self,
        confidence: float = CONFIDENCE,
        slack: float = 0.0,
        *,
        at: float | None = None,
    ) -> Estimate | None:
        """The mean as a ratio or as seconds, with the interval of this confidence, both
        ends of which are moved out by `slack` (in logs); a single worker gives none.

        `at` is a log that takes the place of the mean.
        """
        mean = self.mean()
        if mean is None:
            return None
        if at is not None:
            mean = replace(mean, mean=at)
        return replace(
            mean.inflated(confidence, slack).exp(),
            workers=len(self.clean),
            samples=sum(map(len, self.clean.values())),
        )


def rounds_of(run: Run, metric: str = LATENCY, *, disturbed: bool = False) -> Rounds:
    """The rounds of a run, without the cases that have failed. With `disturbed` every
    sample counts as clean: that is what was seen, and supports no interval.

    A disturbed sample may have been taken again: the last one of a round counts. A
    worker that was cut short is left out if enough complete ones remain.
    """
    failed = {failure.case for failure in run.failures}
    seconds: dict[str, dict[int, dict[int, float | None]]] = {}
    starters: dict[int, int] = {}
    for sample in run.samples:
        if sample.metric != metric or sample.case in failed:
            continue
        of_worker = seconds.setdefault(sample.case, {}).setdefault(sample.worker, {})
        counts = disturbed or is_clean(sample)
        of_worker[sample.round] = sample.value if counts else None
        starter = sample.starter
        starters[sample.worker] = sample.worker if starter is None else starter
    protocol = run.plan.protocol
    # with a precision the protocol's rounds are the fewest of a worker; else they are
    # all that it makes, and more than half of them count as complete
    fewest = protocol.rounds
    if protocol.precision is None:
        fewest = protocol.rounds // 2 + 1
    if metric != LATENCY:
        fewest = 0
    complete = {label: _complete(of_case, fewest) for label, of_case in seconds.items()}
    return Rounds(run.plan, complete, starters)


def _complete(seconds: Seconds, fewest: int) -> Seconds:
    """The rounds of the workers that made at least `fewest`; those of all workers if
    fewer than two made so many.
    """
    complete = {
        worker: calls for worker, calls in seconds.items() if len(calls) >= fewest
    }
    return complete if len(complete) >= 2 else seconds


def is_clean(sample: Sample) -> bool:
    """Whether neither a wait for a CPU nor throttled clocks are known of a sample."""
    return not waited_for_cpu(sample) and not throttling_causes(sample)


def waited_for_cpu(sample: Sample) -> bool:
    """Whether its threads waited for a CPU."""
    return sample.waited is not None and sample.waited > MOST_WAITED


def throttling_causes(sample: Sample) -> list[str]:
    """What held the clocks of the sample's device down, without the power limit, which
    heavy work reaches by itself.
    """
    if not sample.throttled:
        return []
    return [name for name in sample.throttled.split(", ") if name != POWER_CAP]


def complete_workers(run: Run) -> int:
    """How many workers have measured every case that has not failed."""
    seconds = rounds_of(run).seconds
    failed = {failure.case for failure in run.failures}
    alive = {case.label for case in run.plan.cases} - failed
    return min((len(seconds.get(label, {})) for label in alive), default=0)


def confidences(rounds: Rounds) -> dict[str, float]:
    """The confidence of the interval of each row that is compared with another, so that
    all of them hold together with CONFIDENCE, after every interim analysis.

    The rows of one reference are correlated (interval.py). The correction for several
    references is Sidak's (1967), that for analyses Bonferroni's.
    """
    plan = rounds.plan
    compared = [label for label in rounds.labels if not plan.is_reference(label)]
    rows = Counter(map(plan.reference_of, compared))
    of_analysis = 1 - (1 - CONFIDENCE) / plan.protocol.looks
    return {
        label: confidence_of_each(
            rows[plan.reference_of(label)], of_analysis ** (1 / len(rows))
        )
        for label in compared
    }


def row_logs(rounds: Rounds, label: str) -> RowLogs:
    """The logs of a case's ratio to its reference; those of its seconds if it is a
    reference itself.
    """
    if rounds.plan.is_reference(label):
        return seconds_logs(rounds, label)
    return ratio_logs(rounds, label, rounds.plan.reference_of(label))


def compared_rows(rounds: Rounds) -> dict[str, RowLogs]:
    """The logs of every row, without the references if rows are compared with them."""
    plan = rounds.plan
    return {
        label: row_logs(rounds, label)
        for label in rounds.labels
        if not (plan.compared and plan.is_reference(label))
    }


def seconds_logs(rounds: Rounds, label: str) -> RowLogs:
    """log(seconds) of a case."""
    logs_by_worker = {}
    for worker, calls in rounds.seconds.get(label, {}).items():
        logs_by_worker[worker] = [
            None if seconds is None else math.log(seconds) for seconds in calls.values()
        ]
    return _row_of(logs_by_worker, rounds.starters, _centre_of(rounds.plan, label))


def ratio_logs(rounds: Rounds, label: str, other: str) -> RowLogs:
    """log(case / other) of the same rounds.

    The control is a second measurement of the reference. So the mean of the two stands
    for the reference, except in the ratio of the control itself.
    """
    seconds = rounds.seconds
    if CONTROL in seconds and CONTROL not in (label, other):
        seconds = {**seconds, rounds.plan.reference: _reference_and_control(rounds)}
    return paired_logs(
        seconds.get(label, {}),
        seconds.get(other, {}),
        rounds.starters,
        _centre_of(rounds.plan, label),
    )


def paired_logs(
    seconds: Seconds,
    others: Seconds,
    starters: Mapping[int, int],
    centre: Centre = median,
) -> RowLogs:
    """log(seconds / others) of the same rounds of the same workers; a round is clean if
    both calls are.
    """
    logs_by_worker: dict[int, list[float | None]] = {}
    for worker, calls in seconds.items():
        calls_of_other = others.get(worker, {})
        logs = logs_by_worker[worker] = []
        for number in calls.keys() & calls_of_other.keys():
            call, other = calls[number], calls_of_other[number]
            if call is None or other is None:
                logs.append(None)
            else:
                logs.append(math.log(call / other))
    return _row_of(logs_by_worker, starters, centre)


def _reference_and_control(rounds: Rounds) -> Seconds:
    """The mean of the reference and the control in each round."""
    control = rounds.seconds[CONTROL]
    means = {}
    for worker, calls in rounds.seconds.get(rounds.plan.reference, {}).items():
        again = control.get(worker, {})
        means[worker] = {
            number: _mean_of_two(seconds, again.get(number))
            for number, seconds in calls.items()
        }
    return means


def _mean_of_two(first: float | None, second: float | None) -> float | None:
    """The geometric mean of two calls of a round; if only one of them is clean, that
    one.
    """
    if first is None or second is None:
        return first or second
    return math.sqrt(first * second)


def _centre_of(plan: Plan, label: str) -> Centre:
    """What makes one value of the rounds of a worker: the midmean if few cases share
    the rounds, else the median.

    The control does not count, so that a check does as its baseline did.
    """
    return midmean if len(plan.group_of(label).cases) <= FEW_CASES else median


def _row_of(
    logs_by_worker: Mapping[int, Sequence[float | None]],
    starters: Mapping[int, int],
    centre: Centre,
) -> RowLogs:
    """The row of these logs by worker, one for each round, which is None where that is
    not clean.
    """
    clean: dict[int, list[float]] = {}
    clean_rounds = 0
    for worker, all_logs in logs_by_worker.items():
        logs = [log for log in all_logs if log is not None]
        clean_rounds += len(logs)
        enough = min(FEWEST_CLEAN, math.ceil(ENOUGH_CLEAN * len(all_logs)))
        if logs and len(logs) >= enough:
            clean[worker] = logs
    return RowLogs(
        clean=clean,
        workers=sum(map(bool, logs_by_worker.values())),
        rounds=sum(map(len, logs_by_worker.values())),
        clean_rounds=clean_rounds,
        starters=starters,
        centre=centre,
    )


def mean_seconds(rounds: Rounds, seen: Rounds) -> dict[str, Estimate]:
    """The seconds of each case, with means that are fitted two-way over rows and
    rounds, so that those of two rows differ by exactly their ratio.

    Rows may differ in their clean rounds, and a median of ratios is no ratio of
    medians. So the effect of a row is its reported ratio to the reference, and all rows
    of a reference share one level. Where no worker has enough clean rounds, those in
    `seen`, disturbed or not, take their place, and leave no interval.
    """
    effects: dict[str, dict[str, float]] = {}
    for label in rounds.seconds:
        reference = rounds.plan.reference_of(label)
        mean = ratio_logs(rounds, label, reference).mean()
        mean = mean or ratio_logs(seen, label, reference).mean()
        if mean:
            effects.setdefault(reference, {})[label] = mean.mean
    fitted: dict[str, float] = {}
    for rows in effects.values():
        level = _without_effects(rounds, rows).mean()
        level = level or _without_effects(seen, rows).mean()
        if level:
            fitted |= {label: level.mean + effect for label, effect in rows.items()}
    estimates = {}
    for label in rounds.seconds:
        at = fitted.get(label)
        estimate = seconds_logs(rounds, label).estimate(at=at)
        if estimate is None:
            estimate = seconds_logs(seen, label).estimate(at=at)
            estimate = estimate and estimate.without_interval()
        if estimate:
            estimates[label] = estimate
    return estimates


def _without_effects(rounds: Rounds, effects: Mapping[str, float]) -> RowLogs:
    """What is left of the log of each round without the effects of its rows: the median
    over its clean samples, which is a step of Tukey's median polish (1977).
    """
    logs: dict[int, dict[int, list[float]]] = {}
    for label, effect in effects.items():
        for worker, calls in rounds.seconds[label].items():
            of_worker = logs.setdefault(worker, {})
            for number, seconds in calls.items():
                clean_logs = of_worker.setdefault(number, [])
                if seconds is not None:
                    clean_logs.append(math.log(seconds) - effect)
    logs_by_worker = {
        worker: [median(clean) if clean else None for clean in of_worker.values()]
        for worker, of_worker in logs.items()
    }
    return _row_of(logs_by_worker, rounds.starters, median)


def labels_without_clean(rounds: Rounds) -> list[str]:
    """The rows that were measured, and of which no worker has enough clean rounds."""
    rows = {label: row_logs(rounds, label) for label in rounds.labels}
    return [label for label, row in rows.items() if row.rounds and not row.clean]
