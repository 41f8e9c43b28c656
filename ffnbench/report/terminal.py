"""A frame in a terminal. Columns that do not fit are left out by priority, and a line
below the table names them; a number is never cut.

Without a terminal the width is 80. -v shows every column, in as many blocks as the
width needs, and all details.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import replace

from rich import box
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from ffnbench.common.streams import visible
from ffnbench.report.frame import Frame, ShownColumn

# letters
COLUMN_GAP = 2
NARROWEST_WRAPPED = 16  # the least width of a column of wrapped prose
NARROWEST_LABEL = 12  # the least width of a folded label
MOST_ROWS = 200  # rows that a terminal shows
# common/streams.py writes another sign where the encoding of stdout lacks this one
LINE = box.Box("    \n    \n ── \n    \n    \n    \n    \n    \n", ascii=True)


class Terminal(Console):
    """A console that lets its caller handle a broken pipe. rich itself would end the
    process with code 1, which stands for a regression.
    """

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError."""
        raise BrokenPipeError


def show(frame: Frame, console: Console, *, verbose: bool = False) -> None:
    """Print a frame in the width of the console."""
    console.print(renderable(frame, console.width, verbose=verbose), soft_wrap=True)


def plain(frame: Frame, width: int = 80) -> str:
    """The frame as plain text, without colour and bold even in a terminal. In a
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
        show(frame, console)
    return captured.get()


def renderable(frame: Frame, width: int, *, verbose: bool = False) -> RenderableType:
    """All frames of an answer with the lines above and below each, for this width."""
    lines: list[RenderableType] = []
    for part in frame.parts:
        lines += _lines_of_frame(part, width, verbose=verbose)
        lines.append(Text())
    return Group(*lines[:-1])


def fullest_that_fits(frame: Frame, width: int) -> Frame:
    """The first of the short frames that fits into this width with all of its columns;
    the frame itself where none fits.
    """
    for short in map(first_rows_of, frame.short):
        if _fits(short, width):
            return short
    return frame


def _lines_of_frame(frame: Frame, width: int, *, verbose: bool) -> list[RenderableType]:
    if verbose:
        frame = first_rows_of(frame)
    else:
        frame = fullest_that_fits(first_rows_of(frame), width)
    lines: list[RenderableType] = [_paragraph(line, width) for line in frame.header]
    if frame.rows:
        columns = frame.shown(every=verbose)
        fitting = columns_that_fit(columns, width)
        blocks = _blocks_of_columns(columns, width) if verbose else [fitting]
        for block in blocks:
            if verbose and lines:
                lines.append(Text())
            lines += _in_groups(block, frame, width)
        if len(fitting) < len(columns) and not verbose:
            titles = [shown.title for shown in fitting]
            names = [
                shown.name if shown.title in titles else shown.title
                for shown in columns
                if shown not in fitting
            ]
            line = f"left out: {', '.join(dict.fromkeys(names))} (-v)"
            lines.append(_paragraph(line, width, style="dim"))
    for below in (frame.summary, frame.details if verbose else []):
        if below and lines:
            lines.append(Text())
        lines += [_paragraph(line, width, indent="  ") for line in below]
    return lines


def first_rows_of(frame: Frame) -> Frame:
    """The frame with at most MOST_ROWS of its rows, and a sentence that says so; the
    frame itself where it has no more.
    """
    number = len(frame.rows)
    if number <= MOST_ROWS:
        return frame
    note = f"the first {MOST_ROWS} of {number:,} rows: -o FILE.csv or -f csv has all"
    return replace(
        frame,
        rows=frame.rows[:MOST_ROWS],
        groups=tuple(group for group in frame.groups if group[0] < MOST_ROWS),
        summary=[note, *frame.summary],
    )


def _fits(frame: Frame, width: int) -> bool:
    widths = [_widest_cell(shown) + COLUMN_GAP for shown in frame.shown()]
    return sum(widths) - COLUMN_GAP <= width


def _paragraph(line: str, width: int, indent: str = "", style: str = "") -> Text:
    wrapped = textwrap.wrap(
        visible(line), max(20, width), subsequent_indent=indent, break_on_hyphens=False
    )
    return Text("\n".join(wrapped), style, no_wrap=True)


def _widest_cell(shown: ShownColumn) -> int:
    """The width of the widest text of a column, its heading among them."""
    return max(map(cell_len, (shown.title, shown.unit, *shown.texts)))


def _narrowest(shown: ShownColumn) -> int:
    """The least width of a column: that of its longest word for prose, else that of its
    widest text.
    """
    natural = _widest_cell(shown)
    if not shown.column.flexible:
        return natural
    words = [word for text in shown.texts for word in text.split()]
    return min(natural, max([NARROWEST_WRAPPED, *map(cell_len, words)]))


def _label_width(label: ShownColumn, width: int) -> int:
    """The width of the column of labels: a third of the whole at most, so that room is
    left for numbers. Longer labels are folded.
    """
    return min(_widest_cell(label), max(NARROWEST_LABEL, width // 3))


def columns_that_fit(columns: Sequence[ShownColumn], width: int) -> list[ShownColumn]:
    """The columns of the highest priority that fit together, in their order. The first
    column, and one other, are always among them.
    """
    label, *others = columns
    fitting, used = [label], _label_width(label, width)
    for shown in sorted(others, key=lambda shown: shown.column.priority):
        need = max(_narrowest(shown), shown.column.least_width) + COLUMN_GAP
        if used + need <= width or len(fitting) == 1:
            fitting.append(shown)
            used += need
    return [shown for shown in columns if shown in fitting]


def _blocks_of_columns(
    columns: Sequence[ShownColumn], width: int
) -> list[list[ShownColumn]]:
    """All columns, in blocks that fit, each of which begins with the first column. They
    are filled from the end, so that the last columns, which answer, stand together.
    """
    label, *others = columns
    blocks: list[list[ShownColumn]] = [[]]
    used = first = _label_width(label, width)
    for shown in reversed(others):
        need = _widest_cell(shown) + COLUMN_GAP
        if used + need > width and blocks[0]:
            blocks.insert(0, [])
            used = first
        blocks[0].insert(0, shown)
        used += need
    return [[label, *block] for block in blocks]


def _in_groups(
    columns: Sequence[ShownColumn], frame: Frame, width: int
) -> list[RenderableType]:
    """One table, or where there are groups one for each below its heading, all in
    columns of the same width.
    """
    if not frame.groups:
        return [_rich_table(columns, width, range(len(frame.rows)), titles=True)]
    lines: list[RenderableType] = [_rich_table(columns, width, [], titles=True)]
    for heading, places in frame.blocks:
        of_group = _rich_table(columns, width, places, titles=False)
        lines += [Text(visible(heading), style="bold"), of_group, Text()]
    return lines[:-1]


def _rich_table(
    columns: Sequence[ShownColumn], width: int, rows: Iterable[int], *, titles: bool
) -> Table:
    """A table of these rows, with the titles of the columns above or without them."""
    # one cell of padding and one of the box's divider make the gap
    table = Table(
        box=LINE,
        pad_edge=False,
        padding=(0, COLUMN_GAP - 1, 0, 0),
        show_edge=False,
        header_style="bold",
        show_header=titles,
    )
    label, *others = columns
    # only a label can be longer than the terminal: it is folded over several lines
    room = width - sum(_narrowest(shown) + COLUMN_GAP for shown in others)
    label_width = min(_widest_cell(label), max(NARROWEST_LABEL, room))
    has_units = any(shown.unit for shown in columns)
    for shown in columns:
        titles_of_column = [shown.unit, shown.title] if has_units else [shown.title]
        if shown.unit:
            titles_of_column.reverse()
        table.add_column(
            Text("\n".join(titles_of_column)),
            justify="left" if shown.column.left else "right",
            no_wrap=not shown.column.flexible and shown is not label,
            overflow="fold",
            width=label_width if shown is label else None,
            min_width=None if shown is label else _narrowest(shown),
        )
    for row in rows:
        texts = [Text(shown.texts[row], style=shown.styles[row]) for shown in columns]
        table.add_row(*texts)
    return table
