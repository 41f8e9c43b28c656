"""The details below a table, which -v shows: how it was measured, how far to trust it,
what there is to say of rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from ffnbench.choices import MatmulPrecision, Mode
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.units import GIGA, IEC, TIME, counted, digits, percent, quantity
from ffnbench.ffn.spec import FFNSpec, ImportedSpec
from ffnbench.metrics import ERROR, HIT, LATENCY, LOAD
from ffnbench.plan import NOISES, NoteKind
from ffnbench.report.words import INTERVALS, labelled, side_lines
from ffnbench.result import Bound, Ceiling, Report, Run, Verdict

UNCHECKED = "function not checked: @like=NAME (such as @like=swiglu) compares its output with that form"
UNTESTED = (
    "untested: nobody has run ffnbench on AMD's GPUs (ROCm) yet; tell us what you see"
)
MOST_CEILINGS = 3  # ceilings of one bound that are told


# Of the run


def details(report: Report) -> list[str]:
    """All that -v shows below a table of what was measured: how, how far to trust it,
    what there is to say of rows.
    """
    lines = ["exact metrics only: measured once, in one process"]
    if LATENCY in report.plan.metrics:
        lines = [f"{effort(report)}; {INTERVALS}"]
    if report.plan.multiple_of > 1:
        lines.append(f"d_ff in multiples of {report.plan.multiple_of}; 1 MAC = 2 FLOPs")
    return [
        *lines,
        *_limit_note(report),
        *_ceilings_note(report),
        *side_lines(report.sides),
        *notes_of_run(report),
        *row_notes(report),
    ]


def effort(report: Report | Run) -> str:
    """`5 fresh processes x 15-22 shuffled rounds`: what was really run; of several
    groups, in each of them.
    """
    plan, protocol = report.plan, report.plan.protocol
    timed = {
        (sample.worker, sample.round)
        for sample in report.samples
        if sample.metric == LATENCY
    }
    rounds = Counter(worker for worker, _ in timed)
    workers_of: dict[str, set[int]] = {}
    for sample in report.samples:
        if sample.metric == LATENCY:
            of_group = workers_of.setdefault(plan.reference_of(sample.case), set())
            of_group.add(sample.worker)
    workers = [len(of_group) for of_group in workers_of.values()]
    how_many_workers = _how_many(workers or [protocol.workers], "fresh process")
    how_many_rounds = _how_many(rounds.values() or [protocol.rounds], "shuffled round")
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


def _limit_note(report: Report) -> list[str]:
    """What ended the run, and how small a difference it could have shown."""
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
    """What was seen of noise."""
    return [
        note.text for note in report.notes("") if note.kind in NOISES - {NoteKind.BUSY}
    ]


def untested_note(report: Report) -> list[str]:
    """That nobody has run ffnbench on AMD's GPUs yet, which torch calls cuda too."""
    of_amd = (
        report.environment is not None
        and report.environment.facts.get("hip") is not None
    )
    on_gpu = any(case.workload.device != "cpu" for case in report.plan.shown)
    return [UNTESTED] if of_amd and on_gpu else []


# Of the ceilings


def no_ceilings() -> FfnbenchError:
    """What to say of a run that is asked for its roofline, and has none."""
    return FfnbenchError(
        "this run has no ceilings", "measure with --metrics latency,ceilings"
    )


def _ceilings_note(report: Report) -> list[str]:
    """What the ceilings of this run are: of each bound the fastest, those first that
    hold a row back.
    """
    if not report.shares:
        return []
    of_rows = [
        ceiling
        for bounds in report.figures.ceilings.values()
        for ceiling in bounds.values()
    ]
    ceilings = list({ceiling.roof.name: ceiling for ceiling in of_rows}.values())
    binding = {share.roof for share in report.shares}
    texts: list[str] = []
    for bound in Bound:
        shown = [ceiling for ceiling in ceilings if ceiling.roof.bound is bound]
        if bound is Bound.CALL:
            shown = [ceiling for ceiling in shown if ceiling.roof.name in binding]
        shown.sort(
            key=lambda ceiling: (ceiling.roof.name not in binding, -ceiling.rate)
        )
        texts += map(_ceiling_text, shown[:MOST_CEILINGS])
    return [f"ceilings of this run: {', '.join(texts)}"]


def _ceiling_text(ceiling: Ceiling) -> str:
    """`148 GFLOP/s (float32 by oneDNN, 512 x 2048 x 768)`."""
    roof = ceiling.roof
    if roof.bound is Bound.CALL:
        return f"{quantity(ceiling.seconds, TIME)} (a call of an empty module)"
    rate = digits(ceiling.rate / GIGA)
    if roof.bound is Bound.BYTES:
        size = quantity(roof.read_bytes, IEC)
        if roof.level:
            return f"{rate} GB/s ({size} read from {roof.level})"
        return f"{rate} GB/s ({size} read)"
    dtype = roof.dtype
    if roof.matmul_precision != MatmulPrecision.HIGHEST:
        dtype += f" in {roof.matmul_precision} precision"
    return (
        f"{rate} GFLOP/s ({dtype} by {roof.path}, {' x '.join(map(str, roof.shape))})"
    )


# Of rows


def row_notes(report: Report) -> list[str]:
    """`gelu, silu: what is said of both`, in the order of the rows."""
    return labelled(
        (case.label, text)
        for case in report.plan.shown
        for text in case_notes(report, case.label)
    )


def case_notes(report: Report, label: str) -> list[str]:
    """Everything that a reader of this row should know: how it was asked, why it has no
    number, how far to trust it.
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
    """What is not counted by a closed form, or not at all."""
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
    if cost.width_note:
        notes.append(cost.width_note)
    return notes


def _routing_note(report: Report, label: str) -> list[str]:
    """How many experts a call is expected to read, and how tokens were really spread
    over them.
    """
    case = report.plan.case(label)
    moe = case.ffn.moe if isinstance(case.ffn, FFNSpec) else None
    if moe is None:
        return []
    expected = digits(moe.expected_hits(case.workload.tokens))
    notes = [f"touched: {expected} of {moe.experts} experts, as with uniform routing"]
    busiest, hit = report.estimate(label, LOAD), report.estimate(label, HIT)
    if busiest and hit:
        spread = f"{hit.value:.0f} of {moe.experts} experts get tokens, the busiest {busiest.value:.2f}x the mean"
        notes.append(f"{case.workload.routing} routing, imposed: {spread}")
    return notes
