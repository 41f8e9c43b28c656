"""The answers of `compare` and `cost`: the names of their columns, the line above them,
the lines below.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ffnbench.common.choices import Mode, Time
from ffnbench.common.units import SI, TIME, digits
from ffnbench.ffn.spec import ImportedSpec
from ffnbench.plan.metrics import (
    DEVICE_TIME,
    ERROR,
    GRADIENT_ERROR,
    LATENCY,
    PEAK,
    SAVED,
)
from ffnbench.plan.plan import Plan
from ffnbench.record.result import Report
from ffnbench.report.columns import QUANTITIES, case_rows, column, timed_columns
from ffnbench.report.header import (
    axis_columns,
    compares_ways,
    conditions_line,
    differing_conditions,
)
from ffnbench.report.sentences import details, failures, remarks, row_notes, sentences
from ffnbench.report.table import EXTRA, FIRST, Column, Row, Table
from ffnbench.report.words import error_text

BOUNDS_LINE = (
    "bounds, not measurements: no call takes less, where each tensor passes memory once"
)
BOUNDS = (
    Column("hardware", left=True, priority=FIRST),
    Column("flops_per_byte", "FLOP/B", read=digits, priority=1),
    Column("at_least_s", "at least", units=TIME),
    Column("bound_by", "bound by", left=True),
)
# priorities where a network is run in several ways: its counts are the same in all
# rows, and the ratio gives way to error and latency
OF_WAYS = {"verdict": 2, "ratio": 3, "weight_bytes": 4, "tokens_per_s": 4} | dict.fromkeys(
    ("d_ff", "params", "flops_forward", "flops_backward", "flops_elementwise", "flops_per_s", PEAK), EXTRA,
)  # fmt: skip
LONGEST_TITLE = 12


def compare_table(report: Report) -> Table:
    """The answer of `compare`; where nothing was measured, that of `cost`."""
    plan, rows = report.plan, case_rows(report)
    naming = _naming_columns(report)
    named = {each.key for each in naming}
    others = [each for each in _other_columns(report, rows) if each.key not in named]
    header = conditions_line(plan, measured=not report.is_of_counts)
    if compares_ways(plan):
        priority_of = {each.key: each.priority for each in others} | OF_WAYS
        others = [replace(each, priority=priority_of[each.key]) for each in others]
        if "label" not in named:
            header = f"{_variant(plan, plan.reference)}, {header}"
    if report.bounds:
        rows = _on_machines(report, rows)
        hardware, *bounds = BOUNDS
        naming, others = [*naming, hardware], [*others, *bounds]
    machines = len(rows) // len(plan.shown)
    table = Table(
        columns=(*naming, *others),
        rows=rows,
        header=[header],
        summary=_summary_of(report),
        details=row_notes(report) if report.is_of_counts else details(report),
        groups=[machines * len(group.cases) for group in plan.groups],
    )
    if not (plan.is_sweep and report.comparisons) or compares_ways(plan):
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
        return sentences(report)
    lines = [BOUNDS_LINE if report.bounds else "", *failures(report), remarks(report)]
    return [line for line in lines if line]


def _is_timed(report: Report) -> bool:
    return not report.is_of_counts and LATENCY in report.plan.metrics


def _naming_columns(report: Report) -> list[Column]:
    """The columns that tell rows apart. Where a network is run in several ways these
    are columns too, and a single variant stands in the header.
    """
    plan = report.plan
    if not compares_ways(plan):
        return [column("label", word=lambda row: plan.name_of(row["label"]))]
    columns = [column("backend", FIRST)]
    if "weight_format" in differing_conditions(plan):
        columns.append(column("weight_format", FIRST, left=True))
    if len({_variant(plan, case.label) for case in plan.shown}) > 1:
        name = column("label", word=lambda row: _variant(plan, row["label"]))
        columns.insert(0, name)
    return columns


def _variant(plan: Plan, label: str) -> str:
    """The name of a row's variant, without how it is run."""
    work = plan.case(label).workload
    name = plan.name_of(label).removesuffix(f"@weights={work.weights}")
    return name.removesuffix(f"@backend={work.backend}")


def _other_columns(report: Report, rows: list[Row]) -> list[Column]:
    """The columns in which rows differ, what is known of them, and the time."""
    columns = [*_differing_columns(report), *_known_quantities(report, rows)]
    if report.is_of_counts:
        # counts are exact: no room is kept free for digits that may come
        return [replace(each, least_width=0) for each in columns]
    # beside times, three digits leave room for the others
    in_si = {"params": SI, "params_active": SI}
    columns = [replace(each, units=in_si.get(each.key, each.units)) for each in columns]
    if _is_timed(report):
        return [*columns, *timed_columns(report, reference_title(report))]
    return [*columns, column("failure")] if report.failures else columns


def reference_title(report: Report) -> str:
    """What the reference is called in the heading of a column."""
    name = report.plan.name_of(report.plan.reference).partition(" (")[0]
    return name if len(name) <= LONGEST_TITLE else "reference"


def _differing_columns(report: Report) -> list[Column]:
    """A column of each axis and condition in which the cases of a group differ; what is
    the same in all stands in the header.
    """
    plan = report.plan
    columns = [each for each in axis_columns(plan) if each.key != "d_ff"]
    for key in ("dtype", "device", "mode", "batch", "seq_len", "threads"):
        for group in plan.groups:
            if len({getattr(case.workload, key) for case in group.cases}) > 1:
                columns.append(column(key))
    columns += map(column, differing_conditions(plan))
    return list({each.key: each for each in reversed(columns)}.values())[::-1]


def _known_quantities(report: Report, rows: list[Row]) -> list[Column]:
    """The quantities that a row has a value of, without those that repeat another
    one.
    """
    shown = report.plan.shown
    modes = {case.workload.mode for case in shown}
    left_out = set()
    if modes == {Mode.FORWARD}:
        left_out |= {SAVED, "flops_backward"}
    if modes == {Mode.BACKWARD}:
        left_out.add("flops_forward")
    if all(row["params_active"] == row["params"] for row in rows):
        left_out |= {"params_active", "weight_bytes_touched"}
    if all(case.workload.time == Time.DEVICE for case in shown):
        left_out.add(DEVICE_TIME)  # which is the latency
    if not _has_errors(report):
        left_out |= {ERROR, GRADIENT_ERROR}
    known = [
        each
        for each in QUANTITIES
        if each.key not in left_out and any(row[each.key] is not None for row in rows)
    ]
    word = _error_word(report)
    return [replace(each, word=word) if each.key == ERROR else each for each in known]


def _has_errors(report: Report) -> bool:
    """Whether errors are an answer: they were asked for, or something else than the
    modules of ffnbench ran.
    """
    return ERROR in report.plan.metrics or any(
        not case.workload.eager
        or (isinstance(case.ffn, ImportedSpec) and case.ffn.like is not None)
        for case in report.plan.shown
    )


def _error_word(report: Report) -> Callable[[Row], str | None]:
    """The text of the error of code of the user's that no form was named for."""
    unchecked = {
        case.label
        for case in report.plan.shown
        if isinstance(case.ffn, ImportedSpec) and case.ffn.like is None
    }

    def word(row: Row) -> str | None:
        if row["label"] in unchecked and row[ERROR] is not None:
            return f"{error_text(row[ERROR])} vs itself"
        return None

    return word
