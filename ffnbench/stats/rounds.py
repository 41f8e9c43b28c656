"""Samples -> one table of rounds: which of them are clean, the logs of a row by worker. Pure.

A sample is clean where the worker's threads waited for a CPU during no more than WAITED of its time, and nothing held
the device's clocks down: heat, a power brake. A card at its power limit is where heavy products keep it, whoever runs
them, and no wait would help: that is told, and leaves a sample clean. A row's round is clean where its own sample and
its reference's are. These alone say so, never how long a sample took.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median
from typing import TypeVar

from ffnbench.metrics import LATENCY
from ffnbench.plan import CONTROL, Plan
from ffnbench.result import POWER_CAP, Estimate, Report, Run, Sample
from ffnbench.stats.interval import CONFIDENCE, Mean, Value, mean_of, midmean

CPUS_TAKEN, CLOCKS_HELD = "threads waited for a CPU", "the device's clocks were throttled"
WAITED = 0.03  # quiet samples wait 0.3 % (median), those beside a spinner 77 %; 1 % gives the same rows
FEWEST_CLEAN = 4  # a worker with fewer clean rounds says nothing
ENOUGH_CLEAN = 0.5  # of a row's rounds: with fewer, what is not decided is not for want of rounds
# of the values of a worker's rounds the middle half is averaged where so few cases share a round; with more of them two
# samples of a round lie further apart in time, the tails are heavier, and the median scatters less
FEW_CASES = 3
KEPT = 16  # tables that are asked for again
R = TypeVar("R", bound=Run)


@dataclass(frozen=True, slots=True)
class Timed:
    """One latency: seconds of a call, whether nothing took the CPU or the device's clock meanwhile; `held`: whether
    it was the clock.
    """

    seconds: float
    clean: bool
    held: bool = False


Rounds = dict[int, dict[int, Timed]]  # of a case: worker -> round


@dataclass(frozen=True, slots=True)
class Row:
    """The logs of a row by worker: of its clean rounds, and of all. `clean` has no worker that made fewer than
    FEWEST_CLEAN of them, or of few rounds half. `starters` are those of the workers. `fitted` is the mean where that is
    not the row's own alone, but fits those of other rows.
    """

    clean: dict[int, list[float]]
    every: dict[int, list[float]]
    clean_rounds: int
    starters: Mapping[int, int]
    centre: Callable[[Sequence[float]], float] = median
    fitted: float | None = None

    @property
    def rounds(self) -> int:
        """All of them."""
        return sum(map(len, self.every.values()))

    @property
    def disturbed(self) -> bool:
        """Whether too few rounds were clean to say that others left the CPUs alone: of all, or of all workers but one.

        Then a row that is not decided is not so for want of rounds.
        """
        return self.clean_rounds < ENOUGH_CLEAN * self.rounds or self.lacks_clean

    @property
    def lacks_clean(self) -> bool:
        """Whether fewer than two workers have enough clean rounds; of a single worker, whether that one has too few."""
        return len(self.clean) < min(2, len(self.every))

    def mean(self, *, every: bool = False) -> Mean | None:
        """Over workers, each of which says the centre of its rounds; None where there are none."""
        workers = self.every if every else self.clean
        if not workers:
            return None
        values = (Value(self.centre(logs), self.starters.get(worker, worker)) for worker, logs in workers.items())
        mean = mean_of(values)
        return mean if self.fitted is None else replace(mean, mean=self.fitted)

    def estimate(self, *, every: bool = False) -> Estimate | None:
        """exp(mean) with its interval; without one for a single worker."""
        if (mean := self.mean(every=every)) is None:
            return None
        workers, value = self.every if every else self.clean, math.exp(mean.mean)
        found = Estimate(value=value, workers=len(workers), samples=sum(map(len, workers.values())))
        if (interval := mean.interval(CONFIDENCE)) is None:
            return found
        low, high = map(math.exp, interval)
        return replace(found, low=low, high=high, confidence=CONFIDENCE)

    def around(self, value: float) -> Estimate | None:
        """Another value with the interval of these rounds, as wide relative to it."""
        return replace(self, fitted=math.log(value)).estimate()


class Table:
    """The rounds of a run by case, of one metric of time."""

    def __init__(
        self, plan: Plan, samples: Sequence[Sample], metric: str = LATENCY, failed: frozenset[str] = frozenset()
    ) -> None:
        """A disturbed sample may have been taken again: the last one of a round counts. A worker that was cut short is
        left out where enough whole ones remain, and so is a case that has `failed`.
        """
        self.plan, self.samples, self.metric, self.failed = plan, samples, metric, failed
        found: dict[str, Rounds] = defaultdict(lambda: defaultdict(dict))
        self.starters: dict[int, int] = {}
        for sample in samples:
            if sample.metric == metric and sample.case not in failed:
                timed = Timed(sample.value, is_clean(sample), bool(held_down(sample)))
                found[sample.case][sample.worker][sample.round] = timed
                self.starters[sample.worker] = sample.worker if sample.starter is None else sample.starter
        self._sharing = Counter(
            plan.reference_of(case.label) for case in plan.shown
        )  # a group's cases share its rounds
        protocol = plan.protocol
        fewest = protocol.rounds // 2 + 1 if protocol.precision is None else protocol.rounds
        self.rounds: dict[str, Rounds] = {
            label: _whole(rounds, fewest) if metric == LATENCY else rounds for label, rounds in found.items()
        }

    @property
    def labels(self) -> list[str]:
        """The rows that were measured, in the plan's order."""
        return [case.label for case in self.plan.shown if case.label in self.rounds]

    @property
    def whole_workers(self) -> int:
        """How many workers have measured every case whole that has not failed."""
        alive = [case.label for case in self.plan.cases if case.label not in self.failed]
        return min((len(self.rounds.get(label, {})) for label in alive), default=0)

    def row(self, label: str) -> Row:
        """Of a case's ratio to what it is compared with; of its seconds where it is that itself, or stands alone."""
        alone = self.plan.is_reference(label)
        return self.seconds(label) if alone else self.ratio(label, self.plan.reference_of(label))

    def ratio(self, label: str, other: str) -> Row:
        """log(case / other) of the same rounds. A reference that was measured once more, as the control, is the mean of
        the two, but for the control itself.
        """
        alone = CONTROL in (label, other)
        own, others = (self.rounds.get(name, {}) if alone else self._all_of(name) for name in (label, other))
        return replace(paired(own, others, self.starters), centre=self._centre(label))

    def _all_of(self, label: str) -> Rounds:
        """The rounds of a case, those of the control with the reference's."""
        return self._reference if label == self.plan.reference else self.rounds.get(label, {})

    @cached_property
    def _reference(self) -> Rounds:
        rounds, again = (self.rounds.get(label, {}) for label in (self.plan.reference, CONTROL))
        return both(rounds, again) if again else rounds

    def seconds(self, label: str) -> Row:
        """log(seconds) of a case, the mean fitted: those of two rows differ by their ratio."""
        row = _logs(self.rounds.get(label, {}), self.starters)
        return replace(row, centre=self._centre(label), fitted=self._fitted.get(label))

    def _centre(self, label: str) -> Callable[[Sequence[float]], float]:
        """How a case's rounds become the value of a worker: by how many cases share them, the control left out, so that
        a check and its baseline do it alike.
        """
        return midmean if self._sharing[self.plan.reference_of(label)] <= FEW_CASES else median

    @cached_property
    def common(self) -> Rounds:
        """How much longer each round took all rows than they take in the run, as a factor."""
        return self._left(self._fitted)

    @cached_property
    def _fitted(self) -> dict[str, float]:
        """The log of a row's seconds, fitted two-way over rows and rounds: rows may differ in their clean rounds, and a
        median of ratios is no ratio of medians. The effect of a row is its ratio to the reference, as it is told; all
        rows of a reference share one level.
        """
        effects: dict[str, dict[str, float]] = defaultdict(dict)
        for label in self.rounds:
            reference = self.plan.reference_of(label)
            if mean := self.ratio(label, reference).mean():
                effects[reference][label] = mean.mean
        fitted: dict[str, float] = {}
        for rows in effects.values():
            if level := _logs(self._left(rows), self.starters).mean():
                fitted |= {label: level.mean + effect for label, effect in rows.items()}
        return fitted

    def _left(self, logs: Mapping[str, float]) -> Rounds:
        """What is left of each round without these logs of rows: the median of its clean samples, a step of Tukey's
        median polish.
        """
        left: dict[tuple[int, int], list[float]] = defaultdict(list)
        for label, log in logs.items():
            for worker, made in self.rounds[label].items():
                for number, timed in made.items():
                    left[worker, number] += [math.log(timed.seconds) - log] if timed.clean else []
        rounds: Rounds = defaultdict(dict)
        for (worker, number), found in left.items():
            rounds[worker][number] = Timed(math.exp(median(found or [0.0])), bool(found))
        return rounds

    def without_quiet(self) -> list[str]:
        """The rows that were measured, and of which no worker has enough clean rounds."""
        rows = {label: self.row(label) for label in self.labels}
        return [label for label, row in rows.items() if row.every and not row.clean]

    def disturbed(self) -> set[str]:
        """The rows of which too few rounds were clean."""
        return {label for label in self.labels if self.row(label).disturbed}

    def fewest_clean(self) -> Counted | None:
        """The row with the smallest share of clean rounds; None where nothing was timed."""
        labels = [label for label in self.labels if self.plan.compared == 0 or not self.plan.is_reference(label)]
        rows = {label: self.row(label) for label in labels}
        found = [Counted(label, row.clean_rounds, row.rounds) for label, row in rows.items() if row.rounds]
        return min(found, key=lambda row: row.clean / row.made, default=None)


