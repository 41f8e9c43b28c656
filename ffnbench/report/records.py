"""Flat records: what programs read in place of a table, as csv and json; and as a plain table of their own."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterable, Sequence
from typing import Any

from ffnbench.jsonable import text_of
from ffnbench.report.tables.table import Cell, Column, TextTable
from ffnbench.result import Report
from ffnbench.streams import visible

Record = dict[str, Any]
PLAIN = {int, float, type(None)}  # what stands in a CSV as it is


def origin_record(report: Report) -> Record:
    """When, where and by what a report was made; of one that was not measured machine, cpu, torch and git are None.

    `created` is in ISO 8601; `machine` is the fingerprint of all that latency depends on; `git` is the commit of the
    folder; `run` is the same for the same run alone; `version` is ffnbench's.
    """
    here = report.environment
    made = [report.created, *(f"{s.case} {s.metric} {s.value:.9g}" for s in report.samples)]
    return {
        "created": report.created,
        "machine": here and here.fingerprint,
        "cpu": here and here.cpu,
        "torch": here and here.torch,
        "git": here and here.git_commit and here.git_commit + "-dirty" * bool(here.git_dirty),
        "run": hashlib.sha256("\n".join(made).encode()).hexdigest()[:12],
        "version": report.version,
    }


def csv_text(records: Iterable[Record]) -> str:
    """One line a record: full precision, booleans as true and false, a list as its items and spaces, unknown empty."""
    found, text = list(records), io.StringIO()
    writer, keys = csv.writer(text, lineterminator="\n"), list(found[0])
    writer.writerow(keys)
    columns = ([record[key] for record in found] for key in keys)
    writer.writerows(zip(*map(_csv_cells, columns), strict=True))
    return text.getvalue()


def json_text(records: Sequence[Record]) -> str:
    """A list of objects."""
    return text_of(list(records), 1) + "\n"


def table_of(records: Sequence[Record], below: Iterable[str] = (), prose: Iterable[str] = ()) -> TextTable:
    """Records as a table: the first column stays longest, then in their order; columns of `prose` may be wrapped."""
    keys, wrapped = list(records[0]), set(prose)
    columns = tuple(
        Column(title=key, left=not isinstance(records[0][key], int), priority=place, flexible=key in wrapped)
        for place, key in enumerate(keys)
    )
    rows = tuple(tuple(Cell(text=plain_text(record[key]), value=record[key]) for key in keys) for record in records)
    return TextTable(columns=columns, rows=rows, summary=tuple(below))


def plain_text(value: Any) -> str:
    """A value as it stands in a table: counts with thousands apart."""
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _csv_cells(values: list[Any]) -> Iterable[Any]:
    kinds = {*map(type, values)}
    as_it_is = kinds <= PLAIN or (kinds == {str} and visible(text := "".join(values)) is text)
    return values if as_it_is else map(_csv_cell, values)


def _csv_cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        value = " ".join(map(str, value))
    return visible(value) if isinstance(value, str) else value
