"""Writes the page of `-o run.html`: sentences, tables and pictures of an answer in one
file, which needs no script and no network.

A picture is an image in it, with the bytes of `-o run.svg`: so no text of a picture can
become a part of the page.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from html import escape
from pathlib import Path
from string import Template

from ffnbench.common.errors import FfnbenchError
from ffnbench.plan.plan import Kind
from ffnbench.record.result import Report
from ffnbench.report.environment import environment_records
from ffnbench.report.frame import Frame, Row
from ffnbench.report.writers import html_table, html_text, paragraphs

MOST_NAMES = 6  # of variants in a title


def page_of(
    table: Frame,
    picture: Callable[[str], bytes] | None,
    reports: Sequence[Report] = (),
    title: str = "",
    command: str = "",
) -> str:
    """An answer as an HTML document: its sentences first, then tables, picture, method.

    `picture` draws for a suffix; what can't be drawn is left out. `reports` have the
    machines; where no `title` or no `command` is given, it is taken from them.
    """
    tables = table.parts
    commands = [command] if command else [report.plan.command for report in reports]
    summary = [line for each in tables for line in each.summary]
    details = [line for each in tables for line in each.details]
    sections = {
        "Answer": paragraphs(summary),
        "Table": "".join(_table(each) for each in tables),
        "Picture": _image(picture),
        "Method": _list(details),
        "Environment": "".join(_environment(report) for report in reports),
        "Command": "".join(
            f"<pre><code>{html_text(each)}</code></pre>" for each in commands if each
        ),
    }
    if reports and not title:
        title = _title(reports[0])
    body = [
        _section(heading, content) for heading, content in sections.items() if content
    ]
    template = Template(
        Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    )
    return template.substitute(
        title=html_text(f"ffnbench {title}".strip()), body="\n".join(body)
    )


def _section(heading: str, content: str) -> str:
    name = heading.lower()
    return f'<section aria-labelledby="{name}"><h2 id="{name}">{heading}</h2>{content}</section>'


def _table(table: Frame) -> str:
    """The table as a wide terminal shows it, and folded below it one with all
    columns.
    """
    caption = "; ".join(table.header)
    if not table.rows:
        return paragraphs(table.header)
    shown = _scrolled(caption or "table", html_table(table.at_its_widest, caption))
    name = "All columns"
    all_columns = _scrolled(name, html_table(table, caption, every=True))
    return f"{shown}<details><summary>{name}</summary>{all_columns}</details>"


def _scrolled(name: str, content: str) -> str:
    """The content in a box that scrolls where it is wider than the page, by keys
    too.
    """
    return f'<div class="wide" role="group" aria-label="{escape(name)}" tabindex="0">{content}</div>'


def _image(picture: Callable[[str], bytes] | None) -> str:
    if picture is None:
        return ""
    try:
        data = b64encode(picture(".svg")).decode()
    except FfnbenchError:
        return ""
    image = f'<img alt="picture of the figures in the table" src="data:image/svg+xml;base64,{data}">'
    return _scrolled("picture", image)


def _list(lines: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<ul>{items}</ul>" if items else ""


def _environment(report: Report) -> str:
    """The machine and the version that made a report, as far as they are known."""
    facts: list[Row] = [
        {"fact": "created", "value": report.created.replace("T", " ")},
        {"fact": "ffnbench", "value": report.version},
    ]
    if report.environment is not None:
        known = environment_records(report.environment)
        facts += [row for row in known if row["fact"] != "ffnbench"]
    texts = [
        f"<div><dt>{row['fact']}</dt><dd>{html_text(row['value'])}</dd></div>"
        for row in facts
    ]
    return f"<dl>{''.join(texts)}</dl>"


def _title(report: Report) -> str:
    """The title of a report, without keys: `compare: relu, gelu, swiglu`."""
    command: str = report.plan.kind
    if command == Kind.COMPARE and report.environment is None:
        command = "cost"
    names = dict.fromkeys(case.variant.partition("@")[0] for case in report.plan.shown)
    return f"{command}: {', '.join(list(names)[:MOST_NAMES])}"
