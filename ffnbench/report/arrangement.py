"""Which columns an answer shows, and in which order its rows stand: `--columns` and `--sort`.

A column is named as in the CSV, or by its heading. Rows of one reference stay together, the reference among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ffnbench.errors import FfnbenchError
from ffnbench.names import hint_for
from ffnbench.report.records import Record
from ffnbench.report.table import EXTRA, UNKNOWN, Cell, Column, Table
from ffnbench.result import Report
from ffnbench.units import digits

SHORT = {
    "variant": "label", "latency": "latency_s", "time": "latency_s", "peak": "peak_bytes", "act. peak": "peak_bytes",
    "total": "total_bytes", "memory": "total_bytes", "saved": "saved_bytes", "weights": "weight_bytes",
    "flops": "flops_timed", "gflops": "flops_per_s", "gflop/s": "flops_per_s", "gb/s": "bytes_per_s",
    "tokens": "tokens_per_s", "active": "params_active", "touched": "weight_bytes_touched",
    "of ceiling": "ceiling_share", "ceiling": "ceiling_share", "bound by": "bound_by",
    "zeros": "zero_share", "dead": "dead_share",
    "compile": "compile_s", "pack": "pack_s", "host": "host_s", "launch-bound": "launch_bound",
    "closed form": "params_formula", "d_ff from": "sizing",
    "flops fwd": "flops_forward", "flops bwd": "flops_backward", "macs": "macs_forward",
}  # fmt: skip
FIRST_SHOWN = 12  # names in a hint


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """`sort` is a column, `-` before it or `:desc` behind it for the largest first; `columns` a list of them, or with
    `+` before each those that stay longest beside the usual ones. Empty is as it comes.
    """

    sort: str = ""
    columns: str = ""

    def __bool__(self) -> bool:
        return bool(self.sort or self.columns)

    @property
    def by(self) -> tuple[str, bool]:
        """The name of the column to sort by, and whether the largest comes first."""
        text, colon, way = self.sort.partition(":")
        if way.strip().lower() not in ("", "asc", "desc") or (colon and not way):
            raise FfnbenchError(f"--sort {self.sort!r} has no such order", "write latency:desc, or -latency")
        down = text.startswith("-")
        return text.removeprefix("-").strip(), down != (way.strip().lower() == "desc")

    @property
    def chosen(self) -> list[tuple[str, bool]]:
        """The columns by name, each with whether it is only added."""
        names = [part.strip() for part in self.columns.split(",") if part.strip()]
        return [(name.removeprefix("+").strip(), name.startswith("+")) for name in names]

    def refuse_unknown(self, table: Table, records: Sequence[Record]) -> None:
        """Raise FfnbenchError for a name that neither the CSV nor a heading has."""
        for name in [self.by[0]] * bool(self.sort) + [name for name, _ in self.chosen]:
            key_of(name, table, records)


def key_of(name: str, table: Table, records: Sequence[Record]) -> str:
    """What the CSV calls a column, or its heading where it is in no CSV; raises FfnbenchError for what is none."""
    wanted, keys = name.lower(), list(records[0]) if records else []
    titles: dict[str, str] = {}
    for each in (*table.above, table):
        for column in each.columns:
            titles |= {title: column.key or column.title for title in (column.title, column.name)}
    if name in keys or name in titles:
        return name if name in keys else titles[name]
    for key in (SHORT.get(wanted, ""), wanted.replace("-", "_")):
        if key in keys:
            return key
    lower = {title.lower(): key for title, key in titles.items()}
    if wanted in lower:
        return lower[wanted]
    headings = list(dict.fromkeys(c.title for each in (table, *table.above) for c in each.columns))
    known = list(dict.fromkeys([*headings, *(short for short, key in SHORT.items() if key in keys), *keys]))
    raise FfnbenchError(
        f"no column is called {name!r}",
        hint_for(name, known, f"for example {', '.join(known[:FIRST_SHOWN])}; -f csv has them all"),
    )


def in_order(report: Report, how: Arrangement, table: Table, records: Sequence[Record]) -> Report:
    """The report with the cases of each reference in that order; `records` has one of each case that is shown."""
    if not how.sort:
        return report
    (name, down), plan = how.by, report.plan
    key = key_of(name, table, records)
    references = list(dict.fromkeys(plan.reference_of(case.label) for case in plan.shown))
    order = [plan.shown[i] for i in sorted_by([record.get(key) for record in records], down)]
    order.sort(key=lambda case: references.index(plan.reference_of(case.label)))
    others = [case for case in plan.cases if case not in plan.shown]
    return replace(report, plan=replace(plan, cases=(*order, *others)))


def sorted_by(values: Sequence[Any], down: bool) -> list[int]:
    """The places of the values in their order; None comes last either way, and equals stay as they are."""
    known = [i for i, value in enumerate(values) if value is not None]
    known.sort(key=lambda i: values[i], reverse=down)
    return [*known, *(i for i, value in enumerate(values) if value is None)]


def rows_in_order(table: Table, how: Arrangement, records: Sequence[Record]) -> Table:
    """Each table in the order of its own column of that name; one without it stays."""
    if not how.sort:
        return table
    name, down = how.by
    place = _place(table, key_of(name, table, records))
    rows = table.rows
    if place is not None:
        rows = tuple(rows[i] for i in sorted_by([row[place].value for row in rows], down))
    return replace(table, rows=rows, above=tuple(rows_in_order(each, how, records) for each in table.above))


def records_in_order(records: Sequence[Record], how: Arrangement, table: Table) -> list[Record]:
    """The records by the column of that name, where they have it."""
    if not how.sort:
        return list(records)
    name, down = how.by
    key = key_of(name, table, records)
    return [records[i] for i in sorted_by([record.get(key) for record in records], down)]


def with_columns(table: Table, how: Arrangement, records: Sequence[Record], *, aligned: bool) -> Table:
    """The table with its first column and those that were asked for. One that it lacks is made of the records where
    these are `aligned`, one a row in the same order; a table above that has none of them stays as it is.
    """
    if not how.columns:
        return table
    wanted = [(key_of(name, table, records), added) for name, added in how.chosen]
    above = tuple(_with_columns(each, wanted, ()) for each in table.above)
    return replace(_with_columns(table, wanted, records if aligned else ()), above=above)


def _with_columns(table: Table, wanted: Sequence[tuple[str, bool]], records: Sequence[Record]) -> Table:
    fields: list[tuple[Column, tuple[Cell, ...]]] = list(
        zip(table.columns, zip(*table.rows, strict=True) if table.rows else ((),) * len(table.columns), strict=True)
    )
    only = not all(added for _, added in wanted)
    kept = fields[:1] if only else fields
    for rank, (key, _) in enumerate(wanted, start=1):
        place = _place(table, key)
        if place is not None:
            column, cells = fields[place]
        elif records and key in records[0]:
            column, cells = Column(title=key, key=key), tuple(_cell(record[key]) for record in records)
        else:
            continue
        told = replace(column, priority=min(rank, EXTRA - 1) if place != 0 else column.priority)
        kept = [field for field in kept if field[0] is not column]
        kept.insert(len(kept) if only else min(place or len(kept), len(kept)), (told, cells))
    if only and len(kept) == 1:
        return table
    return replace(
        table,
        columns=tuple(column for column, _ in kept),
        rows=tuple(zip(*(cells for _, cells in kept), strict=True)),
    )


def chosen_records(records: Sequence[Record], how: Arrangement, table: Table) -> list[Record]:
    """The records with what was asked for alone, behind what names a row."""
    if not how.columns or all(added for _, added in how.chosen) or not records:
        return list(records)
    first = next(iter(records[0]))
    keys = [first, *(key_of(name, table, records) for name, _ in how.chosen)]
    return [{key: record[key] for key in dict.fromkeys(keys) if key in record} for record in records]


def _place(table: Table, key: str) -> int | None:
    return next((i for i, column in enumerate(table.columns) if key in (column.key, column.title, column.name)), None)


def _cell(value: Any) -> Cell:
    text = UNKNOWN if value is None else digits(value, 4) if isinstance(value, float) else str(value)
    return Cell(text=f"{value:,}" if type(value) is int else text, value=value)
