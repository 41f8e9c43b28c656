"""How variants side by side read: the tables of `compare` and `cost`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ffnbench.compare.pivot import pivots
from ffnbench.ffn.spec import ImportedSpec
from ffnbench.metrics import (
    COMPILE,
    DEVICE_TIME,
    ERROR,
    GRADIENT_ERROR,
    HELD,
    HOST_TIME,
    LATENCY,
    MEMORY,
    METRIC_GROUPS,
    METRICS,
    PACK,
    PEAK,
    SAVED,
)
from ffnbench.plan import SWEPT, Mode, Time
from ffnbench.report.csv_columns import case_records
from ffnbench.report.records import Record
from ffnbench.report.tables.ceilings import ceiling_fields, rate_fields
from ffnbench.report.tables.conditions import CONDITIONS
from ffnbench.report.tables.conditions import differing as conditions_differing
from ffnbench.report.tables.details import conditions_line, details
from ffnbench.report.tables.groups import axis_field, headings, in_groups, swept_columns
from ffnbench.report.tables.headings import HEADINGS
from ffnbench.report.tables.lines_below import answer, failure_line, general_line, machine_line
from ffnbench.report.tables.row_notes import row_notes
from ffnbench.report.tables.table import (
    EXTRA,
    OF_NUMBER,
    Cell,
    Column,
    Field,
    TextTable,
    count_field,
    estimated,
    known,
    number_field,
    share_field,
    table_of_fields,
    text_field,
    timed_fields,
)
from ffnbench.report.tables.words import error_text, seconds_text, verdict_text
from ffnbench.result import Report
from ffnbench.units import TIME, scale

LONGEST_TITLE = 12
LONG = 2000  # rows: of more nobody reads what there is to say of each
ONCE = {COMPILE: "compile", PACK: "pack"}
FORWARD = Mode.FORWARD.value


MEASURED = (PEAK, SAVED, HELD, "total_bytes", "tokens_per_s")  # columns of a width that does not follow their values


def compare_table(report: Report) -> TextTable:
    """The answer of `compare`; where nothing was measured, that of `cost`."""
    rows = in_groups(report.plan, case_records(report))
    first: Field = (
        Column(title="variant", left=True, key="label"),
        lambda row: Cell(text=report.plan.name_of(row["label"]), value=row["label"]),
    )
    fields = _Fields(report, rows)
    if report.environment is None:
        table = table_of_fields(
            [first, *fields.differing(), *fields.counted()],
            rows,
            header=[conditions_line(report.plan, ("dtype", "mode"), backends=False)],
            summary=[*failure_line(report), *general_line(report)],
            details=row_notes(report) if len(rows) <= LONG else (),
        )
    else:
        timed = LATENCY in report.plan.metrics
        table = table_of_fields(
            [first, *fields.differing(), *fields.measured()],
            rows,
            header=[conditions_line(report.plan)],
            summary=answer(report) if timed else [*failure_line(report), *general_line(report), *machine_line(report)],
            details=details(report),
        )
    table = replace(table, headings=headings(report.plan))
    return replace(table, short=pivots(report, table, rows, fields.reference)) if report.comparisons else table


class _Fields:
    """The columns of a report's table, and how long each stays: a low priority longest."""

    def __init__(self, report: Report, rows: Sequence[Record]) -> None:
        self._report, self._rows = report, rows
        self._modes = {case.workload.mode for case in report.plan.shown}
        self._train = self._modes != {FORWARD}
        self._experts = any(row["experts"] for row in rows)
        self._backends = any(not case.workload.eager for case in report.plan.shown)

    def differing(self) -> list[Field]:
        """What is not the same in all cases of a group; what is the same stands in the header."""
        plan, keys = self._report.plan, ("dtype", "device", "mode", "batch", "seq_len", "threads")
        differing = {k for k in keys for group in plan.groups if len({getattr(c.workload, k) for c in group.cases}) > 1}
        swept = [key for key in swept_columns(plan) if key != "d_ff"]  # which has a column in any case
        shown = [*(key for key in swept if key in SWEPT), *(key for key in keys if key in differing)]
        conditions = [text_field(one.key, one.column, 2) for one in conditions_differing(plan)]
        axes = [axis_field(plan, key) for key in swept if key not in (*SWEPT, *(one.key for one in CONDITIONS))]
        return [*(text_field(key, key, 2) for key in shown), *axes, *conditions]

    def counted(self) -> list[Field]:
        """Those of `cost`."""
        train = self._train
        return [
            *self._static(),
            self._of("params_formula", 3 if self._experts else 1 + 2 * train),
            self._of("flops_elementwise", 6),
            self._of("weight_bytes", 3 + train),
            self._of(PEAK, 3 - train),
            *([self._of(SAVED, 2)] if train else []),
            self._of("total_bytes", 4 - train),
            self._of("flops_elementwise_backward", EXTRA),
            self._of("sizing", EXTRA),
        ]

    def measured(self) -> list[Field]:
        """Those of `compare`: what is counted, what is held, and at the end the time and the verdict."""
        report, fields = self._report, self._static(timed=True)
        for group in METRIC_GROUPS:
            if group in report.plan.metrics:
                fields += self._group(group)
        if self._errors:
            fields.append((Column(title="error", priority=2, key=ERROR), self._error_cell))
        if self._errors and any(row[GRADIENT_ERROR] is not None for row in self._rows):
            column = Column(title="gradient error", priority=4, key=GRADIENT_ERROR)
            fields.append((column, lambda row: known(row[GRADIENT_ERROR], error_text)))
        fields += [] if self._held else [self._of("weight_bytes", EXTRA)]
        fields += [self._of(key, EXTRA) for key in ("flops_elementwise", "params_formula", "sizing")]
        fields += [text_field(key, key, EXTRA, left=True) for key in ("activation", "gate")]
        if LATENCY not in report.plan.metrics:
            return [*fields, (Column(title="failure", left=True), self._failure)] if report.failures else fields
        fields += [self._of(HELD, 4)] if self._held else []
        fields += [*ceiling_fields(report), *rate_fields(), self._of("tokens_per_s", 7), *self._once()]
        return [*fields, *self._beside(), *timed_fields(report, lambda row: row["label"], self.reference)]

    @property
    def reference(self) -> str:
        """What the reference is called in the heading of a column."""
        name = self._report.plan.name_of(self._report.plan.reference).partition(" (")[0]
        return name if len(name) <= LONGEST_TITLE else "reference"

    def _failure(self, row: Record) -> Cell:
        """What stands in the place of numbers that could not be measured."""
        return Cell(text=verdict_text(self._report, row["label"])[0], style="red")

    def _of(self, key: str, priority: int, title: str = "") -> Field:
        """A column of the rows."""
        heading = HEADINGS[key]
        title = title or heading.title
        if heading.units is None:
            return text_field(key, title, priority, left=True)
        takes = OF_NUMBER if key in MEASURED and self._report.environment else 0
        return number_field(self._rows, key, title, heading.units, priority, heading.per, takes=takes)

    def _static(self, *, timed: bool = False) -> list[Field]:
        """Widths and counts; of experts also what a token meets and what a call reads."""
        later = timed + 2 * (timed and self._backends)  # the errors of backends tell more than sizes that are the same
        fields = [count_field("d_ff", "d_ff", 2 + later), count_field("params", "params", 1 + later)]
        if self._experts:
            first = 3 if timed else 1
            fields += [count_field("params_active", "active", first), self._of("weight_bytes_touched", first + 1)]
        return [*fields, *self._flops(timed=timed)]

    def _flops(self, *, timed: bool) -> list[Field]:
        """Of the passes that the mode has first; each pass alone with -v, and where a forward is only counted."""
        fields = [self._of("flops_timed", 5 if timed else 1)]
        if self._train:
            fields.append(self._of("flops_forward", EXTRA))
        if self._modes != {Mode.BACKWARD.value}:
            fields.append(self._of("flops_backward", EXTRA if self._train or timed else 2))
        return fields

    def _group(self, group: str) -> list[Field]:
        """The columns of a group of metrics."""
        fields = []
        for metric in METRIC_GROUPS[group]:
            if not metric.column or (metric.train_only and not self._train):
                continue
            if metric.unit == "share":
                fields.append(share_field(metric.name, metric.column, metric.priority))
            else:
                fields.append(self._of(metric.name, metric.priority))
        return [*fields, self._of("total_bytes", 6)] if group == MEMORY else fields

    def _seconds(self, column: Column, size: float, *metrics: str) -> Field:
        """Seconds with their interval, of the first of these metrics that a row has."""

        def cell(row: Any) -> Cell:
            of_row = (self._report.estimate(row["label"], metric) for metric in metrics)
            return estimated(next(filter(None, of_row), None), lambda found: seconds_text(found, size))

        return column, cell

    def _beside(self) -> list[Field]:
        """What the device works and what issuing a call takes the CPU, where that is known; not what is the latency."""
        by_device = all(case.workload.time == Time.DEVICE.value for case in self._report.plan.shown)
        fields = []
        for metric in [m for m in METRICS if m.name in ((HOST_TIME,) if by_device else (DEVICE_TIME, HOST_TIME))]:
            if seconds := [row[metric.name] for row in self._rows if row[metric.name]]:
                unit, size = scale(seconds, TIME)
                column = Column(
                    title=metric.column, unit=unit, priority=metric.priority, key=metric.name, takes=OF_NUMBER
                )
                fields.append(self._seconds(column, size, metric.name))
        return fields

    def _once(self) -> list[Field]:
        """What compiling or packing took, where anything is compiled or packed."""
        titles = {key: title for key, title in ONCE.items() if any(row[key] for row in self._rows)}
        title = "one-off" if len(titles) > 1 else next(iter(titles.values()), "")
        column = Column(title=title, unit="s", priority=3, key=next(iter(titles), ""), takes=OF_NUMBER)
        return [self._seconds(column, 1, *ONCE)] if titles else []

    @property
    def _errors(self) -> bool:
        """Whether errors stand in a column: then it stays longer than what is paid once."""
        likened = any(isinstance(case.ffn, ImportedSpec) and case.ffn.like for case in self._report.plan.shown)
        asked = ERROR in self._report.plan.metrics
        return (asked or likened or self._backends) and any(row[ERROR] is not None for row in self._rows)

    @property
    def _held(self) -> bool:
        """Whether the weights that calls compute with stand in a column."""
        return self._backends and any(row[HELD] is not None for row in self._rows)

    def _error_cell(self, row: Any) -> Cell:
        ffn = self._report.plan.case(row["label"]).ffn
        alone = isinstance(ffn, ImportedSpec) and ffn.like is None  # its function is not checked
        return known(row[ERROR], lambda value: error_text(value) + (" vs itself" if alone else ""))
