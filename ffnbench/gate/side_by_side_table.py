"""Saved runs beside each other, as benchstat shows them: old, new, the change with its interval, `~` for can't tell.

A table for each metric that is timed or has changed; nothing is decided for anybody.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

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
from ffnbench.report.formats import View, view_of
from ffnbench.report.frame import Row
from ffnbench.report.tables.table import UNKNOWN, Cell, Column, TextTable, estimated
from ffnbench.report.tables.words import (
    CERTAIN,
    VERDICTS,
    change_text,
    interval_text,
    labelled,
    listed,
    seconds_text,
    side_lines,
)
from ffnbench.result import Estimate, Report, Side, Verdict
from ffnbench.units import IEC, SI, TIME, counted, digits, scale, signed_percent

NAMES = {LATENCY: "latency", RATIO: "ratio", PARAMS: "params", FLOPS: "FLOPs", PEAK: "peak"}
UNITS = {LATENCY: TIME, FLOPS: SI, PEAK: IEC}
PER = {FLOPS: "/tok"}
TIMED = (LATENCY, RATIO)
MOST_APART = 3  # differences of a row that are told
LONGEST_NAME = 24


def side_by_side_view(paths: Sequence[str], runs: Sequence[Report]) -> View:
    """The first run beside all others; raises FfnbenchError where they have no row in common."""
    names = names_of(paths)
    if len(kinds := {run.plan.kind for run in runs}) > 1:
        raise FfnbenchError(
            f"these are runs of different commands: {listed(sorted(kinds))}", "give runs of one command"
        )
    common = common_rows(runs)
    if not common:
        has = (f"{run.plan.shown[0].label} ({name})" for name, run in zip(names, runs, strict=True))
        raise FfnbenchError(
            f"these runs have no row in common: {', '.join(has)}", f"one alone: `ffnbench report {paths[0]}`"
        )
    changes = [changes_between(runs[0], run, common) for run in runs[1:]]
    beside = _Beside(names=names, runs=runs, common=common, changes=changes)
    table = beside.table()
    return view_of(table, beside.records, reports=runs, title=f"report: {', '.join(names)}", every=False)


def names_of(paths: Sequence[str]) -> list[str]:
    """File names without folder and suffix; with them where these would be the same."""
    stems = [os.path.splitext(os.path.basename(path))[0] for path in paths]
    found = list(paths) if len(set(stems)) < len(stems) else stems
    if len(set(found)) < len(found):
        found = [f"{number}: {name}" for number, name in enumerate(found, start=1)]
    return [name if len(name) <= LONGEST_NAME else "…" + name[1 - LONGEST_NAME :] for name in found]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Beside:
    """Runs with their names, the rows that all have, and for each later run what has changed since the first."""

    names: Sequence[str]
    runs: Sequence[Report]
    common: Sequence[str]
    changes: Sequence[Sequence[RunChange]]

    def records(self) -> list[Row]:
        """One flat record a row, metric and later run, everything in base units."""
        return [
            {"label": c.label, "metric": c.metric, "old_run": self.names[0], "new_run": name}
            | {
                f"{what}{end}": getattr(estimate, part, None)
                for what, estimate in (("old", c.old), ("new", c.new), ("change", c.change))
                for end, part in (("", "value"), ("_low", "low"), ("_high", "high"))
            }
            | {"clear": c.clear, "differs": "; ".join(_told(self.runs[0], run, c.label)) or None}
            for name, run, found in zip(self.names[1:], self.runs[1:], self.changes, strict=True)
            for c in found
        ]

    def table(self) -> TextTable:
        """A table for each metric that is timed, or exact and another one now."""
        every = [change for found in self.changes for change in found]
        shown = [
            metric for metric in COMPARED
            if any(c.metric == metric and (c.old or c.new if metric in TIMED else c.clear) for c in every)
        ]  # fmt: skip
        tables = [self._table(metric) for metric in shown or [PARAMS]]
        tables[0] = replace(tables[0], header=tuple(self._header()))
        last = replace(tables[-1], summary=tuple(self._unlike()))
        return replace(last, above=tuple(tables[:-1]))

    def _differences(self, label: str) -> list[str]:
        return [text for run in self.runs[1:] for text in _told(self.runs[0], run, label)]

    def _table(self, metric: str) -> TextTable:
        rows = [[c for c in found if c.metric == metric] for found in self.changes]
        known = [e.value for found in rows for c in found for e in (c.old, c.new) if e]
        unit, size = scale(known, UNITS[metric]) if metric in UNITS else ("", 1.0)
        unit += PER.get(metric, "")
        columns = [Column(title=self._title(metric), left=True), Column(title=self.names[0], unit=unit, priority=2)]
        for name in self.names[1:]:
            change = Column(title="change", unit=CERTAIN * (metric in TIMED), priority=1)
            columns += [Column(title=name, unit=unit, priority=2), change]
        made = []
        for label, *changes in zip(self.common, *rows, strict=True):
            if any(c.old or c.new for c in changes):
                cells = [Cell(text=label), _value(changes[0].old, metric, size)]
                made.append([*cells, *(cell for c in changes for cell in (_value(c.new, metric, size), _change(c)))])
        same = [i for i, label in enumerate(self.common) if not self._differences(label)]
        made += _geometric([[later[i] for i in same] for later in rows], metric, size)
        return TextTable(columns=tuple(columns), rows=tuple(map(tuple, made)))

    def _title(self, metric: str) -> str:
        """`time vs relu` where that is what all ratios are to."""
        references = {run.plan.name_of(run.plan.reference_of(label)) for run in self.runs for label in self.common}
        if metric != RATIO:
            return NAMES[metric]
        return f"time vs {references.pop() if len(references) == 1 else 'reference'}"

    def _header(self) -> Iterator[str]:
        made = [
            f"{name} of {run.created[:10]}" + f" ({counted(len(run.runs), 'run')})" * (len(run.runs) > 1)
            for name, run in zip(self.names, self.runs, strict=True)
        ]
        yield f"side by side: {', '.join(made)}" + "; ~: can't tell" * any(run.samples for run in self.runs)

    def _unlike(self) -> Iterator[str]:
        """Which rows are not the same rows or are missing, what else differs, and what the intervals do not know."""
        yield from labelled((label, text) for label in self.common for text in self._differences(label))
        lacking: dict[str, list[str]] = {}
        for label in dict.fromkeys(case.label for run in self.runs for case in run.plan.shown):
            has = [any(case.label == label for case in run.plan.shown) for run in self.runs]
            if not all(has):
                names = listed(n for n, there in zip(self.names, has, strict=True) if there)
                lacking.setdefault(names, []).append(label)
        yield from (f"only in {has}: {', '.join(labels)}" for has, labels in lacking.items())
        for name, run in zip(self.names, self.runs, strict=True):
            if failed := [f"{c.label}: {f.kind.value}" for c in run.plan.shown if (f := run.failure(c.label))]:
                yield f"failed in {name}: {', '.join(failed)}"
        if differs := side_lines(self._sides()):
            yield f"not the same: {'; '.join(differs)}"
        if any(run.samples and len(run.runs) == 1 for run in self.runs):
            yield "intervals leave out what changes from run to run (--runs 5 measures that)"

    def _sides(self) -> list[Side]:
        """What is not the same about machine, software, method and plan of those that measured."""
        facts = {name: _facts(run) for name, run in zip(self.names, self.runs, strict=True) if run.environment}
        keys = dict.fromkeys(key for of in facts.values() for key in of)
        differing = [key for key in keys if len({of[key] for of in facts.values()}) > 1]
        return [
            Side(name=name, cases=(), differing=tuple((key, of[key]) for key in differing))
            for name, of in facts.items()
        ]


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
    if metric == LATENCY:
        return estimated(of, lambda found: seconds_text(found, size))
    if metric == RATIO:
        return estimated(of, lambda found: interval_text(found).partition(" ")[0])
    return estimated(of, lambda found: _plain(found.value, metric, size))


def _change(change: RunChange) -> Cell:
    """`+12% [+10%, +14%]`; `-0.3% [-1.1%, +0.5%] ~` where no change can be told; `0%` for what is exactly the same."""
    found = change.change
    if change.busy:
        return Cell(text=VERDICTS[Verdict.BUSY], style="yellow")
    if found is None:
        return Cell(text=UNKNOWN)
    timed = change.metric in TIMED
    style = "" if not timed else "yellow" if not change.clear else "red" if found.value > 1 else "green"
    return Cell(text=change_text(found) + " ~" * (timed and not change.clear), value=found.value, style=style)


def _facts(run: Report) -> dict[str, str]:
    here, asked = run.environment, run.plan.protocol
    effort = f"{asked.workers} x {asked.rounds} rounds"
    if asked.precision is not None and asked.budget_s is not None:
        effort = f"±{100 * asked.precision:g}% in {asked.budget_s:g} s"
    found = {
        "machine": here and (here.gpu or here.cpu),
        "torch": here and here.torch,
        "git": here and here.git_commit and here.git_commit[:10] + "+" * bool(here.git_dirty),
        "method": asked.method,
        "effort": effort,
        "reference": run.plan.reference,
    }
    return {name: str(value) for name, value in found.items()}


def _told(old: Report, new: Report, label: str) -> list[str]:
    """What is not the same about a row: `d_ff 2048 then, 3072 now`."""
    found = [f"{name} {was} then, {now} now" for name, was, now in apart(old.plan.case(label), new.plan.case(label))]
    more = [f"and {len(found) - MOST_APART} more"] if len(found) > MOST_APART else []
    return ["not the same row: " + ", ".join([*found[:MOST_APART], *more])] if found else []
