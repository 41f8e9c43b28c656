"""The columns of cases: what a row has of a case, and how each value is headed and
written.

CSV, JSON lists and data frames have the keys of `case_row` in this order, in base
units; what is not known is None. A new column is one line there, the name in
docs/command-line.md, and where a table shows it a row of COLUMNS and its name in the
table.
"""

from __future__ import annotations

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
    LARGEST_ERROR,
    LATENCY,
    PACK,
    PEAK,
    RATE,
    SAVED,
)
from ffnbench.plan.plan import Case, needed_by
from ffnbench.record.result import Report, Verdict
from ffnbench.report.frame import (
    EXTRA,
    NUMBER_WIDTH,
    RATIO_WIDTH,
    VERDICT_WIDTH,
    Column,
    Row,
    estimate_in,
    in_row,
    interval_keys,
)
from ffnbench.report.header import CONDITIONS
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

TOKEN = "/tok"
SHARE_WIDTH = 18  # letters, as NUMBER_WIDTH
FRONT = "*"  # marks the rows on the Pareto front
OF_FORM = ("d_model", "d_ff", "activation", "gate", "bias")
OF_WORKLOAD = ("dtype", "device", "mode", "backend", "batch", "seq_len", "threads")
LATENCY_KEYS, RATIO_KEYS = interval_keys("latency_s"), interval_keys("ratio")


def case_rows(report: Report) -> list[Row]:
    """One flat row for each case that is shown, group by group."""
    return [
        case_row(report, case) for group in report.plan.groups for case in group.cases
    ]


def case_row(report: Report, case: Case) -> Row:
    """All that is known of a case, and its values on the axes of a sweep."""
    label, work, cost = case.label, case.workload, report.cost(case.label)
    latency, error = report.estimate(label, LATENCY), report.estimate(label, ERROR)
    comparison, failure = report.comparison(label), report.failure(label)
    needed, peak = needed_by(case, cost), report.value(label, PEAK)
    held = report.value(label, HELD)
    seconds = latency.value if latency else None
    row: Row = {"label": label, "variant": case.variant}
    row |= {key: getattr(case.ffn, key, None) for key in OF_FORM}
    if cost.width_note:  # the width of the module is not the one that was planned
        row["d_ff"] = None
    row |= {key: getattr(work, key) for key in OF_WORKLOAD}
    row |= {
        "params": None if cost.failed else cost.params,
        "params_active": None if cost.failed else cost.params_active,
        "flops_forward": cost.flops_forward,
        "flops_backward": cost.flops_backward,
        "flops_elementwise": cost.flops_elementwise,
        **in_row("latency_s", latency),
        **in_row("ratio", comparison.ratio if comparison else None),
        "verdict": comparison and comparison.verdict,
        "tokens_per_s": _divided(work.tokens, seconds),
        PEAK: _whole(peak),
        SAVED: _whole(report.value(label, SAVED)),
        "weight_bytes": None if cost.failed else cost.weight_bytes,
        "workers": latency and latency.workers,
        "rounds": report.rounds(label) if latency else None,
        "failure": failure and f"{failure.kind}: {failure.message}",
        "params_formula": cost.params_formula,
        "zero_share": report.value(label, "zero_share"),
        "dead_share": report.value(label, "dead_share"),
        "weight_bytes_touched": cost.weight_bytes_touched,
        COMPILE: report.value(label, COMPILE),
        "flops_per_s": _divided(needed.flops, seconds),
        PACK: report.value(label, PACK),
        HELD: _whole(held),
        ERROR: error and error.value,
        GRADIENT_ERROR: report.value(label, GRADIENT_ERROR),
        # FLOPs of a token in the passes that the mode runs
        "flops_timed": needed.flops and needed.flops // work.tokens,
        # in training the peak contains the gradients
        "total_bytes": _whole(peak and peak + (held or cost.weight_bytes)),
        **{each.key: each.of(work) for each in CONDITIONS},
        DEVICE_TIME: report.value(label, DEVICE_TIME),
        HOST_TIME: report.value(label, HOST_TIME),
        LARGEST_ERROR: report.value(label, LARGEST_ERROR),
        "pareto_front": _on_front(report, label),
        "error_low": error and error.low,
        "error_high": error and error.high,
        **in_row(RATE, report.figures.rates.get(label)),
    }
    for key, value in case.point:
        row.setdefault(key, value)
    return {
        key: value.value if isinstance(value, Enum) else value
        for key, value in row.items()
    }


def _divided(amount: float | None, seconds: float | None) -> float | None:
    """The amount in a second; None where one of them is not known."""
    return amount / seconds if amount and seconds else None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _on_front(report: Report, label: str) -> bool | None:
    """Whether it is on the Pareto front of time and error in its group; None where the
    group has no front.
    """
    for trade_off in report.figures.trade_offs:
        if trade_off.reference == report.plan.reference_of(label):
            return label in trade_off.front
    return None


def latency_text(row: Row) -> str | None:
    """The word for a busy row, which stands in place of its latency; else None."""
    return BUSY_WORD if verdict_word(row) == BUSY_WORD else None


