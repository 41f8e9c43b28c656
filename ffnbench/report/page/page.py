"""The page: words, tables and pictures of a view in one HTML file, which loads nothing.

Tables are DataTables, whose bundle the package itables carries; pictures are those of `-o run.svg`, in which each mark
tells its row. `page.html`, `page.css` and `page.js` beside this file are the rest of it.
"""

from __future__ import annotations

import gzip
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from ffnbench.errors import FfnbenchError
from ffnbench.ffn.attention import AttentionSpec
from ffnbench.jsonable import text_of
from ffnbench.plan import Kind
from ffnbench.report.page.library import bundle, no_page, page_installed
from ffnbench.report.records import origin_record, plain_text
from ffnbench.report.tables.details import notes_of_run
from ffnbench.report.tables.row_notes import row_notes
from ffnbench.report.tables.table import EXTRA, Cell, Column, TextTable
from ffnbench.request import command_again
from ffnbench.result import Report
from ffnbench.stats.curves import axes_of
from ffnbench.streams import visible
from ffnbench.units import IEC, quantity

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HERE = Path(__file__).parent
TELLING = (
    "latency_s",
    "ratio",
    "loss",
    "difference",
    "verdict",
    "step_s",
    "token_s",
)  # what a mark of a picture tells of its row; without them all columns
STAYS = -1  # the priority of a column that no narrow screen hides
LONG = 12  # rows, above which pictures stand before the tables
MOST_DRAWN = 200  # rows of a picture that has a line for each
NONE = "nothing was measured: the figures are counted"
READS = re.compile(r"[-+]?[\d,.]+(e[-+]?\d+)?(%| \[.*\])?$")  # a number that page.js reads off its text
Draw = Callable[..., "Figure"]  # (report, roofline=...) -> its picture


def page_of(
    title: str, table: TextTable, reports: Sequence[Report] = (), draw: Draw | None = None, pictures: str = ""
) -> str:
    """A view as a page. With reports also where and by which commands they were made; of one that stands alone its
    warnings, and what `draw` draws of it in place of `pictures`. Raises FfnbenchError where itables is not installed.
    """
    if not page_installed():
        raise no_page()
    report = reports[0] if len(reports) == 1 else None
    shown = [_with_points(each, report) for each in (*table.above, replace(table, above=()))]
    under = next((line for each in shown for line in each.header), "")
    shown.sort(key=lambda each: each.extra)
    said = [line for each in shown for line in each.summary]
    warnings = _warnings(report) if report else []
    method = [line for each in shown for line in map(visible, each.details) if line not in warnings]
    asked = _commands(reports)
    drawn = _pictures(report, draw, _told(shown)) if report and draw else pictures
    tables = "".join(_table(number, each) for number, each in enumerate(shown) if each.rows)
    parts = [
        _section("Answer", "".join(f"<p>{_prose(line)}</p>" for line in said)),
        *([drawn, tables] if len(shown[0].rows) > LONG else [tables, drawn]),
        _section("Warnings and notes", _list(warnings)),
        _section("Method", _list(method)),
        _section("Environment", "".join(map(_environment, reports))),
        _section("The command again", "".join(map(_command, asked))),
    ]
    return Template(_text(HERE / "page.html")).substitute(
        title=escape(visible(f"ffnbench {title}")),
        under=escape(under),
        css=_text(HERE / "page.css"),
        main="".join(parts),
        data=_json([_data(each) for each in shown if each.rows]),
        tables=b64encode(gzip.compress(bundle().read_bytes(), mtime=0)).decode(),
        script=_text(HERE / "page.js"),
    )


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _json(value: Any) -> str:
    """JSON that no text in it can end."""
    return text_of(value).replace("<", "\\u003c")


def _section(heading: str, body: str) -> str:
    """A part of the page; none where there is nothing to say."""
    name = heading.lower().replace(" ", "-")
    return f'<section aria-labelledby="{name}"><h2 id="{name}">{heading}</h2>{body}</section>' if body else ""


def _list(lines: Iterable[str]) -> str:
    told = "".join(f"<li>{_prose(line)}</li>" for line in lines)
    return f"<ul>{told}</ul>" if told else ""


def _prose(line: str) -> str:
    """A line in which flags are code, which no line break parts."""
    return re.sub(r"(?<![^\s(])--[a-z-]+", r"<code>\g<0></code>", escape(visible(line)))


def _with_points(table: TextTable, report: Report | None) -> TextTable:
    """What headings tell of groups as columns, which can be sorted and filtered."""
    if report is None or not table.headings:
        return table
    values = {case.label: group.values for group in report.plan.groups for case in group.cases}
    keys = list(dict.fromkeys(key for of_group in values.values() for key in of_group))
    of_rows = [values.get(row[0].value, {}) for row in table.rows]
    if not keys or not all(of_rows):
        starts = dict(table.headings)
        keys, of_rows, now = ["group"], [], ""
        for place in range(len(table.rows)):
            now = starts.get(place, now)
            of_rows.append({"group": now})
    taken = {column.name for column in table.columns}
    columns = [
        Column(title=f"swept {key}" if key in taken else key, left=isinstance(of_rows[0][key], str), priority=STAYS)
        for key in keys
    ]
    rows = [(row[0], *(Cell(text=plain_text(at[key]), value=at[key]) for key in keys), *row[1:])
            for row, at in zip(table.rows, of_rows, strict=True)]  # fmt: skip
    return replace(table, columns=(table.columns[0], *columns, *table.columns[1:]), rows=tuple(rows), headings=())


