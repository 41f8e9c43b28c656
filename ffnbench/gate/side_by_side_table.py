"""Saved runs beside each other, as benchstat shows them: old, new, the change with its interval, `~` for can't tell.

A table for each metric that is timed or has changed; nothing is decided for anybody.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ffnbench.common.units import counted
from ffnbench.gate.side_by_side import COMPARED, FLOPS, PARAMS, RATIO, RunChange, RunsCompared
from ffnbench.metrics import LATENCY, PEAK
from ffnbench.report.columns import column
from ffnbench.report.frame import UNKNOWN, Column, Frame, Row, in_row
from ffnbench.report.words import (
    BUSY,
    CERTAIN,
    change_text,
    interval_text,
    labelled,
    listed,
    side_lines,
)
from ffnbench.result import Estimate, Report, Side

NAMES = {LATENCY: "latency", RATIO: "ratio", PARAMS: "params", FLOPS: "FLOPs", PEAK: "peak"}
COLUMN_OF = {LATENCY: "latency_s", RATIO: "ratio", PARAMS: "params", FLOPS: "flops_forward", PEAK: PEAK}
TIMED = (LATENCY, RATIO)
MOST_APART = 3  # differences of a row that are told
LONGEST_NAME = 24


def side_by_side_frame(names: Sequence[str], runs: Sequence[Report], compared: RunsCompared) -> Frame:
    """A frame for each metric that is timed, or exact and another one now."""
    return SideBySide(names=names, runs=runs, compared=compared).frame()


def names_of(paths: Sequence[str]) -> list[str]:
    """File names without folder and suffix; with them where these would be the same."""
    stems = [os.path.splitext(os.path.basename(path))[0] for path in paths]
    found = list(paths) if len(set(stems)) < len(stems) else stems
    if len(set(found)) < len(found):
        found = [f"{number}: {name}" for number, name in enumerate(found, start=1)]
    return [name if len(name) <= LONGEST_NAME else "…" + name[1 - LONGEST_NAME :] for name in found]


@dataclass(frozen=True, slots=True, kw_only=True)
class SideBySide:
    """Runs with their names, the rows that all have, and for each later run what has changed since the first."""

    names: Sequence[str]
    runs: Sequence[Report]
    compared: RunsCompared

    def records(self) -> list[Row]:
        """One flat record a row, metric and later run, everything in base units."""
        return [
            {"label": change.label, "metric": change.metric, "old_run": self.names[0], "new_run": name}
            | in_row("old", change.old)
            | in_row("new", change.new)
            | in_row("change", change.change)
            | {"clear": change.clear, "differs": "; ".join(_differs(differing[change.label])) or None}
            for name, changes, differing in zip(
                self.names[1:], self.compared.changes, self.compared.differing, strict=True
            )
            for change in changes
        ]

    def frame(self) -> Frame:
        """A frame for each metric that is timed, or exact and another one now."""
        shown = [metric for metric in COMPARED if any(self._is_shown(c) for c in self._of(metric))]
        frames = [self._frame(metric) for metric in shown or [PARAMS]]
        frames[0] = replace(frames[0], header=list(self._header()))
        return replace(frames[-1], summary=list(self._unlike()), above=tuple(frames[:-1]), saved=self.records())

    def _of(self, metric: str) -> list[RunChange]:
        return [change for changes in self.compared.of(metric) for change in changes]

    @staticmethod
    def _is_shown(change: RunChange) -> bool:
        return bool(change.old or change.new) if change.metric in TIMED else change.clear

    def _frame(self, metric: str) -> Frame:
        """A row a label, a column a run, and a change beside each later one."""
        by_run, means = self.compared.of(metric), self.compared.means[metric]
        rows = [_row(changes) for changes in zip(*by_run, strict=True) if any(c.old or c.new for c in changes)]
        return Frame(
            columns=tuple(self._columns(metric)),
            rows=[*rows, _row(means)] if means else rows,
            scaled_as=rows,
        )

    def _columns(self, metric: str) -> Iterator[Column]:
        """A column a run as that of the metric is, and a change beside each later one."""
        keys = tuple(f"run{number}" for number in range(len(self.runs)))
        of_run = column(COLUMN_OF[metric], 2, scaled_with=keys, text=None, style=None, takes=0)
        if metric == RATIO:
            of_run = replace(of_run, unit="", interval=_ratio_text)
        elif metric == PARAMS:
            of_run = replace(of_run, write="{:,.0f}".format)
        of_change = column("change", 1, unit=CERTAIN if metric in TIMED else "", takes=0)
        yield column("label", title=self._title(metric))
        for number, name in enumerate(self.names):
            yield replace(of_run, key=keys[number], title=name)
            if number:
                text, style = _change_text(number), _change_style(number)
                yield replace(of_change, key=f"change{number}", text=text, style=style)

    def _title(self, metric: str) -> str:
        """`time vs relu` where that is what all ratios are to."""
        references = {
            run.plan.name_of(run.plan.reference_of(label)) for run in self.runs for label in self.compared.common
        }
        if metric != RATIO:
            return NAMES[metric]
        return f"time vs {references.pop() if len(references) == 1 else 'reference'}"

    def _differences(self, label: str) -> list[str]:
        return [text for of_run in self.compared.differing for text in _differs(of_run[label])]

    def _header(self) -> Iterator[str]:
        made = [
            f"{name} of {run.created[:10]}" + f" ({counted(len(run.runs), 'run')})" * (len(run.runs) > 1)
            for name, run in zip(self.names, self.runs, strict=True)
        ]
        yield f"side by side: {', '.join(made)}" + "; ~: can't tell" * any(run.samples for run in self.runs)

    def _unlike(self) -> Iterator[str]:
        """Which rows are not the same rows or are missing, what else differs, and what the intervals do not know."""
        yield from labelled((label, text) for label in self.compared.common for text in self._differences(label))
        lacking: dict[str, list[str]] = {}
        for label in dict.fromkeys(case.label for run in self.runs for case in run.plan.shown):
            has = [any(case.label == label for case in run.plan.shown) for run in self.runs]
            if not all(has):
                names = listed(n for n, there in zip(self.names, has, strict=True) if there)
                lacking.setdefault(names, []).append(label)
        yield from (f"only in {has}: {', '.join(labels)}" for has, labels in lacking.items())
        for name, run in zip(self.names, self.runs, strict=True):
            if failed := [f"{c.label}: {f.kind}" for c in run.plan.shown if (f := run.failure(c.label))]:
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


def _row(changes: Sequence[RunChange]) -> Row:
    """A label in all runs."""
    row: Row = {"label": changes[0].label, **in_row("run0", changes[0].old)}
    for number, change in enumerate(changes, start=1):
        row |= in_row(f"run{number}", change.new) | in_row(f"change{number}", change.change) | {number: change}
    return row


def _ratio_text(ratio: Estimate) -> str:
    """The ratio in the digits that its interval supports, without that."""
    return interval_text(ratio).partition(" ")[0]


def _change_text(number: int) -> Callable[[Row], str]:
    """`+12% [+10%, +14%]`; `-0.3% [-1.1%, +0.5%] ~` where no change can be told; `0%` for what is exactly the same."""

    def text(row: Row) -> str:
        change: RunChange = row[number]
        if change.busy:
            return BUSY
        if change.change is None:
            return UNKNOWN
        return f"{change_text(change.change)} ~" if _is_unclear(change) else change_text(change.change)

    return text


def _change_style(number: int) -> Callable[[Row], str]:
    def style(row: Row) -> str:
        change: RunChange = row[number]
        if change.busy or _is_unclear(change):
            return "yellow"
        if change.change is None or change.change.low is None or change.metric not in TIMED:
            return ""
        return "red" if change.change.value > 1 else "green"

    return style


def _is_unclear(change: RunChange) -> bool:
    """Whether a change is timed, and can't be told."""
    ends = change.change is not None and change.change.low is not None
    return ends and change.metric in TIMED and not change.clear


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


def _differs(differences: Sequence[tuple[str, str, str]]) -> list[str]:
    """What is not the same about a row: `d_ff 2048 then, 3072 now`."""
    if not differences:
        return []
    texts = [f"{name} {was} then, {now} now" for name, was, now in differences]
    more = [f"and {len(texts) - MOST_APART} more"] if len(texts) > MOST_APART else []
    return ["not the same row: " + ", ".join([*texts[:MOST_APART], *more])]
