"""What a reader finds in a table: its titles, and the texts below them."""

from __future__ import annotations

from ffnbench.report.table import Table


def cells(frame: Table) -> list[list[str]]:
    """The texts of a frame, row by row."""
    columns = frame.shown(every=True)
    return [[column.text(row) for column in columns] for row in frame.rows]


def below(title: str, frame: Table) -> list[str]:
    """The cells below a title."""
    for column in frame.shown(every=True):
        if title in (column.title, column.name):
            return [column.text(row) for row in frame.rows]
    raise LookupError(title)


def titles(frame: Table) -> list[str]:
    """What its columns are called."""
    return [column.title for column in frame.columns]
