"""The line above a table, and the headings within it: what all rows have in common, and
what the groups differ in.

A value that is not the default stands in the line where all rows have it, and in a
column where they differ. A condition that does not apply to a row, such as the
precision of float32 products to one in bfloat16, is None there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ffnbench.common.choices import (
    Backend,
    Cache,
    MatmulPrecision,
    Time,
    Weights,
)
from ffnbench.common.units import signed_percent
from ffnbench.plan.backends import BACKENDS
from ffnbench.plan.plan import (
    ACTIVE_PARAMS,
    Case,
    Group,
    Plan,
    SizedBy,
    Value,
    Workload,
    typed_as,
    value_of,
)
from ffnbench.record.result import Report
from ffnbench.report.table import FIRST, Column
from ffnbench.report.words import backend_text, device_text, join_words

# the share by which a matched width may miss without being named above the table
LARGEST_UNTOLD_MISS = 0.02
MOST_VALUES = 6  # values of an axis that are listed; of more, the first and the last
MATCHED = {"params": "parameters", "flops": "FLOPs", ACTIVE_PARAMS: "active parameters"}
TOLD_BY_VALUE = ("dtype", "mode", "device")  # keys that stand without their name


@dataclass(frozen=True, slots=True)
class Condition:
    """A setting of the workload that is shown only where it is not the default.

    `key` is that of the CSV, `column` the heading of its column, and `title` the words
    behind a value in the line above the table. `of` gives the value in a workload, None
    where the condition does not apply.
    """

    key: str
    column: str
    default: str | int | bool
    of: Callable[[Workload], str | int | bool | None]
    title: str

    def of_case(self, report: Report, case: Case) -> str | int | bool | None:
        """The value of a case."""
        return self.of(case.workload)


def _precision(work: Workload) -> str | None:
    return work.matmul_precision if work.dtype == "float32" else None


CONDITIONS = (
    Condition("latency_time", "time", Time.WALL, lambda work: work.time, "time"),
    Condition("cache", "cache", Cache.HOT, lambda work: work.cache, "cache"),
    Condition(
        "matmul_precision",
        "matmul",
        MatmulPrecision.HIGHEST,
        _precision,
        "matmul precision",
    ),
    Condition(
        "weight_format", "format", Weights.NONE, lambda work: work.weights, "weights"
    ),
)


def _values_of(condition: Condition, cases: Iterable[Case]) -> list[str | int | bool]:
    values = dict.fromkeys(condition.of(case.workload) for case in cases)
    return [value for value in values if value is not None]


def compares_ways(plan: Plan) -> bool:
    """Whether rows differ in the way in which a network is run: in the format of its
    weights, or in the runtime.
    """
    backends = {case.workload.backend for case in plan.shown}
    has_runtime = any(BACKENDS[backend].is_runtime for backend in backends)
    return plan.compares_precisions or (has_runtime and len(backends) > 1)


def common_conditions(plan: Plan) -> list[str]:
    """The conditions that are the same in all rows and not the default, in words."""
    texts = []
    for condition in CONDITIONS:
        values = _values_of(condition, plan.shown)
        if len(values) == 1 and values[0] != condition.default:
            texts.append(f"{values[0]} {condition.title}")
    return texts


def differing_conditions(plan: Plan) -> list[str]:
    """The keys of the conditions that are not the same in all rows."""
    return [
        condition.key
        for condition in CONDITIONS
        if len(_values_of(condition, plan.shown)) > 1
    ]


# Groups of rows


def heading(group: Group) -> str:
    """The heading of a group: its values on all axes."""
    return heading_of(group.values)


def heading_of(values: Mapping[str, Any]) -> str:
    """Values on axes as a heading: `seq_len 128`; `bfloat16, seq_len 128`."""
    return ", ".join(_with_values(key, [value]) for key, value in values.items())


def _with_values(key: str, values: Sequence[Value]) -> str:
    texts = list(map(axis_text, values))
    if len(texts) <= MOST_VALUES:
        text = join_words(texts)
    else:
        text = f"{texts[0]} to {texts[-1]} ({len(texts):,} values)"
    return text if key in TOLD_BY_VALUE else f"{key} {text}"


def axis_columns(plan: Plan) -> list[Column]:
    """A column for each axis, which tells the groups apart."""
    return [
        Column(key, priority=FIRST, left=key in TOLD_BY_VALUE, read=axis_text)
        for key in plan.groups[0].values
    ]


def axis_text(value: Value) -> str:
    """A value of an axis as text; an integer with a comma at the thousands."""
    return f"{value:,}" if type(value) is int else typed_as(value)


# The line above a table


def conditions_line(plan: Plan, *, measured: bool = True) -> str:
    """The line above a table: what all rows have in common, and where all widths were
    matched, in what they are equal.
    """
    parts = _workload_parts(plan, measured=measured)
    forms = {group.reference: plan.case(group.reference).ffn for group in plan.groups}
    others = [
        case for case in plan.shown if case.ffn != forms[plan.reference_of(case.label)]
    ]
    line = ", ".join(parts)
    if not others or any(case.sizing.how is not SizedBy.MATCHED for case in others):
        return line
    matched = {MATCHED.get(case.sizing.what, case.sizing.what) for case in others}
    # experts are matched in active parameters; in a dense form all parameters are
    # active, so that the longer name is true of both
    return f"{line}; equal {max(matched, key=len)}{_misses_text(plan)}"


def _workload_parts(plan: Plan, *, measured: bool) -> list[str]:
    """The workload and where it ran: every value of each axis, and the keys that are
    the same in all rows.
    """
    work, axes = plan.shown[0].workload, plan.groups[0].values
    keys = ["d_model", "batch", "seq_len", "dtype", "mode", *axes]
    if measured:
        keys.insert(4, "device")
    parts = []
    for key in dict.fromkeys(keys):
        values = list(dict.fromkeys(value_of(case, key) for case in plan.shown))
        is_shown = key in axes or (len(values) == 1 and (key, values) != ("batch", [1]))
        if key == "device" and len({case.workload.threads for case in plan.shown}) == 1:
            parts.append(device_text(work))
        elif is_shown:
            parts.append(_with_values(key, values))
    widths = {getattr(case.ffn, "d_ff", None) for case in plan.shown} - {None}
    if compares_ways(plan) and len(widths) == 1:
        parts.insert(1, f"d_ff {widths.pop():,}")
    if not measured:
        return parts
    backends = {backend_text(case.workload) for case in plan.shown}
    if len(backends) == 1:
        parts += backends - {Backend.EAGER}
    return parts + common_conditions(plan)


def _misses_text(plan: Plan) -> str:
    """The variants whose matched widths miss by more than 2 %, each with its largest
    miss: ` except swiglu (+4.7%)`; empty where there is none.
    """
    misses = [
        (case.residual, plan.name_of(case.label))
        for case in plan.shown
        if case.sizing.how is SizedBy.MATCHED and case.residual
    ]
    # of one name the largest is the last
    farthest = {
        name: miss for miss, name in sorted(misses, key=lambda one: abs(one[0]))
    }
    texts = [
        f"{name} ({signed_percent(miss)})"
        for name, miss in farthest.items()
        if abs(miss) > LARGEST_UNTOLD_MISS
    ]
    return f" except {', '.join(texts)}" if texts else ""
