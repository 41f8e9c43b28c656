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

CSV_TYPES = {int, float, type(None)}  # types that the csv module writes as we want


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
    columns = [_csv_cells([row[key] for row in rows]) for key in keys]
    writer.writerows(zip(*columns, strict=True))
    return text.getvalue()


def _csv_cells(values: list[Any]) -> Iterable[Any]:
    """The cells of a column. Where no value has to be changed they are returned at
    once, which saves much time in long columns.
    """
    kinds = {*map(type, values)}
    if kinds <= CSV_TYPES:
        return values
    if kinds == {str}:
        joined = "".join(values)
        if visible(joined) == joined:
            return values
    return map(_csv_cell, values)


def _csv_cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        value = " ".join(map(str, value))
    return visible(value) if isinstance(value, str) else value


def json_of_records(records: Iterable[Row]) -> str:
    """The records as a JSON list of objects."""
    return json_text(list(records), 1) + "\n"


def _shown_form(frame: Frame) -> Frame:
    """The frame that a wide terminal would show: the fullest of the short frames, or
    the frame itself.
    """
    return frame.short[0] if frame.short else frame


# Markdown


def markdown(frame: Frame) -> str:
    """All frames of an answer as pipe tables, without the columns that need -v."""
    return "\n".join(_markdown(_shown_form(part)) for part in frame.parts)


def _markdown(frame: Frame) -> str:
    columns = frame.shown(every=False)
    lines = [f"{_prose(line)}  " for line in frame.header]
    if frame.rows:
        sides = [":--" if shown.column.left else "--:" for shown in columns]
        lines += ["", _pipe(shown.name for shown in columns), _pipe(sides)]
    for heading, rows in frame.blocks:
        if heading:
            empty = " |" * (len(columns) - 1)
            lines.append(f"| **{_prose(visible(heading))}** |{empty}")
        lines += [_pipe(shown.texts[row] for shown in columns) for row in rows]
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
    text = (
        visible(text)
        .replace("\\", "\\\\")
        .replace("<", "&lt;")
        .replace("`", "\\`")
        .replace("](", "]\\(")
    )
    return "\\" + text if text.startswith(("#", ">", "- ", "+ ", "=", "~")) else text


# HTML without a script


def html_fragment(frame: Frame) -> str:
    """All frames of an answer as HTML for a notebook, each with the lines above and
    below it.
    """
    parts = []
    for part in map(_shown_form, frame.parts):
        parts.append(paragraphs(part.header))
        if part.rows:
            parts.append(html_table(part))
        parts.append(paragraphs(part.summary))
    return "".join(parts)


def paragraphs(lines: Iterable[str]) -> str:
    """Each line as a paragraph of its own."""
    return "".join(f"<p>{_html(line)}</p>" for line in lines)


def html_table(frame: Frame, caption: str = "", *, every: bool = False) -> str:
    """The table of all rows of a frame, with `every` also in the columns that need -v.
    The heading of a group stands above its rows.
    """
    columns = frame.shown(every=every)
    titles = [
        f'<th scope="col"{_class(shown)}>{escape(shown.name)}</th>' for shown in columns
    ]
    groups = []
    for heading, rows in frame.blocks:
        lines = [_html_row(columns, row) for row in rows]
        if heading:
            lines.insert(
                0,
                f'<tr><th scope="rowgroup" colspan="{len(columns)}">{_html(heading)}</th></tr>',
            )
        groups.append(f"<tbody>{''.join(lines)}</tbody>")
    above = f"<caption>{_html(caption)}</caption>" if caption else ""
    return f"<table>{above}<thead><tr>{''.join(titles)}</tr></thead>{''.join(groups)}</table>"


def _html_row(columns: Sequence[ShownColumn], row: int) -> str:
    """A row of a table, whose first cell is a heading of the others."""
    label, *others = columns
    cells = [f'<th scope="row">{escape(label.texts[row])}</th>']
    for shown in others:
        cells.append(
            f"<td{_class(shown, shown.styles[row])}>{escape(shown.texts[row])}</td>"
        )
    return f"<tr>{''.join(cells)}</tr>"


def _class(shown: ShownColumn, style: str = "") -> str:
    side = "left" if shown.column.left else ""
    names = f"{side} {style}".strip()
    return f' class="{names}"' if names else ""


def _html(text: str) -> str:
    return escape(visible(text))


# LaTeX with booktabs

LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "≥": r"$\ge$",
    "≤": r"$\le$",
    "²": "$^2$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "…": r"\ldots{}",
    "<": "$<$",
    ">": "$>$",
    "|": r"$|$",
}


def latex(frame: Frame) -> str:
    """A booktabs table for each frame that has rows, with the lines above and below it
    as comments.
    """
    return "\n".join(_latex(_shown_form(part)) for part in frame.parts if part.rows)


def _latex(frame: Frame) -> str:
    columns = frame.shown(every=False)
    sides = "".join("l" if shown.column.left else "r" for shown in columns)
    lines = [*_comments(frame.header), f"\\begin{{tabular}}{{{sides}}}", "\\toprule"]
    lines.append(_latex_line(shown.title for shown in columns))
    if any(shown.unit for shown in columns):
        lines.append(_latex_line(shown.unit for shown in columns))
    for heading, rows in frame.blocks:
        lines.append("\\midrule")
        if heading:
            lines.append(
                f"\\multicolumn{{{len(columns)}}}{{l}}{{{_tex(visible(heading))}}} \\\\"
            )
        lines += [_latex_line(shown.texts[row] for shown in columns) for row in rows]
    lines += ["\\bottomrule", "\\end{tabular}", *_comments(frame.summary)]
    return "\n".join(lines) + "\n"


def _latex_line(cells: Iterable[str]) -> str:
    return " & ".join(map(_tex, cells)) + r" \\"


def _comments(lines: Iterable[str]) -> list[str]:
    return [f"% {visible(line)}" for line in lines]


def _tex(text: str) -> str:
    """Text with the signs of TeX escaped, and in braces where it begins with `[`: that
    would be read as an option of the line before.
    """
    escaped = "".join(LATEX.get(sign, sign) for sign in text.strip())
    return f"{{{escaped}}}" if escaped.startswith("[") else escaped
