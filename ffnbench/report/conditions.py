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
from ffnbench.report.words import listed
from ffnbench.result import Environment, Report
from ffnbench.stats.launch_bound import launch_bound

OF_TODAY = 5  # the first method that tells wall, device and host time apart
UNTESTED = {"xpu": "Intel's GPUs (XPU)", "mps": "Apple's GPUs (MPS)", "rocm": "AMD's GPUs (ROCm)"}
CPU_LONGER = "launch-bound: the CPU takes longer to issue a call (host) than the device to work it (device)"
OF_WALL = (
    f"{CPU_LONGER}, so its wall time is the CPU's; what to do: --time device leaves launching out, a larger batch or "
    "@compile=reduce-overhead gives the device more to do for a launch"
)
OF_DEVICE = (
    f"{CPU_LONGER}, so a caller waits longer than this; what to do: a larger batch or @compile=reduce-overhead gives "
    "the device more to do for a launch"
)


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


def condition_values(work: Workload) -> dict[str, str | bool | None]:
    """What a row has of each, by the record's key."""
    return {one.key: one.of(work) for one in CONDITIONS}


def _values(condition: Condition, cases: Iterable[Case]) -> list[str | bool]:
    found = (condition.of(case.workload) for case in cases)
    return [value for value in dict.fromkeys(found) if value is not None]


def in_title(plan: Plan) -> list[str]:
    """What all rows have of them, where that is not the default."""
    values = {one: _values(one, plan.shown) for one in CONDITIONS}
    return [one.title.format(found[0]) for one, found in values.items() if len(found) == 1 and found[0] != one.default]


def exactness_text(work: Workload) -> str:
    """`float32`; `float32 at high`: what an error is to be held against."""
    exact = work.dtype != "float32" or work.matmul_precision == MatmulPrecision.HIGHEST.value
    return work.dtype if exact else f"{work.dtype} at {work.matmul_precision}"


def differing(plan: Plan) -> list[Condition]:
    """Those in which rows differ."""
    return [one for one in CONDITIONS if len(_values(one, plan.shown)) > 1]


def latency_line(report: Report) -> tuple[str, ...]:
    """Which time the latencies are; nothing where no row is on an accelerator, for a CPU has one."""
    works = [case.workload for case in report.plan.shown if case.workload.accelerated]
    if not works or "latency" not in report.plan.metrics:
        return ()
    if (method := report.plan.protocol.method) < OF_TODAY:
        by = "each call by events around it on the device, with the gaps between its launches"
        return (f"latency: by method {method}, which timed {by}: neither wall nor device time as they are told now",)
    times = {work.time for work in works}
    named = {
        Time.WALL.value: "wall time, what a caller waits for",
        Time.DEVICE.value: "device time, what the device works for a call",
    }
    told = [named[time.value] for time in Time if time.value in times]
    line = f"latency: {' or '.join(told)}" + ", as its row says" * (len(told) > 1)
    metrics = {found.metric for found in report.measured}
    if DEVICE_TIME in metrics and Time.WALL.value in times:
        line += "; device: what the device works for a call"
    return (line + "; host: what issuing one takes the CPU" * (HOST_TIME in metrics),)


def launch_bound_note(report: Report, label: str) -> list[str]:
    """What to know of a launch-bound row, and what to do: one text for all that are shown by the same time."""
    if not launch_bound(report, label):
        return []
    return [OF_DEVICE if report.plan.case(label).workload.time == Time.DEVICE.value else OF_WALL]


def untested_note(report: Report) -> tuple[str, ...]:
    """That nobody has run ffnbench on this kind of device yet."""
    kinds = [UNTESTED[kind] for kind in untested_kinds(report.plan, report.environment)]
    return (f"untested: nobody has run ffnbench on {listed(kinds)} yet; tell us what you see",) if kinds else ()


def untested_kinds(plan: Plan, environment: Environment | None) -> list[str]:
    """The kinds of devices of a plan that nobody has run it on: those of Intel and of Apple, and AMD's, which torch
    calls cuda too; keys of UNTESTED.
    """
    kinds = dict.fromkeys(case.workload.device.partition(":")[0] for case in plan.shown)
    of_amd = environment is not None and environment.hip is not None
    return [kind for kind in ("rocm" if one == "cuda" and of_amd else one for one in kinds) if kind in UNTESTED]
