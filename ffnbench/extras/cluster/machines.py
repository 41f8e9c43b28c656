"""What was measured on several kinds of machine: a report of each, for no row is compared with one of another kind.

The first kind stands in the file of -o, `sweep.json`, the others beside it in `sweep.m2.json` and so on. All of them
say when the run began, the same moment: by that they are known to belong together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count, takewhile
from pathlib import Path

from ffnbench.common.errors import FfnbenchError
from ffnbench.common.streams import say
from ffnbench.common.units import counted
from ffnbench.plan import Note, NoteKind, Plan, added_kind
from ffnbench.report.files.outputs import save
from ffnbench.report.files.store import load, report_text
from ffnbench.report.shown_report import ShownReport
from ffnbench.result import Environment, Report
from ffnbench.stats.cells import joined
from ffnbench.stats.figures import with_figures


@dataclass(slots=True)
class FilesBeside:
    """The files of further kinds of machine, beside the `first` of a run; those that are there by fingerprint."""

    first: Path
    known: dict[str, Path] = field(default_factory=dict)

    def _paths(self) -> Iterator[Path]:
        return (self.first.with_suffix(f".m{number}.json") for number in count(2))

    def take_up(self, before: Report) -> list[Report]:
        """What a run that is gone on with has left of further kinds; a file that is there and of no such run stays."""
        found = []
        for path in takewhile(Path.exists, self._paths()):
            with suppress(FfnbenchError):
                one = load(path)
                if one.created == before.created and one.environment:
                    self.known[one.environment.fingerprint] = path
                    found.append(one)
        return found

    def write(self, reports: Sequence[ShownReport]) -> ShownReport:
        """Write all but the first, which is given back; each says where the others are."""
        paths = [self.first, *(self._path_of(one) for one in reports[1:])]
        told = {
            path: f"what was measured on {_machine(one.environment)} stands in {path.name}"
            for path, one in zip(paths, reports, strict=True)
        }
        found = []
        for path, one in zip(paths, reports, strict=True):
            texts = [text for other, text in told.items() if other != path]
            notes = (Note(text=text, kind=NoteKind.GENERAL) for text in texts)
            found.append(with_figures(replace(one, warnings=tuple(dict.fromkeys((*one.warnings, *notes))))))
        for path, one in zip(paths[1:], found[1:], strict=True):
            save(path, report_text(one))
            say(f"wrote {path}: {told[path]}")
        return found[0]

    def _path_of(self, one: Report) -> Path:
        assert one.environment is not None
        known = self.known.values()
        free = (path for path in self._paths() if path not in known and not path.exists())
        return self.known.setdefault(one.environment.fingerprint, next(free))


def _machine(on: Environment | None) -> str:
    return f"{on.gpu or on.cpu}, {counted(on.usable_cpus, 'CPU')}, torch {on.torch}" if on else "no machine"


def by_machine(parts: Sequence[ShownReport], plan: Plan) -> list[ShownReport]:
    """One report of each kind of machine, without figures; what was measured nowhere stands in the first.

    A kind that a feature adds (what is learnt) is compared from group to group, whatever machine it is from: a plan of
    that is one report.
    """
    if added_kind(plan.kind):
        return [_learnt(joined(parts, plan), parts)]
    kinds: dict[str, list[ShownReport]] = {}
    for part in parts:
        kinds.setdefault(part.environment.fingerprint if part.environment else "", []).append(part)
    nowhere = kinds.pop("", [])
    first, *others = list(kinds.values()) or [[]]
    of_others = [{case.label for part in many for case in part.plan.cases} for many in others]
    left = {case.label for case in plan.cases}.difference(*of_others)
    found = [joined([*first, *nowhere], _part_of(plan, left))]
    for many, labels in zip(others, of_others, strict=True):
        found.append(joined(many, _part_of(plan, labels)))
    began = min(one.created for one in found)
    return [replace(one, created=began) for one in found]


def _learnt(found: ShownReport, parts: Sequence[ShownReport]) -> ShownReport:
    """With a note of the machines, where there are several."""
    machines = dict.fromkeys(_machine(part.environment) for part in parts if part.environment)
    if len(machines) < 2:
        return found
    note = Note(text=f"groups were measured on several machines: {'; '.join(machines)}", kind=NoteKind.GENERAL)
    return replace(found, warnings=(*found.warnings, note))


def _part_of(plan: Plan, labels: Collection[str]) -> Plan:
    """A plan of these cases alone."""
    cases = tuple(case for case in plan.cases if case.label in labels)
    notes = tuple(note for note in plan.notes if not note.label or note.label in labels)
    return replace(plan, cases=cases, notes=notes, reference=plan.reference_of(cases[0].label))
