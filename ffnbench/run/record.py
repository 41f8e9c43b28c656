"""What a run has measured so far."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from ffnbench.plan.plan import Note, NoteKind, Plan
from ffnbench.record.messages import Values
from ffnbench.record.result import Failure, FailureKind, Sample


@dataclass(slots=True)
class RunRecord:
    """Everything that a run has measured so far."""

    plan: Plan
    samples: list[Sample] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

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
