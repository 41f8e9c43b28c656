"""Writes the page of `-o run.html`: sentences, tables and the picture of an answer in
one file, which needs no script and no network.

The picture is an image in it, with the bytes of `-o run.svg`: so no text of a picture
can become a part of the page.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from string import Template

from ffnbench.common.errors import FfnbenchError
from ffnbench.record.result import Report
from ffnbench.report.answer import Write
from ffnbench.report.listing import environment_rows
from ffnbench.report.table import Table
from ffnbench.report.writers import html_table, html_text, paragraphs

TEMPLATE = Path(__file__).with_name("page.html")


def page_of(
    tables: Sequence[Table],
    picture: Write | None = None,
    report: Report | None = None,
    title: str = "",
    command: str = "",
) -> str:
    """An answer as an HTML document: its sentences first, then tables, picture, method.

    `picture` draws an svg; what can't be drawn is left out. `report` has the machine,
    `command` makes the answer again.
    """
    details = [line for table in tables for line in table.details]
    items = "".join(f"<li>{html_text(line)}</li>" for line in details)
    sections = {
        "Answer": "".join(paragraphs(table.summary) for table in tables),
        "Table": "".join(map(_table, tables)),
        "Picture": _image(picture),
        "Method": items and f"<ul>{items}</ul>",
        "Environment": _environment(report) if report else "",
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


def _table(table: Table) -> str:
    """The table as a wide terminal shows it, and folded below it one with all
    columns.
    """
    if not table.rows:
        return paragraphs(table.header)
    shown = _scrolled("table", html_table(table.at_its_widest))
    every = _scrolled("all columns", html_table(table, every=True))
    folded = f"<details><summary>All columns</summary>{every}</details>"
    return paragraphs(table.header) + shown + folded


def _scrolled(name: str, content: str) -> str:
    """The content in a box that scrolls where it is wider than the page, by keys
    too.
    """
    return f'<div class="wide" role="group" aria-label="{name}" tabindex="0">{content}</div>'


def _image(picture: Write | None) -> str:
    """An svg; empty where there is nothing to draw."""
    if picture is None:
        return ""
    try:
        drawn = picture()
    except FfnbenchError:
        return ""
    data = b64encode(drawn.encode() if isinstance(drawn, str) else drawn).decode()
    alt = "picture of the figures in the table"
    return _scrolled(
        "picture", f'<img alt="{alt}" src="data:image/svg+xml;base64,{data}">'
    )


def _environment(report: Report) -> str:
    """The machine and the version that made a report, as far as they are known."""
    rows = environment_rows(report.environment) if report.environment else []
    facts = {row["fact"]: row["value"] for row in rows}
    facts |= {"created": report.created.replace("T", " "), "ffnbench": report.version}
    texts = [
        f"<div><dt>{html_text(fact)}</dt><dd>{html_text(value)}</dd></div>"
        for fact, value in facts.items()
    ]
    return f"<dl>{''.join(texts)}</dl>"
