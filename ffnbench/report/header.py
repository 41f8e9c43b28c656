"""The line above a table, and the headings within it: what all rows have in common, and what groups of them differ in.

What is not the default stands in the line where all rows have it, and in a column where they differ. A row that a
condition says nothing of, such as the precision of float32 products in bfloat16, has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from ffnbench.common.units import counted, signed_percent
from ffnbench.ffn.spec import item_bytes
from ffnbench.plan import (
    ACTIVE_PARAMS,
    Backend,
    Cache,
    Case,
    Group,
    MatmulPrecision,
    Plan,
    Time,
    Value,
    Workload,
    typed_as,
    value_of,
)
from ffnbench.report.frame import Column, Row
from ffnbench.report.words import backend_text, device_text, listed


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
    Condition("latency_time", "time", Time.WALL, lambda work: work.time, "{} time"),
    Condition("cache", "cache", Cache.HOT, lambda work: work.cache, "{} cache"),
    Condition(
        "matmul_precision", "matmul", MatmulPrecision.HIGHEST,
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


MISSES = 0.02  # a matched width that is off by more is told where the table says that it is matched
MOST = 4  # of those that miss
MOST_VALUES = 6  # of an axis that are named each
MATCHED = {"params": "parameters", "flops": "FLOPs", ACTIVE_PARAMS: "active parameters"}
PLAIN = ("dtype", "mode", "device")  # what is told by its value alone


def heading(group: Group) -> str:
    """`seq_len 128`; `bfloat16, seq_len 128`."""
    return ", ".join(_told(key, [value]) for key, value in group.values.items())


def _told(key: str, values: Iterable[Value]) -> str:
    shown = list(map(axis_text, values))
    text = listed(shown) if len(shown) <= MOST_VALUES else f"{shown[0]} to {shown[-1]} ({len(shown):,} values)"
    return text if key in PLAIN else f"{key} {text}"


def headings(plan: Plan) -> tuple[tuple[int, str], ...]:
    """The heading of each group, with the place of its first row; none where each group is one row."""
    if not _headed(plan):
        return ()
    return placed((heading(group), len(group.cases)) for group in plan.groups)


def placed(blocks: Iterable[tuple[str, int]]) -> tuple[tuple[int, str], ...]:
    """Headings of blocks of so many rows, each with the place of its first row."""
    texts, sizes = zip(*blocks, strict=True)
    return tuple(zip(accumulate(sizes[:-1], initial=0), texts, strict=True))


def _headed(plan: Plan) -> bool:
    return len(plan.groups) > 1 and any(len(group.cases) > 1 for group in plan.groups)


def in_groups(plan: Plan, rows: Iterable[Row]) -> list[Row]:
    """The rows, those of a group together, in the order that they have."""
    places = {case.label: place for place, group in enumerate(plan.groups) for case in group.cases}
    return sorted(rows, key=lambda row: places[row["label"]])


def swept_columns(plan: Plan) -> Sequence[str]:
    """What groups differ in, as columns: where no heading tells it."""
    return () if _headed(plan) else tuple(plan.groups[0].values)


def axis_column(key: str) -> Column:
    """Where the rows are on an axis."""
    return Column(key=key, priority=2, left=key in PLAIN, write=axis_text)


def axis_text(value: Value) -> str:
    """A value of an axis: numbers with thousands apart."""
    return f"{value:,}" if type(value) is int else typed_as(value)


def workload_words(plan: Plan, keys: Sequence[str]) -> list[str]:
    """What is fed to the rows: every value of what groups differ in, and what is the same in all cases."""
    swept, first = plan.groups[0].values, plan.shown[0].workload
    values = {key: list(dict.fromkeys(value_of(case, key) for case in plan.shown))
              for key in dict.fromkeys(("d_model", "batch", "seq_len", "threads", *keys, *swept))}  # fmt: skip
    parts = []
    if len(plan.groups) == 1:
        same = len(values["batch"]) == len(values["seq_len"]) == 1
        tokens = (
            f"{counted(first.tokens, 'token')}" + f" ({first.batch} x {first.seq_len})" * (first.batch > 1)
            if same
            else "tokens vary"
        )
        parts, shown = [f"d_model {plan.cases[0].ffn.d_model:,}", tokens], list(keys)
    else:
        shown = ["d_model", *["batch"] * (first.batch > 1), "seq_len", *keys]
    for key in (*shown, *(key for key in swept if key not in shown)):
        if key in swept or len(values[key]) == 1:  # else it stands in a column
            parts.append(_told(key, values[key]))
            if key == "device" and values[key] == ["cpu"] and len(values["threads"]) == 1:
                parts[-1] = device_text(first)
    return parts


def misses(plan: Plan) -> str:
    """Which matched widths miss by more than 2 %, at the farthest: ` except swiglu (+4.7%)`; empty where none does."""
    farthest: dict[str, float] = {}
    for case in plan.shown:
        if case.sizing.how == "matched" and abs(case.residual or 0.0) > MISSES:
            name = plan.name_of(case.label)
            farthest[name] = max(case.residual or 0.0, farthest.get(name, 0.0), key=abs)
    told = [f"{name} ({signed_percent(size)})" for name, size in farthest.items()]
    more = f" and {len(told) - MOST} more" if len(told) > MOST else ""
    return f" except {', '.join(told[:MOST])}{more}" if told else ""


def workload_line(plan: Plan, keys: tuple[str, ...] = ("dtype", "device", "mode"), *, backends: bool = True) -> str:
    """What all rows have in common of the workload."""
    parts = workload_words(plan, keys)
    if backends and len(found := {backend_text(case.workload) for case in plan.shown}) == 1:
        parts += found - {Backend.EAGER}
    return ", ".join([*parts, *(in_title(plan) if "device" in keys else [])])


def conditions_line(plan: Plan, keys: tuple[str, ...] = ("dtype", "device", "mode"), *, backends: bool = True) -> str:
    """The one line above a table: what all rows have in common, and what makes them comparable."""
    line = workload_line(plan, keys, backends=backends)
    references = {group.reference: plan.case(group.reference) for group in plan.groups}
    beside = [case for case in plan.shown if case.ffn != references[plan.reference_of(case.label)].ffn]
    if not beside or any(case.sizing.how != "matched" for case in beside):
        return line
    what = {MATCHED.get(case.sizing.what, case.sizing.what) for case in beside}
    equal = max(what, key=len)  # of experts the active parameters, as in a dense form all are
    return f"{line}; equal {equal}{misses(plan)}"
