"""The samples of a run as a table of rounds: which of them are clean, and the logs of
each row by worker. Pure.

A sample is clean if the worker's threads waited for a CPU during no more than
MOST_WAITED of its time, and nothing such as heat or a power brake held the device's
clocks down. Heavy products keep a card at its power limit whoever runs them, and no
wait would help: that is reported, and leaves a sample clean. A row's round is clean if
its own sample and its reference's are. How long a sample took is no reason to leave it
out.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median

from ffnbench.metrics import LATENCY
from ffnbench.plan import CONTROL, Plan
from ffnbench.result import (
    CONFIDENCE,
    MOST_WAITED,
    POWER_CAP,
    Estimate,
    Report,
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

CPUS_TAKEN = "threads waited for a CPU"
CLOCKS_HELD = "the device's clocks were throttled"
FEWEST_CLEAN = 4  # a worker with fewer clean rounds has no value
# the share of a row's rounds that should be clean: if fewer are, the row is undecided
# for the disturbance, and not for want of rounds
ENOUGH_CLEAN = 0.5
# if so few cases share a round, the value of a worker is the mean of the middle half of
# its rounds; with more cases two samples of a round lie further apart in time, the
# tails are heavier, and the median scatters less
FEW_CASES = 3
RECENT = 16  # tables that are kept for those who ask again


@dataclass(frozen=True, slots=True)
class Timed:
    """The seconds of one call, whether nothing disturbed it, and whether its threads
    waited for a CPU.
    """

    seconds: float
    clean: bool
    waited: bool = False


# the calls of a case: by worker, then by the number of the round
Rounds = Mapping[int, Mapping[int, Timed]]


@dataclass(frozen=True, slots=True)
class RowLogs:
    """The logs of a row by worker, over clean rounds: of its ratio to another row, or
    of its seconds.

    A worker is in `clean` if it has FEWEST_CLEAN clean rounds, or half of its rounds if
    it made few. `workers`, `rounds` and `clean_rounds` are of all
    workers, also of those that are not in `clean`.
    `starters` has the starter of each worker. `centre` makes one value of the rounds of
    a worker. `fitted` is the mean if that was fitted together with the means of other
    rows.
    """

    clean: Mapping[int, Sequence[float]]
    workers: int
    rounds: int
    clean_rounds: int
    starters: Mapping[int, int]
    centre: Callable[[Sequence[float]], float] = median
    fitted: float | None = None

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
        mean = mean_of(
            WorkerValue(self.centre(logs), self.starters.get(worker, worker))
            for worker, logs in self.clean.items()
        )
        if self.fitted is None:
            return mean
        return replace(mean, mean=self.fitted)

    def estimate(
        self, confidence: float = CONFIDENCE, slack: float = 0.0
    ) -> Estimate | None:
        """The mean as a ratio or as seconds, with the interval of this confidence, both
        ends of which are moved out by `slack` (in logs); a single worker gives none.
        """
        mean = self.mean()
        if mean is None:
            return None
        return replace(
            mean.inflated(confidence, slack).exp(),
            workers=len(self.clean),
            samples=sum(map(len, self.clean.values())),
        )

    def centred_at(
        self, value: float, confidence: float = CONFIDENCE
    ) -> Estimate | None:
        """The estimate around another value: the interval of these rounds, as wide
        relative to `value`.
        """
        return replace(self, fitted=math.log(value)).estimate(confidence)


class RoundTable:
    """The rounds of a run by case, of one metric of time."""

    def __init__(
        self,
        plan: Plan,
        samples: Sequence[Sample],
        metric: str = LATENCY,
        failed: frozenset[str] = frozenset(),
    ) -> None:
        """Put the samples of one metric into rounds; cases that have `failed` are left
        out.

        A disturbed sample may have been taken again: the last one of a round counts. A
        worker that was cut short is left out if enough complete ones remain.
        """
        self.plan = plan
        self.samples = samples
        self.metric = metric
        self.failed = failed
        self.starters: dict[int, int] = {}
        timed: dict[str, dict[int, dict[int, Timed]]] = defaultdict(
            lambda: defaultdict(dict)
        )
        for sample in samples:
            if sample.metric != metric or sample.case in failed:
                continue
            call = Timed(
                sample.value,
                clean=is_clean(sample),
                waited=waited_for_cpu(sample),
            )
            timed[sample.case][sample.worker][sample.round] = call
            if sample.starter is None:
                self.starters[sample.worker] = sample.worker
            else:
                self.starters[sample.worker] = sample.starter
        self.rounds: dict[str, Rounds] = {**timed}
        if metric == LATENCY:
            # with a precision the protocol's rounds are the fewest of a worker; else
            # they are all that it makes, and more than half of them count as complete
            fewest = plan.protocol.rounds
            if plan.protocol.precision is None:
                fewest = plan.protocol.rounds // 2 + 1
            self.rounds = {
                label: _complete(rounds, fewest) for label, rounds in timed.items()
            }
        self._cases_of_reference = Counter(
            plan.reference_of(case.label) for case in plan.shown
        )

    @property
    def labels(self) -> list[str]:
        """The rows that were measured, in the plan's order."""
        return [case.label for case in self.plan.shown if case.label in self.rounds]

    @cached_property
    def confidences(self) -> dict[str, float]:
        """The confidence of the interval of each row that is compared with another, so
        that all of them hold together with CONFIDENCE, after every interim analysis.

        The rows of one reference are correlated (interval.py). The correction for
        several references is Sidak's (1967), that for analyses Bonferroni's.
        """
        compared = [label for label in self.labels if not self.plan.is_reference(label)]
        rows = Counter(self.plan.reference_of(label) for label in compared)
        of_analysis = 1 - (1 - CONFIDENCE) / self.plan.protocol.looks
        return {
            label: confidence_of_each(
                rows[self.plan.reference_of(label)], of_analysis ** (1 / len(rows))
            )
            for label in compared
        }

    @property
    def complete_workers(self) -> int:
        """How many workers have measured every case that has not failed."""
        alive = [
            case.label for case in self.plan.cases if case.label not in self.failed
        ]
        return min((len(self.rounds.get(label, {})) for label in alive), default=0)

    def row(self, label: str) -> RowLogs:
        """The logs of a case's ratio to its reference; those of its seconds if it is a
        reference itself.
        """
        if self.plan.is_reference(label):
            return self.seconds(label)
        return self.ratio(label, self.plan.reference_of(label))

    def ratio(self, label: str, other: str) -> RowLogs:
        """log(case / other) of the same rounds.

        The control is a second measurement of the reference. So the mean of the two
        stands for the reference, except in the ratio of the control itself.
        """
        with_control = CONTROL not in (label, other)
        rounds = self._rounds_of(label, with_control)
        others = self._rounds_of(other, with_control)
        return replace(
            paired_logs(rounds, others, self.starters), centre=self._centre(label)
        )

    def _rounds_of(self, label: str, with_control: bool) -> Rounds:
        if with_control and label == self.plan.reference:
            return self._reference_and_control
        return self.rounds.get(label, {})

    @cached_property
    def _reference_and_control(self) -> Rounds:
        control = self.rounds.get(CONTROL, {})
        means: dict[int, dict[int, Timed]] = {}
        for worker, calls in self.rounds.get(self.plan.reference, {}).items():
            again = control.get(worker, {})
            means[worker] = {
                number: _mean_of_two(call, again.get(number))
                for number, call in calls.items()
            }
        return means

    def seconds(self, label: str) -> RowLogs:
        """log(seconds) of a case. The mean is the fitted one, so that the means of two
        rows differ by exactly their ratio.
        """
        row = _log_seconds(self.rounds.get(label, {}), self.starters)
        return replace(row, centre=self._centre(label), fitted=self._fitted.get(label))

    def _centre(self, label: str) -> Callable[[Sequence[float]], float]:
        """What makes one value of the rounds of a worker: the midmean if few cases
        share the rounds, else the median.

        The control does not count, so that a check does as its baseline did.
        """
        cases = self._cases_of_reference[self.plan.reference_of(label)]
        return midmean if cases <= FEW_CASES else median

    @cached_property
    def _fitted(self) -> dict[str, float]:
        """The log of each row's seconds, fitted two-way over rows and rounds.

        Rows may differ in their clean rounds, and a median of ratios is no ratio of
        medians. So the effect of a row is its reported ratio to the reference, and all
        rows of a reference share one level.
        """
        effects: dict[str, dict[str, float]] = defaultdict(dict)
        for label in self.rounds:
            reference = self.plan.reference_of(label)
            mean = self.ratio(label, reference).mean()
            if mean:
                effects[reference][label] = mean.mean
        fitted: dict[str, float] = {}
        for rows in effects.values():
            level = _log_seconds(self._residuals(rows), self.starters).mean()
            if level:
                fitted |= {label: level.mean + effect for label, effect in rows.items()}
        return fitted

    def _residuals(self, effects: Mapping[str, float]) -> Rounds:
        """What is left of each round without the effects of its rows, which are logs.

        It is the median over the round's clean samples, which is a step of Tukey's
        median polish (1977), and is given as if it were the seconds of a call.
        """
        logs: dict[tuple[int, int], list[float]] = defaultdict(list)
        for label, effect in effects.items():
            for worker, calls in self.rounds[label].items():
                for number, call in calls.items():
                    clean_logs = logs[worker, number]
                    if call.clean:
                        clean_logs.append(math.log(call.seconds) - effect)
        rounds: dict[int, dict[int, Timed]] = defaultdict(dict)
        for (worker, number), clean_logs in logs.items():
            rounds[worker][number] = Timed(
                math.exp(median(clean_logs or [0.0])), clean=bool(clean_logs)
            )
        return rounds

    def labels_without_clean(self) -> list[str]:
        """The rows that were measured, and of which no worker has enough clean
        rounds.
        """
        rows = {label: self.row(label) for label in self.labels}
        return [label for label, row in rows.items() if row.rounds and not row.clean]

    def fewest_clean(self) -> tuple[str, RowLogs] | None:
        """The row with the smallest share of clean rounds, and its label; None if
        nothing was timed. References count only if nothing is compared with them.
        """
        fewest: tuple[str, RowLogs] | None = None
        smallest_share = math.inf
        for label in self.labels:
            if self.plan.compared and self.plan.is_reference(label):
                continue
            row = self.row(label)
            if not row.rounds:
                continue
            share = row.clean_rounds / row.rounds
            if share < smallest_share:
                fewest, smallest_share = (label, row), share
        return fewest


