"""What a reader finds in a table: its titles, and the texts below them."""

from __future__ import annotations

from ffnbench.record.result import Report
from ffnbench.report.columns import case_rows
from ffnbench.report.frame import Frame
from ffnbench.report.writers import csv_text


def cells(frame: Frame) -> list[list[str]]:
    """The texts of a frame, row by row."""
    return [
        list(row)
        for row in zip(*(column.texts for column in frame.shown()), strict=True)
    ]


def below(title: str, frame: Frame) -> list[str]:
    """The cells below a title."""
    for column in frame.shown():
        if title in (column.title, column.name):
            return list(column.texts)
    raise LookupError(title)


def titles(frame: Frame) -> list[str]:
    """What its columns are called."""
    return [column.title for column in frame.columns]


def csv_of(report: Report) -> str:
    """The csv of a report, by the contract."""
    return csv_text(case_rows(report))
