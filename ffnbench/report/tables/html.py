"""Table -> HTML without a script: for a notebook and for documents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from html import escape

from ffnbench.report.tables.table import EXTRA, Cell, Column, TextTable
from ffnbench.streams import visible


def html_fragment(table: TextTable) -> str:
    """The table for a notebook, with the lines above and below it, after the tables before it."""
    parts = []
    for each in (*table.above, replace(table, above=())):
        brief = each.short[0] if each.short else each
        parts.append(paragraphs(brief.header))
        if brief.rows and not brief.extra:
            parts.append(html_table(brief, ordinary_columns(brief)))
        parts.append(paragraphs(brief.summary))
    return "".join(parts)


def ordinary_columns(table: TextTable) -> list[int]:
    """The places of the columns that are shown without -v where there is room."""
    return [place for place, column in enumerate(table.columns) if column.priority < EXTRA]


def paragraphs(lines: Iterable[str]) -> str:
    """Each line as a paragraph of its own."""
    return "".join(f"<p>{escape(line)}</p>" for line in lines)


def html_table(table: TextTable, places: Sequence[int], caption: str = "") -> str:
    """All rows of a table, in the columns at these places. The heading of a group of rows stands above its rows."""
    titles = "".join(_title(table.columns[place]) for place in places)
    headings = table.headings or ((0, ""),)
    ends = [*(start for start, _ in headings[1:]), len(table.rows)]
    groups = []
    for (start, heading), end in zip(headings, ends, strict=True):
        lines = [_row(table, row, places) for row in table.rows[start:end]]
        if heading:
            lines.insert(0, f'<tr><th scope="rowgroup" colspan="{len(places)}">{escape(visible(heading))}</th></tr>')
        groups.append(f"<tbody>{''.join(lines)}</tbody>")
    above = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{above}<thead><tr>{titles}</tr></thead>{''.join(groups)}</table>"


def _title(column: Column) -> str:
    side = ' class="left"' if column.left else ""
    return f'<th scope="col"{side}>{escape(column.name)}</th>'


def _row(table: TextTable, row: Sequence[Cell], places: Sequence[int]) -> str:
    """A row: its first cell is what the others are of."""
    first, *others = places
    cells = [f'<th scope="row">{escape(row[first].text)}</th>']
    for place in others:
        classes = ["left"] if table.columns[place].left else []
        if row[place].style:
            classes.append(row[place].style)
        styled = f' class="{" ".join(classes)}"' if classes else ""
        cells.append(f"<td{styled}>{escape(row[place].text)}</td>")
    return f"<tr>{''.join(cells)}</tr>"
