"""The details below a table, which -v shows: how it was measured, how far to trust it,
and notes on single rows.
"""

from __future__ import annotations

from collections import Counter

from ffnbench.common.units import counted, percent
from ffnbench.ffn.spec import ImportedSpec
from ffnbench.plan.metrics import ERROR, LATENCY
from ffnbench.plan.plan import NoteKind
from ffnbench.record.result import Report, Run, Verdict
from ffnbench.report.words import INTERVALS, labelled, side_lines

UNCHECKED = "function not checked: @like=NAME (such as @like=swiglu) compares its output with that form"


# Of the run


def details(report: Report) -> list[str]:
    """All lines that -v shows below the table of a measurement."""
    lines = ["exact metrics only: measured once, in one process"]
    if LATENCY in report.plan.metrics:
        lines = [f"{effort(report)}; {INTERVALS}"]
    if report.plan.multiple_of > 1:
        lines.append(f"d_ff in multiples of {report.plan.multiple_of}; 1 MAC = 2 FLOPs")
    found = [f"measured in {report.wall_s:.0f} s"] if report.wall_s else []
    if report.resolution:
        smallest = percent(report.resolution)
        found.append(f"differences below {smallest} may go unnoticed")
    return [
        *lines,
        *(["; ".join(found)] if found else []),
        *side_lines(report.sides),
        *notes_of_run(report),
        *row_notes(report),
    ]


def effort(report: Report | Run) -> str:
    """`5 fresh processes x 22 shuffled rounds`: the most that there were of a group in
    the run.
    """
    protocol = report.plan.protocol
    made = {
        (sample.case, sample.worker, sample.round)
        for sample in report.samples
        if sample.metric == LATENCY
    }
    rounds = Counter((case, worker) for case, worker, _ in made)
    workers = Counter(case for case, _ in rounds)
    processes = max(workers.values(), default=protocol.workers)
    most = max(rounds.values(), default=protocol.rounds)
    return f"{counted(processes, 'fresh process')} x {counted(most, 'shuffled round')}"


def notes_of_run(report: Report) -> list[str]:
    """The notes on noise in this run, without that on rows that have no verdict."""
    return [note.text for note in report.notes("") if note.kind is NoteKind.NOISE]


# Of rows


def row_notes(report: Report) -> list[str]:
    """The notes on rows, in their order; a note on several rows stands once."""
    return labelled(
        (case.row, text)
        for case in report.plan.shown
        for text in case_notes(report, case.label)
    )


def case_notes(report: Report, label: str) -> list[str]:
    """The notes on one row: why it has no number, and how far to trust it."""
    case, comparison = report.plan.case(label), report.comparison(label)
    notes = [
        note.text
        for note in report.plan.notes_of(label)
        if note.kind is not NoteKind.GENERAL
    ]
    notes += _counting_notes(report, label)
    has_run = report.estimate(label, LATENCY) or report.estimate(label, ERROR)
    if has_run and isinstance(case.ffn, ImportedSpec) and case.ffn.like is None:
        notes.append(UNCHECKED)
    if comparison and comparison.verdict is Verdict.UNCLEAR and comparison.reason:
        notes.append(comparison.reason)
    notes += [note.text for note in report.notes(label) if note.kind is NoteKind.SHORT]
    return notes


def _counting_notes(report: Report, label: str) -> list[str]:
    """What was counted otherwise than by a closed form, and what could not be."""
    cost, notes = report.cost(label), []
    if cost.failed and not report.failure(label):
        notes.append(f"not counted: {cost.failed}")
    # where nothing was measured, why there is no count stands below the table
    elif cost.counted_how and (cost.flops_forward is not None or report.environment):
        notes.append(cost.counted_how)
    if cost.uncounted:
        names = ", ".join(cost.uncounted)
        notes.append(f"FLOPs leave out what torch can't count: {names}")
    if cost.unquantised:
        names = ", ".join(cost.unquantised)
        notes.append(f"not quantised, since they are of no nn.Linear: {names}")
    if cost.width_note:
        notes.append(cost.width_note)
    return notes
