"""The sentences below a table of measurements, at most four lines: the answer, what
failed, what to do, and the machine where it matters.

A function whose name ends with `_line` gives a list of one line, or an empty list where
there is nothing to say.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from ffnbench.common.units import counted
from ffnbench.ffn.spec import ActivationSpec
from ffnbench.plan.plan import CONTROL, Case, Group, NoteKind
from ffnbench.record.result import (
    LONGEST_BUDGET_S,
    Comparison,
    Fastest,
    Report,
    Verdict,
)
from ffnbench.report.header import heading
from ffnbench.report.words import (
    WITHIN,
    backend_text,
    change_text,
    interval_text,
    join_words,
    labelled,
)

MOST_SENTENCES = 4  # lines
MOST_MEANS = 8  # rows whose mean over several runs is told
MOST_NAMED = 3  # rows of one verdict that are named with their changes
# the budget of a hint is rounded up to a multiple of 5 s, above 2 minutes of 60 s
SHORT_STEP_S, LONG_STEP_S, LONG_S = 5, 60, 120
CONTROL_WORDS = {Verdict.SAME: "as it should be", Verdict.UNCLEAR: "can't tell"}


def answer_sentences(
    report: Report, groups: Iterable[Group] | None = None
) -> list[str]:
    """The sentences, the most important first; with `groups`, verdicts are told of
    these groups alone.
    """
    answers = _lines_on_several_groups(report)
    # the sentence on trade-offs tells already which rows are fast
    if not report.figures.trade_offs:
        answers += verdict_lines(report, groups)
    answers += over_runs_line(report) + _control_line(report)
    if not report.figures.trade_offs:
        answers += _fastest_lines(report)
    answers += _undecided_line(report)
    others = [
        *failure_line(report),
        *_launch_bound_line(report),
        *to_do_line(report),
        *general_line(report),
        *machine_line(report),
    ]
    # one answer stays however many of the others there are
    lines = [*answers[: max(1, MOST_SENTENCES - len(others))], *others]
    return lines[:MOST_SENTENCES]


def _lines_on_several_groups(report: Report) -> list[str]:
    """Where curves cross, and which rows are fast for their error."""
    if report.figures.crossings is None and not report.figures.trade_offs:
        return []
    from ffnbench.report.sweep_sentences import sweep_line, trade_off_line

    return [*sweep_line(report), *trade_off_line(report)]


# Who is slower than the reference


def verdict_lines(report: Report, groups: Iterable[Group] | None = None) -> list[str]:
    """Which rows are slower than the reference, and which are not: with one group the
    changes, with several how often each verdict was found.
    """
    groups = list(report.plan.groups if groups is None else groups)
    comparable = [group for group in groups if not report.failure(group.reference)]
    lines = []
    if len(comparable) < len(groups):
        lines.append(
            "nothing to compare with where the reference, the first row, failed"
        )
    if len(comparable) == 1:
        text = _text_on_one_group(report, comparable[0])
        if text and report.plan.is_sweep:
            text = f"{heading(comparable[0])}: {text}"
    else:
        text = _text_on_several_groups(report, comparable)
    return [*lines, text] if text else lines


def _name_in_group(report: Report, case: Case) -> str:
    """The name of a row within its group."""
    if isinstance(case.ffn, ActivationSpec):
        return case.variant
    return report.plan.name_of(case.label)


def _compared(report: Report, group: Group) -> dict[str, Comparison]:
    """The comparisons of a group's rows with its reference, by the name of the row."""
    rows = {}
    for case in group.cases:
        comparison = report.comparison(case.label)
        if comparison and case.label != group.reference:
            rows[_name_in_group(report, case)] = comparison
    return rows


