"""Samples -> one table of rounds: which of them are clean, the logs of a row by worker.
Pure.

A sample is clean where the worker's threads waited for a CPU during no more than
MOST_WAITED of its time, and nothing held the device's clocks down: heat, a power brake.
A card at its power limit is where heavy products keep it, whoever runs them, and no
wait would help: that is reported, and leaves a sample clean. A row's round is clean
where its own sample and its reference's are. How long a sample took is no reason to
leave it out.
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
from ffnbench.stats.interval import Mean, WorkerValue, mean_of, midmean

CPUS_TAKEN = "threads waited for a CPU"
CLOCKS_HELD = "the device's clocks were throttled"
FEWEST_CLEAN = 4  # a worker with fewer clean rounds says nothing
# of a row's rounds: with fewer, what is not decided is not for want of rounds
ENOUGH_CLEAN = 0.5
# of the values of a worker's rounds the middle half is averaged where so few cases
# share a round; with more of them two samples of a round lie further apart in time, the
# tails are heavier, and the median scatters less
FEW_CASES = 3
RECENT = 16  # tables that may be asked for again


@dataclass(frozen=True, slots=True)
class Timed:
    """Seconds of one call; `clean`: nothing disturbed it; `held`: the clocks of its
    device were held down.
    """

    seconds: float
    clean: bool
    held: bool = False


# of a case: worker -> number of the round -> call
Rounds = Mapping[int, Mapping[int, Timed]]


@dataclass(frozen=True, slots=True)
class RowLogs:
    """The logs of a row by worker, over clean rounds: of its ratio to another row, or
    of its seconds.

    A worker is in `clean` if it made FEWEST_CLEAN clean rounds, or half of all where it
    made few. `workers`, `rounds` and `clean_rounds` count all that were made.
    `starters` are those of the workers. `centre` makes one value of the rounds of a
    worker. `fitted` is the mean where it was fitted together with those of other rows.
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
        """Whether too few rounds were clean to say that others left the CPUs alone: of
        all, or of all workers but one.

        If such a row is not decided, more rounds would not have helped.
        """
        return self.clean_rounds < ENOUGH_CLEAN * self.rounds or self.lacks_clean

    @property
    def lacks_clean(self) -> bool:
        """Whether fewer than two workers have enough clean rounds; of a single worker,
        whether that one has too few.
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

    def estimate(self) -> Estimate | None:
        """exp(mean) with its interval; without an interval for a single worker."""
        mean = self.mean()
        if mean is None:
            return None
        samples = sum(map(len, self.clean.values()))
        estimate = Estimate(
            value=math.exp(mean.mean), workers=len(self.clean), samples=samples
        )
        interval = mean.interval(CONFIDENCE)
        if interval is None:
            return estimate
        return replace(
            estimate,
            low=math.exp(interval[0]),
            high=math.exp(interval[1]),
            confidence=CONFIDENCE,
        )

    def centred_at(self, value: float) -> Estimate | None:
        """Another value with the interval of these rounds, as wide relative to it."""
        return replace(self, fitted=math.log(value)).estimate()


class RoundTable:
    """The rounds of a run by case, of one metric of time."""

    def __init__(
        self,
        plan: Plan,
        samples: Sequence[Sample],
        metric: str = LATENCY,
        failed: frozenset[str] = frozenset(),
    ) -> None:
        """The cases that have `failed` are left out.

        A disturbed sample may have been taken again: the last one of a round counts. A
        worker that was cut short is left out where enough complete ones remain.
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
                sample.value, clean=is_clean(sample), held=bool(held_down(sample))
            )
            timed[sample.case][sample.worker][sample.round] = call
            if sample.starter is None:
                self.starters[sample.worker] = sample.worker
            else:
                self.starters[sample.worker] = sample.starter
        self.rounds: dict[str, Rounds] = {**timed}
        if metric == LATENCY:
            fewest = plan.protocol.rounds
            if plan.protocol.precision is None:
                fewest = plan.protocol.rounds // 2 + 1
            self.rounds = {
                label: _complete(rounds, fewest) for label, rounds in timed.items()
            }
        self._sharing_rounds = Counter(
            plan.reference_of(case.label) for case in plan.shown
        )

    @property
    def labels(self) -> list[str]:
        """The rows that were measured, in the plan's order."""
        return [case.label for case in self.plan.shown if case.label in self.rounds]

    @property
    def complete_workers(self) -> int:
        """How many workers have measured every case that has not failed."""
        alive = [
            case.label for case in self.plan.cases if case.label not in self.failed
        ]
        return min((len(self.rounds.get(label, {})) for label in alive), default=0)

    def row(self, label: str) -> RowLogs:
        """Of a case's ratio to what it is compared with; of the seconds of a reference,
        or a case that stands alone.
        """
        if self.plan.is_reference(label):
            return self.seconds(label)
        return self.ratio(label, self.plan.reference_of(label))

    def ratio(self, label: str, other: str) -> RowLogs:
        """log(case / other) of the same rounds.

        The reference that the control measured a second time is the mean of the two,
        but for the control itself.
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
        for worker, made in self.rounds.get(self.plan.reference, {}).items():
            again = control.get(worker, {})
            means[worker] = {
                number: _mean_of_two(call, again.get(number))
                for number, call in made.items()
            }
        return means

    def seconds(self, label: str) -> RowLogs:
        """log(seconds) of a case, the mean fitted: those of two rows differ by their
        ratio.
        """
        row = _log_seconds(self.rounds.get(label, {}), self.starters)
        return replace(row, centre=self._centre(label), fitted=self._fitted.get(label))

    def _centre(self, label: str) -> Callable[[Sequence[float]], float]:
        """The midmean where few cases share the rounds, else the median.

        The control does not count, so that a check and its baseline do it alike.
        """
        sharing_rounds = self._sharing_rounds[self.plan.reference_of(label)]
        return midmean if sharing_rounds <= FEW_CASES else median

    @cached_property
    def round_effects(self) -> Rounds:
        """How much longer each round took all rows than they take in the run, as a
        factor.
        """
        return self._residuals(self._fitted)

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
        """What is left of each round without the effects of its rows (logs), as
        seconds.

        It is the median over the round's clean samples, a step of Tukey's median polish
        (1977).
        """
        logs: dict[tuple[int, int], list[float]] = defaultdict(list)
        for label, effect in effects.items():
            for worker, made in self.rounds[label].items():
                for number, call in made.items():
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
        """The row with the smallest share of clean rounds, a ratio if any is; None
        where nothing was timed.
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
    """The table of a run, made once for all who ask."""
    failed = frozenset(failure.case for failure in run.failures)
    for table in _recent:
        same = (
            table.samples is run.samples
            and table.plan == run.plan
            and table.failed == failed
        )
        if same and table.metric == metric:
            return table
    table = RoundTable(run.plan, run.samples, metric, failed)
    _recent.append(table)
    return table


