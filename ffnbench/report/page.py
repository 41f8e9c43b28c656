"""Writes the page of `-o run.html`: sentences, table and picture of an answer in one
file, which needs no script and no network.

The picture is an image in it, with the bytes of `-o run.svg`: so no text of a picture
can become a part of the page.
"""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from string import Template

from ffnbench.common.errors import FfnbenchError
from ffnbench.record.result import Report
from ffnbench.report.answer import Write
from ffnbench.report.listing import environment_rows, table_of_facts
from ffnbench.report.table import Row, Table
from ffnbench.report.writers import html_table, html_text, paragraphs

TEMPLATE = Path(__file__).with_name("page.html")


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
