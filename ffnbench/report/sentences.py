"""What stands under a table of what was measured, in at most four lines: what it says, what failed, what to do, and the
machine where it matters.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ffnbench.common.units import counted, digits
from ffnbench.ffn.spec import ActivationSpec
from ffnbench.metrics import LATENCY
from ffnbench.plan import CONTROL, Case, Group, NoteKind
from ffnbench.report.header import heading
from ffnbench.report.notes import untested_note
from ffnbench.report.words import WITHIN, backend_text, interval_text, labelled, listed
from ffnbench.result import Comparison, Crossing, Crossings, Estimate, Fastest, Report, Verdict
from ffnbench.stats.figures import LONGEST_S

MOST = 4  # lines
MEANS = 8  # rows whose mean over several runs is told
NAMED = 3  # rows whose own figures are told
DOUBLE = 2.0  # a ratio from here on is told as a factor
SMALL = 0.0095  # a difference below is told with a decimal
STEPS_S, MINUTES_S = (5, 60), 120  # what a hint is rounded up to, below and from two minutes on


def answer(report: Report, groups: Iterable[Group] | None = None) -> list[str]:
    """The lines, the most important first; what rows say of these groups alone where some are given."""
    said = [
        *sweep_line(report),
        *verdict_lines(report, groups),
        *over_runs(report),
        *_control(report),
        *map(_fastest, _backends(report)),
        *_doubted(report),
    ]
    after = [
        *failure_line(report),
        *_launch_bound(report),
        *to_do(report),
        *general_line(report),
        *machine_line(report),
    ]
    return [*said[: max(1, MOST - len(after))], *after]


def verdict_lines(report: Report, groups: Iterable[Group] | None = None) -> list[str]:
    """Who is slower than the reference and who is not: of one group with figures, of several group by group."""
    found = list(report.plan.groups if groups is None else groups)
    if lost := [group for group in found if _failed(report, group.reference)]:
        return _nothing_to_compare(report, lost) + verdict_lines(
            report, [group for group in found if group not in lost]
        )
    if len(found) == 1:
        rows = {_name(report, case): c for case in found[0].cases if (c := report.comparison(case.label))}
        told = _in_one(_name(report, report.plan.case(found[0].reference)), rows)
        return [f"{heading(found[0])}: {line}" for line in told] if len(report.plan.groups) > 1 else told
    rows_of: dict[str, list[Comparison]] = {}
    for group in found:
        for case in group.cases:
            comparison = report.comparison(case.label)
            if comparison and case.label != group.reference:
                rows_of.setdefault(_name(report, case), []).append(comparison)
    names: dict[str, list[str]] = {}
    for name, of_row in rows_of.items():
        reference = _name(report, report.plan.case(found[0].reference))
        names.setdefault(_in_several(reference, of_row, len(found)), []).append(name)
    told = [f"{listed(alike)}: {what}" for what, alike in names.items()]
    return ["; ".join(told)] if told else []


def _failed(report: Report, label: str) -> bool:
    return report.failure(label) is not None


def _nothing_to_compare(report: Report, lost: list[Group]) -> list[str]:
    """Of groups whose reference has no numbers, where others have some."""
    others = [_name(report, case) for group in lost for case in group.cases if not _failed(report, case.label)]
    if not others:
        return []
    where = f" at {listed(dict.fromkeys(map(heading, lost)))}" if len(report.plan.groups) > 1 else ""
    reference = _name(report, report.plan.case(lost[0].reference))
    return [f"nothing to compare with{where}: the reference {reference} failed; --reference {others[0]}"]


def _name(report: Report, case: Case) -> str:
    """What a row is called beside those of its group."""
    return case.variant if isinstance(case.ffn, ActivationSpec) else report.plan.name_of(case.label)


def _in_one(reference: str, rows: dict[str, Comparison]) -> list[str]:
    by: dict[Verdict, dict[str, Comparison]] = {}
    for name, row in rows.items():
        if row.case != row.reference:
            by.setdefault(row.verdict, {})[name] = row
    told = []
    if same := by.get(Verdict.SAME):
        told.append(f"{listed(same)} {'are' if len(same) > 1 else 'is'} as fast as {reference} (within {WITHIN})")
    slower = by.get(Verdict.SLOWER, {})
    far = {name: row for name, row in slower.items() if row.ratio and (row.ratio.high or row.ratio.value) >= DOUBLE}
    if near := {name: row for name, row in slower.items() if name not in far}:
        told.append(_figures(near, "is", "are", "slower" + f" than {reference}" * (not told)))
    if far:
        told.append(_figures(far, "takes", "take", f"as long as {reference}", f"longer than {reference}"))
    if faster := by.get(Verdict.FASTER):
        told.append(_figures(faster, "takes", "take", "less time" + f" than {reference}" * (not told)))
    if unclear := by.get(Verdict.UNCLEAR):
        ends = [f" ({both_ways(row.ratio)})" if row.ratio and len(unclear) <= NAMED else "" for row in unclear.values()]
        told.append(f"can't tell for {listed(name + end for name, end in zip(unclear, ends, strict=True))}")
    if busy := by.get(Verdict.BUSY):
        told.append(f"no ratio for {listed(busy)}")
    return ["; ".join(told)] if told else []


def _figures(rows: dict[str, Comparison], one: str, many: str, what: str, together: str = "") -> str:
    """`swiglu is 1 to 5% slower than relu, glu 3 to 6%`; of many their number, the nearest and the farthest."""
    ratios = {name: row.ratio for name, row in rows.items() if row.ratio}
    if len(ratios) <= NAMED:
        (first, ratio), *others = ratios.items()
        return ", ".join([f"{first} {one} {span(ratio)} {what}", *(f"{name} {span(each)}" for name, each in others)])
    *_, farthest = nearest, *_ = sorted(ratios, key=lambda name: abs(math.log(ratios[name].value)))
    ends = (f"{name} ({span(ratios[name])})" for name in (nearest, farthest))
    return f"{len(ratios)} rows {many} {together or what}, from {' to '.join(ends)}"


def span(ratio: Estimate) -> str:
    """How much more or less time, from end to end: `1 to 5%`; `2.1 to 2.3 times` from the double on."""
    low, high = ratio.low or ratio.value, ratio.high or ratio.value
    if high >= DOUBLE:
        return f"{' to '.join(dict.fromkeys((digits(low, 2), digits(high, 2))))} times"
    ends = sorted((abs(low - 1), abs(high - 1)))
    places = 0 if ends[0] >= SMALL else 1
    return f"{' to '.join(dict.fromkeys(f'{100 * end:.{places}f}' for end in ends))}%"


def both_ways(ratio: Estimate) -> str:
    """What an undecided ratio may be: `0.1% less to 3.8% more`."""
    ends = sorted({ratio.low or ratio.value, ratio.high or ratio.value})
    places = 0 if min(abs(end - 1) for end in ends) >= SMALL else 1
    told = [f"{100 * abs(end - 1):.{places}f}% {'less' if end < 1 else 'more'}" for end in ends]
    if len({text.partition(" ")[2] for text in told}) == 1:
        told[:-1] = [text.partition("%")[0] for text in told[:-1]]
    return " to ".join(told)


def _in_several(reference: str, rows: Sequence[Comparison], points: int) -> str:
    """`slower than relu everywhere`; `as fast as relu at 5, can't tell at 4 of 9`."""
    words = {Verdict.SAME: f"as fast as {reference}", Verdict.UNCLEAR: "can't tell",
             Verdict.BUSY: "too disturbed to compare", Verdict.SLOWER: f"slower than {reference}",
             Verdict.FASTER: f"faster than {reference}"}  # fmt: skip
    told = Counter(words[row.verdict] for row in rows).most_common()
    if told[0][1] == points:
        return f"{told[0][0]} everywhere"
    return ", ".join(f"{word} at {times}" for word, times in told) + f" of {points}"


def failure_line(report: Report) -> list[str]:
    """Which rows have no numbers, and why."""
    why = []
    for case in report.plan.shown:
        failure = report.failure(case.label)
        priced = report.environment or report.cost(case.label).flops_forward is not None
        uncounted = "" if priced else report.cost(case.label).counted_how
        if reason := failure.message if failure else uncounted:
            why.append((case.label, reason.removeprefix(f"{case.label} ")))
    return ["; ".join(labelled(why))] if why else []


def _doubted(report: Report) -> list[str]:
    """Why rows could not be told though their intervals leave 1 out."""
    unclear = [c for c in report.comparisons if c.verdict is Verdict.UNCLEAR and c.reason and c.ratio]
    why = {
        c.reason for c in unclear if c.ratio and c.ratio.low and c.ratio.high and (c.ratio.low > 1 or c.ratio.high < 1)
    }
    return [f"can't tell beside an interval without 1: {listed(sorted(why))}"] if why else []


def to_do(report: Report) -> list[str]:
    """What would decide the rows that could not be decided: one flag, and the time that it takes."""
    found = report.figures.narrowing
    if found is None:
        return []
    if found.seconds is None:
        within = f"within {LONGEST_S // 60} min"
        return [f"too noisy to decide {counted(found.rows, 'row')} {within}: `ffnbench env` says what disturbs"]
    step = STEPS_S[found.seconds > MINUTES_S]
    seconds = step * math.ceil(found.seconds / step)
    budget = f"{seconds // 60}m" if seconds % 60 == 0 else f"{seconds}s"
    flags = f"--budget {budget}" if found.is_asked else f"--budget {budget} --precision {100 * found.precision:g}%"
    would = "would" if found.is_likely else "may"
    return [f"{flags} {would} narrow the intervals to about ±{100 * found.precision:g}%"]


def _launch_bound(report: Report) -> list[str]:
    """Which rows take the time of the CPU that issues their calls."""
    if not (rows := [case.label for case in report.plan.shown if report.figures.launch_bound.get(case.label)]):
        return []
    why = "launching a call takes longer than running it; --time device leaves that out"
    return [f"{listed(rows)}: launch-bound, {why}"]


def general_line(report: Report) -> list[str]:
    """What holds for the whole run, such as defaults of a file, and what happened to rows, such as a killed worker."""
    told = [note.text for note in report.notes("") if note.kind is NoteKind.GENERAL]
    told += labelled(
        (note.label, note.text) for note in (*report.plan.notes, *report.warnings)
        if note.label and note.kind is NoteKind.GENERAL and not report.failure(note.label)
    )  # fmt: skip
    return ["; ".join(told)] if told else []


def over_runs(report: Report) -> list[str]:
    """The mean over all runs of a file that holds several; the table shows the first."""
    if not report.repeats:
        return []
    means = [f"{label} {interval_text(ratio)}" for label, ratio in report.figures.over_runs.items()]
    over = f"; mean of all runs: {', '.join(means[:MEANS])}" if means else ""
    over += f" and {len(means) - MEANS} more" if len(means) > MEANS else ""
    return [f"the table shows run 1 of {len(report.runs)}{over}"]


def machine_line(report: Report) -> list[str]:
    """What the reader has to know of the machine, if anything: it was busy, it is noisy, the run ended early."""
    if report.interrupted or report.stopped:
        how = "interrupted" if report.interrupted else "stopped"
        if report.plan.is_sweep:
            done, cells = report.figures.cells
            return [f"{how}: {done} of {cells} groups are done"]
        done = len({sample.worker for sample in report.samples if sample.metric == LATENCY})
        number = max(1, done)  # the first may end before it has timed anything
        of = f" of {report.plan.protocol.workers}" if report.plan.protocol.precision is None else ""
        return [f"{how} in process {number}{of}: the rest was not measured"]
    notes = {note.kind: note.text for note in reversed(report.notes(""))}
    if NoteKind.BUSY in notes:
        return [notes[NoteKind.BUSY]]
    if NoteKind.SEEN in notes:
        return [notes[NoteKind.SEEN]]
    if NoteKind.MOVES in notes:
        return ["noisy machine: compare ratios, not times; details: -v"]
    return list(untested_note(report))


def _control(report: Report) -> list[str]:
    """What the reference differs from itself by."""
    found = report.comparison(CONTROL)
    if found is not None and found.verdict is Verdict.BUSY:
        return ["control: too many rounds disturbed to tell"]
    if found is None or found.ratio is None or found.ratio.low is None or found.ratio.high is None:
        return []
    words = {Verdict.SAME: "as it should be", Verdict.UNCLEAR: "can't tell"}
    said = words.get(found.verdict, "more than chance")
    return [f"control: {report.plan.reference} against itself is {interval_text(found.ratio)}, {said}"]


def _backends(report: Report) -> Iterator[Fastest]:
    """Of networks with more than two backends which is fastest; of two the verdict says it."""
    return (found for found in report.figures.fastest if len(found.cases) > 2)


def _fastest(found: Fastest) -> str:
    """`fastest of swiglu: onednn, 0.42 [0.41, 0.43] of eager's time`."""
    backends = {case.label: backend_text(case.workload) for case in found.cases}
    names = backends if len(set(backends.values())) == len(backends) else {label: label for label in backends}
    eager = [case.label for case in found.cases if case.workload.eager]
    first, _, rest = found.cases[0].label.partition("@backend=")
    stem = eager[0] if eager else "@".join([first, *rest.split("@")[1:]])
    which = listed(names[label] for label in found.first)
    ratios = ", ".join(map(interval_text, found.ratios))
    times = "" if found.against in found.first else f", {ratios} of {names[found.against]}'s time"
    if found.verdict in (Verdict.FASTER, Verdict.SAME):
        return f"fastest of {stem}: {which}{' (the same)' * (found.verdict is Verdict.SAME)}{times}"
    return f"can't tell which is fastest of {stem}: {which}{times}"


TEN = 10.0  # from here on places have no decimals
MOST_CROSSINGS = 3  # parts of the sentence
EXACTLY = 2  # places that are told each with its interval


def sweep_line(report: Report) -> list[str]:
    """`swiglu becomes slower than relu at seq_len 37 [30, 45]`; nothing where no crossing was found."""
    crossings = report.figures.crossings
    if crossings is None or not crossings.places:
        return []
    alike: dict[tuple[str, str, bool], list[Crossing]] = {}
    for crossing in crossings.places:
        alike.setdefault((crossing.variant, crossing.than, crossing.slower), []).append(crossing)
    parts = []
    for (variant, than, slower), places in alike.items():
        change = "slower" if slower else "faster"
        parts.append(f"{variant} becomes {change} than {than} at {_at(crossings, places)}")
    if len(parts) > MOST_CROSSINGS:
        parts[MOST_CROSSINGS:] = [f"{len(parts) - MOST_CROSSINGS} more in the picture"]
    return ["; ".join(parts)]


def _at(crossings: Crossings, places: Sequence[Crossing]) -> str:
    """`seq_len 37 [30, 45]`; of many the span, and for how many values of the other axes."""
    axis = crossings.axis.name
    if len(places) <= EXACTLY:
        return f"{axis} " + listed(interval_text(place.at) + _held(place.within) for place in places)
    ends = [end for place in places for end in (place.at.low, place.at.high) if end]
    span = " to ".join(f"{end:,.{0 if end >= TEN else 1}f}" for end in (min(ends), max(ends)))
    return f"{axis} {span}, for {len(places)} of {crossings.lines} values of {listed(places[0].within)}"


def _held(within: Mapping[str, Any]) -> str:
    """` (d_model 512)`; empty where there is no other axis."""
    return f" ({heading(Group(reference='', cases=(), values=within))})" if within else ""
