"""Under what rows were timed, in words: which time the latency is, a cold cache, the precision of matrix products.

What is not the default stands in the title where all rows have it, and in a column where they differ. A row that a
condition says nothing of, such as the precision of float32 products in bfloat16, has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ffnbench.ffn.dtypes import item_bytes
from ffnbench.metrics import DEVICE_TIME, HOST_TIME
from ffnbench.plan import Cache, Case, MatmulPrecision, Plan, Time, Workload
from ffnbench.result import Report

TOLD_APART = 5  # the first method that tells wall, device and host time apart
TIMES = {
    Time.WALL.value: "wall time (what a caller waits for)",
    Time.DEVICE.value: "device time (how long the device works)",
}


@dataclass(frozen=True, slots=True)
class Condition:
    """A key of the workload: what of it a row has, None for one that it says nothing of; what the title calls it."""

    key: str  # the record's
    column: str
    default: str | bool
    of: Callable[[Workload], str | bool | None]
    title: str


def _reductions(work: Workload) -> bool | None:
    return work.reduced_reductions if work.accelerated and item_bytes(work.dtype) == 2 else None


CONDITIONS = (
    Condition("latency_time", "time", Time.WALL.value, lambda work: work.time, "{} time"),
    Condition("cache", "cache", Cache.HOT.value, lambda work: work.cache, "{} cache"),
    Condition(
        "matmul_precision", "matmul", MatmulPrecision.HIGHEST.value,
        lambda work: work.matmul_precision if work.dtype == "float32" else None, "{} matmul precision",
    ),
    Condition("reduced_reductions", "reductions", True, _reductions, "no reduced reductions"),
)  # fmt: skip


def _values(condition: Condition, cases: Iterable[Case]) -> list[str | bool]:
    found = (condition.of(case.workload) for case in cases)
    return [value for value in dict.fromkeys(found) if value is not None]


def in_title(plan: Plan) -> list[str]:
    """What all rows have of them, where that is not the default."""
    values = {one: _values(one, plan.shown) for one in CONDITIONS}
    return [one.title.format(found[0]) for one, found in values.items() if len(found) == 1 and found[0] != one.default]


def differing(plan: Plan) -> list[Condition]:
    """Those in which rows differ."""
    return [one for one in CONDITIONS if len(_values(one, plan.shown)) > 1]


def latency_line(report: Report) -> tuple[str, ...]:
    """Which time the latencies are; nothing where no row is on an accelerator, for a CPU has one, and nothing of older
    methods, whose time was neither.
    """
    works = [case.workload for case in report.plan.shown if case.workload.accelerated]
    if not works or "latency" not in report.plan.metrics or report.plan.protocol.method < TOLD_APART:
        return ()
    told = [text for time, text in TIMES.items() if any(work.time == time for work in works)]
    line = f"latency: {' or '.join(told)}" + ", as its row says" * (len(told) > 1)
    metrics = {found.metric for found in report.measured}
    if DEVICE_TIME in metrics and TIMES[Time.WALL.value] in told:
        line += "; device: how long the device works"
    return (line + "; host: how long the CPU takes to launch it" * (HOST_TIME in metrics),)


def untested_note(report: Report) -> tuple[str, ...]:
    """That nobody has run ffnbench on AMD's GPUs yet, which torch calls cuda too."""
    of_amd = report.environment is not None and report.environment.hip is not None
    if not of_amd or all(case.workload.device == "cpu" for case in report.plan.shown):
        return ()
    return ("untested: nobody has run ffnbench on AMD's GPUs (ROCm) yet; tell us what you see",)
