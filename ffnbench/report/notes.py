"""The details below a table, which -v shows: how it was measured, how far to trust it, what there is to say of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ffnbench.common.errors import FfnbenchError
from ffnbench.common.units import IEC, TIME, counted, digits, percent, quantity
from ffnbench.ffn.moe import Routing
from ffnbench.ffn.spec import FFNSpec, ImportedSpec
from ffnbench.metrics import CEILINGS, DEVICE_TIME, ERROR, HIT, HOST_TIME, LATENCY, LOAD
from ffnbench.plan import MatmulPrecision, Mode, NoteKind, Plan, Time
from ffnbench.report.words import INTERVALS, labelled, side_lines
from ffnbench.result import Bound, Ceiling, Report, Roof, Run, Verdict
from ffnbench.stats.verdict import NOISES

TOLD_APART = 5  # the first method that tells wall, device and host time apart
TIMES = {
    Time.WALL: "wall time (what a caller waits for)",
    Time.DEVICE: "device time (how long the device works)",
}


GIGA = 1e9
MOST_CEILINGS = 3  # ceilings of one bound that are told


def effort(report: Report | Run) -> str:
    """`5 fresh processes x 15-22 shuffled rounds`: what was really run."""
    rounds = Counter(s.worker for s in {(s.worker, s.round): s for s in report.samples if s.metric == LATENCY}.values())
    workers = len(rounds) or report.plan.protocol.workers
    fewest, most = min(rounds.values(), default=0), max(rounds.values(), default=report.plan.protocol.rounds)
    span = f"{most}" if fewest == most else f"{fewest}-{most}"
    each = " of each side" if len(report.plan.arms) > 1 else ""
    return f"{counted(workers, 'fresh process')}{each} x {span} shuffled round{'s' * (most > 1)}"


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


def latency_line(report: Report) -> tuple[str, ...]:
    """Which time the latencies are; nothing where no row is on an accelerator, for a CPU has one, and nothing of older
    methods, whose time was neither.
    """
    works = [case.workload for case in report.plan.shown if case.workload.accelerated]
    if not works or "latency" not in report.plan.metrics or report.plan.protocol.method < TOLD_APART:
        return ()
    told = [text for time, text in TIMES.items() if any(work.time == time for work in works)]
    line = f"latency: {' or '.join(told)}" + ", as its row says" * (len(told) > 1)
    metrics = {found.metric for found in report.measured}
    if DEVICE_TIME in metrics and TIMES[Time.WALL] in told:
        line += "; device: how long the device works"
    return (line + "; host: how long the CPU takes to launch it" * (HOST_TIME in metrics),)


def untested_note(report: Report) -> tuple[str, ...]:
    """That nobody has run ffnbench on AMD's GPUs yet, which torch calls cuda too."""
    of_amd = report.environment is not None and report.environment.hip is not None
    if not of_amd or all(case.workload.device == "cpu" for case in report.plan.shown):
        return ()
    return ("untested: nobody has run ffnbench on AMD's GPUs (ROCm) yet; tell us what you see",)


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
    if case.workload.mode == Mode.BACKWARD and "memory" in report.plan.metrics:
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
        uniform = case.workload.routing == Routing.UNIFORM
        touched = "" if uniform else " (touched assumes uniform routing)"
        return [f"{case.workload.routing} routing, imposed: {asked}{touched}"]
    expected = f"{digits(moe.distinct(case.workload.tokens))} of {moe.experts} experts"
    return [f"touched: a call reads {expected} with uniform routing"]


def no_ceilings() -> FfnbenchError:
    """What to say of a run that is asked for its roofline, and has none."""
    return FfnbenchError("this run has no ceilings", "measure with --metrics latency,ceilings")


def has_ceilings(what: Plan | Report) -> bool:
    """Whether a plan asks for ceilings; whether a run has some."""
    return CEILINGS in what.metrics if isinstance(what, Plan) else bool(what.roofs)


def ceiling_lines(report: Report) -> list[str]:
    """What the ceilings of this run are: of each bound the fastest, those first that hold a row back."""
    if not report.shares:
        return []
    bounds = report.figures.ceilings.values()
    ceilings = {ceiling.roof.name: ceiling for found in bounds for ceiling in found.values()}.values()
    binding = {share.roof for share in report.shares}
    told: list[str] = []
    for bound in Bound:
        found = [c for c in ceilings if c.roof.bound is bound and (bound is not Bound.CALL or c.roof.name in binding)]
        found.sort(key=lambda c: (c.roof.name not in binding, -c.rate))
        several = len({_kind(c.roof) for c in found[:MOST_CEILINGS]}) > 1
        told += [_ceiling_text(report, c, several=several) for c in found[:MOST_CEILINGS]]
    return [f"ceilings of this run: {', '.join(told)}"]


def _ceiling_text(report: Report, ceiling: Ceiling, *, several: bool) -> str:
    """`148 GFLOP/s (oneDNN, 512 x 2048 x 768)`; where there are `several`, with what tells them apart."""
    roof, kind = ceiling.roof, [_kind(ceiling.roof)] * several
    if roof.bound is Bound.CALL:
        return f"{quantity(ceiling.seconds, TIME)} (a call of an empty module)"
    if roof.bound is Bound.PRODUCTS:
        which = ": ".join([*kind, roof.path])
        return f"{digits(ceiling.rate / GIGA)} GFLOP/s ({which}, {' x '.join(map(str, roof.shape))})"
    train = any(case.workload.mode != Mode.FORWARD for case in report.plan.shown)
    what = "weights + input + output" + " of the forward" * train
    return f"{digits(ceiling.rate / GIGA)} GB/s ({', '.join(filter(None, (*kind, roof.level, what)))})"


def _kind(roof: Roof) -> str:
    """`float32`, with its precision where that is not the highest; of bytes how many are read."""
    if roof.bound is Bound.BYTES:
        return f"{quantity(roof.read_bytes, IEC)} read"
    highest = roof.matmul_precision == MatmulPrecision.HIGHEST
    return roof.dtype if highest else f"{roof.dtype}, {roof.matmul_precision} precision"
