"""The record of a run: samples, failures, notes, roofs and inputs so far. The journal is given each as it comes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ffnbench.device.environment import level_of
from ffnbench.messages import CacheLevel, Sampled
from ffnbench.metrics import DEVICE_TIME, HOST_TIME
from ffnbench.plan import Note, NoteKind, Plan
from ffnbench.result import Failure, FailureKind, Inputs, Roof, Sample


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
        return replace(self.plan, cases=tuple(case for case in self.plan.cases if case.label in alive))

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
        self.add(Sample(case=label, metric=metric, worker=worker, round=0, order=0, value=value, calls=1))

    def timed(self, sample: Sample, sampled: Sampled) -> None:
        """A latency; beside it what the device worked for a call and what a call took the host, where they are told."""
        self.add(sample)
        for metric, value in ((DEVICE_TIME, sampled.device_s), (HOST_TIME, sampled.host_s)):
            if value is not None:
                self.add(replace(sample, metric=metric, value=value))

    def roof(self, roof: Roof) -> None:
        """A call that may show what the machine can do."""
        self.roofs.append(roof)
        self.journal(roof)

    def reads(self, label: str, count: int, bytes: int) -> None:
        """What the calls of a sample read: all of it, and each by itself, in which cache."""
        work = self.plan.case(label).workload
        inputs = Inputs(case=label, count=count, bytes=bytes)
        if work.device == "cpu":
            level = level_of(bytes, work.threads, self.caches)
            one_level = level_of(bytes // count, work.threads, self.caches)
            inputs = replace(inputs, level=level, one_level=one_level)
        if self.inputs.get(label) != inputs:
            self.inputs[label] = inputs
            self.journal(inputs)