_recent: deque[RoundTable] = deque(maxlen=RECENT)


def table_of(run: Run | Report, metric: str = LATENCY) -> RoundTable:
    """The table of a run and a metric; the RECENT last ones are kept."""
    failed = frozenset(failure.case for failure in run.failures)
    for table in _recent:
        if (
            table.samples is run.samples
            and table.metric == metric
            and table.failed == failed
            and table.plan == run.plan
        ):
            return table
    table = RoundTable(run.plan, run.samples, metric, failed)
    _recent.append(table)
    return table


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


def _complete(rounds: Rounds, fewest: int) -> Rounds:
    """The rounds of the workers that made at least `fewest`; those of all workers if
    fewer than two made so many.
    """
    complete = {
        worker: calls for worker, calls in rounds.items() if len(calls) >= fewest
    }
    return complete if len(complete) >= 2 else rounds


def _mean_of_two(first: Timed, second: Timed | None) -> Timed:
    """The geometric mean of two calls of a round; if only one of them is clean, that
    one.
    """
    if second is None or first.clean > second.clean:
        return first
    if second.clean > first.clean:
        return second
    return Timed(math.sqrt(first.seconds * second.seconds), first.clean, first.waited)


RoundLog = tuple[bool, float]  # whether a round is clean, and its log


