"""Which columns an answer shows, and in which order its rows stand: `--columns` and `--sort`.

A column is named as in the CSV, or by its heading. Rows of one group stay together, the reference among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ffnbench.errors import FfnbenchError
from ffnbench.names import hint_for
from ffnbench.report.records import Record, plain_text
from ffnbench.report.tables.table import EXTRA, UNKNOWN, Cell, Column, TextTable
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
    """`sort` is a column, with `-` before it for the largest first; `columns` a list of them, or with `+` before each
    those that stay longest beside the usual ones. Empty is as it comes.
    """

    sort: str = ""
    columns: str = ""

    def __bool__(self) -> bool:
        return bool(self.sort or self.columns)

    @property
    def by(self) -> tuple[str, bool]:
        """The name of the column to sort by, and whether the largest comes first."""
        return self.sort.removeprefix("-").strip(), self.sort.startswith("-")

    @property
    def chosen(self) -> list[tuple[str, bool]]:
        """The columns by name, each with whether it is only added."""
        names = [part.strip() for part in self.columns.split(",") if part.strip()]
        return [(name.removeprefix("+").strip(), name.startswith("+")) for name in names]

    @property
    def names(self) -> list[str]:
        """Every column that is named."""
        return [self.by[0]] * bool(self.sort) + [name for name, _ in self.chosen]


def key_of(name: str, table: TextTable, records: Sequence[Record]) -> str:
    """What the CSV calls a column, or its heading where it is in no CSV; raises FfnbenchError for what is none."""
    keys = list(records[0]) if records else []
    columns = [column for each in (table, *table.above) for column in each.columns]
    titles = {title: column.key or column.title for column in columns for title in (column.name, column.title)}
    known = {key: key for key in keys} | titles | {short: key for short, key in SHORT.items() if key in keys}
    if name in known:
        return known[name]
    lower = {known_name.lower(): key for known_name, key in known.items()}
    for wanted in (name.lower(), name.lower().replace("-", "_")):
        if wanted in lower:
            return lower[wanted]
    readable = list(dict.fromkeys([*(column.title for column in columns), *(s for s in SHORT if s in known), *keys]))
    raise FfnbenchError(
        f"no column is called {name!r}",
        hint_for(name, readable, f"for example {', '.join(readable[:FIRST_SHOWN])}; -f csv has them all"),
    )


def arranged(
    table: TextTable, records: Sequence[Record], how: Arrangement, *, counted: bool = False
) -> tuple[TextTable, list[Record]]:
    """The table and the records in the order and with the columns that were asked for.

    A column that the table lacks is made of the records where these are of its rows; a table above that has none of
    the columns stays as it is.
    """
    table = replace(table, short=())
    first = next(iter(records[0]))
    of_row = {record[first]: record for record in records}
    if not all(row[0].value in of_row for row in table.rows):
        of_row = {}  # rows of another kind
    wanted = [(key_of(name, table, records), added) for name, added in how.chosen]
    shown = list(records)
    if how.sort:
        name, down = how.by
        key = key_of(name, table, records)
        if counted and all(record.get(key, name) is None for record in records):
            told = f"--sort {how.sort}: nothing here has that, as it is counted and not measured"
            raise FfnbenchError(told, "`ffnbench compare` measures; `ffnbench cost --sort params` sorts by a count")
        table = _sorted(table, key, down, of_row)
        above = tuple(_sorted(each, key, down, {}) for each in table.above)
        table = replace(table, above=above)
        shown = [of_row[row[0].value] for row in table.rows] if of_row else _in_order(
            shown, [record.get(key) for record in shown], down)  # fmt: skip
    if wanted:
        above = tuple(_with_columns(each, wanted, {}) for each in table.above)
        table = replace(_with_columns(table, wanted, of_row), above=above)
        if not all(added for _, added in wanted):
            keys = dict.fromkeys([first, *(key for key, _ in wanted)])
            shown = [{key: record[key] for key in keys if key in record} for record in shown]
    return table, shown


def _sorted(table: TextTable, key: str, down: bool, of_row: dict[Any, Record]) -> TextTable:
    """Its rows by that column, group by group, or its groups where a group has one value; a table without it stays."""
    place = _place(table, key)
    if place is None and not of_row:
        return table
    values = [of_row[row[0].value].get(key) if place is None else row[place].value for row in table.rows]
    starts = [start for start, _ in table.headings] or [0]
    parts = list(zip(starts, [*starts[1:], len(table.rows)], strict=True))
    places = list(range(len(parts)))
    if len(parts) > 1 and all(len(set(values[start:end])) == 1 for start, end in parts):
        places = _in_order(
            places, [values[start] for start, _ in parts], down
        )  # an axis: all rows of a group are alike
    rows: list[tuple[Cell, ...]] = []
    headings = []
    for place in places:
        headings += [(len(rows), text) for _, text in table.headings[place : place + 1]]
        rows += _in_order(table.rows[slice(*parts[place])], values[slice(*parts[place])], down)
    return replace(table, rows=tuple(rows), headings=tuple(headings))


def _in_order(items: Sequence[Any], values: Sequence[Any], down: bool) -> list[Any]:
    """The items by their values; None comes last either way, and equals stay as they are."""
    known = [i for i, value in enumerate(values) if value is not None]
    known.sort(key=lambda i: values[i], reverse=down)
    return [items[i] for i in (*known, *(i for i, value in enumerate(values) if value is None))]


def _with_columns(table: TextTable, wanted: Sequence[tuple[str, bool]], of_row: dict[Any, Record]) -> TextTable:
    cells = list(zip(*table.rows, strict=True)) or [()] * len(table.columns)
    fields: list[tuple[Column, tuple[Cell, ...]]] = list(zip(table.columns, cells, strict=True))
    only = not all(added for _, added in wanted)
    kept = fields[:1] if only else list(fields)
    for rank, (key, _) in enumerate(wanted, start=1):
        place = _place(table, key)
        if place is not None:
            column, of_column = fields[place]
        elif of_row and key in next(iter(of_row.values())):
            column, of_column = Column(title=key, key=key), tuple(_cell(of_row[r[0].value][key]) for r in table.rows)
        else:
            continue
        told = replace(column, priority=min(rank, EXTRA - 1) if place != 0 else column.priority)
        kept = [field for field in kept if field[0] is not column]
        kept.insert(len(kept) if only else min(place or len(kept), len(kept)), (told, of_column))
    if only and len(kept) == 1:
        return table
    rows = tuple(zip(*(cells for _, cells in kept), strict=True))
    return replace(table, columns=tuple(column for column, _ in kept), rows=rows)


def _place(table: TextTable, key: str) -> int | None:
    return next((i for i, column in enumerate(table.columns) if key in (column.key, column.title, column.name)), None)


def _cell(value: Any) -> Cell:
    if value is None:
        return Cell(text=UNKNOWN)
    return Cell(text=digits(value, 4) if isinstance(value, float) else plain_text(value), value=value)