def is_clean(sample: Sample) -> bool:
    """Whether nothing took the CPUs from this sample, or the clock from its device, as
    far as that is known.
    """
    return not waited_for(sample) and not held_down(sample)


def waited_for(sample: Sample) -> bool:
    """Whether its threads waited for a CPU."""
    return sample.waited is not None and sample.waited > MOST_WAITED


def held_down(sample: Sample) -> list[str]:
    """What held the clocks of its device down, but for the power limit that heavy work
    meets by itself.
    """
    if not sample.throttled:
        return []
    return [name for name in sample.throttled.split(", ") if name != POWER_CAP]


def _complete(rounds: Rounds, fewest: int) -> Rounds:
    """The workers with enough rounds; all of them where fewer than two have."""
    complete = {worker: made for worker, made in rounds.items() if len(made) >= fewest}
    return complete if len(complete) >= 2 else rounds


def _mean_of_two(first: Timed, second: Timed | None) -> Timed:
    """The geometric mean of two calls of a round, or the only one of them that nothing
    disturbed.
    """
    if second is None or first.clean > second.clean:
        return first
    if second.clean > first.clean:
        return second
    return Timed(math.sqrt(first.seconds * second.seconds), first.clean, first.held)


RoundLog = tuple[bool, float]  # whether a round is clean, and its log


def paired_logs(rounds: Rounds, others: Rounds, starters: Mapping[int, int]) -> RowLogs:
    """log(one / other) of the same rounds of the same workers."""
    points: dict[int, list[RoundLog]] = {}
    for worker, made in rounds.items():
        made_by_other = others.get(worker, {})
        points[worker] = []
        for number, call in made.items():
            other = made_by_other.get(number)
            if other is not None:
                log = math.log(call.seconds / other.seconds)
                points[worker].append((call.clean and other.clean, log))
    return _row_of(points, starters)


def _log_seconds(rounds: Rounds, starters: Mapping[int, int]) -> RowLogs:
    """log(seconds)."""
    points = {}
    for worker, made in rounds.items():
        points[worker] = [
            (call.clean, math.log(call.seconds)) for call in made.values()
        ]
    return _row_of(points, starters)


def _row_of(
    points: Mapping[int, Sequence[RoundLog]], starters: Mapping[int, int]
) -> RowLogs:
    clean: dict[int, list[float]] = {}
    clean_rounds = 0
    for worker, made in points.items():
        logs = [log for is_clean_round, log in made if is_clean_round]
        clean_rounds += len(logs)
        if logs and len(logs) >= min(FEWEST_CLEAN, math.ceil(ENOUGH_CLEAN * len(made))):
            clean[worker] = logs
    return RowLogs(
        clean=clean,
        workers=sum(bool(made) for made in points.values()),
        rounds=sum(map(len, points.values())),
        clean_rounds=clean_rounds,
        starters=starters,
    )
