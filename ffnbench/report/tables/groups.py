"""How groups of rows read: what they differ in, their headings, and the widths that miss what they are matched to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

from ffnbench.plan import Group, Plan, Value, typed_as, value_of
from ffnbench.report.frame import Column, Row
from ffnbench.report.tables.words import device_text, listed
from ffnbench.units import counted, signed_percent

MISSES = 0.02  # a matched width that is off by more is told where the table says that it is matched
MOST = 4  # of those that miss
MOST_VALUES = 6  # of an axis that are named each
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
