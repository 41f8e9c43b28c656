"""How groups of rows read: what they differ in, their headings, and the widths that miss what they are matched to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ffnbench.plan import Group, Plan, value_of
from ffnbench.report.records import Record
from ffnbench.report.words import backend_text
from ffnbench.units import signed_percent

MISSES = 0.02  # a matched width that is off by more is told where the table says that it is matched
MOST = 4  # of those that miss
PLAIN = ("dtype", "mode", "device")  # what is told by its value alone


def heading(group: Group) -> str:
    """`seq_len 128`; `bfloat16, seq_len 128`."""
    return ", ".join(
        _told(key, f"{value:,}" if isinstance(value, int) else value) for key, value in group.values.items()
    )


def _told(key: str, value: str) -> str:
    return value if key in PLAIN else f"{key} {value}"


def headed(plan: Plan) -> bool:
    """Whether a heading stands above the rows of each group: where one of them has several rows."""
    return len(plan.groups) > 1 and any(len(group.cases) > 1 for group in plan.groups)


def headings(plan: Plan) -> tuple[tuple[int, str], ...]:
    """The heading of each group, with the place of its first row; none where each group is one row."""
    found, place = [], 0
    for group in plan.groups if headed(plan) else ():
        found.append((place, heading(group)))
        place += len(group.cases)
    return tuple(found)


def in_groups(plan: Plan, rows: Iterable[Record]) -> list[Record]:
    """The rows, those of a group together, in the order that they have."""
    places = {case.label: place for place, group in enumerate(plan.groups) for case in group.cases}
    return sorted(rows, key=lambda row: places[row["label"]])


def swept_columns(plan: Plan) -> Sequence[str]:
    """What groups differ in, as columns: where no heading tells it."""
    return () if headed(plan) else tuple(plan.groups[0].values)


def listed(values: Iterable[str]) -> str:
    """`1, 128 and 512`, each once."""
    found = list(dict.fromkeys(values))
    return " and ".join([", ".join(found[:-1]), found[-1]] if len(found) > 1 else found)


def swept_line(plan: Plan, keys: tuple[str, ...], *, backends: bool) -> str:
    """The title's line of several groups: every value of what they differ in, and what is the same in all cases."""
    swept, work = plan.groups[0].values, plan.shown[0].workload
    shared = ["d_model", *["batch"] * (work.batch > 1), "seq_len", *keys]
    parts = []
    for key in (*shared, *(key for key in swept if key not in shared)):
        values = dict.fromkeys(value_of(case, key) for case in plan.shown)
        if key in swept or len(values) == 1:  # else it stands in a column
            text = listed(f"{value:,}" if isinstance(value, int) else value for value in values)
            parts.append(text + _threads(plan) if key == "device" else _told(key, text))
    if backends and len(found := {backend_text(case.workload) for case in plan.shown}) == 1:
        parts += found
    return ", ".join(parts)


def _threads(plan: Plan) -> str:
    """How many threads all cases have on the CPU."""
    found = {(case.workload.device, case.workload.threads) for case in plan.shown}
    device, threads = next(iter(found))
    return f" ({threads} thread{'s' if threads > 1 else ''})" if device == "cpu" and len(found) == 1 else ""


def misses(plan: Plan) -> str:
    """Which matched widths miss by more than 2 %: `, missed by swiglu (+4.7%)`; empty where none does."""
    found: dict[str, dict[str, list[str]]] = {}
    for case in plan.shown:
        if case.sizing.how == "matched" and case.residual is not None and abs(case.residual) > MISSES:
            by = found.setdefault(plan.name_of(case.label), {})
            by.setdefault(signed_percent(case.residual), []).append(f"{case.ffn.d_model:,}")
    at = "d_model" in plan.groups[0].values
    told = [
        f"{name} ({listed(f'{size} at d_model {listed(widths)}' if at else size for size, widths in by.items())})"
        for name, by in found.items()
    ]
    more = f" and {len(told) - MOST} more" if len(told) > MOST else ""
    return f", missed by {', '.join(told[:MOST])}{more}" if told else ""
