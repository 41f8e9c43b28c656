"""The sentences below a table of measurements: the answer; what could not be told, with
what would help; what failed; what else a reader has to know. Each is one line or empty.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from ffnbench.common.units import counted
from ffnbench.ffn.spec import ActivationSpec
from ffnbench.plan.plan import Case, Group, NoteKind
from ffnbench.record.result import (
    LONGEST_BUDGET_S,
    Comparison,
    Crossings,
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
AT_SEVERAL_POINTS = {
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
    crossings = report.figures.crossings
    compared = [group for group in groups if not report.failure(group.reference)]
    texts = []
    if len(compared) < len(groups):
        texts = ["nothing to compare with where the reference, the first row, failed"]
    if len(compared) == 1:
        texts += _texts_on_one_group(report, compared[0])
    else:
        crossing = {place.variant for place in crossings.places} if crossings else set()
        texts += _texts_on_several_groups(report, compared, crossing)
    if report.repeats or report.cut_short:
        texts.append(_text_on_runs(report))
    if crossings:
        texts = [*crossing_texts(crossings), *texts]
    return "; ".join(texts)


def _name(report: Report, case: Case) -> str:
    """The name of a row within its group: how it is run, where rows differ in that
    alone.
    """
    if isinstance(case.ffn, ActivationSpec):
        return case.variant
    plan = report.plan
    if compares_ways(plan):
        names = {plan.name_of(each.label).partition("@")[0] for each in plan.shown}
        if len(names) == 1:
            return way_text(case.workload)
    return plan.name_of(case.label)


def _compared(report: Report, group: Group) -> dict[str, Comparison]:
    """The comparisons of a group's rows with its reference, by the name of the row."""
    rows = {}
    for case in group.cases:
        comparison = report.comparison(case.label)
        if comparison and case.label != group.reference:
            rows[_name(report, case)] = comparison
    return rows


def _names_text(names: Sequence[str]) -> str:
    """`gelu and silu`; `12 rows` where there are many."""
    return join_words(names) if len(names) <= MOST_NAMED else f"{len(names)} rows"


def _ratio_of(row: Comparison) -> float:
    return row.ratio.value if row.ratio else 1.0


def _texts_on_one_group(report: Report, group: Group) -> list[str]:
    """`gelu takes 10% [9.8, 10.4] longer than relu and swiglu 20% [20, 21]`; `relu and
    silu take the same time (within 2%)`.
    """
    reference = _name(report, report.plan.case(group.reference))
    rows: dict[str, dict[str, str]] = {}
    same = []
    compared = _compared(report, group)
    for name in sorted(compared, key=lambda name: _ratio_of(compared[name])):
        row = compared[name]
        if row.verdict is Verdict.SAME:
            same.append(name)
        elif row.ratio and row.verdict in (Verdict.SLOWER, Verdict.FASTER):
            amount, words = _how_much(row.ratio)
            rows.setdefault(words, {})[name] = amount
    texts = [_clause(each, words, reference) for words, each in rows.items()]
    if same:
        if len(same) > MOST_NAMED:
            same = [_names_text(same)]
        names = join_words([reference, *same])
        texts.append(f"{names} take the same time (within {WITHIN})")
    if texts and report.plan.is_sweep:
        texts[0] = f"{heading(group)}: {texts[0]}"
    return texts


def _how_much(ratio: Estimate) -> tuple[str, str]:
    """A difference and the words behind it: a percentage, or a factor where it is large
    or its interval is wide.
    """
    is_wide = (ratio.half_width or 0.0) > WIDEST_INTERVAL
    if is_wide or (ratio.high or ratio.value) > TENFOLD:
        return interval_text(ratio), "times as long as"
    words = "longer than" if ratio.value > 1 else "less time than"
    return percents_text(ratio), words


