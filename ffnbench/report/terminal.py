"""Tables in a terminal. Columns that do not fit are left out by priority, and a line
below the table names them; a number is never cut.

Without a terminal the width is 80. -v shows every column, in as many blocks as the
width needs, and all details.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import accumulate

from rich import box
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from ffnbench.common.streams import visible
from ffnbench.report.table import FIRST, Column, Row, Table

# letters
COLUMN_GAP = 2
NARROWEST_WRAPPED = 16  # the least width of a column of wrapped prose
NARROWEST_LABEL = 12  # the least width of a folded label
# common/streams.py writes another sign where the encoding of stdout lacks this one
LINE = box.Box("    \n    \n ── \n    \n    \n    \n    \n    \n", ascii=True)


class Terminal(Console):
    """A console that lets its caller handle a broken pipe. rich itself would end the
    process with code 1, which stands for a regression.
    """

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError."""
        raise BrokenPipeError


def show(table: Table, console: Console, *, verbose: bool = False) -> None:
    """Print a table in the width of the console."""
    console.print(renderable(table, console.width, verbose=verbose), soft_wrap=True)


def plain(table: Table, width: int = 80) -> str:
    """The table as plain text, without colour and bold even in a terminal. In a
    notebook it is returned too, and not displayed.
    """
    console = Console(
        width=width,
        no_color=True,
        force_terminal=False,
        force_jupyter=False,
        color_system=None,
    )
    with console.capture() as captured:
        show(table, console)
    return captured.get()


def renderable(table: Table, width: int, *, verbose: bool = False) -> RenderableType:
    """The table with the lines above and below it, for this width."""
    pivot = table.pivot
    if pivot and not verbose:
        columns = pivot.shown()
        if columns_that_fit(columns, pivot.rows, width) == columns:
            table = pivot
    lines: list[RenderableType] = [_paragraph(line, width) for line in table.header]
    if table.rows:
        lines += _lines_of_columns(table, width, verbose=verbose)
    for below in (table.summary, table.details if verbose else []):
        if below and lines:
            lines.append(Text())
        lines += [_paragraph(line, width, indent="  ") for line in below]
    return Group(*lines)


def _paragraph(line: str, width: int, indent: str = "", style: str = "") -> Text:
    wrapped = textwrap.wrap(
        visible(line), max(20, width), subsequent_indent=indent, break_on_hyphens=False
    )
    return Text("\n".join(wrapped), style, no_wrap=True)


def _lines_of_columns(
    table: Table, width: int, *, verbose: bool
) -> list[RenderableType]:
    """The columns that fit, and which are left out; with `verbose` these stand in
    further blocks, each of which begins with the columns that tell rows apart.
    """
    columns = table.shown(every=verbose)
    shown = columns_that_fit(columns, table.rows, width)
    lines: list[RenderableType] = [_rich_table(shown, table)]
    rest = [column for column in columns if column not in shown]
    if rest and not verbose:
        titles = [column.title for column in shown]
        names = [each.name if each.title in titles else each.title for each in rest]
        text = f"left out: {', '.join(dict.fromkeys(names))} (-v)"
        return [*lines, _paragraph(text, width, style="dim")]
    naming = [one for one in shown if one.priority == FIRST or one is shown[0]]
    while rest:
        block = columns_that_fit([*naming, *rest], table.rows, width)
        if not any(column in block for column in rest):
            block = [*naming, rest[0]]  # wider than the terminal
        lines += [Text(), _rich_table(block, table)]
        rest = [column for column in rest if column not in block]
    return lines


def columns_that_fit(
    columns: Sequence[Column], rows: Sequence[Row], width: int
) -> list[Column]:
    """The columns of the highest priority that fit together, in their order. The first
    column, and the best of those that do not tell rows apart, are always among them.
    The first takes a third of the width at most: longer texts are folded.
    """
    label, *others = columns
    others.sort(key=lambda column: column.priority)
    best = next((one for one in others if one.priority > FIRST), label)
    used = min(_narrowest(label, rows), max(NARROWEST_LABEL, width // 3))
    fitting = [label]
    for column in sorted(others, key=lambda column: column is not best):
        need = _narrowest(column, rows) + COLUMN_GAP
        if used + need <= width or column is best:
            fitting.append(column)
            used += need
    return [column for column in columns if column in fitting]


def _narrowest(column: Column, rows: Sequence[Row]) -> int:
    """The least width of a column: that of its longest word for prose, else that of its
    widest text, its heading among them.
    """
    texts = [column.title, column.unit, *map(column.text, rows)]
    natural = max(column.least_width, *map(cell_len, texts))
    if not column.prose:
        return natural
    words = [word for text in texts for word in text.split()]
    return min(natural, max([NARROWEST_WRAPPED, *map(cell_len, words)]))


def _rich_table(columns: Sequence[Column], table: Table) -> RichTable:
    """A table of these columns, with a line between groups of several rows."""
    # one cell of padding and one of the box's divider make the gap
    shown = RichTable(
        box=LINE,
        pad_edge=False,
        padding=(0, COLUMN_GAP - 1, 0, 0),
        show_edge=False,
        header_style="bold",
    )
    has_units = any(column.unit for column in columns)
    for column in columns:
        lines = [column.title, column.unit] if column.unit else ["", column.title]
        shown.add_column(
            Text("\n".join(lines) if has_units else column.title),
            justify="left" if column.left else "right",
            no_wrap=column is not columns[0] and not column.prose,
            overflow="fold",
            min_width=_narrowest(column, table.rows) if column.prose else None,
        )
    ends = set(accumulate(table.groups)) if max(table.groups, default=0) > 1 else ()
    for number, row in enumerate(table.rows, 1):
        cells = [
            Text(each.text(row), style=each.style(row) if each.style else "")
            for each in columns
        ]
        shown.add_row(*cells, end_section=number in ends)
    return shown
