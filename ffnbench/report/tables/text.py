"""Table -> terminal or markdown. Columns are dropped by priority, numbers are never cut.

Without a terminal the width is 80. -v shows every column, in as many blocks as the width needs, and all details.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich import box
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from ffnbench.report.tables.table import EXTRA, Column, TextTable
from ffnbench.streams import visible

GAP = 2
PROSE = 16  # the narrowest that wrapped text stays readable
MOST_ROWS = 200  # that are shown at once
LINE = box.Box(
    "    \n    \n ── \n    \n    \n    \n    \n    \n", ascii=True
)  # streams.py has another sign where need be


class Terminal(Console):
    """A console of rich whose broken pipe is ours to handle: rich ends the process, and with 1, a regression."""

    def on_broken_pipe(self) -> None:
        """Let the exception go on."""
        raise BrokenPipeError


def show(table: TextTable, console: Console, *, verbose: bool = False) -> None:
    """Print a table in the width that the console has."""
    console.print(renderable(table, console.width, verbose=verbose), soft_wrap=True)


def renderable(table: TextTable, width: int, *, verbose: bool = False) -> RenderableType:
    """The table with what stands above and below it, and the tables before it, laid out for a width."""
    if table.above:
        below: list[RenderableType] = []
        for each in (*table.above, replace(table, above=())):
            below += [renderable(each, width, verbose=verbose), *[Text()] * (verbose or not each.extra)]
        return Group(*below[:-1])
    table = next(
        (one for one in map(_beginning, () if verbose else table.short) if _fits(one, width)), _beginning(table)
    )
    parts: list[RenderableType] = [_paragraph(line, width) for line in table.header]
    blocks = _blocks(table, width) if verbose else [] if table.extra else [_fitting(table, width)]
    for block in blocks if table.rows else []:
        parts += [Text()] * (verbose and bool(parts))
        parts += _in_groups(table, block, width)
    for lines in (table.summary, table.details if verbose else ()):
        parts += [Text()] * bool(lines and parts)
        parts += [_paragraph(line, width, indent="  ") for line in lines]
    return Group(*parts)


def _beginning(table: TextTable) -> TextTable:
    """As many of its groups as somebody reads, and how many there are."""
    if len(table.rows) <= MOST_ROWS:
        return table
    starts = [start for start, _ in table.headings if start <= MOST_ROWS] or [MOST_ROWS]
    told = f"the first {starts[-1]} of {len(table.rows):,} rows: -o FILE.csv or -f csv has them all"
    return replace(table, rows=table.rows[: starts[-1]], headings=table.headings[: len(starts) - 1],
                   summary=(told, *table.summary))  # fmt: skip


def _fits(table: TextTable, width: int) -> bool:
    return sum(natural_width(table, i) + GAP for i in range(len(table.columns))) - GAP <= width


def _paragraph(line: str, width: int, indent: str = "") -> Text:
    wrapped = textwrap.wrap(line, max(20, width), subsequent_indent=indent, break_on_hyphens=False)
    return Text("\n".join(wrapped), no_wrap=True)


def natural_width(table: TextTable, index: int) -> int:
    """Cells of the widest entry of a column, heading included."""
    column = table.columns[index]
    return max(cell_len(text) for text in (column.title, column.unit, *(row[index].text for row in table.rows)))


def _least_width(table: TextTable, index: int) -> int:
    """The narrowest that a column may become."""
    natural = natural_width(table, index)
    if not table.columns[index].flexible:
        return natural
    longest_word = max((cell_len(word) for row in table.rows for word in row[index].text.split()), default=0)
    return min(natural, max(PROSE, longest_word))


def _label_width(table: TextTable, width: int) -> int:
    """A label that would take more than a third of the width is folded, so that the numbers keep their place."""
    return min(natural_width(table, 0), max(12, width // 3))


def _fitting(table: TextTable, width: int) -> list[int]:
    """The columns to show: those of the highest priority that fit together, in their order; the first one always."""
    chosen, used = [0], _label_width(table, width)
    candidates = [i for i in range(1, len(table.columns)) if table.columns[i].priority < EXTRA]
    for index in sorted(candidates, key=lambda i: table.columns[i].priority):
        need = max(_least_width(table, index), table.columns[index].takes) + GAP
        if used + need <= width or len(chosen) == 1:
            chosen.append(index)
            used += need
    return sorted(chosen)


def _blocks(table: TextTable, width: int) -> list[list[int]]:
    """All columns, in blocks that fit, the first column repeated in each; the last ones, which answer, fill a block."""
    first = _label_width(table, width)
    blocks: list[list[int]] = [[]]
    used = first
    for index in reversed(range(1, len(table.columns))):
        need = natural_width(table, index) + GAP
        if used + need > width and blocks[0]:
            blocks.insert(0, [])
            used = first
        blocks[0].insert(0, index)
        used += need
    return [[0, *block] for block in blocks]


def _in_groups(table: TextTable, indices: list[int], width: int) -> list[RenderableType]:
    """The table as one, or with a heading before the rows of each group, all in columns of the same width."""
    if not table.headings:
        return [_rich_table(table, indices, width)]
    ends = [*(place for place, _ in table.headings[1:]), len(table.rows)]
    takes = [natural_width(table, 0), *(_least_width(table, i) for i in indices[1:])]
    parts: list[RenderableType] = [_rich_table(table, indices, width, range(0), takes)]
    for (start, heading), end in zip(table.headings, ends, strict=True):
        of_group = _rich_table(table, indices, width, range(start, end), takes)
        parts += [Text(visible(heading), style="bold"), of_group, Text()]
    return parts[:-1]


def _rich_table(
    table: TextTable, indices: list[int], width: int, part: range | None = None, takes: Sequence[int] = ()
) -> RichTable:
    """All rows below the titles of the columns; of a part of several, the titles alone or its rows alone, in columns
    that take so much.
    """
    # one cell of padding and one of the box's divider make the gap
    rich = RichTable(
        box=LINE, pad_edge=False, padding=(0, GAP - 1, 0, 0), show_edge=False, header_style="bold",
        show_header=part is None or not part,
    )  # fmt: skip
    takes = takes or (0, *(_least_width(table, i) for i in indices[1:]))
    others = sum(takes[1:]) + GAP * len(takes[1:])
    for place, index in enumerate(indices):
        column = table.columns[index]
        # only a label can be longer than the terminal: it is folded over lines, a number never
        limit = max(12, width - others) if place == 0 else None
        rich.add_column(
            Text(_heading(table, indices, column)),
            justify="left" if column.left else "right",
            no_wrap=place > 0 and not column.flexible,
            overflow="fold",
            max_width=limit,
            min_width=takes[place] or None,
        )
    for row in table.rows if part is None else table.rows[part.start : part.stop]:
        rich.add_row(*(Text(row[i].text, style=row[i].style) for i in indices))
    return rich


def _heading(table: TextTable, indices: list[int], column: Column) -> str:
    """The title above the unit; a title without one stands at the bottom."""
    units = any(table.columns[i].unit for i in indices)
    return f"{column.title}\n{column.unit}" if column.unit else "\n" * units + column.title


def markdown(table: TextTable, *, every: bool = False) -> str:
    """A pipe table with all ordinary columns, for pull requests and notes; or with every column and detail."""
    if table.above:
        return "\n".join(markdown(each, every=every) for each in (*table.above, replace(table, above=())))
    table = table.short[0] if table.short and not every else table
    indices = [i for i, c in enumerate(table.columns) if every or c.priority < EXTRA]
    columns = [table.columns[i] for i in indices]
    lines = [f"{_prose(line)}  " for line in table.header]
    if table.extra and not every:
        return "\n".join(lines) + "\n"
    if table.rows:
        lines += ["", _pipe([c.name for c in columns]), _pipe([":--" if c.left else "--:" for c in columns])]
    for heading, texts in _lines(table, indices):
        lines.append(f"| **{_prose(texts[0])}** |{' |' * len(indices[1:])}" if heading else _pipe(texts))
    for below in (table.summary, table.details if every else ()):
        lines += ["", *(f"{_prose(line)}  " for line in below)] if below else []
    return "\n".join(lines).rstrip() + "\n"


def _lines(table: TextTable, indices: list[int]) -> Iterator[tuple[bool, list[str]]]:
    """The texts of its rows, and of the headings between them: whether it is one, and its texts."""
    headings = dict(table.headings)
    for place, row in enumerate(table.rows):
        if place in headings:
            yield True, [visible(headings[place]), *[""] * len(indices[1:])]
        yield False, [row[i].text for i in indices]


def _pipe(cells: list[str]) -> str:
    # a bar would end the cell, and the stars of `2*d*4d` would be taken for emphasis
    return "| " + " | ".join(_prose(cell).replace("|", r"\|").replace("*", r"\*") for cell in cells) + " |"


def _prose(text: str) -> str:
    """Text in markdown that is no markup: no tag, no link, no picture, no code, no heading."""
    text = text.replace("\\", "\\\\").replace("<", "&lt;").replace("`", "\\`").replace("](", "]\\(")
    return "\\" + text if text.startswith(("#", ">", "- ", "+ ", "=", "~")) else text


def plain(table: TextTable, width: int = 80) -> str:
    """The table as plain text: no colour and no bold wherever it is asked for, and nothing displayed by a notebook."""
    console = Console(width=width, no_color=True, force_terminal=False, force_jupyter=False, color_system=None)
    with console.capture() as captured:
        show(table, console)
    return captured.get()