def paired_logs(rounds: Rounds, others: Rounds, starters: Mapping[int, int]) -> RowLogs:
    """log(rounds / others) of the same rounds of the same workers; a round is clean if
    both calls are.
    """
    logs_by_worker: dict[int, list[RoundLog]] = {}
    for worker, calls in rounds.items():
        calls_of_other = others.get(worker, {})
        logs_by_worker[worker] = []
        for number, call in calls.items():
            other = calls_of_other.get(number)
            if other is not None:
                log = math.log(call.seconds / other.seconds)
                logs_by_worker[worker].append((call.clean and other.clean, log))
    return _row_of(logs_by_worker, starters)


def _log_seconds(rounds: Rounds, starters: Mapping[int, int]) -> RowLogs:
    """log(seconds) of each round of each worker."""
    logs_by_worker = {}
    for worker, calls in rounds.items():
        logs_by_worker[worker] = [
            (call.clean, math.log(call.seconds)) for call in calls.values()
        ]
    return _row_of(logs_by_worker, starters)


def _row_of(
    logs_by_worker: Mapping[int, Sequence[RoundLog]], starters: Mapping[int, int]
) -> RowLogs:
    """The logs of the clean rounds of each worker that has enough of them."""
    clean: dict[int, list[float]] = {}
    clean_rounds = 0
    for worker, all_logs in logs_by_worker.items():
        logs = [log for is_clean_round, log in all_logs if is_clean_round]
        clean_rounds += len(logs)
        enough = min(FEWEST_CLEAN, math.ceil(ENOUGH_CLEAN * len(all_logs)))
        if logs and len(logs) >= enough:
            clean[worker] = logs
    return RowLogs(
        clean=clean,
        workers=sum(bool(all_logs) for all_logs in logs_by_worker.values()),
        rounds=sum(map(len, logs_by_worker.values())),
        clean_rounds=clean_rounds,
        starters=starters,
    )