def _table(number: int, table: TextTable) -> str:
    """The place of a table, with its caption, which above the first one the page's head tells; its rows are data."""
    caption = escape("; ".join(table.header) or table.columns[0].name)
    quiet = "" if table.header and number else ' class="unseen"'
    head = "".join(f'<th scope="col">{escape(column.name)}</th>' for column in table.columns)
    body = f'<table class="rows"><caption{quiet}>{caption}</caption><thead><tr>{head}</tr></thead></table>'
    heading = "Table" if not number else f"Table {number + 1}"
    if table.extra:
        body = f"<details><summary>{caption}</summary>{body}</details>"
    return _section(heading, body)


def _data(table: TextTable) -> dict[str, Any]:
    """Columns and rows of a table: of a cell its text, or with it the value to sort by and its colour."""
    columns = [{"left": c.left, "priority": STAYS if c.key == "ratio" else c.priority} for c in table.columns]
    return {"columns": columns, "rows": [[_cell(cell) for cell in row] for row in table.rows]}


def _cell(cell: Cell) -> Any:
    number = isinstance(cell.value, int | float) and not isinstance(cell.value, bool) and not READS.match(cell.text)
    value = float(f"{cell.value:.6g}") if number else None
    return [cell.text, value, *[cell.style] * bool(cell.style)] if number or cell.style else cell.text


def _told(tables: Iterable[TextTable]) -> dict[str, str]:
    """What a mark of a picture tells: of each row by its label the figures that were measured, else all."""
    told: dict[str, str] = {}
    for table in tables:
        shown = [i for i, column in enumerate(table.columns) if i and column.key in TELLING]
        shown = shown or [i for i, column in enumerate(table.columns) if i and column.priority < EXTRA]
        for row in table.rows:
            label = visible(str(row[0].value))
            figures = (f"{table.columns[i].name}: {row[i].text}" for i in shown)
            told.setdefault(label, "\n".join([label, *figures]))
    return told


def _pictures(report: Report, draw: Draw, told: Mapping[str, str]) -> str:
    """The picture of the report, its roofline, and the curves of its activations; those that there are."""
    from ffnbench.report.page.pictures import activations_figure, inline

    figures: dict[str, Callable[[], Figure | None]] = {}
    if axes_of(report.plan) or len(report.plan.shown) <= MOST_DRAWN:
        figures[_heading(report)] = lambda: draw(report)
    if report.roofs:
        figures["Roofline"] = lambda: draw(report, roofline=True)
    figures["Activations"] = lambda: activations_figure(report)
    parts = []
    for heading, made in figures.items():
        with suppress(FfnbenchError):  # nothing to draw: the table says why
            if (figure := made()) is not None:
                parts.append(_section(heading, inline(figure, heading, told)))
    return f'<div class="pictures">{"".join(parts)}</div>' if parts else ""


def _heading(report: Report) -> str:
    """What the picture of a report shows, in a word."""
    if report.plan.kind == Kind.BLOCK.value:
        return "By length"
    if report.plan.kind == Kind.TRAIN.value:
        return "What is learnt"
    return "Sizes" if not report.samples else "Curves" if axes_of(report.plan) else "Ratios"


def _warnings(report: Report) -> list[str]:
    """What was seen of noise, what there is to say of rows, and which have no numbers."""
    failed = [f"{failure.case}: {failure.kind.value}: {failure.message}" for failure in report.failures]
    return [visible(line) for line in (*failed, *notes_of_run(report), *row_notes(report))]


def _environment(report: Report) -> str:
    """Where and by what it was made, as far as it is known."""
    if report.further:
        alone = {name: replace(report, environment=one, further=()) for name, one in report.machines}
        return "".join(f"<h3>{name}</h3>{_environment(one)}" for name, one in alone.items())
    here, origin = report.environment, origin_record(report)
    known = {"created": report.created.replace("T", " "), "machine": origin["machine"], "ffnbench": report.version}
    if here is not None:
        known |= {one.name: getattr(here, one.name) for one in fields(here) if one.name not in ("fingerprint", *known)}
        known |= {"git_commit": here.git_commit and here.git_commit[:12], "git_dirty": here.git_dirty}
    pairs = [(key, value) for key, value in known.items() if value not in (None, "")]
    told = [f"<dt>{_name(key)}</dt><dd>{escape(_value(key, value))}</dd>" for key, value in pairs]
    return f"<dl>{''.join(f'<div>{one}</div>' for one in told)}</dl>" + ("" if here else f"<p>{NONE}</p>")


def _name(key: str) -> str:
    return key.removesuffix("_bytes").replace("_", " ")


def _value(key: str, value: Any) -> str:
    return quantity(value, IEC) if key.endswith("_bytes") else visible(plain_text(value))


def _commands(reports: Sequence[Report]) -> dict[str, None]:
    """The commands that make these again; older files know their plan alone."""
    known = [each for each in reports if each.plan.request]
    return dict.fromkeys(command_again(each.plan.request, measured=bool(each.environment)) for each in known)


def _command(asked: str) -> str:
    """A command that asks the same again, and a button that copies it."""
    return (
        f'<pre tabindex="0"><code>{escape(visible(asked))}</code></pre><button type="button" class="copy">Copy</button>'
    )


def title_of(report: Report) -> str:
    """`compare: relu, gelu, swiglu`, without the values of a sweep's axes."""
    of_axes = "|".join(re.escape(key) for key in report.plan.groups[0].values) or "@"
    variants = (case.variant for case in report.plan.shown if not isinstance(case.ffn, AttentionSpec))
    names = list(dict.fromkeys(re.sub(f"@({of_axes})=[^@]*", "", variant) for variant in variants))
    more = f" and {len(names) - 6} more" if len(names) > 6 else ""
    counted = report.environment is None and report.plan.kind == Kind.COMPARE.value
    return f"{'cost' if counted else Kind(report.plan.kind).value}: {', '.join(names[:6])}{more}"