def _clause(rows: dict[str, str], words: str, reference: str) -> str:
    """`gelu takes 10% [9.8, 10.4] longer than relu and swiglu 20% [20, 21]`; of many
    rows the nearest and the farthest. `rows` are sorted by their ratios.
    """
    texts = [f"{name} {amount}" for name, amount in rows.items()]
    if len(rows) > MOST_NAMED:
        return (
            f"{len(rows)} rows take {words} {reference}, from {texts[0]} to {texts[-1]}"
        )
    (first, amount), *_ = rows.items()
    return join_words([f"{first} takes {amount} {words} {reference}", *texts[1:]])


def _texts_on_several_groups(
    report: Report, groups: Sequence[Group], crossing: set[str]
) -> list[str]:
    """`gelu: longer than relu everywhere`; `swiglu: the same time as relu at 5, can't
    tell at 4 of 9`; of all rows but those that are said to be `crossing`.
    """
    verdicts_of: dict[str, list[Verdict]] = {}
    for group in groups:
        for name, row in _compared(report, group).items():
            if report.plan.name_of(row.case) not in crossing:
                verdicts_of.setdefault(name, []).append(row.verdict)
    if not verdicts_of:
        return []
    reference = _name(report, report.plan.case(groups[0].reference))
    names_of: dict[str, list[str]] = {}
    for name, verdicts in verdicts_of.items():
        counts = Counter(AT_SEVERAL_POINTS.get(each, "") for each in verdicts)
        if set(counts) == {""}:
            continue
        parts = []
        for phrase, times in counts.most_common():
            text = f"{phrase} {reference}" if phrase else "can't tell"
            parts.append(f"{text} at {times}")
        text = f"{', '.join(parts)} of {len(groups)}"
        if len(counts) == 1:
            text = f"{parts[0].rpartition(' at ')[0]} everywhere"
        names_of.setdefault(text, []).append(name)
    return [f"{_names_text(names)}: {text}" for text, names in names_of.items()]


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


def crossing_texts(crossings: Crossings) -> list[str]:
    """`swiglu becomes slower than relu at seq_len 37 [30, 45]`, for each crossing; of
    many the first.
    """
    texts = []
    for place in crossings.places:
        change = "slower" if place.slower else "faster"
        within = f" ({heading_of(place.within)})" if place.within else ""
        where = f"{crossings.axis.name} {interval_text(place.at)}{within}"
        texts.append(f"{place.variant} becomes {change} than {place.than} at {where}")
    more = len(texts) - MOST_NAMED
    return texts if more <= 0 else [*texts[:MOST_NAMED], f"{more} more in the picture"]


# What could not be told, and what would help


def undecided(report: Report) -> str:
    """`can't tell: gelu 1.02 [0.999, 1.044]; --budget 75s should narrow the intervals
    to about ±1%`.
    """
    rows = [
        row
        for case in report.plan.shown
        if (row := report.comparison(case.label))
        and row.verdict in (Verdict.UNCLEAR, Verdict.BUSY)
    ]
    if not rows:
        return what_would_help(report)
    plan = report.plan
    compared = [row for row in rows if not plan.is_reference(row.case)]
    names = [_seen_text(report, row) for row in compared or rows]
    if len(names) > MOST_NAMED or len(plan.groups) > 1:
        most = plan.compared if compared else len(plan.groups)
        names = [f"{len(names)} of {most} rows"]
    unclear = (row for row in rows if row.verdict is Verdict.UNCLEAR)
    reasons = sorted({row.reason for row in unclear if row.ratio and row.reason})
    text = f"can't tell: {join_words(names)}"
    return "; ".join(filter(None, (text, *reasons, what_would_help(report))))


def _seen_text(report: Report, row: Comparison) -> str:
    """`gelu 1.02 [0.999, 1.044]`, the name alone of a reference, or where no ratio was
    seen.
    """
    name = _name(report, report.plan.case(row.case))
    if row.ratio is None or row.case == row.reference:
        return name
    return f"{name} {interval_text(row.ratio)}"


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
