"""What is said below a table of measurements: the answer; what could not be told, with
what would help; what failed; what else a reader has to know. `details` are for -v: how
it was measured, and notes on single rows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from ffnbench.common.units import counted, percent
from ffnbench.plan.metrics import LATENCY
from ffnbench.plan.plan import Case, Group, NoteKind
from ffnbench.record.result import (
    LONGEST_BUDGET_S,
    Comparison,
    Crossing,
    Estimate,
    Report,
    Run,
    Verdict,
)
from ffnbench.report.header import compares_ways, heading_of
from ffnbench.report.words import (
    INTERVALS,
    TENFOLD,
    WIDEST_INTERVAL,
    WITHIN,
    interval_text,
    join_words,
    labelled,
    percents_text,
    way_text,
)

MOST_NAMED = 3  # rows or crossings that are named one by one
# the budget of a hint is rounded up to a multiple of 5 s, above 2 minutes of 60 s
SHORT_STEP_S, LONG_STEP_S, LONG_S = 5, 60, 120
UNCLEAR = "can't tell"
PHRASES = {
    Verdict.SAME: "the same time as",
    Verdict.SLOWER: "longer than",
    Verdict.FASTER: "less time than",
}


def sentences(report: Report) -> list[str]:
    """All that is said of a measurement, the most important first."""
    lines = (
        answer(report),
        undecided(report),
        *failures(report),
        remarks(report),
    )
    return [line for line in lines if line]


# The answer


def answer(report: Report) -> str:
    """How much longer rows take than the reference, and where curves cross."""
    texts = crossing_texts(report.figures.crossings)
    if report.plan.is_sweep:
        texts += _texts_on_groups(report)
    else:
        texts += _texts_on_rows(report, report.plan.groups[0])
    means = [
        f"{label} {interval_text(ratio)}"
        for label, ratio in report.figures.over_runs.items()
    ]
    if means:
        texts.append(
            f"the table shows run 1 of {len(report.runs)}; mean of all: {', '.join(means)}"
        )
    return "; ".join(texts)


def _few(texts: Sequence[str], where: str = "in the table") -> list[str]:
    """The texts; of many the first, and how many more there are."""
    more = len(texts) - MOST_NAMED
    return [*texts[:MOST_NAMED], f"{more} more {where}"] if more > 0 else [*texts]


def crossing_texts(crossings: Iterable[Crossing]) -> list[str]:
    """`swiglu becomes slower than relu at seq_len 37 [16, 64]`, for each crossing."""
    texts = []
    for place in crossings:
        change = "slower" if place.slower else "faster"
        within = f" ({heading_of(place.within)})" if place.within else ""
        where = f"{place.axis} {interval_text(place.at)}{within}"
        texts.append(f"{place.variant} becomes {change} than {place.than} at {where}")
    return _few(texts, "in the picture")


def _name(report: Report, label: str) -> str:
    """The name of a row within its group: how it is run, where rows differ in that
    alone.
    """
    plan = report.plan
    names = {each.variant.partition("@")[0] for each in plan.shown}
    if compares_ways(plan) and len(names) == 1:
        return way_text(plan.case(label).workload)
    return plan.name_of(label)


def _compared(report: Report, group: Group) -> list[Comparison]:
    """The comparisons of a group's rows with its reference, the smallest ratio first;
    none where the reference failed.
    """
    found = [
        report.comparison(case.label)
        for case in group.cases
        if case.label != group.reference
    ]
    rows = [row for row in found if row and not report.failure(row.reference)]
    return sorted(rows, key=lambda row: row.ratio.value if row.ratio else 1.0)


def _texts_on_rows(report: Report, group: Group) -> list[str]:
    """`gelu takes 10% [9.8, 10.4] longer than relu`; `relu and silu take the same time
    (within 2%)`.
    """
    reference = _name(report, group.reference)
    same, texts = [], []
    for row in _compared(report, group):
        name = _name(report, row.case)
        if row.verdict is Verdict.SAME:
            same.append(name)
        elif row.ratio and row.verdict in PHRASES:
            texts.append(
                f"{name} takes {_how_much(row.ratio, row.verdict)} {reference}"
            )
    texts = _few(texts)
    if same:
        names = join_words([reference, *_few(same)])
        texts.append(f"{names} take the same time (within {WITHIN})")
    return texts


def _how_much(ratio: Estimate, verdict: Verdict) -> str:
    """A difference in percent, or a factor where it is large or its interval is
    wide.
    """
    is_wide = (ratio.half_width or 0.0) > WIDEST_INTERVAL
    if is_wide or (ratio.high or ratio.value) > TENFOLD:
        return f"{interval_text(ratio)} times as long as"
    return f"{percents_text(ratio)} {PHRASES[verdict]}"


def _texts_on_groups(report: Report) -> list[str]:
    """`gelu: longer than relu everywhere`; `swiglu: the same time as relu at 5, can't
    tell at 4 of 9`; of all rows but those that cross another one.
    """
    crossing = {crossing.variant for crossing in report.figures.crossings}
    groups = report.plan.groups
    counts: dict[str, Counter[str]] = {}
    for group in groups:
        reference = _name(report, group.reference)
        for row in _compared(report, group):
            phrase = UNCLEAR
            if row.verdict in PHRASES:
                phrase = f"{PHRASES[row.verdict]} {reference}"
            if report.plan.name_of(row.case) not in crossing:
                counts.setdefault(_name(report, row.case), Counter())[phrase] += 1
    texts = []
    for name, of_row in counts.items():
        parts = [f"{phrase} at {times}" for phrase, times in of_row.most_common()]
        text = f"{', '.join(parts)} of {len(groups)} points"
        if len(groups) in of_row.values():
            text = f"{next(iter(of_row))} everywhere"
        if [*of_row] != [UNCLEAR]:
            texts.append((name, text))
    return labelled(texts)


# What could not be told, and what would help


def undecided(report: Report) -> str:
    """`can't tell: gelu 1.02 [0.999, 1.044]; --budget 75s should narrow the intervals
    to about ±1%`.
    """
    comparisons = [report.comparison(case.label) for case in report.plan.shown]
    rows = [
        row
        for row in comparisons
        if row
        and row.case != row.reference
        and row.verdict in (Verdict.UNCLEAR, Verdict.BUSY)
    ]
    if not rows:
        return what_would_help(report)
    names = []
    for row in rows:
        ratio = f" {interval_text(row.ratio)}" if row.ratio else ""
        names.append(_name(report, row.case) + ratio)
    if len(rows) > MOST_NAMED or report.plan.is_sweep:
        names = [f"{len(rows)} of {report.plan.compared} rows"]
    reasons = {
        row.reason for row in rows if row.ratio and row.verdict is Verdict.UNCLEAR
    }
    texts = (
        f"{UNCLEAR}: {join_words(names)}",
        *sorted(reasons),
        what_would_help(report),
    )
    return "; ".join(filter(None, texts))


def what_would_help(report: Report) -> str:
    """What would decide the rows that could not be decided: a longer run, or a quiet
    machine.
    """
    if report.interrupted or report.stopped:
        return ""
    for note in report.notes(""):
        if note.kind is NoteKind.BUSY:
            return note.text
    narrowing = report.figures.narrowing
    if narrowing is None:
        return ""
    if narrowing.seconds is None:
        rows = counted(narrowing.rows, "row")
        return f"too noisy to decide {rows} within {LONGEST_BUDGET_S // 60} min: `ffnbench env` says what disturbs"
    step = LONG_STEP_S if narrowing.seconds > LONG_S else SHORT_STEP_S
    seconds = step * math.ceil(narrowing.seconds / step)
    budget = f"{seconds // 60}m" if seconds % 60 == 0 else f"{seconds}s"
    percent = f"{100 * narrowing.precision:g}%"
    precision = "" if narrowing.is_asked else f" --precision {percent}"
    return (
        f"--budget {budget}{precision} should narrow the intervals to about ±{percent}"
    )


# What failed, and what else there is to know


def failures(report: Report) -> list[str]:
    """A line for each reason why rows have no numbers. A row for which that is so in
    every group is named once.
    """
    plan = report.plan
    reasons = [(case, _why_without_numbers(report, case)) for case in plan.shown]
    found = [(case, reason) for case, reason in reasons if reason]
    times = Counter(case.row for case, _ in found)
    return labelled(
        (case.row if times[case.row] == len(plan.groups) else case.label, reason)
        for case, reason in found
    )


def _why_without_numbers(report: Report, case: Case) -> str:
    """Why a row failed, or has no count where counts are the answer; else empty."""
    failure, cost = report.failure(case.label), report.cost(case.label)
    if failure:
        return failure.message.removeprefix(f"{case.label} ")
    is_uncounted = report.is_of_counts and cost.flops_forward is None
    return cost.counted_how if is_uncounted else ""


def remarks(report: Report) -> str:
    """That the run ended early, which rows are launch-bound, and the general notes:
    such as defaults from a file, or a killed worker.
    """
    bound = [
        case.label
        for case in report.plan.shown
        if report.figures.launch_bound.get(case.label)
    ]
    texts = [ending(report)]
    if bound:
        why = "launching a call takes longer than running it"
        texts.append(
            f"{join_words(bound)}: launch-bound, {why}; @time=device leaves that out"
        )
    return "; ".join(filter(None, [*texts, *general_notes(report)]))


def ending(report: Report) -> str:
    """That a run ended early; else empty."""
    if not (report.interrupted or report.stopped):
        return ""
    verb = "interrupted" if report.interrupted else "stopped"
    if report.plan.is_sweep:
        done, cells = report.figures.cells
        return f"{verb}: {done} of {cells} groups are done"
    return f"{verb}: the rest was not measured"


def general_notes(report: Report) -> list[str]:
    """The notes on the whole run, and on rows that did not fail."""
    notes = [
        note
        for note in (*report.plan.notes, *report.warnings)
        if note.kind is NoteKind.GENERAL and not report.failure(note.label)
    ]
    of_rows = ((note.label, note.text) for note in notes if note.label)
    return [*(note.text for note in notes if not note.label), *labelled(of_rows)]


# Details


def details(report: Report) -> list[str]:
    """All lines that -v shows below the table of a measurement."""
    lines = []
    if LATENCY in report.plan.metrics:
        lines.append(f"{effort(report)}; {INTERVALS}")
    if report.resolution:
        lines.append(f"differences below {percent(report.resolution)} may go unnoticed")
    return [*lines, *notes_of_run(report), *row_notes(report)]


def effort(report: Report | Run) -> str:
    """`5 fresh processes x 22 shuffled rounds`, as there were in the run."""
    protocol = report.plan.protocol
    samples = [sample for sample in report.samples if sample.metric == LATENCY]
    of_cases = Counter(case for case, _ in {(one.case, one.worker) for one in samples})
    processes = max(of_cases.values(), default=protocol.workers)
    rounds = len({sample.round for sample in samples}) or protocol.rounds
    return (
        f"{counted(processes, 'fresh process')} x {counted(rounds, 'shuffled round')}"
    )


def notes_of_run(report: Report) -> list[str]:
    """The notes on noise in this run, without that on rows that have no verdict."""
    return [note.text for note in report.notes("") if note.kind is NoteKind.NOISE]


def row_notes(report: Report) -> list[str]:
    """The notes on rows, in their order; a note on several rows stands once."""
    return labelled(
        (case.row, text)
        for case in report.plan.shown
        for text in _notes_on(report, case.label)
    )


def _notes_on(report: Report, label: str) -> list[str]:
    """The notes on one row: why it has no number, and how far to trust it."""
    cost, comparison = report.cost(label), report.comparison(label)
    notes = [
        note.text
        for note in report.plan.notes_of(label)
        if note.kind is not NoteKind.GENERAL
    ]
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
    if comparison and comparison.verdict is Verdict.UNCLEAR and comparison.reason:
        notes.append(comparison.reason)
    notes += [note.text for note in report.notes(label) if note.kind is NoteKind.SHORT]
    return notes
