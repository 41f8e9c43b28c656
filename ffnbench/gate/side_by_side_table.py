"""The tables of saved runs beside each other, as benchstat shows them: old, new, the
change with its interval, `~` for can't tell.

There is a table for each metric that is timed or has changed. No change is judged.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from ffnbench.common.units import counted
from ffnbench.gate.side_by_side import (
    COMPARED,
    COMPARED_TIMES,
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
MOST_DIFFERENCES = 3  # of a row, that are named
LONGEST_NAME = 24  # of a run; of a longer one the end is shown


def names_of(paths: Sequence[str]) -> list[str]:
    """The names of runs: their files without folder and suffix, or the whole paths if
    two names would be the same, numbered if two paths are.
    """
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
    """Runs, their names, and what has changed from the first of them to each later
    one.
    """

    names: Sequence[str]
    runs: Sequence[Report]
    compared: RunsCompared

    def records(self) -> list[Row]:
        """A flat record for each row, metric and later run, all in base units."""
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
                    "differs": _differences_text(differing[change.label]) or None,
                }
                records.append(record)
        return records

    def frame(self) -> Frame:
        """The last of the frames, with the others above it: one for each metric that is
        timed or has changed, or that of the parameters if none is and none has.
        """
        shown = {
            change.metric
            for changes in self.compared.changes
            for change in changes
            if _is_shown(change)
        }
        metrics = [metric for metric in COMPARED if metric in shown]
        frames = [self._frame(metric) for metric in metrics or [PARAMS]]
        frames[0] = replace(frames[0], header=[self._header()])
        return replace(
            frames[-1],
            summary=self._summary(),
            above=tuple(frames[:-1]),
            saved=self.records(),
        )

    def _frame(self, metric: str) -> Frame:
        """The frame of a metric: a row for each label, a column for each run, the
        change beside each later run. The last row is the mean of all.
        """
        rows = []
        for changes in zip(*self.compared.of(metric), strict=True):
            if any(change.old or change.new for change in changes):
                rows.append(_row_of_label(changes))
        means = self.compared.means[metric]
        shown = [*rows, _row_of_label(means)] if means else rows
        return Frame(columns=tuple(self._columns(metric)), rows=shown, scaled_as=rows)

    def _columns(self, metric: str) -> list[Column]:
        """A column for each run, which is written as that of the metric, and a column
        of the change beside each later run.
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
            unit=CERTAIN if metric in COMPARED_TIMES else "",
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
        """`time vs relu` if relu is the reference of all ratios."""
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
        """The lines below the tables: which rows are not the same or not in all runs,
        which failed, what else differs, and what the intervals leave out.
        """
        differences = [
            (label, _differences_text(of_run[label]))
            for label in self.compared.common
            for of_run in self.compared.differing
        ]
        lines = labelled((label, text) for label, text in differences if text)
        lines += self._lines_of_rows_not_in_all()
        for name, run in zip(self.names, self.runs, strict=True):
            failures = {case.label: run.failure(case.label) for case in run.plan.shown}
            failed = [
                f"{label}: {failure.kind}"
                for label, failure in failures.items()
                if failure
            ]
            if failed:
                lines.append(f"failed in {name}: {', '.join(failed)}")
        setups = self._setup_lines()
        if setups:
            lines.append(f"not the same: {'; '.join(setups)}")
        if any(run.samples and not run.repeats for run in self.runs):
            lines.append(
                "intervals leave out what changes from run to run (--runs 5 measures that)"
            )
        return lines

    def _lines_of_rows_not_in_all(self) -> list[str]:
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

    def _setup_lines(self) -> list[str]:
        """What is not the same about machine, software, method and plan of the runs
        that measured something.
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
    """Whether a change is a reason to show the table of its metric."""
    if change.metric in COMPARED_TIMES:
        return bool(change.old or change.new)
    return change.clear


def _row_of_label(changes: Sequence[RunChange]) -> Row:
    """The row of a label, with its values in all runs. Under the number of each later
    run stands the change as an object, for the functions that write and colour it.
    """
    row: Row = {"label": changes[0].label, **in_row("run0", changes[0].old)}
    for number, change in enumerate(changes, start=1):
        row |= (
            in_row(f"run{number}", change.new)
            | in_row(f"change{number}", change.change)
            | {number: change}
        )
    return row


def _ratio_text(ratio: Estimate) -> str:
    """The ratio in the digits that its interval supports, without the interval."""
    return interval_text(ratio).partition(" ")[0]


def _change_text(number: int, row: Row) -> str:
    """`+12% [+10%, +14%]`; `-0.3% [-1.1%, +0.5%] ~` if no change can be told; `0%` for
    what is exactly the same.
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
    """The colour of a change: yellow for busy or can't tell, red for slower, green for
    faster, none for an exact metric.
    """
    change: RunChange = row[number]
    if change.busy:
        return "yellow"
    if change.change is None or not _is_timed(change):
        return ""
    if not change.clear:
        return "yellow"
    return "red" if change.change.value > 1 else "green"


def _is_timed(change: RunChange) -> bool:
    """Whether a change is of timed samples and has an interval."""
    return (
        change.metric in COMPARED_TIMES
        and change.change is not None
        and change.change.low is not None
    )


def _facts_of_run(run: Report) -> dict[str, str]:
    """How a run was measured, by the names that lines on differences use."""
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


def _differences_text(differences: Sequence[tuple[str, str, str]]) -> str:
    """`not the same row: d_ff 2048 then, 3072 now`; empty if nothing differs."""
    if not differences:
        return ""
    texts = [
        f"{name} {was} then, {now} now"
        for name, was, now in differences[:MOST_DIFFERENCES]
    ]
    if len(differences) > MOST_DIFFERENCES:
        texts.append(f"and {len(differences) - MOST_DIFFERENCES} more")
    return f"not the same row: {', '.join(texts)}"