def ratio_text(row: Row) -> str | None:
    """`1` for a reference, in place of its ratio; else None."""
    if row["verdict"] == Verdict.REFERENCE and row["ratio"] is not None:
        return "1"
    return None


def _spread_text(row: Row) -> str | None:
    latency = estimate_in(row, "latency_s")
    half = latency.half_width if latency else None
    return None if half is None else percent(half)


def _failure_text(row: Row) -> str:
    return verdict_word(row) or ""


def _front_text(row: Row) -> str:
    return FRONT if row["pareto_front"] else ""


def _latency_style(row: Row) -> str:
    return "yellow" if latency_text(row) else ""


def in_percent(share: float) -> str:
    """`12.3`, in a column whose unit is percent."""
    return f"{100 * share:.1f}"


def with_percent_sign(share: float) -> str:
    """`12.3%`."""
    return f"{100 * share:.1f}%"


def in_giga(value: float) -> str:
    """A value as a number of 10^9, in a column whose unit has the prefix giga."""
    return digits(value / GIGA)


def _flops(key: str, title: str) -> Column:
    return Column(key, title, TOKEN, units=SI, priority=EXTRA)


def _bytes(key: str, title: str) -> Column:
    return Column(key, title, units=IEC, least_width=NUMBER_WIDTH)


def _seconds(key: str, title: str) -> Column:
    return Column(key, title, units=TIME, priority=4, least_width=NUMBER_WIDTH)


# fmt: off
SHOWN = (
    Column("label", "variant", left=True),
    *(Column(key, write=str, priority=2) for key in ("d_model", "batch", "seq_len", "threads")),
    *(Column(key, priority=2) for key in ("d_ff", "dtype", "device", "mode")),
    *(Column(key, left=True, priority=EXTRA) for key in ("activation", "gate")),
    Column("backend", left=True),
    Column("params", priority=1),
    Column("params_active", "active", priority=1),
    Column("params_formula", "closed form", left=True, priority=EXTRA),
    _flops("flops_forward", "FLOPs fwd"),
    _flops("flops_backward", "FLOPs bwd"),
    _flops("flops_elementwise", "elem.-wise"),
    _flops("flops_timed", "FLOPs"),
    Column("latency_s", "latency", units=TIME, interval=seconds_text, text=latency_text, style=_latency_style,
           priority=1, least_width=NUMBER_WIDTH),
    Column("spread", "±", text=_spread_text, priority=EXTRA),
    Column("ratio", unit=CERTAIN, interval=interval_text, text=ratio_text, least_width=RATIO_WIDTH),
    Column("verdict", left=True, text=verdict_word, style=verdict_style, least_width=VERDICT_WIDTH),
    Column("failure", left=True, text=_failure_text, style=verdict_style),
    Column("tokens_per_s", "tokens", "/s", units=SI, priority=7, least_width=NUMBER_WIDTH),
    Column("flops_per_s", "GFLOP/s", write=in_giga, priority=6, least_width=NUMBER_WIDTH),
    Column(RATE, unit=f"% {CERTAIN}", interval=share_text, priority=2, least_width=SHARE_WIDTH),
    Column(PEAK, "peak", units=IEC, priority=4),
    _bytes(SAVED, "saved"),
    Column("weight_bytes", "weights", units=IEC, priority=EXTRA),
    Column("weight_bytes_touched", "touched", units=IEC, priority=2),
    _bytes(HELD, "weights"),
    _bytes("total_bytes", "total"),
    Column("zero_share", "zeros", "%", write=in_percent, priority=3),
    Column("dead_share", "dead", "%", write=in_percent, priority=3),
    _seconds(COMPILE, "compile"),
    _seconds(PACK, "pack"),
    _seconds(DEVICE_TIME, "device"),
    _seconds(HOST_TIME, "host"),
    Column(ERROR, write=error_text, priority=2),
    Column(GRADIENT_ERROR, "gradient error", write=error_text, priority=4),
    Column(LARGEST_ERROR, "largest error", write=error_text, priority=EXTRA),
    Column("pareto_front", "front", left=True, text=_front_text, priority=2),
    *(Column(each.key, each.column, priority=2) for each in CONDITIONS),
)
# fmt: on
COLUMNS = {column.key: column for column in SHOWN}


def column(key: str, priority: int | None = None, /, **how: Any) -> Column:
    """The column of COLUMNS with this key; with another priority, or other fields,
    where these are given.
    """
    if priority is not None:
        how["priority"] = priority
    return replace(COLUMNS[key], **how)


def timed_columns(report: Report, reference: str) -> list[Column]:
    """Latency with its spread, and where rows are compared the ratio to the reference
    and the verdict.
    """
    shown = [column("latency_s"), column("spread")]
    references = {group.reference for group in report.plan.groups}
    # every row is a reference: nothing is compared
    if len(references) == len(report.plan.shown) and not report.failures:
        return shown
    return [*shown, column("ratio", title=f"time vs {reference}"), column("verdict")]
