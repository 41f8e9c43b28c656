"""The details below a table, which -v shows: how it was measured, how far to trust it,
and notes on single rows.

A function whose name ends with `_note` gives a list of one line, or an empty list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from ffnbench.choices import Mode, Routing
from ffnbench.common.units import counted, digits, percent
from ffnbench.ffn.spec import FFNSpec, ImportedSpec
from ffnbench.metrics import ERROR, HIT, LATENCY, LOAD
from ffnbench.plan import NOISES, NoteKind
from ffnbench.report.words import INTERVALS, labelled, side_lines
from ffnbench.result import Report, Run, Verdict

UNCHECKED = "function not checked: @like=NAME (such as @like=swiglu) compares its output with that form"
UNTESTED = (
    "untested: nobody has run ffnbench on AMD's GPUs (ROCm) yet; tell us what you see"
)


# Of the run


def details(report: Report) -> list[str]:
    """All lines that -v shows below the table of a measurement."""
    lines = ["exact metrics only: measured once, in one process"]
    if LATENCY in report.plan.metrics:
        lines = [f"{effort(report)}; {INTERVALS}"]
    if report.plan.multiple_of > 1:
        lines.append(f"d_ff in multiples of {report.plan.multiple_of}; 1 MAC = 2 FLOPs")
    return [
        *lines,
        *_precision_note(report),
        *side_lines(report.sides),
        *notes_of_run(report),
        *row_notes(report),
    ]


def effort(report: Report | Run) -> str:
    """`5 fresh processes x 15-22 shuffled rounds`: how many there were in the run, with
    several groups in each of them.
    """
    plan, protocol = report.plan, report.plan.protocol
    timed = [sample for sample in report.samples if sample.metric == LATENCY]
    rounds = {(sample.worker, sample.round) for sample in timed}
    rounds_of_worker = Counter(worker for worker, _ in rounds)
    workers_of: dict[str, set[int]] = {}  # of the group of a reference
    for sample in timed:
        workers_of.setdefault(plan.reference_of(sample.case), set()).add(sample.worker)
    workers = [len(of_group) for of_group in workers_of.values()]
    how_many_workers = _how_many(workers or [protocol.workers], "fresh process")
    how_many_rounds = _how_many(
        rounds_of_worker.values() or [protocol.rounds], "shuffled round"
    )
    each = ""
    if len(plan.arms) > 1:
        each = " of each side"
    elif len(workers) > 1:
        each = " of each group"
    return f"{how_many_workers}{each} x {how_many_rounds}"


def _how_many(numbers: Collection[int], what: str) -> str:
    """`15-22 rounds`, or `15 rounds` where all numbers are the same."""
    text = counted(max(numbers), what)
    if min(numbers) < max(numbers):
        return f"{min(numbers)}-{text}"
    return text


def _precision_note(report: Report) -> list[str]:
    """What ended the run, and the smallest difference that it could show."""
    protocol = report.plan.protocol
    reasons = {
        "precision": f"when every ratio was known to ±{percent(protocol.precision or 0)}",
        "budget": f"at the budget of {protocol.budget_s or 0:g} s",
        "workers": f"after {counted(len({sample.worker for sample in report.samples}), 'process')}",
    }
    parts = []
    if report.wall_s:
        parts.append(f"measured in {report.wall_s:.0f} s")
    if report.limit in reasons:
        parts.append(f"stopped {reasons[report.limit]}")
    if report.resolution:
        parts.append(f"differences below {percent(report.resolution)} may go unnoticed")
    return ["; ".join(parts)] if parts else []


def notes_of_run(report: Report) -> list[str]:
    """The notes on noise in this run, without that on rows that have no verdict."""
    return [
        note.text for note in report.notes("") if note.kind in NOISES - {NoteKind.BUSY}
    ]


def untested_note(report: Report) -> list[str]:
    """That nobody has run ffnbench on AMD's GPUs yet; torch calls them cuda as well."""
    of_amd = (
        report.environment is not None
        and report.environment.facts.get("hip") is not None
    )
    on_gpu = any(case.workload.device != "cpu" for case in report.plan.shown)
    return [UNTESTED] if of_amd and on_gpu else []


# Of rows


def row_notes(report: Report) -> list[str]:
    """The notes on rows, in their order; a note on several rows stands once."""
    return labelled(
        (case.label, text)
        for case in report.plan.shown
        for text in case_notes(report, case.label)
    )


def case_notes(report: Report, label: str) -> list[str]:
    """The notes on one row: how it was measured, why it has no number, and how far to
    trust it.
    """
    case, comparison = report.plan.case(label), report.comparison(label)
    notes = [
        note.text
        for note in report.plan.notes_of(label)
        if note.kind is not NoteKind.GENERAL
    ]
    if case.workload.slowdown:
        notes.append(f"slowed down on purpose by {percent(case.workload.slowdown)}")
    notes += _counting_note(report, label)
    if case.workload.mode == Mode.BACKWARD and "memory" in report.plan.metrics:
        notes.append("the peak is that of forward and backward together")
    notes += _routing_note(report, label)
    has_run = report.estimate(label, LATENCY) or report.estimate(label, ERROR)
    if has_run and isinstance(case.ffn, ImportedSpec) and case.ffn.like is None:
        notes.append(UNCHECKED)
    if comparison and comparison.verdict is Verdict.UNCLEAR and comparison.reason:
        notes.append(comparison.reason)
    notes += [note.text for note in report.notes(label) if note.kind is NoteKind.SHORT]
    return notes


def _counting_note(report: Report, label: str) -> Sequence[str]:
    """What was counted otherwise than by a closed form, and what could not be."""
    cost, notes = report.cost(label), []
    if cost.failed:
        if not report.failure(label):
            notes.append(f"not counted: {cost.failed}")
    elif cost.counted and cost.flops_forward is not None:
        notes.append(
            f"{cost.counted_how}, not by a closed form; element-wise FLOPs unknown"
        )
    elif cost.counted and report.environment:  # else it stands below the table
        notes.append(cost.counted_how)
    if cost.uncounted:
        notes.append(
            f"FLOPs leave out what torch can't count: {', '.join(cost.uncounted)}"
        )
    if cost.unquantised:
        dtype = report.plan.case(label).workload.dtype
        notes.append(
            f"not quantised, since they are of no nn.Linear: {', '.join(cost.unquantised)} ({dtype})"
        )
    if cost.width_note:
        notes.append(cost.width_note)
    return notes


def _routing_note(report: Report, label: str) -> list[str]:
    """How many experts a call is expected to read, and how many got tokens in the
    measurement.
    """
    case = report.plan.case(label)
    moe = case.ffn.moe if isinstance(case.ffn, FFNSpec) else None
    if moe is None:
        return []
    from ffnbench.ffn.routing import expected_hits

    work = case.workload
    routing = work.routing or Routing.UNIFORM
    hits = expected_hits(routing, moe.experts, moe.top_k, work.tokens)
    notes = [
        f"touched: {digits(hits)} of {moe.experts} experts, expected with {routing} routing"
    ]
    busiest, hit = report.estimate(label, LOAD), report.estimate(label, HIT)
    if busiest and hit:
        spread = f"{hit.value:.0f} of {moe.experts} experts get tokens, the busiest {busiest.value:.2f}x the mean"
        notes.append(f"{routing} routing, imposed: {spread}")
    return notes
