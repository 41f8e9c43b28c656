"""A frame as text in the formats CSV, JSON, markdown, HTML and LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from ffnbench.common.jsonable import json_text
from ffnbench.common.streams import visible
from ffnbench.report.frame import Frame, Row, ShownColumn


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


def _cells(frame: Frame, columns: Sequence[ShownColumn]) -> list[list[str]]:
    """The texts of a table, row by row; the heading of a group is the first cell of a
    row whose others are empty.
    """
    lines = []
    for heading, rows in frame.blocks:
        if heading:
            lines.append([visible(heading), *[""] * (len(columns) - 1)])
        lines += [[shown.texts[row] for shown in columns] for row in rows]
    return lines


# Markdown


def markdown(frame: Frame) -> str:
    """All frames of an answer as pipe tables, each with the lines above and below
    it.
    """
    return "\n".join(_markdown(part.at_its_widest) for part in frame.parts)


def _markdown(frame: Frame) -> str:
    columns = frame.shown(every=False)
    lines = [f"{_prose(line)}  " for line in frame.header]
    if frame.rows:
        sides = [":--" if shown.column.left else "--:" for shown in columns]
        titles = [shown.name for shown in columns]
        lines += ["", _pipe(titles), f"| {' | '.join(sides)} |"]
        lines += map(_pipe, _cells(frame, columns))
    if frame.summary:
        lines += ["", *(f"{_prose(line)}  " for line in frame.summary)]
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


def html_fragment(frame: Frame) -> str:
    """All frames of an answer as HTML for a notebook, each with the lines above and
    below it.
    """
    parts = []
    for part in frame.parts:
        widest = part.at_its_widest
        parts.append(paragraphs(widest.header))
        if widest.rows:
            parts.append(html_table(widest))
        parts.append(paragraphs(widest.summary))
    return "".join(parts)


def paragraphs(lines: Iterable[str]) -> str:
    """Each line as a paragraph of its own."""
    return "".join(f"<p>{html_text(line)}</p>" for line in lines)


def html_table(frame: Frame, caption: str = "", *, every: bool = False) -> str:
    """The table of all rows of a frame, with `every` also in the columns that need -v.
    The heading of a group is the first cell of a row; the first cell of each row is a
    heading of the others.
    """
    columns = frame.shown(every=every)
    sides = [' class="left"' if shown.column.left else "" for shown in columns]
    titles = "".join(
        f'<th scope="col"{side}>{escape(shown.name)}</th>'
        for side, shown in zip(sides, columns, strict=True)
    )
    lines = []
    for label, *texts in _cells(frame, columns):
        cells = [
            f"<td{side}>{escape(text)}</td>"
            for side, text in zip(sides[1:], texts, strict=True)
        ]
        lines.append(f'<tr><th scope="row">{escape(label)}</th>{"".join(cells)}</tr>\n')
    above = f"<caption>{html_text(caption)}</caption>" if caption else ""
    return f"<table>{above}<thead><tr>{titles}</tr></thead>\n<tbody>{''.join(lines)}</tbody></table>"


def html_text(text: str) -> str:
    """Text of a page: no part of it is a tag, and what can't be seen is escaped."""
    return escape(visible(text))


# LaTeX with booktabs


def latex(frame: Frame) -> str:
    """A booktabs table for each frame that has rows, with the lines above and below it
    as comments. pandas is loaded for it.
    """
    return "\n".join(_latex(part.at_its_widest) for part in frame.parts if part.rows)


def _latex(frame: Frame) -> str:
    import pandas as pd

    columns = frame.shown(every=False)
    table = pd.DataFrame(_cells(frame, columns)).to_latex(
        index=False,
        header=[shown.name for shown in columns],
        column_format="".join("l" if shown.column.left else "r" for shown in columns),
        escape=True,
    )
    above, below = (
        "".join(f"% {visible(line)}\n" for line in lines)
        for lines in (frame.header, frame.summary)
    )
    # after \\ a row that begins with [ would be read as an option of the line before
    return f"{above}{table}{below}".replace("\\\\\n[", "\\\\\n{}[")
