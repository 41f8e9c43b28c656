"""A table as text: CSV, HTML and LaTeX by pandas, which is loaded for them; markdown, a
JSON list of its rows, and the page of `-o run.html`.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from ffnbench.common.errors import FfnbenchError
from ffnbench.common.streams import visible
from ffnbench.record.result import Report
from ffnbench.report.answer import Write
from ffnbench.report.listing import environment_rows, table_of_facts
from ffnbench.report.table import Row, Table

if TYPE_CHECKING:
    import pandas as pd

TEMPLATE = Path(__file__).with_name("page.html")


def csv_text(rows: Sequence[Row]) -> str:
    """CSV with the keys that some row has a value for. Numbers have full precision, a
    list is its items with spaces between them, and an unknown value is empty.
    """
    import pandas as pd

    cells = [{key: _csv_cell(value) for key, value in row.items()} for row in rows]
    # of objects: a count beside an empty cell stays an integer
    frame = pd.DataFrame(cells, dtype=object).dropna(axis="columns", how="all")
    return str(frame.to_csv(index=False))


def _csv_cell(value: Any) -> Any:
    if isinstance(value, list | tuple):
        value = " ".join(map(str, value))
    return visible(value) if isinstance(value, str) else value


def _texts(table: Table) -> pd.DataFrame:
    """The texts of a table with the headings of its columns."""
    import pandas as pd

    columns = table.shown()
    cells = [[column.text(row) for column in columns] for row in table.rows]
    return pd.DataFrame(cells, columns=[column.name for column in columns])


# Markdown


def markdown(table: Table) -> str:
    """The table as a pipe table, with the lines above and below it."""
    table = table.at_its_widest
    columns = table.shown()
    lines = [f"{_prose(line)}  " for line in table.header]
    if table.rows:
        sides = [":--" if column.left else "--:" for column in columns]
        titles = [column.name for column in columns]
        lines += ["", _pipe(titles), f"| {' | '.join(sides)} |"]
        for row in table.rows:
            lines.append(_pipe(column.text(row) for column in columns))
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


def html_fragment(table: Table) -> str:
    """The table as HTML for a notebook, with the lines above and below it."""
    widest = table.at_its_widest
    parts = [paragraphs(widest.header), html_table(widest), paragraphs(widest.summary)]
    return "".join(parts)


def paragraphs(lines: Iterable[str]) -> str:
    """Each line as a paragraph of its own."""
    return "".join(f"<p>{html_text(line)}</p>" for line in lines)


def html_table(table: Table) -> str:
    """The table of all rows; empty where there is none."""
    if not table.rows:
        return ""
    return str(_texts(table).to_html(index=False, border=0, escape=True))


def html_text(text: str) -> str:
    """Text of a page: no part of it is a tag, and what can't be seen is escaped."""
    return escape(visible(text))


# LaTeX with booktabs


def latex(table: Table) -> str:
    """A booktabs table, with the lines above and below it as comments."""
    table = table.at_its_widest
    text = _texts(table).to_latex(
        index=False,
        column_format="".join("l" if column.left else "r" for column in table.shown()),
        escape=True,
    )
    above, below = (
        "".join(f"% {visible(line)}\n" for line in lines)
        for lines in (table.header, table.summary)
    )
    # after \\ a row that begins with [ would be read as an option of the line before
    return f"{above}{text}{below}".replace("\\\\\n[", "\\\\\n{}[")


# A page in one file, without a script. The picture is an image with the bytes of
# `-o run.svg`: so no text of a picture can become a part of the page


def page_of(
    table: Table,
    picture: Write | None = None,
    report: Report | None = None,
    title: str = "",
    command: str = "",
) -> str:
    """An answer as an HTML document: its sentences first, then table, picture, method.

    `picture` draws an svg; what can't be drawn is left out. `report` has the machine,
    `command` makes the answer again.
    """
    widest = table.at_its_widest
    facts = _facts(report) if report else []
    sections = {
        "Answer": paragraphs(table.summary),
        "Table": paragraphs(widest.header) + _scrolled("table", html_table(widest)),
        "Picture": _image(picture) if picture else "",
        "Method": paragraphs(table.details),
        "Environment": html_table(table_of_facts(facts)) if facts else "",
        "Command": command and f"<pre><code>{html_text(command)}</code></pre>",
    }
    body = [
        f'<section id="{name.lower()}"><h2>{name}</h2>{content}</section>'
        for name, content in sections.items()
        if content
    ]
    template = Template(TEMPLATE.read_text(encoding="utf-8"))
    title = html_text(f"ffnbench {title}".strip())
    return template.substitute(title=title, body="\n".join(body))


def _scrolled(name: str, content: str) -> str:
    """The content in a box that scrolls where it is wider than the page, by keys
    too.
    """
    return f'<div class="wide" role="group" aria-label="{name}" tabindex="0">{content}</div>'


def _image(picture: Write) -> str:
    """An svg; empty where there is nothing to draw."""
    try:
        drawn = picture()
    except FfnbenchError:
        return ""
    data = b64encode(drawn.encode() if isinstance(drawn, str) else drawn).decode()
    alt = "picture of the figures in the table"
    return _scrolled(
        "picture", f'<img alt="{alt}" src="data:image/svg+xml;base64,{data}">'
    )


def _facts(report: Report) -> list[Row]:
    """The machine and the version that made a report, as far as they are known."""
    rows = environment_rows(report.environment) if report.environment else []
    made = {"created": report.created.replace("T", " "), "ffnbench": report.version}
    return [*rows, *({"fact": fact, "value": value} for fact, value in made.items())]
