"""The line above a table, and the headings within it: what all rows have in common, and
what groups of them differ in.

What is not the default stands in the line where all rows have it, and in a column where
they differ. A row that a condition says nothing of, such as the precision of float32
products in bfloat16, has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ffnbench.backends import BACKENDS
from ffnbench.choices import Backend, Cache, MatmulPrecision, Time, Weights
from ffnbench.common.units import signed_percent
from ffnbench.ffn.spec import DEFAULT_GROUP, format_of, item_bytes
from ffnbench.plan import (
    ACTIVE_PARAMS,
    Case,
    Group,
    Plan,
    Value,
    Workload,
    typed_as,
    value_of,
)
from ffnbench.report.frame import Column, Groups, Row
from ffnbench.report.words import backend_text, device_text, join_words

# a matched width that is off by more is told where the table says that it is matched
MISSES = 0.02
MOST_VALUES = 6  # of an axis that are named each
MATCHED = {"params": "parameters", "flops": "FLOPs", ACTIVE_PARAMS: "active parameters"}
TOLD_BY_VALUE = ("dtype", "mode", "device")  # what is told by its value alone


@dataclass(frozen=True, slots=True)
class Condition:
    """A key of the workload: what of it a row has, None for one that it says nothing
    of; what the title calls it.
    """

    key: str  # the record's
    column: str
    default: str | int | bool
    of: Callable[[Workload], str | int | bool | None]
    title: str


def _reductions(work: Workload) -> bool | None:
    if work.accelerated and item_bytes(work.dtype) == 2:
        return work.reduced_reductions
    return None


def _quantisation_group(work: Workload) -> int | None:
    held = format_of(work.weights, work.backend)
    return work.group if held is not None and held.grouped else None


def _spin(work: Workload) -> bool | None:
    return work.spin if BACKENDS[work.backend].can_spin else None


def _precision(work: Workload) -> str | None:
    return work.matmul_precision if work.dtype == "float32" else None


CONDITIONS = (
    Condition("latency_time", "time", Time.WALL, lambda work: work.time, "{} time"),
    Condition("cache", "cache", Cache.HOT, lambda work: work.cache, "{} cache"),
    Condition(
        "matmul_precision",
        "matmul",
        MatmulPrecision.HIGHEST,
        _precision,
        "{} matmul precision",
    ),
    Condition(
        "reduced_reductions", "reductions", True, _reductions, "no reduced reductions"
    ),
    Condition(
        "weight_format", "format", Weights.NONE, lambda work: work.weights, "{} weights"
    ),
    Condition(
        "weight_group", "group", DEFAULT_GROUP, _quantisation_group, "groups of {}"
    ),
    Condition("spin", "spin", False, _spin, "spinning threads"),
)


def _values_of(condition: Condition, cases: Iterable[Case]) -> list[str | int | bool]:
    values = dict.fromkeys(condition.of(case.workload) for case in cases)
    return [value for value in values if value is not None]


def compares_ways(plan: Plan) -> bool:
    """Whether rows differ in how their weights are held, or in the runtime: what a
    deployer asks.
    """
    backends = {case.workload.backend for case in plan.shown}
    has_runtime = any(BACKENDS[backend].is_runtime for backend in backends)
    return plan.compares_precisions or (has_runtime and len(backends) > 1)


def in_title(plan: Plan) -> list[str]:
    """What all rows have of the conditions, where that is not the default."""
    texts = []
    for condition in CONDITIONS:
        values = _values_of(condition, plan.shown)
        if len(values) == 1 and values[0] != condition.default:
            texts.append(condition.title.format(values[0]))
    return texts


def differing(plan: Plan) -> list[str]:
    """The keys of the conditions in which rows differ."""
    return [
        condition.key
        for condition in CONDITIONS
        if len(_values_of(condition, plan.shown)) > 1
    ]


# Groups of rows


def heading(group: Group) -> str:
    """`seq_len 128`; `bfloat16, seq_len 128`."""
    return ", ".join(_with_values(key, [value]) for key, value in group.values.items())


def _with_values(key: str, values: Sequence[Value]) -> str:
    texts = list(map(axis_text, values))
    if len(texts) <= MOST_VALUES:
        text = join_words(texts)
    else:
        text = f"{texts[0]} to {texts[-1]} ({len(texts):,} values)"
    return text if key in TOLD_BY_VALUE else f"{key} {text}"


def headings(plan: Plan) -> Groups:
    """The heading of each group, with the place of its first row; none where each group
    is one row.
    """
    if not _has_headings(plan):
        return ()
    return headings_at_rows((heading(group), len(group.cases)) for group in plan.groups)


def headings_at_rows(blocks: Iterable[tuple[str, int]]) -> Groups:
    """Headings of blocks of so many rows, each with the place of its first row."""
    groups, start = [], 0
    for text, size in blocks:
        groups.append((start, text))
        start += size
    return tuple(groups)


def _has_headings(plan: Plan) -> bool:
    return len(plan.groups) > 1 and any(len(group.cases) > 1 for group in plan.groups)


def ordered_by_group(plan: Plan, rows: Iterable[Row]) -> list[Row]:
    """The rows, those of a group together, in the order that they have."""
    places = {
        case.label: place
        for place, group in enumerate(plan.groups)
        for case in group.cases
    }
    return sorted(rows, key=lambda row: places[row["label"]])


def swept_columns(plan: Plan) -> Sequence[str]:
    """What groups differ in, as columns: where no heading tells it."""
    return () if _has_headings(plan) else tuple(plan.groups[0].values)


def axis_column(key: str) -> Column:
    """Where the rows are on an axis."""
    return Column(key=key, priority=2, left=key in TOLD_BY_VALUE, write=axis_text)


def axis_text(value: Value) -> str:
    """A value of an axis: numbers with thousands apart."""
    return f"{value:,}" if type(value) is int else typed_as(value)


# The line above a table


def conditions_line(plan: Plan, *, measured: bool = True) -> str:
    """The one line above a table: what all rows have in common, and what makes them
    comparable.
    """
    line = workload_line(plan, measured=measured)
    references = {group.reference: plan.case(group.reference) for group in plan.groups}
    others = [
        case
        for case in plan.shown
        if case.ffn != references[plan.reference_of(case.label)].ffn
    ]
    if not others or any(case.sizing.how != "matched" for case in others):
        return line
    matched = {MATCHED.get(case.sizing.what, case.sizing.what) for case in others}
    # of experts the active parameters, as in a dense form all are
    equal = max(matched, key=len)
    return f"{line}; equal {equal}{misses(plan)}"


def workload_line(plan: Plan, *, measured: bool = True) -> str:
    """What is fed to all rows, and where it ran: every value of what groups differ in,
    and what is the same in all.
    """
    first, axes = plan.shown[0].workload, plan.groups[0].values
    keys = ("d_model", "batch", "seq_len", "dtype", "device", "mode", *axes)
    parts = []
    for key in dict.fromkeys(keys):
        values = list(dict.fromkeys(value_of(case, key) for case in plan.shown))
        is_told = key in axes or len(values) == 1  # else it stands in a column
        if (
            key == "device"
            and values == ["cpu"]
            and len({case.workload.threads for case in plan.shown}) == 1
        ):
            text = device_text(first)
        else:
            text = _with_values(key, values)
        if is_told and text != "batch 1" and (measured or key != "device"):
            parts.append(text)
    if compares_ways(plan):
        widths = {getattr(case.ffn, "d_ff", None) for case in plan.shown} - {None}
        parts[1:1] = [f"d_ff {width:,}" for width in widths if len(widths) == 1]
    if measured:
        backends = {backend_text(case.workload) for case in plan.shown}
        if len(backends) == 1:
            parts += backends - {Backend.EAGER}
        parts += in_title(plan)
    return ", ".join(parts)


def misses(plan: Plan) -> str:
    """Which matched widths miss by more than 2 %, at the farthest: ` except swiglu
    (+4.7%)`; empty where none does.
    """
    farthest: dict[str, float] = {}
    for case in plan.shown:
        residual = case.residual or 0.0
        if case.sizing.how == "matched" and abs(residual) > MISSES:
            name = plan.name_of(case.label)
            farthest[name] = max(residual, farthest.get(name, 0.0), key=abs)
    texts = [
        f"{name} ({signed_percent(residual)})" for name, residual in farthest.items()
    ]
    return f" except {', '.join(texts)}" if texts else ""