_made: deque[Table] = deque(maxlen=KEPT)


def table_of(run: Run | Report, metric: str = LATENCY) -> Table:
    """The table of a run, made once for all who ask."""
    failed = frozenset(failure.case for failure in run.failures)
    for table in _made:
        same = table.samples is run.samples and table.plan == run.plan and table.failed == failed
        if same and table.metric == metric:
            return table
    _made.append(Table(run.plan, run.samples, metric, failed))
    return _made[-1]


def is_clean(sample: Sample) -> bool:
    """Whether nothing took the CPUs from this sample, or the clock from its device, as far as that is known."""
    return not waited_for(sample) and not held_down(sample)


def waited_for(sample: Sample) -> bool:
    """Whether its threads waited for a CPU."""
    return sample.waited is not None and sample.waited > WAITED


def held_down(sample: Sample) -> list[str]:
    """What held the clocks of its device down, but for the power limit that heavy work meets by itself."""
    if not sample.throttled:
        return []
    return [name for name in sample.throttled.split(", ") if name != POWER_CAP]


def _whole(rounds: Rounds, fewest: int) -> Rounds:
    whole = {worker: made for worker, made in rounds.items() if len(made) >= fewest}
    return whole if len(whole) >= 2 else rounds


def both(rounds: Rounds, again: Rounds) -> Rounds:
    """A case that was measured twice in each round: the geometric mean of the two, or the only one of them that nothing
    disturbed.
    """
    return {
        worker: {number: _mean_of_two(timed, again.get(worker, {}).get(number)) for number, timed in made.items()}
        for worker, made in rounds.items()
    }


