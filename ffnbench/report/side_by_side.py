"""Saved runs beside each other, as benchstat shows them: old, new, the change with its interval, `~` for can't tell.

A table for each metric that is timed or has changed; nothing is decided for anybody.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ffnbench.errors import FfnbenchError
from ffnbench.gate.side_by_side import (
    COMPARED,
    FLOPS,
    PARAMS,
    RATIO,
    RunChange,
    apart,
    changes_between,
    common_rows,
    geometric_mean,
)
from ffnbench.metrics import LATENCY, PEAK
from ffnbench.report.footnotes import Footnotes
from ffnbench.report.formats import View, view_of
from ffnbench.report.records import Record
from ffnbench.report.table import UNKNOWN, Cell, Column, Table
from ffnbench.report.words import WIDEST, half_width, interval_text, listed, seconds_text, side_lines
from ffnbench.result import Estimate, Report, Side
from ffnbench.units import IEC, SI, TIME, counted, digits, scale, signed_percent

NAMES = {LATENCY: "latency", RATIO: "ratio", PARAMS: "params", FLOPS: "FLOPs", PEAK: "act. peak"}
UNITS = {LATENCY: TIME, FLOPS: SI, PEAK: IEC}
PER = {FLOPS: "/tok"}
MOST_APART = 3  # differences of a row that are told
LONGEST_NAME = 24
INTERVALS = "± and [ ] are 95% intervals over processes"


def side_by_side_view(paths: Sequence[str], runs: Sequence[Report]) -> View:
    """The first run beside all others; raises FfnbenchError where they have no row in common."""
    names = names_of(paths)
    if len(kinds := {run.plan.kind for run in runs}) > 1:
        raise FfnbenchError(
            f"these are runs of different commands: {listed(sorted(kinds))}", "give runs of one command"
        )
    if not common_rows(runs):
        has = "; ".join(
            f"{name}: {', '.join(c.label for c in run.plan.shown)}" for name, run in zip(names, runs, strict=True)
        )
        raise FfnbenchError("these runs have no row in common", has)
    changes = [changes_between(runs[0], run, common_rows(runs)) for run in runs[1:]]
    table = _tables(names, runs, changes)
    return view_of(table, lambda: side_by_side_records(names, runs, changes), every=False)


def names_of(paths: Sequence[str]) -> list[str]:
    """File names without folder and suffix; with them where these would be the same."""
    stems = [os.path.splitext(os.path.basename(path))[0] for path in paths]
    found = list(paths) if len(set(stems)) < len(stems) else stems
    if len(set(found)) < len(found):
        found = [f"{number}: {name}" for number, name in enumerate(found, start=1)]
    return [name if len(name) <= LONGEST_NAME else "…" + name[1 - LONGEST_NAME :] for name in found]


def side_by_side_records(
    names: Sequence[str], runs: Sequence[Report], changes: Sequence[Sequence[RunChange]]
) -> list[Record]:
    """One flat record a row, metric and later run, everything in base units."""
    return [
        {
            "label": c.label,
            "metric": c.metric,
            "old_run": names[0],
            "new_run": name,
            **_ends("old", c.old),
            **_ends("new", c.new),
            **_ends("change", c.change),
            "clear": c.clear,
            "differs": "; ".join(_told(runs[0], run, c.label)) or None,
        }
        for name, run, found in zip(names[1:], runs[1:], changes, strict=True)
        for c in found
    ]


def _ends(name: str, of: Estimate | None) -> Record:
    low, high = (of.low, of.high) if of else (None, None)
    return {name: of.value if of else None, f"{name}_low": low, f"{name}_high": high}


def _tables(names: Sequence[str], runs: Sequence[Report], changes: Sequence[Sequence[RunChange]]) -> Table:
    notes = Footnotes()
    shown = [m for m in COMPARED if any(_worth_showing(c) for found in changes for c in found if c.metric == m)]
    tables = [_table(metric, names, runs, changes, notes) for metric in shown or [PARAMS]]
    head = replace(tables[0], header=(*_header(names, runs), *tables[0].header))
    tables = [head, *tables[1:]]
    last = replace(tables[-1], footnotes=notes.lines(), summary=tuple(_closing(names, runs, changes, shown)))
    return replace(last, above=tuple(tables[:-1]))


def _worth_showing(change: RunChange) -> bool:
    """What is timed, and what is exact and another one now."""
    if change.metric in (LATENCY, RATIO):
        return change.old is not None or change.new is not None
    return change.clear


def _table(
    metric: str, names: Sequence[str], runs: Sequence[Report], changes: Sequence[Sequence[RunChange]], notes: Footnotes
) -> Table:
    rows = [[c for c in found if c.metric == metric] for found in changes]
    known = [e.value for found in rows for c in found for e in (c.old, c.new) if e]
    unit, size = scale(known, UNITS[metric]) if metric in UNITS else ("", 1.0)
    unit += PER.get(metric, "")
    columns = [Column(title=_title(metric, runs), left=True), Column(title=names[0], unit=unit, priority=2)]
    for name in names[1:]:
        columns += [Column(title=name, unit=unit, priority=2), Column(title="change", unit="[95%]", priority=1)]

    def cells(i: int) -> list[Cell]:
        label = rows[0][i].label
        told = [text for run in runs[1:] for text in _told(runs[0], run, label)]
        found = [Cell(text=label + notes.marks(told), value=label), _value(rows[0][i].old, metric, size)]
        for later in rows:
            found += [_value(later[i].new, metric, size), _change_cell(later[i])]
        return found

    made = [cells(i) for i in range(len(rows[0])) if _any_value([later[i] for later in rows])]
    same = [i for i, one in enumerate(rows[0]) if not any(_told(runs[0], run, one.label) for run in runs[1:])]
    mean = _geometric([[later[i] for i in same] for later in rows], metric, size)
    return Table(columns=tuple(columns), rows=tuple(map(tuple, [*made, *mean])))


def _title(metric: str, runs: Sequence[Report]) -> str:
    """`vs relu` where that is what all ratios are to."""
    if metric != RATIO:
        return NAMES[metric]
    references = {run.plan.reference_of(label) for run in runs for label in common_rows(runs)}
    return f"vs {references.pop()}" if len(references) == 1 else "vs reference"


def _any_value(row: Sequence[RunChange]) -> bool:
    return any(c.old or c.new for c in row)


def _geometric(rows: Sequence[Sequence[RunChange]], metric: str, size: float) -> list[list[Cell]]:
    """The geometric mean over these rows where all runs know them; none of a single row."""
    both = [i for i in range(len(rows[0])) if all(later[i].change and later[i].old and later[i].new for later in rows)]
    if len(both) < 2:
        return []
    old = geometric_mean(rows[0][i].old.value for i in both)  # type: ignore[union-attr]
    cells = [Cell(text="geometric mean"), Cell(text=_plain(old, metric, size))]
    for later in rows:
        now = geometric_mean(later[i].new.value for i in both)  # type: ignore[union-attr]
        change = geometric_mean(later[i].change.value for i in both)  # type: ignore[union-attr]
        text = UNKNOWN if change is None else signed_percent(change - 1)
        cells += [Cell(text=_plain(now, metric, size)), Cell(text=text, value=change)]
    return [cells]


def _plain(value: float | None, metric: str, size: float) -> str:
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if metric == PARAMS else digits(value / size)


def _value(of: Estimate | None, metric: str, size: float) -> Cell:
    if of is None:
        return Cell(text=UNKNOWN)
    if metric == LATENCY:
        return Cell(text=seconds_text(of, size), value=of.value)
    if metric == RATIO:
        return Cell(text=interval_text(of).partition(" ")[0], value=of.value)
    return Cell(text=_plain(of.value, metric, size), value=of.value)


def _change_cell(change: RunChange) -> Cell:
    """`+12% [+10%, +14%]`; `-0.3% [-1.1%, +0.5%] ~` where no change can be told; `0%` for what is exactly the same."""
    found = change.change
    if found is None:
        return Cell(text=UNKNOWN)
    timed = change.metric in (LATENCY, RATIO)
    style = "" if not timed else "yellow" if not change.clear else "red" if found.value > 1 else "green"
    return Cell(text=change_text(found) + " ~" * (timed and not change.clear), value=found.value, style=style)


def change_text(change: Estimate) -> str:
    """In percent; as a factor where its interval is too wide for that."""
    if change.low is None or change.high is None:
        return signed_percent(change.value - 1)
    if (half_width(change) or 0) > WIDEST:
        return f"x {interval_text(change)}"
    value, low, high = (signed_percent(one - 1) for one in (change.value, change.low, change.high))
    return f"{value} [{low}, {high}]"


def _header(names: Sequence[str], runs: Sequence[Report]) -> list[str]:
    made = ", ".join(
        f"{name} of {run.created[:10]}" + f" ({counted(len(run.runs), 'run')})" * (len(run.runs) > 1)
        for name, run in zip(names, runs, strict=True)
    )
    timed = any(run.samples for run in runs)
    return [f"FFN runs side by side: {made}", *([f"{INTERVALS}; ~: no change can be told"] if timed else [])]


def _closing(
    names: Sequence[str], runs: Sequence[Report], changes: Sequence[Sequence[RunChange]], shown: Sequence[str]
) -> list[str]:
    """What is equal, what is missing, what else is not the same."""
    both = {c.metric for found in changes for c in found if c.old and c.new}
    equal = [NAMES[metric] for metric in COMPARED if metric in both and metric not in shown]
    lines = [f"the same in {counted(len(common_rows(runs)), 'common row')}: {', '.join(equal)}"] if equal else []
    lines += [f"only in {has}: {', '.join(what)}" for has, what in _lacking(names, runs, changes, both).items()]
    sides = _sides(names, runs)
    differs = side_lines(sides)
    lines += [f"not the same: {'; '.join(differs)}"] if differs else []
    if any(run.samples and len(run.runs) == 1 for run in runs):
        lines.append(
            "of a file with one run the intervals do not know what moves between runs (--runs 5 measures that)"
        )
    for name, run in zip(names, runs, strict=True):
        failed = [f"{case.label}: {f.kind.value}" for case in run.plan.shown if (f := run.failure(case.label))]
        lines += [f"failed in {name}: {', '.join(failed)}"] if failed else []
    return lines


def _lacking(
    names: Sequence[str], runs: Sequence[Report], changes: Sequence[Sequence[RunChange]], both: set[str]
) -> dict[str, list[str]]:
    """Rows that not all runs have, and metrics that are never in two of them, by the runs that have them."""
    found: dict[str, list[str]] = {}
    for label in dict.fromkeys(case.label for run in runs for case in run.plan.shown):
        has = [name for name, run in zip(names, runs, strict=True) if any(c.label == label for c in run.plan.shown)]
        if len(has) < len(runs):
            found.setdefault(listed(has), []).append(label)
    for metric in COMPARED:
        of_old = any(c.old for c in changes[0] if c.metric == metric)
        news = [any(c.new for c in one if c.metric == metric) for one in changes]
        has = [name for name, known in zip(names, (of_old, *news), strict=True) if known]
        if metric not in both and has:
            found.setdefault(listed(has), []).append(NAMES[metric])
    return found


def _sides(names: Sequence[str], runs: Sequence[Report]) -> list[Side]:
    """What is not the same about machine, software, method and plan."""
    facts = [_facts(run) for run in runs]
    differing = [key for key in facts[0] if len({str(of[key]) for of in facts}) > 1]
    return [
        Side(name=name, cases=(), differing=tuple((key, str(of[key])) for key in differing))
        for name, of in zip(names, facts, strict=True)
    ]


def _facts(run: Report) -> dict[str, Any]:
    here, asked = run.environment, run.plan.protocol
    effort = (
        f"±{100 * asked.precision:g}% in {asked.budget_s:g} s"
        if asked.precision is not None and asked.budget_s is not None
        else f"{asked.workers} x {asked.rounds} rounds"
    )
    return {
        "machine": here and (here.gpu or here.cpu),
        "torch": here and here.torch,
        "git": here and here.git_commit and here.git_commit[:10] + "+" * bool(here.git_dirty),
        "method": run.plan.protocol.method,
        "effort": effort,
        "reference": run.plan.reference,
    }


def _told(old: Report, new: Report, label: str) -> list[str]:
    """What is not the same about a row: `d_ff 2048 then, 3072 now`."""
    found = [f"{name} {was} then, {now} now" for name, was, now in apart(old.plan.case(label), new.plan.case(label))]
    more = [f"and {len(found) - MOST_APART} more"] if len(found) > MOST_APART else []
    return ["not the same row: " + ", ".join([*found[:MOST_APART], *more])] if found else []
