"""The columns of cases: each quantity with what computes it, its heading, and how it
reads.

CSV, JSON lists and data frames have the keys of COLUMNS in this order, in base units;
what is not known is None. A new column is one row of COLUMNS, its name in
docs/glossary.md, and where a table shows it its name there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import Any

from ffnbench.common.units import GIGA, IEC, SI, TIME, digits, percent
from ffnbench.plan.metrics import (
    COMPILE,
    DEVICE_TIME,
    ERROR,
    GRADIENT_ERROR,
    HELD,
    HOST_TIME,
    LATENCY,
    PACK,
    PEAK,
    RATE,
    SAVED,
)
from ffnbench.plan.plan import Case, flops_of_call
from ffnbench.record.result import Report, Verdict
from ffnbench.report.header import CONDITIONS
from ffnbench.report.table import (
    EXTRA,
    NUMBER_WIDTH,
    RATIO_WIDTH,
    VERDICT_WIDTH,
    Column,
    Row,
    estimate_in,
    in_row,
)
from ffnbench.report.words import (
    BUSY_WORD,
    CERTAIN,
    error_text,
    interval_text,
    seconds_text,
    share_text,
    verdict_style,
    verdict_word,
)

Of = Callable[[Report, Case], Any]
TOKEN = "/tok"
SHARE_WIDTH = 18  # letters, as NUMBER_WIDTH
FRONT = "*"  # marks the rows on the Pareto front


def case_rows(report: Report) -> list[Row]:
    """One flat row for each case that is shown, group by group."""
    return [
        case_row(report, case) for group in report.plan.groups for case in group.cases
    ]


def case_row(report: Report, case: Case) -> Row:
    """All that is known of a case, and its values on the axes of a sweep."""
    row: Row = {}
    for column in COLUMNS:
        assert column.of is not None
        value = column.of(report, case)
        if column.interval:
            row |= in_row(column.key, value)
        else:
            row[column.key] = value.value if isinstance(value, Enum) else value
    for key, value in case.point:
        row.setdefault(key, value)
    return row


# How a quantity is computed


def _of_form(name: str) -> Of:
    return lambda report, case: getattr(case.ffn, name, None)


def _of_call(name: str) -> Of:
    return lambda report, case: getattr(case.workload, name)


def _of_cost(name: str) -> Of:
    return lambda report, case: getattr(report.cost(case.label), name)


def _counted(name: str) -> Of:
    """A count that is unknown where counting failed."""

    def value(report: Report, case: Case) -> Any:
        cost = report.cost(case.label)
        return None if cost.failed else getattr(cost, name)

    return value


def _of_metrics(*metrics: str) -> Of:
    """The value of the first of these metrics that was measured."""

    def value(report: Report, case: Case) -> Any:
        values = (report.value(case.label, metric) for metric in metrics)
        return next((value for value in values if value is not None), None)

    return value


def _bytes_of(metric: str) -> Of:
    def value(report: Report, case: Case) -> int | None:
        measured = report.value(case.label, metric)
        return None if measured is None else int(measured)

    return value


def _of_comparison(name: str) -> Of:
    def value(report: Report, case: Case) -> Any:
        comparison = report.comparison(case.label)
        return comparison and getattr(comparison, name)

    return value


def _width(report: Report, case: Case) -> int | None:
    """The width; None where that of the module is not the one that was planned."""
    if report.cost(case.label).width_note:
        return None
    return getattr(case.ffn, "d_ff", None)


def _weight_bytes(report: Report, case: Case) -> int | None:
    """The bytes of the weights as they are held, else as they are counted."""
    held = report.value(case.label, HELD)
    if held is not None:
        return int(held)
    cost = report.cost(case.label)
    return None if cost.failed else cost.weight_bytes


def _seconds(report: Report, case: Case) -> float | None:
    """The time of a row; None where it was only seen."""
    return report.value(case.label, LATENCY) if report.has_time(case.label) else None


def _tokens_per_s(report: Report, case: Case) -> float | None:
    seconds = _seconds(report, case)
    return case.workload.tokens / seconds if seconds else None


def _flops_per_s(report: Report, case: Case) -> float | None:
    seconds = _seconds(report, case)
    flops = flops_of_call(case, report.cost(case.label))
    return flops / seconds if flops and seconds else None


def _why_failed(report: Report, case: Case) -> str | None:
    failure = report.failure(case.label)
    return f"{failure.kind}: {failure.message}" if failure else None


def _on_front(report: Report, case: Case) -> bool | None:
    """Whether it is on the Pareto front of time and error in its group; None where the
    group has no front.
    """
    for trade_off in report.figures.trade_offs:
        if trade_off.reference == report.plan.reference_of(case.label):
            return case.label in trade_off.front
    return None


# How it reads


def is_busy(row: Row) -> bool:
    """Whether a row shows only what was seen beside other processes."""
    return verdict_word(row) == BUSY_WORD


def seen_style(row: Row) -> str:
    """Dim where a row is busy."""
    return "dim" if is_busy(row) else ""


def ratio_word(row: Row) -> str | None:
    """`1` for a reference, in place of its ratio; else None."""
    if row["verdict"] == Verdict.REFERENCE and row["ratio"] is not None:
        return "1"
    return None


def _spread_text(row: Row) -> str | None:
    latency = estimate_in(row, "latency_s")
    half = latency.half_width if latency else None
    return None if half is None else percent(half)


def in_percent(share: float) -> str:
    """`12.3`, in a column whose unit is percent."""
    return f"{100 * share:.1f}"


def with_percent_sign(share: float) -> str:
    """`12.3%`."""
    return f"{100 * share:.1f}%"


def in_giga(value: float) -> str:
    """A value as a number of 10^9, in a column whose unit has the prefix giga."""
    return digits(value / GIGA)


# fmt: off
# what a row is: its name, its form and its call
NAMES = (
    Column("label", "variant", of=lambda report, case: case.label, left=True),
    Column("variant", of=lambda report, case: case.variant, left=True),
)
CALL = (
    Column("d_model", of=_of_form("d_model"), read=str, priority=2),
    *(Column(key, of=_of_call(key), priority=2) for key in ("dtype", "device", "mode")),
    Column("backend", of=_of_call("backend"), left=True),
    *(Column(key, of=_of_call(key), read=str, priority=2) for key in ("batch", "seq_len", "threads")),
    *(Column(each.key, each.column, of=each.of_case, priority=2) for each in CONDITIONS),
)
# what is counted of it, and measured beside its time
QUANTITIES = (
    Column("d_ff", of=_width, priority=3),
    Column("params", of=_counted("params"), priority=2),
    Column("params_active", "active", of=_counted("params_active"), priority=2),
    Column("flops_forward", "FLOPs", TOKEN, of=_of_cost("flops_forward"), units=SI, priority=2),
    Column("flops_backward", "FLOPs bwd", TOKEN, of=_of_cost("flops_backward"), units=SI, priority=2),
    Column("flops_elementwise", "elem.-wise", TOKEN, of=_of_cost("flops_elementwise"), units=SI, priority=8),
    Column("weight_bytes", "weights", of=_weight_bytes, units=IEC, priority=5, least_width=NUMBER_WIDTH),
    Column("weight_bytes_touched", "touched", of=_of_cost("weight_bytes_touched"), units=IEC, priority=4),
    Column(PEAK, "peak", of=_bytes_of(PEAK), units=IEC, priority=4),
    Column(SAVED, "saved", of=_bytes_of(SAVED), units=IEC, priority=2, least_width=NUMBER_WIDTH),
    Column("zero_share", "zeros", "%", of=_of_metrics("zero_share"), read=in_percent, priority=1),
    Column("dead_share", "dead", "%", of=_of_metrics("dead_share"), read=in_percent, priority=1),
    Column(ERROR, of=_of_metrics(ERROR), read=error_text, priority=1),
    Column(GRADIENT_ERROR, "gradient error", of=_of_metrics(GRADIENT_ERROR), read=error_text, priority=4),
    Column("pareto_front", "front", of=_on_front, left=True, word=lambda row: FRONT if row["pareto_front"] else "", priority=1),
    Column("setup_s", "setup", of=_of_metrics(COMPILE, PACK), units=TIME, priority=4, least_width=NUMBER_WIDTH),
    Column(DEVICE_TIME, "device", of=_of_metrics(DEVICE_TIME), units=TIME, priority=4, least_width=NUMBER_WIDTH),
    Column(HOST_TIME, "host", of=_of_metrics(HOST_TIME), units=TIME, priority=4, least_width=NUMBER_WIDTH),
    Column(RATE, unit=f"% {CERTAIN}", of=lambda report, case: report.figures.rates.get(case.label), interval=True,
           read=share_text, priority=2, least_width=SHARE_WIDTH),
    Column("flops_per_s", "GFLOP/s", of=_flops_per_s, read=in_giga, priority=6, least_width=NUMBER_WIDTH),
    Column("tokens_per_s", "tokens", "/s", of=_tokens_per_s, units=SI, priority=7, least_width=NUMBER_WIDTH),
)
TIMES = (
    Column("latency_s", "latency", of=lambda report, case: report.estimate(case.label, LATENCY), units=TIME, interval=True,
           read=seconds_text, style=seen_style, priority=1, least_width=NUMBER_WIDTH),
    Column("ratio", unit=CERTAIN, of=_of_comparison("ratio"), interval=True, read=interval_text, word=ratio_word, style=seen_style,
           least_width=RATIO_WIDTH),
    Column("verdict", of=_of_comparison("verdict"), left=True, word=verdict_word, style=verdict_style,
           least_width=VERDICT_WIDTH),
    Column("failure", of=_why_failed, left=True, word=lambda row: verdict_word(row) or "", style=verdict_style),
)
COLUMNS = (*NAMES, *CALL, *QUANTITIES, *TIMES)
# fmt: on
COLUMN_OF = {column.key: column for column in COLUMNS}
SPREAD = Column("spread", "±", word=_spread_text, priority=EXTRA)


def column(key: str, priority: int | None = None, /, **changes: Any) -> Column:
    """The column of this key; with another priority, or other fields, where these are
    given.
    """
    if priority is not None:
        changes["priority"] = priority
    return replace(COLUMN_OF[key], **changes)


def timed_columns(report: Report, reference: str) -> list[Column]:
    """Latency with its spread, and where rows are compared the ratio to the reference
    and the verdict.
    """
    shown = [column("latency_s"), SPREAD]
    references = {group.reference for group in report.plan.groups}
    # every row is a reference: nothing is compared
    if len(references) == len(report.plan.shown) and not report.failures:
        return shown
    return [*shown, column("ratio", title=f"time vs {reference}"), column("verdict")]
