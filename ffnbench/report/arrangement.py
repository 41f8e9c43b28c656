"""Which columns an answer shows, and in which order its rows stand: `--columns` and
`--sort`.

A column is named as in the CSV, or by its heading. Rows of one group stay together, the
reference among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ffnbench.common.errors import FfnbenchError
from ffnbench.common.names import hint_for
from ffnbench.report.columns import COLUMN_OF
from ffnbench.report.table import Column, Row, Table


def key_of(name: str, tables: Sequence[Table]) -> str:
    """The key of the column that is called `name`: its key or its heading. Raises
    FfnbenchError where there is none.
    """
    rows_keys = list(tables[-1].records[0])
    columns = [column for table in tables for column in table.columns]
    columns += [COLUMN_OF[key] for key in rows_keys if key in COLUMN_OF]
    keys: dict[str, str] = {key: key for key in rows_keys}
    # of several columns with one title the first has it: it is set last
    keys |= {column.title.lower(): column.key for column in reversed(columns)}
    if name.lower() not in keys:
        hint = hint_for(name.lower(), keys, "-f csv has all columns")
        raise FfnbenchError(f"no column is called {name!r}", hint)
    return keys[name.lower()]


def keys_of(tables: Sequence[Table], sort: str, columns: str) -> tuple[str, list[str]]:
    """The key to sort by, empty where there is none, and those of the columns that are
    shown. Raises FfnbenchError for a name that no column has.

    `sort` is the name of a column, with `-` before it for the largest first; `columns`
    are names with commas between them.
    """
    key = key_of(sort.removeprefix("-").strip(), tables) if sort else ""
    names = filter(None, map(str.strip, columns.split(",")))
    return key, [key_of(name, tables) for name in names]


def arranged(tables: Sequence[Table], sort: str, columns: str) -> list[Table]:
    """The tables with the rows and columns as they were asked for, by `keys_of`."""
    key, wanted = keys_of(tables, sort, columns)
    arranged = []
    for table in tables:
        table = replace(table, pivot=None)
        if key and key in table.rows[0]:
            table = _in_order(table, key, down=sort.startswith("-"))
        if wanted:
            table = _with_columns(table, wanted)
        arranged.append(table)
    return arranged


def _in_order(table: Table, key: str, *, down: bool) -> Table:
    """The table with the rows of each group in the order of their values. Rows without
    a value come last.
    """

    def in_order(rows: Sequence[Row]) -> list[Row]:
        known = [row for row in rows if row[key] is not None]
        known.sort(key=lambda row: row[key], reverse=down)
        return known + [row for row in rows if row[key] is None]

    rows = [row for _, block in table.blocks for row in in_order(block)]
    saved = None if table.saved is None else in_order(table.saved)
    return replace(table, rows=rows, saved=saved)


def _with_columns(table: Table, wanted: Sequence[str]) -> Table:
    """The table with the columns of these keys in place of all but those that tell rows
    apart. A table that has none of them keeps its columns.
    """
    naming, others = table.columns[: table.naming], table.columns[table.naming :]
    known = {key: Column(key) for key in table.rows[0]}
    known |= COLUMN_OF | {column.key: column for column in others}
    named = {column.key for column in naming}
    chosen = [
        replace(known[key], priority=rank)
        for rank, key in enumerate(wanted)
        if key in known and key not in named
    ]
    if not chosen:
        return table
    keys = [*table.records[0]][:1]
    keys += [key for key in wanted if key in table.records[0] and key not in keys]
    saved = [{key: row[key] for key in keys} for row in table.records]
    return replace(table, columns=(*naming, *chosen), saved=saved)
