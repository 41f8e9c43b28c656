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
from ffnbench.metrics import LATENCY
from ffnbench.plan import CONTROL, Case, Group, NoteKind, Plan
from ffnbench.report.header import compares_ways, heading
from ffnbench.report.notes import untested_note
from ffnbench.report.words import (
    WITHIN,
    backend_text,
    change_text,
    interval_text,
    join_words,
    labelled,
    way_text,
)
from ffnbench.result import LONGEST_BUDGET_S, Comparison, Fastest, Report, Verdict

MOST_SENTENCES = 4  # lines
MOST_MEANS = 8  # rows whose mean over several runs is told
MOST_NAMED = 3  # rows of one verdict that are named with their changes
# the budget of a hint is rounded up to a multiple of 5 s, above 2 minutes of 60 s
SHORT_STEP_S, LONG_STEP_S, LONG_S = 5, 60, 120


def answer_sentences(
    report: Report, groups: Iterable[Group] | None = None
) -> list[str]:
    """The sentences, the most important first; with `groups`, verdicts are told of
    these groups alone.
    """
    answers = _lines_on_several_groups(report)
    # the sentence on trade-offs tells already which rows are fast
    has_trade_offs = bool(report.figures.trade_offs)
    if not has_trade_offs:
        answers += verdict_lines(report, groups)
    answers += over_runs_line(report) + _control_line(report)
    if not has_trade_offs:
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
    failed = [group for group in groups if report.failure(group.reference)]
    comparable = [group for group in groups if not report.failure(group.reference)]
    lines = _nothing_to_compare_line(report, failed)
    if len(comparable) == 1:
        text = _text_on_one_group(report, comparable[0])
        if text and report.plan.is_sweep:
            text = f"{heading(comparable[0])}: {text}"
    else:
        text = _text_on_several_groups(report, comparable)
    return [*lines, text] if text else lines


def _nothing_to_compare_line(report: Report, failed: Sequence[Group]) -> list[str]:
    """That the references of these groups failed, and which row could be the reference
    in their place; no line where all rows failed.
    """
    others = [
        case
        for group in failed
        for case in group.cases
        if not report.failure(case.label)
    ]
    if not others:
        return []
    where = f" at {join_words(map(heading, failed))}" if report.plan.is_sweep else ""
    reference = _name_in_group(report, report.plan.case(failed[0].reference))
    another = _name_in_group(report, others[0])
    return [
        f"nothing to compare with{where}: the reference {reference} failed; put {another} first"
    ]


def _name_in_group(report: Report, case: Case) -> str:
    """The name of a row within its group."""
    if isinstance(case.ffn, ActivationSpec):
        return case.variant
    return report.plan.name_of(case.label)


def _text_on_one_group(report: Report, group: Group) -> str:
    """`as fast as relu (within 2%): silu; slower than relu: gelu +10% [+9.8%, +11%] and
    swiglu +20% [+20%, +21%]`.
    """
    rows: dict[Verdict, list[Comparison]] = {}
    for case in group.cases:
        comparison = report.comparison(case.label)
        if comparison and case.label != group.reference:
            rows.setdefault(comparison.verdict, []).append(comparison)
    phrases = _verdict_phrases(
        _name_in_group(report, report.plan.case(group.reference))
    )
    phrases[Verdict.SAME] += f" (within {WITHIN})"
    clauses = []
    for verdict, phrase in phrases.items():
        if verdict in rows:
            clauses.append(f"{phrase}: {_rows_text(report, rows[verdict])}")
    return "; ".join(clauses)


def _verdict_phrases(reference: str) -> dict[Verdict, str]:
    """The words for rows of each verdict, in the order in which they are told."""
    return {
        Verdict.SAME: f"as fast as {reference}",
        Verdict.SLOWER: f"slower than {reference}",
        Verdict.FASTER: f"faster than {reference}",
        Verdict.UNCLEAR: "can't tell",
        Verdict.BUSY: "too disturbed to compare",
    }


def _rows_text(report: Report, rows: Sequence[Comparison]) -> str:
    """Rows of one verdict with their changes; of many rows their number, the fastest
    and the slowest.
    """
    names = [_name_in_group(report, report.plan.case(row.case)) for row in rows]
    if rows[0].verdict in (Verdict.SAME, Verdict.BUSY):
        return join_words(names)
    texts, ratios = {}, {}
    for name, row in zip(names, rows, strict=True):
        texts[name] = name
        if row.ratio:
            texts[name] = f"{name} {change_text(row.ratio)}"
            ratios[name] = row.ratio.value
    if len(rows) <= MOST_NAMED:
        return join_words(texts.values())
    by_ratio = sorted(ratios, key=ratios.__getitem__)
    return f"{len(rows)} rows, from {texts[by_ratio[0]]} to {texts[by_ratio[-1]]}"


def _text_on_several_groups(report: Report, groups: Sequence[Group]) -> str:
    """`gelu: slower than relu everywhere; swiglu: as fast as relu at 5, can't tell at 4
    of 9`.
    """
    if not groups:
        return ""
    verdicts_of: dict[str, list[Verdict]] = {}
    for group in groups:
        for case in group.cases:
            comparison = report.comparison(case.label)
            if comparison and case.label != group.reference:
                name = _name_in_group(report, case)
                verdicts_of.setdefault(name, []).append(comparison.verdict)
    reference = _name_in_group(report, report.plan.case(groups[0].reference))
    names_of: dict[str, list[str]] = {}
    for name, verdicts in verdicts_of.items():
        text = _how_often(verdicts, reference, len(groups))
        names_of.setdefault(text, []).append(name)
    return "; ".join(f"{join_words(names)}: {text}" for text, names in names_of.items())


