"""Writes the page of `-o run.html`: sentences, tables and pictures of an answer in one
file, which needs no script and no network.

A picture is an image in it, with the bytes of `-o run.svg`: so no text of a picture can
become a part of the page.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from string import Template

from ffnbench.common.errors import FfnbenchError
from ffnbench.common.streams import visible
from ffnbench.plan import Kind
from ffnbench.report.environment import environment_records
from ffnbench.report.frame import Frame, Row
from ffnbench.report.terminal import columns_that_fit, fullest_that_fits
from ffnbench.report.writers import html_table, paragraphs
from ffnbench.result import Report

MOST_NAMES = 6  # of variants in a title
WIDTH = 115  # letters of a table that is seen at once on a screen of 1,000 pixels


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
    summary = [line for each in tables for line in each.summary]
    details = [line for each in tables for line in each.details]
    sections = {
        "Answer": paragraphs(summary),
        "Table": "".join(_table(each) for each in tables),
        "Picture": _image(picture),
        "Method": _list(details),
        "Environment": "".join(_environment(report) for report in reports),
        "Command": _commands(
            [command] if command else [report.plan.command for report in reports]
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
        title=escape(visible(f"ffnbench {title}".strip())), body="\n".join(body)
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
    all_columns = html_table(table, caption, every=True)
    short = fullest_that_fits(table, WIDTH)
    fitting = columns_that_fit(short.shown(every=False), WIDTH)
    columns = tuple(shown.column for shown in fitting)
    answer = replace(short, columns=columns)
    shown = _scrolled(caption or "table", html_table(answer, caption))
    if columns == table.columns:
        return shown
    return shown + _folded("All columns", all_columns)


def _folded(summary: str, content: str) -> str:
    return f"<details><summary>{escape(summary)}</summary>{_scrolled(summary, content)}</details>"


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
    only_counted = "<p>nothing was measured: the figures are counted</p>"
    if report.environment is not None:
        only_counted = ""
        facts += [
            row
            for row in environment_records(report.environment)
            if row["fact"] != "ffnbench"
        ]
    texts = [
        f"<div><dt>{row['fact']}</dt><dd>{escape(visible(row['value']))}</dd></div>"
        for row in facts
    ]
    return f"<dl>{''.join(texts)}</dl>{only_counted}"


def _commands(commands: Iterable[str]) -> str:
    """The commands that make an answer again."""
    return "".join(
        f"<pre><code>{escape(visible(command))}</code></pre>"
        for command in dict.fromkeys(commands)
        if command
    )


def _title(report: Report) -> str:
    """The title of a report, without keys: `compare: relu, gelu, swiglu`."""
    command: str = report.plan.kind
    if command == Kind.COMPARE and report.environment is None:
        command = "cost"
    names = list(
        dict.fromkeys(case.variant.partition("@")[0] for case in report.plan.shown)
    )
    title = f"{command}: {', '.join(names[:MOST_NAMES])}"
    if len(names) > MOST_NAMES:
        title += f" and {len(names) - MOST_NAMES} more"
    return title
