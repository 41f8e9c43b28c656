"""Report -> Table: which figures stand in which column, how they read, and what is said around them.

A Table is text in cells with priorities; how much of it fits is the writer's business (text.py). Nothing is
decided here: verdicts come from the report.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ffnbench.result import Verdict

UNKNOWN = "-"
STYLES = {Verdict.SLOWER.value: "red", Verdict.FASTER.value: "green", Verdict.UNCLEAR.value: "yellow"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A heading of two lines (name, unit) and how dear the column is: 0 stays longest, EXTRA needs --wide."""

    title: str
    unit: str = ""
    left: bool = False
    priority: int = 0
    flexible: bool = False  # prose, which may be wrapped; a number never is

    @property
    def name(self) -> str:
        """The heading in one line."""
        return f"{self.title} ({self.unit})" if self.unit else self.title


EXTRA = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What stands in a cell, the value behind it, and a colour that repeats what the text says."""

    text: str
    value: Any = None
    style: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table with what is written above and below it, and the tables that stand before it."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    header: tuple[str, ...] = ()
    footnotes: tuple[str, ...] = ()
    summary: tuple[str, ...] = ()
    above: tuple[Table, ...] = ()