def _phrases(report: Report, group: Group) -> dict[Verdict, str]:
    """The words for rows of each verdict, in the order in which they are told."""
    reference = _name_in_group(report, report.plan.case(group.reference))
    return {
        Verdict.SAME: f"as fast as {reference}",
        Verdict.SLOWER: f"slower than {reference}",
        Verdict.FASTER: f"faster than {reference}",
        Verdict.UNCLEAR: "can't tell",
        Verdict.BUSY: "too disturbed to compare",
    }


def _text_on_one_group(report: Report, group: Group) -> str:
    """`as fast as relu (within 2%): silu; slower than relu: gelu +10% [+9.8%, +11%] and
    swiglu +20% [+20%, +21%]`.
    """
    compared, clauses = _compared(report, group), []
    for verdict, phrase in _phrases(report, group).items():
        rows = {name: row for name, row in compared.items() if row.verdict is verdict}
        if verdict is Verdict.SAME:
            phrase += f" (within {WITHIN})"
        if rows:
            clauses.append(f"{phrase}: {_rows_text(rows)}")
    return "; ".join(clauses)


def _rows_text(rows: dict[str, Comparison]) -> str:
    """Rows of one verdict with their changes; of many rows their number, the fastest
    and the slowest.
    """
    texts, ratios = {}, {}
    for name, row in rows.items():
        texts[name] = name
        if row.ratio and row.verdict not in (Verdict.SAME, Verdict.BUSY):
            texts[name] = f"{name} {change_text(row.ratio)}"
            ratios[name] = row.ratio.value
    if len(rows) <= MOST_NAMED or not ratios:
        return join_words(texts.values())
    by_ratio = sorted(ratios, key=ratios.__getitem__)
    return f"{len(rows)} rows, from {texts[by_ratio[0]]} to {texts[by_ratio[-1]]}"


def _text_on_several_groups(report: Report, groups: Sequence[Group]) -> str:
    """`gelu: slower than relu everywhere; swiglu: as fast as relu at 5, can't tell at 4
    of 9`.
    """
    verdicts_of: dict[str, list[str]] = {}
    for group in groups:
        phrases = _phrases(report, groups[0])
        for name, row in _compared(report, group).items():
            verdicts_of.setdefault(name, []).append(phrases[row.verdict])
    names_of: dict[str, list[str]] = {}
    for name, phrases_of_row in verdicts_of.items():
        counts = Counter(phrases_of_row).most_common()
        text = ", ".join(f"{phrase} at {times}" for phrase, times in counts)
        text += f" of {len(groups)}"
        if counts[0][1] == len(groups):
            text = f"{counts[0][0]} everywhere"
        names_of.setdefault(text, []).append(name)
    return "; ".join(f"{join_words(names)}: {text}" for text, names in names_of.items())


def _undecided_line(report: Report) -> list[str]:
    """Why rows are not decided though their intervals would allow it: the machine is
    noisy, or there are many rows.
    """
    reasons = {
        row.reason
        for row in report.comparisons
        if row.verdict is Verdict.UNCLEAR and row.ratio and row.reason
    }
    return [f"can't tell: {join_words(sorted(reasons))}"] if reasons else []


# What else was found


def over_runs_line(report: Report) -> list[str]:
    """The mean over all runs, where a file holds several; the table shows the first."""
    if not report.repeats:
        return []
    line = f"the table shows run 1 of {len(report.runs)}"
    means = [
        f"{label} {interval_text(ratio)}"
        for label, ratio in report.figures.over_runs.items()
    ]
    if means:
        line += f"; mean of all runs: {', '.join(means[:MOST_MEANS])}"
    return [line]


def _control_line(report: Report) -> list[str]:
    """The ratio of the reference to itself, which was measured as a control."""
    control = report.comparison(CONTROL)
    if control is None or control.ratio is None or control.ratio.low is None:
        return []
    found = CONTROL_WORDS.get(control.verdict, "more than chance")
    return [
        f"control: {report.plan.reference} against itself is {interval_text(control.ratio)}, {found}"
    ]


