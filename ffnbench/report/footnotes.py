"""What has to be said of a case, as numbered footnotes under its table; equal texts share a number."""

from __future__ import annotations

from ffnbench.ffn.moe import Routing
from ffnbench.ffn.spec import FFNSpec, ImportedSpec
from ffnbench.metrics import COMPILE, HIT, LATENCY, LOAD, PACK, WORKSPACE
from ffnbench.plan import ACTIVE_PARAMS, Case, Mode, Note, NoteKind, Plan
from ffnbench.report.conditions import launch_bound_note
from ffnbench.report.words import seconds_text, sizing_text
from ffnbench.result import Against, Report, Verdict, unjudged
from ffnbench.stats.noise import NOISES
from ffnbench.units import IEC, digits, quantity, signed_percent

WORTH_SAYING = 0.005  # of params or FLOPs beside the reference's: both numbers stand in the table
OTHER_GELUS = ("gelu_tanh", "quick_gelu")
MATTERS = 0.05  # of the bytes that a call reads and writes: below, it is all one from where an input is read
UNCHECKED = (
    "function not checked: @like=NAME (such as @like=swiglu) says which form it is; "
    "it was held against another instance of itself alone"
)
DROPPED = "its timed calls have dropout, which {} has not: they were held against another instance of itself alone"
SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


class Footnotes:
    """Collects texts in the order of their first use."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def marks(self, texts: list[str]) -> str:
        """The superscript numbers of these texts, for the end of a cell: `¹˒²`."""
        for text in texts:
            if text not in self._texts:
                self._texts.append(text)
        numbers = sorted(self._texts.index(text) + 1 for text in dict.fromkeys(texts))
        return "˒".join(str(number).translate(SUPERSCRIPTS) for number in numbers)

    def lines(self) -> tuple[str, ...]:
        """All footnotes, numbered."""
        return tuple(f"{str(i).translate(SUPERSCRIPTS)} {text}" for i, text in enumerate(self._texts, 1))


def case_notes(report: Report, label: str) -> list[str]:
    """Everything that a reader of this row should know."""
    cost, failure, comparison = report.cost(label), report.failure(label), report.comparison(label)
    notes = [note.text for note in report.plan.notes if note.label == label and _needed(report.plan, note)]
    notes += _asked(report.plan, report.plan.case(label))
    if failure:
        notes.append(failure.message)
    if cost.failed and not failure:
        notes.append(f"not counted: {cost.failed}")
    elif cost.counted and not cost.failed:
        notes.append(f"{cost.counted_how}, not by a closed form; element-wise FLOPs unknown")
    if cost.uncounted:
        notes.append(f"FLOPs leave out what torch's counter does not know: {', '.join(cost.uncounted)}")
    if cost.width_note:
        notes.append(cost.width_note)
    if report.plan.case(label).workload.mode == Mode.BACKWARD.value and "memory" in report.plan.metrics:
        notes.append("the peak is that of forward and backward together, which is what a step needs")
    if compiling := report.estimate(label, COMPILE):
        took = seconds_text(compiling, 1)
        notes.append(
            f"torch.compile took {took} s: the first call, with an empty cache of kernels; latency leaves it out"
        )
    if packing := report.estimate(label, PACK):
        notes.append(f"packing took {seconds_text(packing, 1)} s, once; latency leaves it out")
    notes += launch_bound_note(report, label)
    notes += _workspace(report, label)
    notes += _routing(report, label)
    notes += judging_notes(report, label)
    if (latency := report.estimate(label, LATENCY)) and latency.disturbed:
        notes.append("over all rounds, disturbed ones too")
    if comparison and comparison.verdict is Verdict.UNCLEAR and comparison.reason:
        notes.append(comparison.reason)
    return notes + [note.text for note in report.notes(label) if note.kind not in NOISES]


def _workspace(report: Report, label: str) -> list[str]:
    """What the device's libraries keep for themselves, which is no part of the peak."""
    found = report.value(label, WORKSPACE)
    return [f"the device's libraries keep {quantity(found, IEC)} for themselves, beside its peak"] if found else []


def _needed(plan: Plan, note: Note) -> bool:
    """What `gelu` means is said where a reader could take it for another: beside `gelu_tanh`, or beside a model or code
    of somebody else's.
    """
    return (
        note.kind is not NoteKind.NAME
        or getattr(plan.case(note.label).ffn, "activation", "") != "gelu"
        or any(
            isinstance(case.ffn, ImportedSpec) or getattr(case.ffn, "activation", "") in OTHER_GELUS
            for case in plan.shown
        )
        or any(note.kind is NoteKind.MODEL for note in plan.notes)
    )


def judging_notes(report: Report, label: str) -> list[str]:
    """What the outputs of a row's timed calls were not held against, and where its inputs were read from."""
    notes = []
    judged = report.judgement(label)
    if judged and not report.failure(label):
        if why := unjudged((judged,)).get(label):
            notes.append(why)
        elif judged.against is Against.ITSELF:
            said = getattr(report.plan.case(label).ffn, "like", None)
            notes.append(DROPPED.format(said.name) if said else UNCHECKED)
    return notes + _inputs(report, label)


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
    counts, sizes = ([getattr(one, name) for one in alike] for name in ("count", "bytes"))
    many = f"{min(counts):,}" if min(counts) == max(counts) else f"{min(counts):,} to {max(counts):,}"
    size = " to ".join(dict.fromkeys(quantity(size, IEC) for size in (min(sizes), max(sizes))))
    one = f"(one alone: from {own.one_level})"
    return [f"each call has an input of its own: {many} of them take {size} and are read from {own.level} {one}"]


def _asked(plan: Plan, case: Case) -> list[str]:
    """What its width comes to beside the reference, and whether it is slowed down."""
    notes = []
    if case.residual and abs(case.residual) >= WORTH_SAYING:
        what = ACTIVE_PARAMS if case.sizing.what == ACTIVE_PARAMS else plan.match
        change = f"{signed_percent(case.residual)} {what} against {plan.name_of(plan.reference_of(case.label))}"
        notes.append(f"d_ff {case.ffn.d_ff:,} ({sizing_text(case.sizing)}) gives {change}")
    if case.workload.slowdown:
        notes.append(f"slowed down on purpose: each call spins for {case.workload.slowdown:g} of its own time")
    return notes


def _routing(report: Report, label: str) -> list[str]:
    """How tokens were spread over experts; where nothing was measured, how many experts a call is expected to read."""
    case, busiest, hit = report.plan.case(label), report.estimate(label, LOAD), report.estimate(label, HIT)
    moe = case.ffn.moe if isinstance(case.ffn, FFNSpec) else None
    if moe is None:
        return []
    if busiest and hit:
        asked = f"{hit.value:.0f} of {moe.experts} experts are asked, the busiest {busiest.value:.2f}x the mean"
        uniform = case.workload.routing == Routing.UNIFORM.value
        touched = "" if uniform else " (touched is what uniform routing would read)"
        return [f"{case.workload.routing} routing, imposed: {asked}{touched}"]
    expected = f"{digits(moe.distinct(case.workload.tokens))} of {moe.experts} experts"
    known = report.cost(label).peak_bytes is not None
    peak = "act. peak: tokens spread evenly" if known else "act. peak: not counted in training"
    return [f"touched: a call reads {expected}, as expected of uniform routing; {peak}"]
