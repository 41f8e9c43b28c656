"""The answers of `compare` and `cost`: the names of their columns, the line above them,
the lines below.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ffnbench.common.choices import Mode, Time
from ffnbench.common.units import SI, TIME, digits
from ffnbench.ffn.spec import ImportedSpec
from ffnbench.plan.metrics import (
    COMPILE,
    DEVICE_TIME,
    ERROR,
    GRADIENT_ERROR,
    HELD,
    HOST_TIME,
    LARGEST_ERROR,
    LATENCY,
    PACK,
    PEAK,
    RATE,
    SAVED,
)
from ffnbench.record.result import Report
from ffnbench.report.columns import (
    case_rows,
    column,
    timed_columns,
)
from ffnbench.report.header import (
    axis_column,
    compares_ways,
    conditions_line,
    differing_conditions,
    headings,
    swept_columns,
)
from ffnbench.report.notes import details, row_notes
from ffnbench.report.sentences import (
    answer_sentences,
    failure_line,
    general_line,
    machine_line,
)
from ffnbench.report.table import EXTRA, Column, Row, Table
from ffnbench.report.words import error_text

BOUNDS_LINE = (
    "bounds, not measurements: no call takes less, where each tensor passes memory once"
)
BOUNDS = (
    Column("hardware", left=True),
    Column("flops_per_byte", "FLOP/B", read=digits, priority=1),
    Column("at_least_s", "at least", units=TIME),
    Column("bound_by", "bound by", left=True),
)
LONGEST_TITLE = 12
FORWARD = Mode.FORWARD
# the columns of `cost` with their priorities; those without a value in any row are left
# out
COST_COLUMNS = {
    "d_ff": 2, "params": 1, "params_active": 1, "weight_bytes_touched": 2, "flops_timed": 1, "flops_forward": EXTRA,
    "flops_backward": 4, "params_formula": 3, "flops_elementwise": 6, "weight_bytes": 4, PEAK: 2, SAVED: 2,
    "total_bytes": 3,
}  # fmt: skip
# those of `compare`: what is counted and held, and behind it the time
COMPARE_COLUMNS = {
    "d_ff": 4, "params": 2, "params_active": 3, "weight_bytes_touched": 4, "flops_timed": 3, "flops_forward": EXTRA,
    "flops_backward": EXTRA, PEAK: 3, SAVED: 5, "total_bytes": 6, "zero_share": 3, "dead_share": 3, ERROR: 1,
    GRADIENT_ERROR: 4, "weight_bytes": EXTRA, "flops_elementwise": EXTRA, "params_formula": EXTRA,
    "activation": EXTRA, "gate": EXTRA, HELD: 4, RATE: 2, "flops_per_s": 6,
    "tokens_per_s": 7, "pareto_front": 1, LARGEST_ERROR: EXTRA, COMPILE: 2, PACK: 2, DEVICE_TIME: 4,
    HOST_TIME: 4,
}  # fmt: skip


def compare_table(report: Report) -> Table:
    """The answer of `compare`; where nothing was measured, that of `cost`."""
    plan = report.plan
    is_measured = not report.is_of_counts
    of_ways = compares_ways(plan)
    rows = case_rows(report)
    if report.bounds:
        rows = _on_machines(report, rows)
    machines = len(rows) // len(plan.shown)
    naming, others = _columns_of(report, rows)
    columns = [*naming, *others]
    header = conditions_line(plan, measured=is_measured)
    if of_ways:
        from ffnbench.compare import ways

        columns = ways.with_priorities(columns)
        header = ways.header_of(plan, header, columns)
    notes = details(report) if is_measured else row_notes(report)
    table = Table(
        columns=tuple(columns),
        rows=rows,
        header=[header],
        summary=_summary_of(report),
        details=notes,
        groups=tuple((machines * start, text) for start, text in headings(plan)),
        naming=len(naming),
    )
    if not table.groups or not report.comparisons or of_ways:
        return table
    from ffnbench.compare.pivots import pivot

    return replace(table, pivot=pivot(report, table, reference_title(report)))


def _on_machines(report: Report, rows: list[Row]) -> list[Row]:
    """A row for each machine in place of each row, with its bound there."""
    on_machines = []
    for row in rows:
        for bound in report.bounds:
            if bound.case == row["label"]:
                fields = {each.key: getattr(bound, each.key) for each in BOUNDS}
                on_machines.append(row | fields)
    return on_machines


def _summary_of(report: Report) -> list[str]:
    """The sentences below the table."""
    if _is_timed(report):
        return answer_sentences(report)
    bounds = [BOUNDS_LINE] if report.bounds else []
    lines = [*bounds, *failure_line(report), *general_line(report)]
    return lines if report.is_of_counts else [*lines, *machine_line(report)]


def _is_timed(report: Report) -> bool:
    return not report.is_of_counts and LATENCY in report.plan.metrics


def _columns_of(report: Report, rows: list[Row]) -> tuple[list[Column], list[Column]]:
    """The columns that name a row, and all others: in what rows differ, what is known
    of them, and the time.
    """
    plan = report.plan
    is_measured = not report.is_of_counts
    priorities = COMPARE_COLUMNS if is_measured else COST_COLUMNS
    naming = [column("label", word=lambda row: plan.name_of(row["label"]))]
    if compares_ways(plan):
        from ffnbench.compare import ways

        naming = ways.name_columns(plan)
        more = ways.PRIORITIES if is_measured else ways.COST_PRIORITIES
        priorities = priorities | more
    named = [each.key for each in naming]
    columns = [each for each in _differing_columns(report) if each.key not in named]
    columns += _columns_known(report, rows, priorities)
    if _is_timed(report):
        columns += timed_columns(report, reference_title(report))
    elif not is_measured:
        # counts are exact: no room is kept free for digits that may come
        columns = [replace(each, least_width=0) for each in columns]
    elif report.failures:
        columns.append(column("failure"))
    if report.bounds:
        hardware, *bounds = BOUNDS
        naming.append(hardware)
        columns += bounds
    return naming, columns


def reference_title(report: Report) -> str:
    """What the reference is called in the heading of a column."""
    name = report.plan.name_of(report.plan.reference).partition(" (")[0]
    return name if len(name) <= LONGEST_TITLE else "reference"


def _differing_columns(report: Report) -> list[Column]:
    """A column of each axis and condition in which the cases of a group differ; what is
    the same in all stands in the header.
    """
    plan = report.plan
    columns = [axis_column(key) for key in swept_columns(plan) if key != "d_ff"]
    for key in ("dtype", "device", "mode", "batch", "seq_len", "threads"):
        for group in plan.groups:
            if len({getattr(case.workload, key) for case in group.cases}) > 1:
                columns.append(column(key))
    columns += map(column, differing_conditions(plan))
    return list({each.key: each for each in reversed(columns)}.values())[::-1]


def _columns_known(
    report: Report, rows: list[Row], priorities: dict[str, int]
) -> list[Column]:
    """The columns of these keys in which a row has a value, without those that repeat
    another one.
    """
    shown, is_counted = report.plan.shown, report.is_of_counts
    works = [case.workload for case in shown]
    imported = {
        case.label: case.ffn for case in shown if isinstance(case.ffn, ImportedSpec)
    }
    unchecked = [label for label, spec in imported.items() if spec.like is None]
    is_eager = all(work.eager for work in works)
    # eager weights are held as they are counted; other backends hold them otherwise
    left_out = {HELD} if is_eager or is_counted else {"weight_bytes"}
    if all(work.mode == FORWARD for work in works):
        left_out |= {SAVED, "flops_forward"}
    if all(row["params_active"] == row["params"] for row in rows):
        left_out |= {"params_active", "weight_bytes_touched"}
    if all(work.time == Time.DEVICE for work in works):
        left_out.add(DEVICE_TIME)  # which is the latency
    has_checked_code = len(unchecked) < len(imported)
    if is_eager and not has_checked_code and ERROR not in report.plan.metrics:
        left_out |= {ERROR, GRADIENT_ERROR}

    def against_itself(row: Row) -> str | None:
        if row["label"] in unchecked and row[ERROR] is not None:
            return f"{error_text(row[ERROR])} vs itself"
        return None

    changes: dict[str, dict[str, Any]] = {ERROR: {"word": against_itself}}
    if not is_counted:
        # beside times, three digits leave room for the others
        changes |= {key: {"units": SI} for key in ("params", "params_active")}
    return [
        column(key, priority, **changes.get(key, {}))
        for key, priority in priorities.items()
        if key not in left_out and any(row[key] is not None for row in rows)
    ]
