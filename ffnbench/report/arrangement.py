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


def arranged(tables: Sequence[Table], sort: str, columns: str) -> list[Table]:
    """The tables with the rows and columns as they were asked for. Raises FfnbenchError
    for a name that no column has.

    `sort` is the name of a column, with `-` before it for the largest first; `columns`
    are names with commas between them.
    """
    key = _key_of(sort.removeprefix("-").strip(), tables) if sort else ""
    names = filter(None, map(str.strip, columns.split(",")))
    wanted = [_key_of(name, tables) for name in names]
    arranged = []
    for table in tables:
        table = replace(table, pivot=None)
        if key in table.rows[0]:
            table = _in_order(table, key, down=sort.startswith("-"))
        arranged.append(_with_columns(table, wanted))
    return arranged


def _key_of(name: str, tables: Sequence[Table]) -> str:
    """The key of the column that is called `name`: its key or its heading. Raises
    FfnbenchError where there is none.
    """
    keys = list(tables[-1].records[0])
    columns = [column for table in tables for column in table.columns]
    columns += [COLUMN_OF[key] for key in keys if key in COLUMN_OF]
    key_of: dict[str, str] = {key: key for key in keys}
    # of several columns with one title the first has it: it is set last
    key_of |= {column.title.lower(): column.key for column in reversed(columns)}
    if name.lower() not in key_of:
        hint = hint_for(name.lower(), key_of, "-f csv has all columns")
        raise FfnbenchError(f"no column is called {name!r}", hint)
    return key_of[name.lower()]


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
    naming = table.columns[: table.naming]
    known = {key: Column(key) for key in table.rows[0]} | COLUMN_OF
    known |= {column.key: column for column in table.columns}
    keys = [key for key in wanted if key in known and known[key] not in naming]
    if not keys:
        return table
    chosen = [replace(known[key], priority=rank) for rank, key in enumerate(keys)]
    saved_keys = dict.fromkeys([next(iter(table.records[0])), *wanted])
    saved = [
        {key: row[key] for key in saved_keys if key in row} for row in table.records
    ]
    return replace(table, columns=(*naming, *chosen), saved=saved)
