"""What a run has measured so far: the record, which gives every entry to the journal,
and the samples of roofs.

The first worker finds the roofs that are fastest. They are sampled in its first round,
and those that may bind a row in later rounds as well, within a small share of the time
of the run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from ffnbench.device.ceilings import roofs_for
from ffnbench.device.environment import level_of
from ffnbench.messages import (
    A,
    CacheLevel,
    ExploreRoofs,
    ReachedRoof,
    Sampled,
    SampleRoof,
    WorkerRequest,
)
from ffnbench.metrics import CEILINGS, DEVICE_TIME, HOST_TIME, ROOF
from ffnbench.plan import Note, NoteKind, Plan
from ffnbench.result import (
    CaseCost,
    Ceiling,
    Failure,
    FailureKind,
    Inputs,
    Roof,
    Sample,
)
from ffnbench.run.resources import room_for_ceilings
from ffnbench.stats.ceilings import may_bind

# the number of a worker's first round, the one before round 0; its samples are not
# recorded
PRACTICE = -1


@dataclass(slots=True)
class RunRecord:
    """Everything that a run has measured so far; `journal` is given every entry."""

    plan: Plan
    journal: Callable[[object], None]
    samples: list[Sample] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    roofs: list[Roof] = field(default_factory=list)
    inputs: dict[str, Inputs] = field(default_factory=dict)
    caches: tuple[CacheLevel, ...] = ()  # of the machine, when a worker has told

    @property
    def alive(self) -> list[str]:
        """The labels of the cases that have not failed."""
        failed = {failure.case for failure in self.failures}
        return [case.label for case in self.plan.cases if case.label not in failed]

    @property
    def plan_of_alive(self) -> Plan:
        """The plan with the cases that have not failed."""
        alive = set(self.alive)
        return replace(
            self.plan,
            cases=tuple(case for case in self.plan.cases if case.label in alive),
        )

    def fail(self, label: str, kind: FailureKind, message: str) -> None:
        """Record why a case failed: it is measured no further, and has no figures."""
        failure = Failure(case=label, kind=kind, message=message)
        self.failures.append(failure)
        self.journal(failure)

    def note(self, label: str, text: str) -> None:
        """Record what a reader should know, the same only once."""
        note = Note(label=label, text=text, kind=NoteKind.GENERAL)
        if note not in self.notes:
            self.notes.append(note)
            self.journal(note)

    def add(self, sample: Sample) -> None:
        """Record a sample."""
        self.samples.append(sample)
        self.journal(sample)

    def add_single(self, label: str, metric: str, worker: int, value: float) -> None:
        """Record a value that a worker measures once, and not in rounds."""
        self.add(
            Sample(
                case=label,
                metric=metric,
                worker=worker,
                round=0,
                order=0,
                value=value,
                calls=1,
            )
        )

    def add_latency(self, sample: Sample, sampled: Sampled) -> None:
        """Record a sample of the latency, and those of the device's and the host's
        seconds, where the worker has measured them.
        """
        self.add(sample)
        for metric, value in (
            (DEVICE_TIME, sampled.device_s),
            (HOST_TIME, sampled.host_s),
        ):
            if value is not None:
                self.add(replace(sample, metric=metric, value=value))

    def add_roof(self, roof: Roof) -> None:
        """Record a roof that will be sampled."""
        self.roofs.append(roof)
        self.journal(roof)

    def add_inputs(self, label: str, count: int, bytes: int) -> None:
        """Record how many inputs the calls of a sample read, and on a CPU which cache
        holds all of them, and which a single one.
        """
        work = self.plan.case(label).workload
        inputs = Inputs(case=label, count=count, bytes=bytes)
        if work.device == "cpu":
            level = level_of(bytes, work.threads, self.caches)
            one_level = level_of(bytes // count, work.threads, self.caches)
            inputs = replace(inputs, level=level, one_level=one_level)
        if self.inputs.get(label) != inputs:
            self.inputs[label] = inputs
            self.journal(inputs)


ROOFS_SHARE = 0.05  # the share of a run's time that roofs may take
# exploring takes this share of the budget, or without a budget so long for each worker,
# and in any case no longer than MOST_EXPLORING_S
EXPLORING_SHARE, EXPLORING_A_WORKER_S, MOST_EXPLORING_S = 0.02, 0.05, 1.5
# a roof may bind a row where the least time that it allows is at least this share of
# the one that binds the row now; roofs that bind no row are sampled once
MAY_BIND = 0.5
KEPT_ROOFS = 3  # of each ceiling; only all samples together show which is the fastest
# so many workers sample the roofs that may bind a row, whatever time they take, because
# the sample of one worker gives no interval
FEWEST_ROOF_WORKERS = 3


class Ask(Protocol):
    """Asks the worker; None where it can't do it. Raises WorkerLost."""

    def __call__(self, request: WorkerRequest[A]) -> A | None: ...