def _mean_of_two(first: Timed, second: Timed | None) -> Timed:
    if second is None or first.clean > second.clean:
        return first
    if second.clean > first.clean:
        return second
    return Timed(math.sqrt(first.seconds * second.seconds), first.clean, first.held)


def paired(rounds: Rounds, others: Rounds, starters: Mapping[int, int]) -> Row:
    """log(one / other) of the same rounds of the same workers."""
    points = {
        worker: [
            (own.clean and base.clean, math.log(own.seconds / base.seconds))
            for number, own in made.items()
            if (base := others[worker].get(number))
        ]
        for worker, made in rounds.items()
        if worker in others
    }
    return _row(points, starters)


def _logs(rounds: Rounds, starters: Mapping[int, int]) -> Row:
    """log(seconds)."""
    logs = {
        worker: [(timed.clean, math.log(timed.seconds)) for timed in made.values()] for worker, made in rounds.items()
    }
    return _row(logs, starters)


def _row(points: dict[int, list[tuple[bool, float]]], starters: Mapping[int, int]) -> Row:
    every = {worker: [log for _, log in found] for worker, found in points.items() if found}
    clean = {worker: [log for ok, log in found if ok] for worker, found in points.items()}
    enough = {worker: min(FEWEST_CLEAN, math.ceil(ENOUGH_CLEAN * len(found))) for worker, found in points.items()}
    return Row(
        clean={worker: logs for worker, logs in clean.items() if logs and len(logs) >= enough[worker]},
        every=every,
        clean_rounds=sum(map(len, clean.values())),
        starters=starters,
    )


@dataclass(frozen=True, slots=True)
class Counted:
    """How many rounds of a row were made, and how many of them were clean."""

    label: str
    clean: int
    made: int