def _how_often(verdicts: Sequence[Verdict], reference: str, groups: int) -> str:
    """At how many of the groups a row has each verdict."""
    phrases = _verdict_phrases(reference)
    counts = Counter(phrases[verdict] for verdict in verdicts).most_common()
    if counts[0][1] == groups:
        return f"{counts[0][0]} everywhere"
    texts = [f"{phrase} at {times}" for phrase, times in counts]
    return f"{', '.join(texts)} of {groups}"


def _undecided_line(report: Report) -> list[str]:
    """Why rows are not decided though their intervals would allow it: the machine is
    noisy, or there are many rows.
    """
    reasons = {
        row.reason
        for row in report.comparisons
        if row.verdict is Verdict.UNCLEAR and row.ratio
    } - {""}
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
    if control is None:
        return []
    if control.verdict is Verdict.BUSY:
        return ["control: too many rounds disturbed to tell"]
    if control.ratio is None or control.ratio.low is None:
        return []
    words = {Verdict.SAME: "as it should be", Verdict.UNCLEAR: "can't tell"}
    judgement = words.get(control.verdict, "more than chance")
    return [
        f"control: {report.plan.reference} against itself is {interval_text(control.ratio)}, {judgement}"
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
    eager = [case.label for case in fastest.cases if case.workload.eager]
    network = (eager or [fastest.cases[0].label])[0]
    first = join_words(backends[label] for label in fastest.first)
    times = ""
    if fastest.against not in fastest.first:
        ratios = ", ".join(map(interval_text, fastest.ratios))
        times = f", {ratios} of {backends[fastest.against]}'s time"
    if fastest.verdict is Verdict.FASTER:
        return f"fastest of {network}: {first}{times}"
    if fastest.verdict is Verdict.SAME:
        return f"fastest of {network}: {first} (the same){times}"
    return f"can't tell which is fastest of {network}: {first}{times}"


# What failed, what to do, the machine


def failure_line(report: Report) -> list[str]:
    """Which rows have no numbers, and why. A row for which that is so in every group is
    named once.
    """
    plan = report.plan
    is_counted_only = report.is_of_counts
    reasons = []
    for case in plan.shown:
        cost, failure = report.cost(case.label), report.failure(case.label)
        if failure:
            reasons.append((case.label, failure.message.removeprefix(f"{case.label} ")))
        elif is_counted_only and cost.flops_forward is None and cost.counted_how:
            reasons.append((case.label, cost.counted_how))
    if not reasons:
        return []
    names = _names_in_failures(plan)
    places = {
        case.label: heading(group) for group in plan.groups for case in group.cases
    }
    times = Counter((names[label], reason) for label, reason in reasons)
    notes = []
    for label, reason in reasons:
        name = names[label]
        if times[name, reason] < len(plan.groups):
            name += f" at {places[label]}"
        notes.append((name, reason))
    return ["; ".join(labelled(notes))]


def _names_in_failures(plan: Plan) -> dict[str, str]:
    """By label, how a row is named: by the way in which it is run, where that tells the
    rows of a group apart.
    """
    shown = plan.shown
    ways = {(way_text(case.workload), plan.reference_of(case.label)) for case in shown}
    if compares_ways(plan) and len(ways) == len(shown):
        return {case.label: way_text(case.workload) for case in shown}
    return {case.label: plan.name_of(case.label) for case in shown}


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
    budget = f"{seconds // 60}m" if seconds % 60 == 0 else f"{seconds}s"
    percent = f"{100 * narrowing.precision:g}%"
    flags = f"--budget {budget}"
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
    texts = [note.text for note in report.notes("") if note.kind is NoteKind.GENERAL]
    of_rows = []
    for note in (*report.plan.notes, *report.warnings):
        if (
            note.label
            and note.kind is NoteKind.GENERAL
            and not report.failure(note.label)
        ):
            of_rows.append((note.label, note.text))
    texts += labelled(of_rows)
    return ["; ".join(texts)] if texts else []


def machine_line(report: Report) -> list[str]:
    """That the run ended early, or that the machine was busy or is noisy."""
    if report.interrupted or report.stopped:
        return [_ended_early(report)]
    notes = {note.kind: note.text for note in reversed(report.notes(""))}
    for kind in (NoteKind.BUSY, NoteKind.SEEN):
        if kind in notes:
            return [notes[kind]]
    if NoteKind.MOVES in notes:
        return ["noisy machine: compare ratios, not times; details: -v"]
    return untested_note(report)


def _ended_early(report: Report) -> str:
    """`interrupted in process 3 of 5: the rest was not measured`."""
    how = "interrupted" if report.interrupted else "stopped"
    if report.plan.is_sweep:
        done, cells = report.figures.cells
        return f"{how}: {done} of {cells} groups are done"
    workers = {sample.worker for sample in report.samples if sample.metric == LATENCY}
    # the first may end before it has timed anything
    process = f"process {max(1, len(workers))}"
    if report.plan.protocol.precision is None:
        process += f" of {report.plan.protocol.workers}"
    return f"{how} in {process}: the rest was not measured"