@dataclass(slots=True)
class RoofSamples:
    """The roofs of a run: which there are, when they are sampled, and what they took.
    Without costs there are none.
    """

    record: RunRecord
    costs: tuple[CaseCost, ...]
    now: Callable[[], float]
    spent_s: float = 0.0
    # the calls of a sample, by the names of the roofs that are still sampled
    _calls: dict[str, int] = field(default_factory=dict)
    _may_bind: frozenset[str] = frozenset()
    _binding_s: float = 0.0  # what one sample of each roof that may bind takes

    def explore(self, ask: Ask, room: int | None) -> None:
        """Find the fastest roofs, once in a run. They may take `room` bytes, None where
        it is not known how many there are.
        """
        start = self.now()
        if CEILINGS in self.record.plan.metrics and self.costs:
            fastest = self._find_fastest(ask, room)
            for reached in fastest:
                self._calls[reached.roof.name] = reached.calls
                self.record.add_roof(reached.roof)
            ceilings = [
                Ceiling(roof=reached.roof, seconds=reached.seconds)
                for reached in fastest
            ]
            self._may_bind = may_bind(
                self.record.plan_of_alive.shown, self.costs, ceilings, MAY_BIND
            )
            self._binding_s = sum(
                reached.seconds * reached.calls
                for reached in fastest
                if reached.roof.name in self._may_bind
            )
        self.spent_s += self.now() - start

    def due(self, workers: int, round_: int, elapsed_s: float) -> list[str]:
        """The names of the roofs to sample in this round, after so many complete
        workers: in the very first round all of them; later those that may bind a row,
        once in each of the first workers, and as often as their share of the time
        allows.
        """
        if round_ == PRACTICE:
            return []
        if workers == 0 and round_ == 0:
            return list(self._calls)
        must_be_sampled = round_ == 0 and workers < FEWEST_ROOF_WORKERS
        has_time = self.spent_s + self._binding_s <= ROOFS_SHARE * elapsed_s
        if must_be_sampled or has_time:
            return [name for name in self._calls if name in self._may_bind]
        return []

    def take_sample(self, ask: Ask, name: str, place: dict[str, Any]) -> None:
        """Take one sample of a roof. A roof that can't be sampled is dropped, and fails
        no case.
        """
        start = self.now()
        roofs = {roof.name: roof for roof in self.record.roofs}
        calls = self._calls[name]
        sampled = ask(SampleRoof(roof=roofs[name], calls=calls))
        if sampled is not None and sampled.value > 0:
            self.record.add(
                Sample(
                    case=name,
                    metric=ROOF,
                    value=sampled.value,
                    calls=calls,
                    waited=sampled.waited,
                    **place,
                )
            )
        else:
            self._calls.pop(name, None)
        self.spent_s += self.now() - start

    def lost(self) -> None:
        """Sample no roof any more: a worker was lost over one."""
        self._calls = {}

    def _find_fastest(self, ask: Ask, room: int | None) -> tuple[ReachedRoof, ...]:
        """The fastest roofs of each ceiling, as a worker finds them."""
        plan = self.record.plan_of_alive
        roofs = roofs_for(
            plan.shown,
            self.costs,
            self.record.caches,
            room_for_ceilings(plan.cases, room),
        )
        if not roofs:
            return ()
        exploring_s = EXPLORING_A_WORKER_S * plan.protocol.workers
        if plan.protocol.budget_s is not None:
            exploring_s = EXPLORING_SHARE * plan.protocol.budget_s
        answer = ask(
            ExploreRoofs(
                roofs=tuple(roofs),
                seconds=min(MOST_EXPLORING_S, exploring_s),
                keep=KEPT_ROOFS,
            )
        )
        return () if answer is None else answer.roofs
