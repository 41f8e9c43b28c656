"""Samples -> rounds: which of them are clean, on which placement each was made, the logs of a row. Pure.

A sample is clean where the worker's threads waited for a CPU during no more than WAITED of its time, and nothing held
the device's clocks down: heat, a power brake. A card at its power limit is where heavy products keep it, whoever runs
them, and no wait would help: that is told, and leaves a sample clean. A row's round is clean where its own sample and
its reference's are. These alone say so, never how long a sample took.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from ffnbench.metrics import LATENCY
from ffnbench.plan import Plan, Protocol
from ffnbench.result import POWER_CAP, Sample

CPUS_TAKEN, CLOCKS_HELD = "something else had the CPUs", "the device's clocks were held down"
WAITED = 0.03  # quiet samples wait 0.3 % (median), those beside a spinner 77 %; 1 % gives the same rows
FEWEST_CLEAN = 4  # a worker with fewer clean rounds says nothing
ENOUGH_CLEAN = 0.5  # of a row's rounds: with fewer, what is not decided is not for want of rounds


@dataclass(frozen=True, slots=True)
class Timed:
    """One latency: seconds of a call, whether nothing took the CPU or the device's clock meanwhile, and the placement;
    `held` is whether it was the clock.
    """

    seconds: float
    clean: bool
    placement: int
    held: bool = False


Rounds = dict[int, dict[int, Timed]]  # of a case: worker -> round
Placed = list[list[float]]  # logs of one worker, by placement


@dataclass(frozen=True, slots=True)
class Row:
    """The logs of a row by worker and placement: of its clean rounds, and of all. `clean` has no worker that made
    fewer than FEWEST_CLEAN of them, or of few rounds half.
    """

    clean: dict[int, Placed]
    every: dict[int, Placed]
    clean_rounds: int

    @property
    def rounds(self) -> int:
        """All of them."""
        return sum(len(logs) for placed in self.every.values() for logs in placed)

    @property
    def disturbed(self) -> bool:
        """Whether too few rounds were clean to say that others left the CPUs alone: of all, or of all workers but one.

        Then a row that is not decided is not so for want of rounds.
        """
        return self.clean_rounds < ENOUGH_CLEAN * self.rounds or len(self.clean) < min(2, len(self.every))


def is_clean(sample: Sample) -> bool:
    """Whether nothing took the CPUs from this sample, or the clock from its device, as far as that is known."""
    return not waited_for(sample) and not held_down(sample)


def waited_for(sample: Sample) -> bool:
    """Whether its threads waited for a CPU."""
    return sample.waited is not None and sample.waited > WAITED


def held_down(sample: Sample) -> list[str]:
    """What held the clocks of its device down, but for the power limit that heavy work meets by itself."""
    return [name for name in (sample.throttled or "").split(", ") if name not in ("", POWER_CAP)]


def whole_rounds(samples: Iterable[Sample], protocol: Protocol, metric: str = LATENCY) -> dict[str, Rounds]:
    """The latencies, or other seconds, by case, worker and round, without workers that were cut short where enough
    whole ones remain.

    A disturbed sample may have been taken again: the last one of a round counts.
    """
    fewest = protocol.rounds // 2 + 1 if protocol.precision is None else protocol.rounds
    rounds: dict[str, Rounds] = defaultdict(lambda: defaultdict(dict))
    for sample in samples:
        if sample.metric == metric:
            timed = Timed(sample.value, is_clean(sample), sample.placement, bool(held_down(sample)))
            rounds[sample.case][sample.worker][sample.round] = timed
    return {label: _whole(found, fewest) for label, found in rounds.items()}


def _whole(rounds: Rounds, fewest: int) -> Rounds:
    """A worker that was interrupted or lost before its fewest rounds says too little."""
    whole = {worker: values for worker, values in rounds.items() if len(values) >= fewest}
    return whole if len(whole) >= 2 else rounds


def ratio_row(rounds: Rounds, reference: Rounds) -> Row:
    """log(case / reference) of the same rounds."""
    pairs = {
        worker: [(own, base[r]) for r, own in values.items() if r in base]
        for worker, values in rounds.items()
        if (base := reference.get(worker, {}))
    }
    return _row(
        {
            worker: [(own.placement, own.clean and base.clean, math.log(own.seconds / base.seconds))
                     for own, base in found]
            for worker, found in pairs.items()
        }
    )  # fmt: skip


def seconds_row(rounds: Rounds) -> Row:
    """log(seconds) of a case."""
    return _row(
        {
            worker: [(timed.placement, timed.clean, math.log(timed.seconds)) for timed in values.values()]
            for worker, values in rounds.items()
        }
    )


def row_of_case(plan: Plan, rounds: dict[str, Rounds], label: str) -> Row:
    """Of its ratio to what it is compared with; of its seconds where it is that itself, or stands alone."""
    own = rounds.get(label, {})
    return seconds_row(own) if plan.is_reference(label) else ratio_row(own, rounds.get(plan.reference_of(label), {}))


def _row(points: dict[int, list[tuple[int, bool, float]]]) -> Row:
    every = {worker: _placed(found, every=True) for worker, found in points.items() if found}
    enough = {w: min(FEWEST_CLEAN, math.ceil(ENOUGH_CLEAN * len(found))) for w, found in points.items()}
    clean = {
        worker: placed
        for worker, found in points.items()
        if (placed := _placed(found, every=False)) and sum(map(len, placed)) >= enough[worker]
    }
    return Row(clean=clean, every=every, clean_rounds=sum(ok for found in points.values() for _, ok, _ in found))


def _placed(points: list[tuple[int, bool, float]], *, every: bool) -> Placed:
    found: dict[int, list[float]] = defaultdict(list)
    for placement, clean, log in points:
        if clean or every:
            found[placement].append(log)
    return list(found.values())


def without_quiet(plan: Plan, samples: Iterable[Sample]) -> list[str]:
    """The rows that were measured, and of which no worker has enough clean rounds."""
    rounds = whole_rounds(samples, plan.protocol)
    rows = {case.label: row_of_case(plan, rounds, case.label) for case in plan.shown if case.label in rounds}
    return [label for label, row in rows.items() if row.every and not row.clean]


def disturbed(plan: Plan, samples: Iterable[Sample]) -> set[str]:
    """The rows of which too few rounds were clean."""
    rounds = whole_rounds(samples, plan.protocol)
    labels = [case.label for case in plan.shown if case.label in rounds]
    return {label for label in labels if row_of_case(plan, rounds, label).disturbed}


@dataclass(frozen=True, slots=True)
class Counted:
    """How many rounds of a row were made, and how many of them were clean."""

    label: str
    clean: int
    made: int


def fewest_clean(plan: Plan, samples: Iterable[Sample]) -> Counted | None:
    """The row with the smallest share of clean rounds; None where nothing was timed."""
    rounds = whole_rounds(samples, plan.protocol)
    labels = [case.label for case in plan.shown if case.label in rounds]
    rows = {
        label: row_of_case(plan, rounds, label)
        for label in labels
        if plan.compared == 0 or not plan.is_reference(label)
    }
    found = [Counted(label, row.clean_rounds, row.rounds) for label, row in rows.items() if row.rounds]
    return min(found, key=lambda row: row.clean / row.made, default=None)
