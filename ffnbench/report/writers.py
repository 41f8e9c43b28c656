"""Tables as text in the formats CSV, JSON, markdown, HTML and LaTeX. pandas is loaded
for the last two.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from ffnbench.common.jsonable import json_text
from ffnbench.common.streams import visible
from ffnbench.report.table import Column, Row, Table

if TYPE_CHECKING:
    import pandas as pd


def csv_text(records: Iterable[Row]) -> str:
    """CSV with the keys that some record has a value for as its first line, and a line
    for each record; empty where there is no record. Numbers have full precision,
    booleans are true and false, a list is its items with spaces between them, and an
    unknown value is empty.
    """
    rows, text = list(records), io.StringIO()
    if not rows:
        return ""
    keys = [key for key in rows[0] if any(row[key] is not None for row in rows)]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(keys)
    writer.writerows([_csv_cell(row[key]) for key in keys] for row in rows)
    return text.getvalue()


def _csv_cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        value = " ".join(map(str, value))
    return visible(value) if isinstance(value, str) else value


def json_of_records(records: Iterable[Row]) -> str:
    """The records as a JSON list of objects."""
    return json_text(list(records), 1) + "\n"


def _cells(table: Table, columns: Sequence[Column]) -> list[list[str]]:
    """The texts of a table, row by row; the heading of a group is the first cell of a
    row whose others are empty.
    """
    lines = []
    for heading, rows in table.blocks:
        if heading:
            lines.append([heading, *[""] * (len(columns) - 1)])
        lines += [[column.text(row) for column in columns] for row in rows]
    return lines


def _texts(table: Table, columns: Sequence[Column]) -> pd.DataFrame:
    """The texts of a table with the headings of its columns."""
    import pandas as pd

    names = [column.name for column in columns]
    return pd.DataFrame(_cells(table, columns), columns=names)


# Markdown


def markdown(tables: Sequence[Table]) -> str:
    """The tables as pipe tables, each with the lines above and below it."""
    return "\n".join(_markdown(table.at_its_widest) for table in tables)


def _markdown(table: Table) -> str:
    columns = table.shown()
    lines = [f"{_prose(line)}  " for line in table.header]
    if table.rows:
        sides = [":--" if column.left else "--:" for column in columns]
        titles = [column.name for column in columns]
        lines += ["", _pipe(titles), f"| {' | '.join(sides)} |"]
        lines += map(_pipe, _cells(table, columns))
    if table.summary:
        lines += ["", *(f"{_prose(line)}  " for line in table.summary)]
    return "\n".join(lines).rstrip() + "\n"


def _pipe(cells: Iterable[str]) -> str:
    # a bar would end the cell; the stars of `2*d*4d` would be read as emphasis
    escaped = (_prose(cell).replace("|", r"\|").replace("*", r"\*") for cell in cells)
    return f"| {' | '.join(escaped)} |"


def _prose(text: str) -> str:
    """Text with what markdown would read as a tag, link, picture, code or heading
    escaped.
    """
    text = visible(text).replace("\\", "\\\\").replace("<", "&lt;")
    text = text.replace("`", "\\`").replace("](", "]\\(")
    return "\\" + text if text.startswith(("#", ">", "- ", "+ ", "=", "~")) else text


# HTML without a script


def html_fragment(tables: Sequence[Table]) -> str:
    """The tables as HTML for a notebook, each with the lines above and below it."""
    parts = []
    for table in tables:
        widest = table.at_its_widest
        parts.append(paragraphs(widest.header))
        if widest.rows:
            parts.append(html_table(widest))
        parts.append(paragraphs(widest.summary))
    return "".join(parts)


def paragraphs(lines: Iterable[str]) -> str:
    """Each line as a paragraph of its own."""
    return "".join(f"<p>{html_text(line)}</p>" for line in lines)


def html_table(table: Table, *, every: bool = False) -> str:
    """The table of all rows, with `every` also in the columns that need -v; the heading
    of a group is the first cell of a row.
    """
    texts = _texts(table, table.shown(every=every))
    return str(texts.to_html(index=False, border=0, escape=True))


def html_text(text: str) -> str:
    """Text of a page: no part of it is a tag, and what can't be seen is escaped."""
    return escape(visible(text))


# LaTeX with booktabs


def latex(tables: Sequence[Table]) -> str:
    """A booktabs table for each table that has rows, with the lines above and below it
    as comments.
    """
    return "\n".join(_latex(table.at_its_widest) for table in tables if table.rows)


def _latex(table: Table) -> str:
    columns = table.shown()
    text = _texts(table, columns).to_latex(
        index=False,
        column_format="".join("l" if column.left else "r" for column in columns),
        escape=True,
    )
    above, below = (
        "".join(f"% {visible(line)}\n" for line in lines)
        for lines in (table.header, table.summary)
    )
    # after \\ a row that begins with [ would be read as an option of the line before
    return f"{above}{text}{below}".replace("\\\\\n[", "\\\\\n{}[")
