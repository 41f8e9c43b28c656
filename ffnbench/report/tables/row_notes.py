"""What there is to say of single rows: the details that -v shows, each text once, before it the rows that it is of."""

from __future__ import annotations

from collections.abc import Iterator

from ffnbench.ffn.moe import Routing
from ffnbench.ffn.spec import FFNSpec, ImportedSpec
from ffnbench.metrics import ERROR, HIT, LATENCY, LOAD
from ffnbench.plan import Mode, NoteKind
from ffnbench.report.tables.words import labelled
from ffnbench.result import Report, Verdict
from ffnbench.units import IEC, digits, percent, quantity

MATTERS = 0.05  # of the bytes that a call reads and writes: below, it is all one from where an input is read
UNCHECKED = "function not checked: @like=NAME (such as @like=swiglu) compares its output with that form"


def row_notes(report: Report) -> list[str]:
    """`gelu, silu: what is said of both`, in the order of the rows."""
    return labelled((case.label, text) for case in report.plan.shown for text in case_notes(report, case.label))


def case_notes(report: Report, label: str) -> list[str]:
    """Everything that a reader of this row should know: how it was asked, why it has no number, how far to trust it."""
    case, comparison = report.plan.case(label), report.comparison(label)
    told = report.plan.notes_of(label)
    notes = [note.text for note in told if note.kind is not NoteKind.GENERAL]
    notes += [f"slowed down on purpose by {percent(case.workload.slowdown)}"] if case.workload.slowdown else []
    notes += _counted(report, label)
    if case.workload.mode == Mode.BACKWARD.value and "memory" in report.plan.metrics:
        notes.append("the peak is that of forward and backward together")
    notes += _routing(report, label)
    notes += _unchecked(report, label)
    notes += _inputs(report, label)
    if comparison and comparison.verdict is Verdict.UNCLEAR and comparison.reason:
        notes.append(comparison.reason)
    return notes + [note.text for note in report.notes(label) if note.kind is NoteKind.SHORT]


def _counted(report: Report, label: str) -> Iterator[str]:
    """What is not counted by a closed form, or not at all."""
    cost = report.cost(label)
    if cost.failed:
        if not report.failure(label):
            yield f"not counted: {cost.failed}"
    elif cost.counted and cost.flops_forward is not None:
        yield f"{cost.counted_how}, not by a closed form; element-wise FLOPs unknown"
    elif cost.counted and report.environment:  # else it stands below the table
        yield cost.counted_how
    if cost.uncounted:
        yield f"FLOPs leave out what torch can't count: {', '.join(cost.uncounted)}"
    if cost.width_note:
        yield cost.width_note


def _unchecked(report: Report, label: str) -> list[str]:
    """Of a module whose output was held against itself at most, how to have it held against a form."""
    ffn = report.plan.case(label).ffn
    ran = report.estimate(label, LATENCY) or report.estimate(label, ERROR)
    return [UNCHECKED] if ran and isinstance(ffn, ImportedSpec) and ffn.like is None else []


def _inputs(report: Report, label: str) -> list[str]:
    """Where the inputs of a sample are read from, if a single one would stay in a nearer cache and is more than a small
    part of what a call reads and writes; one text for all rows of which the caches are the same.
    """
    own = report.inputs_of(label)
    if own is None or not own.level or not own.one_level or own.level == own.one_level:
        return []
    of_one = own.bytes / own.count
    if of_one < MATTERS * (report.cost(label).weight_bytes + 2 * of_one):
        return []
    alike = [one for one in report.inputs if (one.level, one.one_level) == (own.level, own.one_level)]
    counts = dict.fromkeys(f"{end(one.count for one in alike):,}" for end in (min, max))
    sizes = dict.fromkeys(quantity(end(one.bytes for one in alike), IEC) for end in (min, max))
    return [
        f"each call has its own input: {' to '.join(counts)} inputs take {' to '.join(sizes)} and are read "
        f"from {own.level} (one alone: from {own.one_level})"
    ]


def _routing(report: Report, label: str) -> list[str]:
    """How tokens were spread over experts; where nothing was measured, how many experts a call is expected to read."""
    case, busiest, hit = report.plan.case(label), report.estimate(label, LOAD), report.estimate(label, HIT)
    moe = case.ffn.moe if isinstance(case.ffn, FFNSpec) else None
    if moe is None:
        return []
    if busiest and hit:
        asked = f"{hit.value:.0f} of {moe.experts} experts get tokens, the busiest {busiest.value:.2f}x the mean"
        uniform = case.workload.routing == Routing.UNIFORM.value
        touched = "" if uniform else " (touched assumes uniform routing)"
        return [f"{case.workload.routing} routing, imposed: {asked}{touched}"]
    expected = f"{digits(moe.distinct(case.workload.tokens))} of {moe.experts} experts"
    return [f"touched: a call reads {expected} with uniform routing"]
