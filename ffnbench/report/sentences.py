"""The sentences below a table of measurements: the answer; what could not be told, with
what would help; what failed; what else a reader has to know. Each is one line or empty.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from ffnbench.common.units import counted
from ffnbench.plan.plan import Case, Group, NoteKind
from ffnbench.record.result import (
    LONGEST_BUDGET_S,
    Comparison,
    Crossing,
    Estimate,
    Report,
    Verdict,
)
from ffnbench.report.header import compares_ways, heading, heading_of
from ffnbench.report.words import (
    TENFOLD,
    WIDEST_INTERVAL,
    WITHIN,
    interval_text,
    join_words,
    labelled,
    percents_text,
    way_text,
)

MOST_NAMED = 3  # rows, crossings or networks that are named one by one
# the budget of a hint is rounded up to a multiple of 5 s, above 2 minutes of 60 s
SHORT_STEP_S, LONG_STEP_S, LONG_S = 5, 60, 120
PHRASES = {
    Verdict.SAME: "the same time as",
    Verdict.SLOWER: "longer than",
    Verdict.FASTER: "less time than",
}


def sentences(report: Report, groups: Sequence[Group] | None = None) -> list[str]:
    """All that is said of a measurement, the most important first; with `groups`, rows
    are compared in these groups alone.
    """
    lines = (
        answer(report, report.plan.groups if groups is None else groups),
        undecided(report),
        failures(report),
        remarks(report),
    )
    return [line for line in lines if line]


# The answer


def answer(report: Report, groups: Sequence[Group]) -> str:
    """How much longer rows take than the reference, and where curves cross."""
    compared = [group for group in groups if not report.failure(group.reference)]
    texts = crossing_texts(report.figures.crossings)
    if len(compared) < len(groups):
        texts.append(
            "nothing to compare with where the reference, the first row, failed"
        )
    if len(compared) == 1:
        texts += _texts_on_one_group(report, compared[0])
    elif compared:
        texts += _texts_on_several_groups(report, compared)
    if report.repeats:
        texts.append(_text_on_runs(report))
    return "; ".join(texts)


def _name(report: Report, case: Case) -> str:
    """The name of a row within its group: how it is run, where rows differ in that
    alone.
    """
    plan = report.plan
    names = {each.variant.partition("@")[0] for each in plan.shown}
    if compares_ways(plan) and len(names) == 1:
        return way_text(case.workload)
    return plan.name_of(case.label)


def _compared(report: Report, group: Group) -> dict[str, Comparison]:
    """The comparisons of a group's rows with its reference, by the name of the row,
    those with the smallest ratios first.
    """
    compared = {
        _name(report, case): report.comparison(case.label)
        for case in group.cases
        if case.label != group.reference
    }
    rows = [(name, each) for name, each in compared.items() if each is not None]
    return dict(
        sorted(rows, key=lambda row: row[1].ratio.value if row[1].ratio else 1.0)
    )


def _texts_on_one_group(report: Report, group: Group) -> list[str]:
    """`gelu takes 10% [9.8, 10.4] longer than relu`; `relu and silu take the same time
    (within 2%)`; of many rows the nearest and the farthest.
    """
    reference = _name(report, group.cases[0])
    amounts: dict[str, list[str]] = {}
    same = [reference]
    for name, row in _compared(report, group).items():
        if row.verdict is Verdict.SAME:
            same.append(name)
        elif row.ratio and row.verdict in PHRASES:
            amount, words = _how_much(row.ratio, row.verdict)
            amounts.setdefault(words, []).append(f"{name} takes {amount}")
    texts = []
    for words, of_rows in amounts.items():
        if len(of_rows) > MOST_NAMED:
            first, last = (
                text.replace(" takes", "") for text in (of_rows[0], of_rows[-1])
            )
            texts.append(
                f"{len(of_rows)} rows take {words} {reference}, from {first} to {last}"
            )
        else:
            texts += [f"{text} {words} {reference}" for text in of_rows]
    if len(same) > 1:
        if len(same) > MOST_NAMED + 1:
            same = [reference, f"{len(same) - 1} rows"]
        texts.append(f"{join_words(same)} take the same time (within {WITHIN})")
    if texts and report.plan.is_sweep:
        texts[0] = f"{heading(group)}: {texts[0]}"
    return texts


def _how_much(ratio: Estimate, verdict: Verdict) -> tuple[str, str]:
    """A difference and the words behind it: a percentage, or a factor where it is large
    or its interval is wide.
    """
    is_wide = (ratio.half_width or 0.0) > WIDEST_INTERVAL
    if is_wide or (ratio.high or ratio.value) > TENFOLD:
        return interval_text(ratio), "times as long as"
    return percents_text(ratio), PHRASES[verdict]


def _texts_on_several_groups(report: Report, groups: Sequence[Group]) -> list[str]:
    """`gelu: longer than relu everywhere`; `swiglu: the same time as relu at 5, can't
    tell at 4 of 9`; of all rows but those that cross another one.
    """
    crossing = {crossing.variant for crossing in report.figures.crossings}
    counts: dict[str, Counter[str]] = {}
    for group in groups:
        reference = _name(report, group.cases[0])
        for name, row in _compared(report, group).items():
            phrase = "can't tell"
            if row.verdict in PHRASES:
                phrase = f"{PHRASES[row.verdict]} {reference}"
            if report.plan.case(row.case).row not in crossing:
                counts.setdefault(name, Counter())[phrase] += 1
    texts = []
    for name, of_row in counts.items():
        parts = [f"{phrase} at {times}" for phrase, times in of_row.most_common()]
        text = f"{', '.join(parts)} of {len(groups)}"
        if len(of_row) == 1:
            text = f"{next(iter(of_row))} everywhere"
        texts.append((name, text))
    return labelled(text for text in texts if text[1] != "can't tell everywhere")


def _text_on_runs(report: Report) -> str:
    """The mean over all runs, where a file holds several; the table shows the first."""
    means = [
        f"{label} {interval_text(ratio)}"
        for label, ratio in report.figures.over_runs.items()
    ]
    runs, asked = len(report.runs), report.plan.protocol.runs
    text = f"the table shows run 1 of {runs}"
    if runs < asked:
        text += f", and {asked} were asked for"
    return f"{text}; mean of all: {', '.join(means)}" if means else text


# Where curves cross


def crossing_texts(crossings: Iterable[Crossing]) -> list[str]:
    """`swiglu becomes slower than relu at seq_len 37 [16, 64]`, for each crossing; of
    many the first.
    """
    texts = []
    for place in crossings:
        change = "slower" if place.slower else "faster"
        within = f" ({heading_of(place.within)})" if place.within else ""
        where = f"{place.axis} {interval_text(place.at)}{within}"
        texts.append(f"{place.variant} becomes {change} than {place.than} at {where}")
    more = len(texts) - MOST_NAMED
    return texts if more <= 0 else [*texts[:MOST_NAMED], f"{more} more in the picture"]


# What could not be told, and what would help


def undecided(report: Report) -> str:
    """`can't tell: gelu 1.02 [0.999, 1.044]; --budget 75s should narrow the intervals
    to about ±1%`.
    """
    plan, reasons = report.plan, set()
    references, compared = [], []
    for case in plan.shown:
        row = report.comparison(case.label)
        if row is None or row.verdict not in (Verdict.UNCLEAR, Verdict.BUSY):
            continue
        name = _name(report, case)
        if row.case == row.reference:
            references.append(name)
            continue
        compared.append(f"{name} {interval_text(row.ratio)}" if row.ratio else name)
        if row.ratio and row.verdict is Verdict.UNCLEAR:
            reasons.add(row.reason)
    names = compared or references
    if not names:
        return what_would_help(report)
    if len(names) > MOST_NAMED or len(plan.groups) > 1:
        most = plan.compared if compared else len(plan.groups)
        names = [f"{len(names)} of {most} rows"]
    text = f"can't tell: {join_words(names)}"
    return "; ".join(filter(None, (text, *sorted(reasons), what_would_help(report))))


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


def failures(report: Report) -> str:
    """Which rows have no numbers, and why. A row for which that is so in every group is
    named once.
    """
    groups_of: dict[tuple[str, str], list[Group]] = {}
    for group in report.plan.groups:
        for case in group.cases:
            reason = _why_without_numbers(report, case)
            if reason:
                name = report.plan.name_of(case.label)
                groups_of.setdefault((name, reason), []).append(group)
    notes = []
    for (name, reason), groups in groups_of.items():
        if len(groups) < len(report.plan.groups):
            name += f" at {join_words(map(heading, groups))}"
        notes.append((name, reason))
    return "; ".join(labelled(notes))


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
