"""Which columns an answer shows, and in which order its rows stand: `--columns` and
`--sort`.

A column is named as in the CSV, or by its heading. Rows of one group stay together, the
reference among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ffnbench.common.errors import FfnbenchError
from ffnbench.common.names import hint_for
from ffnbench.report.columns import COLUMN_OF
from ffnbench.report.table import EXTRA, Column, Row, Table

FIRST_SHOWN = 12  # names of columns in a hint


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
    lower = name.lower()
    for spelling in (lower, lower.replace("-", "_")):
        if spelling in keys:
            return keys[spelling]
    names = list(dict.fromkeys([*(column.title for column in columns), *rows_keys]))
    example = f"for example {', '.join(names[:FIRST_SHOWN])}; -f csv has them all"
    raise FfnbenchError(f"no column is called {name!r}", hint_for(name, names, example))


def keys_of(
    tables: Sequence[Table], sort: str, columns: str
) -> tuple[str, dict[str, bool]]:
    """The key to sort by, empty where there is none, and the keys of the wanted
    columns, each with whether it is added. Raises FfnbenchError for a name that no
    column has.

    `sort` is the name of a column, with `-` before it for the largest first. `columns`
    are names with commas between them: those that are shown, or with `+` before each
    those that are added to the usual ones and are the last to be left out.
    """
    key = key_of(sort.removeprefix("-").strip(), tables) if sort else ""
    wanted = {}
    for name in filter(None, map(str.strip, columns.split(","))):
        wanted[key_of(name.removeprefix("+").strip(), tables)] = name.startswith("+")
    return key, wanted


def arranged(tables: Sequence[Table], sort: str, columns: str) -> list[Table]:
    """The tables in the order and with the columns that were asked for, by `keys_of`.
    Raises FfnbenchError for a sort by a column that nothing was measured of.
    """
    key, wanted = keys_of(tables, sort, columns)
    rows = [row for table in tables for row in table.rows]
    if key and not any(row.get(key) or row.get("failure") for row in rows):
        raise FfnbenchError(
            f"--sort {sort}: no row has a value of it",
            "`ffnbench compare` measures; `cost --sort params` sorts by a count",
        )
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

    def in_order(rows: Iterable[Row]) -> list[Row]:
        known = [row for row in rows if row[key] is not None]
        known.sort(key=lambda row: row[key], reverse=down)
        return known + [row for row in rows if row[key] is None]

    rows = [row for _, block in table.blocks for row in in_order(block)]
    saved = None if table.saved is None else in_order(table.saved)
    return replace(table, rows=rows, saved=saved)


def _with_columns(table: Table, wanted: Mapping[str, bool]) -> Table:
    """The table with the columns of these keys: in addition to its own where all are
    only added, else in place of all but those that tell rows apart. A table that has
    none of them keeps its columns.
    """
    naming, others = table.columns[: table.naming], table.columns[table.naming :]
    by_key = COLUMN_OF | {column.key: column for column in others}
    known = {*table.rows[0], *(column.key for column in others)}
    chosen = {}
    for rank, key in enumerate(wanted, start=1):
        if key in known and key not in [column.key for column in naming]:
            # EXTRA - 1 is the last priority that is shown without -v
            priority = min(rank, EXTRA - 1)
            chosen[key] = replace(by_key.get(key, Column(key)), priority=priority)
    if all(wanted.values()):
        others = tuple(chosen.pop(column.key, column) for column in others)
        return replace(table, columns=(*naming, *others, *chosen.values()))
    first, *keys = table.records[0]
    saved_keys = [first, *(key for key in wanted if key in keys)]
    saved = table.records
    if len(saved_keys) > 1:
        saved = [{key: row[key] for key in saved_keys} for row in saved]
    columns = (*naming, *chosen.values()) if chosen else table.columns
    return replace(table, columns=tuple(columns), saved=saved)
