"""What a run has measured so far."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from ffnbench.plan.plan import Note, NoteKind, Plan
from ffnbench.record.messages import Sampled, Values
from ffnbench.record.result import DeviceReadings, Failure, FailureKind, Sample


@dataclass(slots=True)
class RunRecord:
    """Everything that a run has measured so far."""

    plan: Plan
    samples: list[Sample] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
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
        self.failures.append(Failure(case=label, kind=kind, message=message))

    def note(self, label: str, text: str) -> None:
        """Record what a reader should know, the same only once."""
        note = Note(label=label, text=text, kind=NoteKind.GENERAL)
        if note not in self.notes:
            self.notes.append(note)

    def add(
        self, label: str, values: Values, *, calls: int = 1, **fields: Any
    ) -> list[Sample]:
        """Record a sample for every metric of a case whose value is known. `fields` are
        further fields of a Sample: a value that a worker measures once has round and
        order 0.
        """
        fields = {"round": 0, "order": 0, **fields}
        samples = [
            Sample(case=label, metric=metric, value=value, calls=calls, **fields)
            for metric, value in values.items()
            if value is not None
        ]
        self.samples += samples
        return samples

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