def _fastest_lines(report: Report) -> list[str]:
    """The fastest backend of each network that has more than two; of two, the verdict
    tells it.
    """
    return [
        _fastest_text(fastest)
        for fastest in report.figures.fastest
        if len(fastest.cases) > 2
    ]


def _fastest_text(fastest: Fastest) -> str:
    """`fastest of swiglu: onednn, 0.42 [0.41, 0.43] of eager's time`."""
    backends = {case.label: backend_text(case.workload) for case in fastest.cases}
    text = f"fastest of {fastest.cases[0].label}: "
    text += join_words(backends[label] for label in fastest.first)
    if fastest.verdict is Verdict.UNCLEAR:
        text = f"can't tell which is {text}"
    if fastest.against not in fastest.first:
        ratios = ", ".join(map(interval_text, fastest.ratios))
        text += f", {ratios} of {backends[fastest.against]}'s time"
    return text


# What failed, what to do, the machine


def failure_line(report: Report) -> list[str]:
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
    return ["; ".join(labelled(notes))] if notes else []


def _why_without_numbers(report: Report, case: Case) -> str:
    """Why a row failed, or has no count where counts are the answer; else empty."""
    failure, cost = report.failure(case.label), report.cost(case.label)
    if failure:
        return failure.message.removeprefix(f"{case.label} ")
    is_uncounted = report.is_of_counts and cost.flops_forward is None
    return cost.counted_how if is_uncounted else ""


def to_do_line(report: Report) -> list[str]:
    """The flags that would decide the rows that could not be decided."""
    narrowing = report.figures.narrowing
    if narrowing is None:
        return []
    if narrowing.seconds is None:
        rows = counted(narrowing.rows, "row")
        return [
            f"too noisy to decide {rows} within {LONGEST_BUDGET_S // 60} min: `ffnbench env` says what disturbs"
        ]
    step = LONG_STEP_S if narrowing.seconds > LONG_S else SHORT_STEP_S
    seconds = step * math.ceil(narrowing.seconds / step)
    flags = (
        f"--budget {seconds // 60}m" if seconds % 60 == 0 else f"--budget {seconds}s"
    )
    percent = f"{100 * narrowing.precision:g}%"
    if not narrowing.is_asked:
        flags += f" --precision {percent}"
    verb = "would" if narrowing.is_likely else "may"
    return [f"{flags} {verb} narrow the intervals to about ±{percent}"]


def _launch_bound_line(report: Report) -> list[str]:
    """Which rows take as long as the CPU needs to launch their calls on a GPU."""
    rows = [
        case.label
        for case in report.plan.shown
        if report.figures.launch_bound.get(case.label)
    ]
    if not rows:
        return []
    why = "launching a call takes longer than running it; @time=device leaves that out"
    return [f"{join_words(rows)}: launch-bound, {why}"]


def general_line(report: Report) -> list[str]:
    """The general notes: on the whole run, such as defaults from a file, and on rows
    that did not fail, such as a killed worker.
    """
    notes = [
        note
        for note in (*report.plan.notes, *report.warnings)
        if note.kind is NoteKind.GENERAL and not report.failure(note.label)
    ]
    texts = [note.text for note in notes if not note.label]
    texts += labelled((note.label, note.text) for note in notes if note.label)
    return ["; ".join(texts)] if texts else []


def machine_line(report: Report) -> list[str]:
    """That the run ended early, or that the machine was busy or is noisy."""
    if report.interrupted or report.stopped:
        how = "interrupted" if report.interrupted else "stopped"
        if report.plan.is_sweep:
            done, cells = report.figures.cells
            return [f"{how}: {done} of {cells} groups are done"]
        return [f"{how}: the rest was not measured"]
    notes = {note.kind: note.text for note in reversed(report.notes(""))}
    for kind in (NoteKind.BUSY, NoteKind.SEEN):
        if kind in notes:
            return [notes[kind]]
    if NoteKind.MOVES in notes:
        return ["noisy machine: compare ratios, not times; details: -v"]
    return []
