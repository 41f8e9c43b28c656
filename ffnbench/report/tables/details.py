"""The line above a table of variants, and the details below it, which -v shows: how far the numbers can be trusted."""

from __future__ import annotations

from collections import Counter

from ffnbench.metrics import LATENCY
from ffnbench.plan import ACTIVE_PARAMS, Backend, NoteKind, Plan
from ffnbench.report.tables.ceilings import ceiling_lines
from ffnbench.report.tables.conditions import in_title, latency_line
from ffnbench.report.tables.groups import misses, workload_words
from ffnbench.report.tables.row_notes import row_notes
from ffnbench.report.tables.words import INTERVALS, backend_text, side_lines
from ffnbench.result import Report, Run
from ffnbench.stats.verdict import NOISES
from ffnbench.units import counted, percent

MATCHED = {"params": "parameters", "flops": "FLOPs", ACTIVE_PARAMS: "active parameters"}


def effort(report: Report | Run) -> str:
    """`5 fresh processes x 15-22 shuffled rounds`: what was really run."""
    rounds = Counter(s.worker for s in {(s.worker, s.round): s for s in report.samples if s.metric == LATENCY}.values())
    workers = len(rounds) or report.plan.protocol.workers
    fewest, most = min(rounds.values(), default=0), max(rounds.values(), default=report.plan.protocol.rounds)
    span = f"{most}" if fewest == most else f"{fewest}-{most}"
    each = " of each side" if len(report.plan.arms) > 1 else ""
    return f"{counted(workers, 'fresh process')}{each} x {span} shuffled round{'s' * (most > 1)}"


def workload_line(plan: Plan, keys: tuple[str, ...] = ("dtype", "device", "mode"), *, backends: bool = True) -> str:
    """What all rows have in common of the workload."""
    parts = workload_words(plan, keys)
    if backends and len(found := {backend_text(case.workload) for case in plan.shown}) == 1:
        parts += found - {Backend.EAGER.value}
    return ", ".join([*parts, *(in_title(plan) if "device" in keys else [])])


def conditions_line(plan: Plan, keys: tuple[str, ...] = ("dtype", "device", "mode"), *, backends: bool = True) -> str:
    """The one line above a table: what all rows have in common, and what makes them comparable."""
    line = workload_line(plan, keys, backends=backends)
    references = {group.reference: plan.case(group.reference) for group in plan.groups}
    beside = [case for case in plan.shown if case.ffn != references[plan.reference_of(case.label)].ffn]
    if not beside or any(case.sizing.how != "matched" for case in beside):
        return line
    what = {MATCHED.get(case.sizing.what, case.sizing.what) for case in beside}
    equal = max(what, key=len)  # of experts the active parameters, as in a dense form all are
    return f"{line}; equal {equal}{misses(plan)}"


def details(report: Report) -> list[str]:
    """All that -v shows below a table of what was measured: how, how far to trust it, what there is to say of rows."""
    timed = LATENCY in report.plan.metrics
    how = f"{effort(report)}; {INTERVALS}" if timed else "exact metrics only: measured once, in one process"
    return [
        how,
        *([f"d_ff in multiples of {report.plan.multiple_of}; 1 MAC = 2 FLOPs"] if report.plan.multiple_of > 1 else []),
        *latency_line(report),
        *_limit(report),
        *ceiling_lines(report),
        *side_lines(report.sides),
        *notes_of_run(report),
        *row_notes(report),
    ]


def notes_of_run(report: Report) -> list[str]:
    """What was seen of noise."""
    return [note.text for note in report.notes("") if note.kind in NOISES - {NoteKind.BUSY}]


def _limit(report: Report) -> list[str]:
    """What ended the run, and how small a difference it could have shown."""
    protocol = report.plan.protocol
    told = {
        "precision": f"when every ratio was known to ±{percent(protocol.precision or 0)}",
        "budget": f"at the budget of {protocol.budget_s or 0:g} s",
        "workers": f"after {counted(len({s.worker for s in report.samples}), 'process')}",
    }.get(report.limit or "")
    wall = f"measured in {report.wall_s:.0f} s" if report.wall_s else ""
    ended = ", ".join(filter(None, (wall, f"stopped {told}" if told else "")))
    seen = f"differences below {percent(report.resolution)} may go unnoticed" if report.resolution else ""
    return [text] if (text := "; ".join(filter(None, (ended, seen)))) else []
