"""TODO"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ffnbench.plan import COMPILE, Mode, Plan
from ffnbench.report.footnotes import Footnotes, case_notes
from ffnbench.report.summary import compare_header, cost_header, summary
from ffnbench.report.table import EXTRA, STYLES, UNKNOWN, Cell, Column, Table
from ffnbench.report.words import ratio_text, seconds_text
from ffnbench.result import Report
from ffnbench.units import IEC, SI, TIME, digits, scale

Row = dict[str, Any]
LONGEST_TITLE = 12


Field = tuple[Column, Callable[[Row], Cell]]


def compare_table(report: Report) -> Table:
    """The answer of `compare`."""
    return _table(report, _measured_fields, compare_header(report), summary(report))


def cost_table(report: Report) -> Table:
    """The answer of `cost`: everything that is known without measuring."""
    return _table(report, _cost_fields, cost_header(report), ())


def _table(
    report: Report,
    fields_of: Callable[[Report, list[Row]], list[Field]],
    header: tuple[str, ...],
    below: tuple[str, ...],
) -> Table:
    rows, notes = report.rows(), Footnotes()
    marks = {case.label: notes.marks(case_notes(report, case.label)) for case in report.plan.shown}
    first: Field = (
        Column(title="variant", left=True),
        lambda r: Cell(text=r["label"] + marks[r["label"]], value=r["label"]),
    )
    fields = [first, *_differing(report.plan), *fields_of(report, rows)]
    return Table(
        columns=tuple(column for column, _ in fields),
        rows=tuple(tuple(cell(row) for _, cell in fields) for row in rows),
        header=header,
        footnotes=notes.lines(),
        summary=below,
    )


def _measured_fields(report: Report, rows: list[Row]) -> list[Field]:
    train = any(case.workload.train for case in report.plan.shown)
    fields = [*_static_fields(rows, {case.workload.mode for case in report.plan.shown})]
    if "latency" not in report.plan.metrics and report.failures:
        fields.append((Column(title="failure"), lambda row: _failure_cell(report, row) or Cell(text="")))
    if "latency" in report.plan.metrics:
        fields += [
            _latency_field(report, rows),
            _ratio_field(report),
            *_compile_fields(report, rows),
            _number(rows, "tokens_per_s", "tokens", SI, 6, per="/s"),
        ]
    if "memory" in report.plan.metrics:
        fields.append(_number(rows, "peak_bytes", "peak", IEC, 4))
    if "memory" in report.plan.metrics and train:
        fields.append(_number(rows, "saved_bytes", "saved", IEC, 5))
    if "sparsity" in report.plan.metrics:
        fields += [_share("zero_share", "zeros"), _share("dead_share", "dead")]
    return [*fields, *_extra_fields(rows)]


def _cost_fields(report: Report, rows: list[Row]) -> list[Field]:
    train = any(case.workload.train for case in report.plan.shown)
    return [
        *_static_fields(rows, None),
        _text("params_formula", "closed form", 3 if _any_experts(rows) else 1, left=True),
        _number(rows, "flops_elementwise", "elem.-wise", SI, 5, per="/tok"),
        _number(rows, "weight_bytes", "weights", IEC, 3),
        _number(rows, "peak_bytes", "peak", IEC, 4),
        *([_number(rows, "saved_bytes", "saved", IEC, 4)] if train else []),
        _number(rows, "flops_elementwise_backward", "elem. bwd", SI, EXTRA, per="/tok"),
        _number(rows, "macs_forward", "MACs fwd", SI, EXTRA, per="/tok"),
        _text("sizing", "d_ff from", EXTRA, left=True),
    ]


def _static_fields(rows: list[Row], timed: set[str] | None) -> list[Field]:
    """Widths and counts; of the FLOPs the half comes first that the seconds belong to, both where nothing is timed."""
    forward, backward = 1, 2
    if timed is not None:
        forward = EXTRA if timed == {Mode.BACKWARD.value} else 5
        backward = 5 if Mode.BACKWARD.value in timed else EXTRA
    return [
        (Column(title="d_ff", priority=2), lambda r: _count(r["d_ff"])),
        (Column(title="params", priority=1), lambda r: _count(r["params"])),
        *_expert_fields(rows, 1 if timed is None else 3),
        _number(rows, "flops_forward", "FLOPs", SI, forward, per="/tok"),
        _number(rows, "flops_backward", "FLOPs bwd", SI, backward, per="/tok"),
    ]


def _expert_fields(rows: list[Row], priority: int) -> list[Field]:
    """What differs from the total where there are experts: parameters that a token meets, weights that a call reads."""
    if not _any_experts(rows):
        return []
    return [
        (Column(title="active", priority=priority), lambda r: _count(r["params_active"])),
        _number(rows, "weight_bytes_touched", "touched", IEC, priority + 1),
    ]


def _any_experts(rows: list[Row]) -> bool:
    return any(row["experts"] for row in rows)


def _extra_fields(rows: list[Row]) -> list[Field]:
    return [
        _text("params_formula", "closed form", 7, left=True),
        _number(rows, "macs_forward", "MACs", SI, EXTRA, per="/tok"),
        _number(rows, "flops_elementwise", "elem.-wise", SI, EXTRA, per="/tok"),
        _number(rows, "weight_bytes", "weights", IEC, EXTRA),
        _text("activation", "activation", EXTRA, left=True),
        _text("gate", "gate", EXTRA, left=True),
        _text("sizing", "d_ff from", EXTRA, left=True),
    ]


def _differing(plan: Plan) -> list[Field]:
    """Columns for what is not the same in all cases; what is the same stands in the header."""
    keys = ("dtype", "device", "mode", "batch", "seq_len", "threads")
    differing = [k for k in keys if len({getattr(case.workload, k) for case in plan.shown}) > 1]
    return [_text(key, key, 1) for key in differing]


def _text(key: str, title: str, priority: int, *, left: bool = False) -> Field:
    def cell(row: Row) -> Cell:
        return Cell(text=UNKNOWN if row[key] is None else str(row[key]), value=row[key])

    return Column(title=title, priority=priority, left=left), cell


def _count(value: int | None) -> Cell:
    return Cell(text=UNKNOWN if value is None else f"{value:,}", value=value)


def _number(
    rows: list[Row], key: str, title: str, units: tuple[tuple[str, float], ...], priority: int, per: str = ""
) -> Field:
    """A column on one scale, its unit in the heading."""
    name, size = scale([row[key] for row in rows if row[key] is not None], units)

    def cell(row: Row) -> Cell:
        value = row[key]
        return Cell(text=UNKNOWN if value is None else digits(value / size), value=value)

    return Column(title=title, unit=f"{name}{per}", priority=priority), cell


def _share(key: str, title: str) -> Field:
    def cell(row: Row) -> Cell:
        return Cell(text=UNKNOWN if row[key] is None else f"{100 * row[key]:.1f}", value=row[key])

    return Column(title=title, unit="%", priority=3), cell


def _latency_field(report: Report, rows: list[Row]) -> Field:
    name, size = scale([row["latency_s"] for row in rows if row["latency_s"]], TIME)

    def cell(row: Row) -> Cell:
        if failed := _failure_cell(report, row):
            return failed
        estimate = report.estimate(row["label"], "latency")
        if estimate is None:
            return Cell(text=UNKNOWN)
        return Cell(text=seconds_text(estimate, size), value=estimate.value)

    return Column(title="latency", unit=name), cell


def _compile_fields(report: Report, rows: list[Row]) -> list[Field]:
    """What compiling took, where anything is compiled."""
    if not any(row["compile_s"] for row in rows):
        return []

    def cell(row: Row) -> Cell:
        estimate = report.estimate(row["label"], COMPILE)
        return Cell(text=UNKNOWN) if estimate is None else Cell(text=seconds_text(estimate, 1), value=estimate.value)

    return [(Column(title="compile", unit="s", priority=1), cell)]


def _failure_cell(report: Report, row: Row) -> Cell | None:
    """What stands in the place of a number that could not be measured."""
    failure = report.failure(row["label"])
    if failure is None:
        return None
    words = {"oom": "out of memory", "timeout": "timed out"}
    return Cell(text=words.get(failure.kind.value, failure.kind.value), style="red")


def _ratio_field(report: Report) -> Field:
    def cell(row: Row) -> Cell:
        comparison = report.comparison(row["label"])
        if comparison is None:
            return Cell(text=UNKNOWN)
        text = ratio_text(comparison.verdict, comparison.ratio)
        return Cell(
            text=text, value=comparison.ratio and comparison.ratio.value, style=STYLES.get(comparison.verdict.value, "")
        )

    reference = report.plan.reference
    return Column(title=f"vs {reference if len(reference) <= LONGEST_TITLE else 'reference'}", unit="ratio [95%]"), cell
