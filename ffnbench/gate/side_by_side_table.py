"""Saved runs beside each other, as benchstat shows them: old, new, the change with its
interval, `~` for can't tell.

A table for each metric that is timed or has changed; nothing is decided for anybody.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from ffnbench.common.units import counted
from ffnbench.gate.side_by_side import (
    COMPARED,
    COMPARED_METRICS,
    FLOPS,
    PARAMS,
    RATIO,
    RunChange,
    RunsCompared,
)
from ffnbench.metrics import LATENCY, PEAK
from ffnbench.report.columns import column
from ffnbench.report.frame import UNKNOWN_CELL, Column, Frame, Row, in_row
from ffnbench.report.words import (
    BUSY_WORD,
    CERTAIN,
    change_text,
    interval_text,
    join_words,
    labelled,
    side_lines,
)
from ffnbench.result import Estimate, Report, Side

METRIC_TITLES = {
    LATENCY: "latency",
    RATIO: "ratio",
    PARAMS: "params",
    FLOPS: "FLOPs",
    PEAK: "peak",
}
COLUMN_OF = {
    LATENCY: "latency_s",
    RATIO: "ratio",
    PARAMS: "params",
    FLOPS: "flops_forward",
    PEAK: PEAK,
}
MOST_APART = 3  # differences of a row that are told
LONGEST_NAME = 24


def names_of(paths: Sequence[str]) -> list[str]:
    """File names without folder and suffix; with them where these would be the same."""
    names = [os.path.splitext(os.path.basename(path))[0] for path in paths]
    if len(set(names)) < len(names):
        names = list(paths)
    if len(set(names)) < len(names):
        names = [f"{number}: {name}" for number, name in enumerate(names, start=1)]
    return [
        name if len(name) <= LONGEST_NAME else "…" + name[1 - LONGEST_NAME :]
        for name in names
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class SideBySide:
    """Runs with their names, the rows that all have, and for each later run what has
    changed since the first.
    """

    names: Sequence[str]
    runs: Sequence[Report]
    compared: RunsCompared

    def records(self) -> list[Row]:
        """One flat record a row, metric and later run, everything in base units."""
        records = []
        later = zip(
            self.names[1:], self.compared.changes, self.compared.differing, strict=True
        )
        for name, changes, differing in later:
            for change in changes:
                record: Row = {
                    "label": change.label,
                    "metric": change.metric,
                    "old_run": self.names[0],
                    "new_run": name,
                    **in_row("old", change.old),
                    **in_row("new", change.new),
                    **in_row("change", change.change),
                    "clear": change.clear,
                    "differs": _differences(differing[change.label]) or None,
                }
                records.append(record)
        return records

    def frame(self) -> Frame:
        """A frame for each metric that is timed, or exact and another one now."""
        shown = [
            metric
            for metric in COMPARED
            if any(map(_is_shown, self._changes_of(metric)))
        ]
        frames = [self._frame(metric) for metric in shown or [PARAMS]]
        frames[0] = replace(frames[0], header=[self._header()])
        return replace(
            frames[-1],
            summary=self._summary(),
            above=tuple(frames[:-1]),
            saved=self.records(),
        )

    def _changes_of(self, metric: str) -> list[RunChange]:
        return [change for changes in self.compared.of(metric) for change in changes]

    def _frame(self, metric: str) -> Frame:
        """A row a label, a column a run, and a change beside each later one; the mean
        of all rows last.
        """
        rows = []
        for changes in zip(*self.compared.of(metric), strict=True):
            if any(change.old or change.new for change in changes):
                rows.append(_row_of_label(changes))
        means = self.compared.means[metric]
        shown = [*rows, _row_of_label(means)] if means else rows
        return Frame(columns=tuple(self._columns(metric)), rows=shown, scaled_as=rows)

    def _columns(self, metric: str) -> list[Column]:
        """A column a run as that of the metric is, and a change beside each later
        one.
        """
        keys = tuple(f"run{number}" for number in range(len(self.runs)))
        of_run = column(
            COLUMN_OF[metric], 2, scaled_with=keys, text=None, style=None, least_width=0
        )
        title = METRIC_TITLES[metric]
        if metric == RATIO:
            of_run = replace(of_run, unit="", interval=_ratio_text)
            title = self._title_of_ratios()
        elif metric == PARAMS:
            of_run = replace(of_run, write="{:,.0f}".format)
        of_change = column(
            "change",
            1,
            unit=CERTAIN if metric in COMPARED_METRICS else "",
            least_width=0,
        )
        columns = [column("label", title=title)]
        for number, name in enumerate(self.names):
            columns.append(replace(of_run, key=keys[number], title=name))
            if number:
                text = partial(_change_text, number)
                style = partial(_change_style, number)
                columns.append(
                    replace(of_change, key=f"change{number}", text=text, style=style)
                )
        return columns

    def _title_of_ratios(self) -> str:
        """`time vs relu` where that is what all ratios are to."""
        references = {
            run.plan.name_of(run.plan.reference_of(label))
            for run in self.runs
            for label in self.compared.common
        }
        return f"time vs {references.pop() if len(references) == 1 else 'reference'}"

    def _header(self) -> str:
        texts = []
        for name, run in zip(self.names, self.runs, strict=True):
            text = f"{name} of {run.created[:10]}"
            if run.repeats:
                text += f" ({counted(len(run.runs), 'run')})"
            texts.append(text)
        header = f"side by side: {', '.join(texts)}"
        if any(run.samples for run in self.runs):
            return f"{header}; ~: can't tell"
        return header

    def _summary(self) -> list[str]:
        """Which rows are not the same rows or are missing, what else differs, and what
        the intervals do not know.
        """
        differences = [
            (label, _differences(of_run[label]))
            for label in self.compared.common
            for of_run in self.compared.differing
        ]
        lines = labelled((label, text) for label, text in differences if text)
        lines += self._rows_of_some()
        for name, run in zip(self.names, self.runs, strict=True):
            failures = {case.label: run.failure(case.label) for case in run.plan.shown}
            failed = [
                f"{label}: {failure.kind}"
                for label, failure in failures.items()
                if failure
            ]
            if failed:
                lines.append(f"failed in {name}: {', '.join(failed)}")
        sides = self._sides()
        if sides:
            lines.append(f"not the same: {'; '.join(sides)}")
        if any(run.samples and not run.repeats for run in self.runs):
            lines.append(
                "intervals leave out what changes from run to run (--runs 5 measures that)"
            )
        return lines

    def _rows_of_some(self) -> list[str]:
        """`only in a and b: relu, gelu` for rows that not all runs have."""
        runs_of: dict[str, list[str]] = {}  # by the label of a row
        for name, run in zip(self.names, self.runs, strict=True):
            for case in run.plan.shown:
                runs_of.setdefault(case.label, []).append(name)
        labels_of: dict[str, list[str]] = {}  # by the names of runs
        for label, names in runs_of.items():
            if len(names) < len(self.runs):
                labels_of.setdefault(join_words(names), []).append(label)
        return [
            f"only in {names}: {', '.join(labels)}"
            for names, labels in labels_of.items()
        ]

    def _sides(self) -> list[str]:
        """What is not the same about machine, software, method and plan of those that
        measured.
        """
        facts = {
            name: _facts_of_run(run)
            for name, run in zip(self.names, self.runs, strict=True)
            if run.environment
        }
        keys = dict.fromkeys(key for of_run in facts.values() for key in of_run)
        differing = [
            key for key in keys if len({of_run[key] for of_run in facts.values()}) > 1
        ]
        sides = []
        for name, of_run in facts.items():
            values = tuple((key, of_run[key]) for key in differing)
            sides.append(Side(name=name, cases=(), differing=values))
        return side_lines(sides)


def _is_shown(change: RunChange) -> bool:
    if change.metric in COMPARED_METRICS:
        return bool(change.old or change.new)
    return change.clear


def _row_of_label(changes: Sequence[RunChange]) -> Row:
    """A label in all runs."""
    row: Row = {"label": changes[0].label, **in_row("run0", changes[0].old)}
    for number, change in enumerate(changes, start=1):
        row |= (
            in_row(f"run{number}", change.new)
            | in_row(f"change{number}", change.change)
            | {number: change}
        )
    return row


def _ratio_text(ratio: Estimate) -> str:
    """The ratio in the digits that its interval supports, without that."""
    return interval_text(ratio).partition(" ")[0]


def _change_text(number: int, row: Row) -> str:
    """`+12% [+10%, +14%]`; `-0.3% [-1.1%, +0.5%] ~` where no change can be told; `0%`
    for what is exactly the same.
    """
    change: RunChange = row[number]
    if change.busy:
        return BUSY_WORD
    if change.change is None:
        return UNKNOWN_CELL
    text = change_text(change.change)
    if _is_timed(change) and not change.clear:
        return f"{text} ~"
    return text


def _change_style(number: int, row: Row) -> str:
    change: RunChange = row[number]
    if change.busy:
        return "yellow"
    if change.change is None or not _is_timed(change):
        return ""
    if not change.clear:
        return "yellow"
    return "red" if change.change.value > 1 else "green"


def _is_timed(change: RunChange) -> bool:
    """Whether a change has an interval."""
    return (
        change.metric in COMPARED_METRICS
        and change.change is not None
        and change.change.low is not None
    )


def _facts_of_run(run: Report) -> dict[str, str]:
    here, protocol = run.environment, run.plan.protocol
    effort = f"{protocol.workers} x {protocol.rounds} rounds"
    if protocol.precision is not None and protocol.budget_s is not None:
        effort = f"±{100 * protocol.precision:g}% in {protocol.budget_s:g} s"
    assert here is not None
    commit = here.git_commit and here.git_commit[:10]
    return {
        "machine": here.gpu or here.cpu,
        "torch": str(here.torch),
        "git": f"{commit}+" if commit and here.git_dirty else str(commit),
        "method": str(protocol.method),
        "effort": effort,
        "reference": run.plan.reference,
    }


def _differences(differences: Sequence[tuple[str, str, str]]) -> str:
    """What is not the same about a row: `not the same row: d_ff 2048 then, 3072
    now`.
    """
    if not differences:
        return ""
    texts = [
        f"{name} {was} then, {now} now" for name, was, now in differences[:MOST_APART]
    ]
    if len(differences) > MOST_APART:
        texts.append(f"and {len(differences) - MOST_APART} more")
    return f"not the same row: {', '.join(texts)}"
