"""What a run has measured so far: the record, which gives every entry to the
journal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from ffnbench.device.environment import level_of
from ffnbench.messages import CacheLevel, Rated, Sampled
from ffnbench.metrics import COPY, DEVICE_TIME, HOST_TIME, PRODUCTS
from ffnbench.plan import Note, NoteKind, Plan
from ffnbench.result import DeviceReadings, Failure, FailureKind, Inputs, Sample


@dataclass(slots=True)
class RunRecord:
    """Everything that a run has measured so far; `journal` is given every entry."""

    plan: Plan
    journal: Callable[[object], None]
    samples: list[Sample] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    inputs: dict[str, Inputs] = field(default_factory=dict)
    caches: tuple[CacheLevel, ...] = ()  # of the machine, when a worker has told
    # what each worker reads of a device with its samples
    readings: dict[tuple[int, str], DeviceReadings] = field(default_factory=dict)

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

    def add_rate(self, label: str, rated: Rated, place: dict[str, Any]) -> None:
        """Record the seconds of the bare products of a case, and of the copy."""
        for metric, value in ((PRODUCTS, rated.products_s), (COPY, rated.copy_s)):
            self.add(
                Sample(
                    case=label,
                    metric=metric,
                    value=value,
                    calls=1,
                    waited=rated.waited,
                    **place,
                )
            )

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

    def add_readings(self, worker: int, device: str, sampled: Sampled) -> None:
        """Record what a sample says of its GPU; that of a CPU says nothing."""
        clock = sampled.clock_mhz
        if clock is None and sampled.others is None:
            return
        key = worker, device
        readings = self.readings.get(key, DeviceReadings(worker=worker, device=device))
        if clock is not None:
            readings = replace(
                readings,
                least_clock_mhz=min(readings.least_clock_mhz or clock, clock),
                most_clock_mhz=max(readings.most_clock_mhz or clock, clock),
            )
        if sampled.others is not None:  # with the first sample of a worker alone
            readings = replace(readings, others=sampled.others)
        self.readings[key] = readings
