"""The record of a run: samples, failures, notes, roofs and inputs so far. The journal
is given each as it comes.

Samples of roofs stand beside those of cases: which calls could be a ceiling, when it is
their turn, what they took. The first worker finds the fastest; they are sampled in its
rounds, and in the first round of each later worker, within a small share of the time of
the run.
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


@dataclass(slots=True)
class RunRecord:
    """The record of a run, to which is only added; `journal` is given every entry."""

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
        """The cases that have not failed."""
        failed = {failure.case for failure in self.failures}
        return [case.label for case in self.plan.cases if case.label not in failed]

    @property
    def left(self) -> Plan:
        """The plan with these."""
        alive = set(self.alive)
        return replace(
            self.plan,
            cases=tuple(case for case in self.plan.cases if case.label in alive),
        )

    def fail(self, label: str, kind: FailureKind, message: str) -> None:
        """A case is a row without figures from now on."""
        failure = Failure(case=label, kind=kind, message=message)
        self.failures.append(failure)
        self.journal(failure)

    def note(self, label: str, text: str) -> None:
        """Something a reader should know, once."""
        note = Note(label=label, text=text, kind=NoteKind.GENERAL)
        if note not in self.notes:
            self.notes.append(note)
            self.journal(note)

    def add(self, sample: Sample) -> None:
        """One sample."""
        self.samples.append(sample)
        self.journal(sample)

    def once(self, label: str, metric: str, worker: int, value: float) -> None:
        """A sample of which a worker makes one."""
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

    def timed(self, sample: Sample, sampled: Sampled) -> None:
        """A latency; beside it what the device worked for a call and what a call took
        the host, where they are told.
        """
        self.add(sample)
        for metric, value in (
            (DEVICE_TIME, sampled.device_s),
            (HOST_TIME, sampled.host_s),
        ):
            if value is not None:
                self.add(replace(sample, metric=metric, value=value))

    def roof(self, roof: Roof) -> None:
        """A call that may show what the machine can do."""
        self.roofs.append(roof)
        self.journal(roof)

    def reads(self, label: str, count: int, bytes: int) -> None:
        """What the calls of a sample read: all of it, and each by itself, in which
        cache.
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


SHARE = 0.05  # of a run's time, for all that is about ceilings
EXPLORING = 0.02  # of the budget, and at most
EXPLORING_S, EXPLORING_A_WORKER_S = 1.5, 0.05  # the second where there is no budget
# of the least time that a row's ceilings allow: what is farther away is looked at once
MAY_BIND = 0.5
KEPT_ROOFS = 3  # of each ceiling: which is the fastest is known at the end
# that sample those that may bind, whatever the time: one gives no interval
FEWEST_ROOF_WORKERS = 3


class Ask(Protocol):
    """Asks the worker of the reference; None where it can't do it."""

    def __call__(self, request: WorkerRequest[A]) -> A | None: ...


@dataclass(slots=True)
class RoofSamples:
    """All that a run knows of its ceilings. Without costs nothing is known of them."""

    record: RunRecord
    costs: tuple[CaseCost, ...]
    now: Callable[[], float]
    seconds: float = 0.0  # spent on ceilings
    reached: list[Ceiling] = field(default_factory=list)
    # of a sample of those that are still sampled
    _calls: dict[str, int] = field(default_factory=dict)
    _may_bind: frozenset[str] = frozenset()
    _set_s: float = 0.0  # what one sample of each that may bind takes

    def explore(self, ask: Ask, room: int | None) -> None:
        """Find the fastest roofs, once in a run."""
        start = self.now()
        if CEILINGS in self.record.plan.metrics and self.costs:
            for reached in self.reach(ask, self.exploring_s, room):
                self._calls[reached.roof.name] = reached.calls
                self.record.roof(reached.roof)
            self._may_bind = may_bind(
                self.record.left.shown, self.costs, self.reached, MAY_BIND
            )
            binding = [
                ceiling
                for ceiling in self.reached
                if ceiling.roof.name in self._may_bind
            ]
            self._set_s = sum(
                ceiling.seconds * self._calls[ceiling.roof.name] for ceiling in binding
            )
        self.seconds += self.now() - start

    def due(self, workers: int, round_: int, elapsed_s: float) -> list[str]:
        """The roofs whose turn it is in this round, after so many whole workers: in the
        very first all of them, then those that may bind a row, once in each of the
        first workers and as often as their share of the time allows.
        """
        if round_ < 0:  # practice
            return []
        if workers == 0 and round_ == 0:
            return list(self._calls)
        must_be_sampled = round_ == 0 and workers < FEWEST_ROOF_WORKERS
        if must_be_sampled or self.seconds + self._set_s <= SHARE * elapsed_s:
            return [name for name in self._calls if name in self._may_bind]
        return []

    def take_sample(self, ask: Ask, name: str, place: dict[str, Any]) -> None:
        """One sample of a roof; one that can't be had is dropped, and fails no case."""
        start = self.now()
        roofs = {roof.name: roof for roof in self.record.roofs}
        calls = self._calls[name]
        sampled = ask(SampleRoof(roof=roofs[name], calls=calls))
        if sampled is not None and sampled.value > 0:
            value, waited = sampled.value, sampled.waited
            self.record.add(
                Sample(
                    case=name,
                    metric=ROOF,
                    value=value,
                    calls=calls,
                    waited=waited,
                    **place,
                )
            )
        else:
            self._calls.pop(name, None)
        self.seconds += self.now() - start

    def lost(self) -> None:
        """A worker was lost over them: they are not sampled any more."""
        self._calls = {}

    @property
    def exploring_s(self) -> float:
        """For how long they are looked for."""
        protocol = self.record.plan.protocol
        if protocol.budget_s is None:
            return min(EXPLORING_S, EXPLORING_A_WORKER_S * protocol.workers)
        return min(EXPLORING_S, EXPLORING * protocol.budget_s)

    def reach(
        self, ask: Ask, seconds: float, room: int | None
    ) -> tuple[ReachedRoof, ...]:
        """Look for the fastest roofs."""
        left = self.record.left
        asked = roofs_for(
            left.shown,
            self.costs,
            self.record.caches,
            room_for_ceilings(left.cases, room),
        )
        if not asked:
            return ()
        answer = ask(ExploreRoofs(roofs=tuple(asked), seconds=seconds, keep=KEPT_ROOFS))
        if answer is None:
            return ()
        self.reached += [
            Ceiling(roof=reached.roof, seconds=reached.seconds)
            for reached in answer.roofs
        ]
        return answer.roofs
