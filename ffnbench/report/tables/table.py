"""What a table is, and the columns and cells that several answers share.

A TextTable is text in cells with priorities; how much of it fits is the writer's business (text.py). Nothing is
decided here: verdicts come from the report. Text from elsewhere becomes visible here, for every writer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ffnbench.metrics import LATENCY
from ffnbench.report.tables.words import ratio_text, seconds_text
from ffnbench.result import Comparison, FailureKind, Report, Verdict
from ffnbench.streams import visible
from ffnbench.units import Units, digits, scale

UNKNOWN = "-"
STYLES = {Verdict.SLOWER: "red", Verdict.FASTER: "green", Verdict.UNCLEAR: "yellow", Verdict.BUSY: "yellow"}
FAILED = {FailureKind.OOM: "out of memory", FailureKind.TIMEOUT: "timed out"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A heading of two lines (name, unit) and its priority: 0 stays longest, EXTRA needs --wide."""

    title: str
    unit: str = ""
    left: bool = False
    priority: int = 0
    flexible: bool = False  # prose, which may be wrapped; a number never is
    key: str = ""  # the record's, whose value it shows
    stacked: bool = False  # a title of two words, one above the other: the column is as narrow as its numbers

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", visible(self.title))

    @property
    def name(self) -> str:
        """The heading in one line."""
        return f"{self.title} ({self.unit})" if self.unit else self.title

    @property
    def lines(self) -> tuple[str, ...]:
        """The title as it stands above the unit."""
        return tuple(self.title.split(" ")) if self.stacked else (self.title,)


EXTRA = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What stands in a cell, the value behind it, and a colour that repeats what the text says."""

    text: str
    value: Any = None
    style: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", visible(self.text))


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTable:
    """A table with what is written above and below it, and the tables that stand before it."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    header: tuple[str, ...] = ()
    footnotes: tuple[str, ...] = ()
    summary: tuple[str, ...] = ()
    above: tuple[TextTable, ...] = ()
    headings: tuple[tuple[int, str], ...] = ()  # of groups of rows: the place of the first row of each, and what it is

    def __post_init__(self) -> None:
        for name in ("header", "footnotes", "summary"):
            object.__setattr__(self, name, tuple(map(visible, getattr(self, name))))


Field = tuple[Column, Callable[[Any], Cell]]  # a column, and its cell of a row


def table_of_fields(
    fields: Sequence[Field],
    rows: Iterable[Any],
    *,
    header: tuple[str, ...] = (),
    footnotes: Callable[[], tuple[str, ...]] = tuple,
    summary: tuple[str, ...] = (),
) -> TextTable:
    """The table of these columns, one row each; footnotes are asked for last, as the cells make them."""
    made = tuple(tuple(cell(row) for _, cell in fields) for row in rows)
    columns = tuple(column for column, _ in fields)
    return TextTable(columns=columns, rows=made, header=header, footnotes=footnotes(), summary=summary)


def text_field(key: str, title: str, priority: int, *, left: bool = False) -> Field:
    """A column of texts."""

    def cell(row: Any) -> Cell:
        return Cell(text=UNKNOWN if row[key] is None else str(row[key]), value=row[key])

    return Column(title=title, priority=priority, left=left, key=key), cell


def count_field(key: str, title: str, priority: int, unit: str = "") -> Field:
    """A column of counts in full."""
    return Column(title=title, unit=unit, priority=priority, key=key), lambda row: count(row[key])


def number_field(
    rows: Iterable[Any],
    key: str,
    title: str,
    units: Units,
    priority: int,
    per: str = "",
    scaled_as: Iterable[str] = (),
    *,
    stacked: bool = False,
) -> Field:
    """A column on one scale, its unit in the heading; on that of several columns together where these are named."""
    keys = tuple(scaled_as) or (key,)
    name, size = scale([row[one] for row in rows for one in keys if row[one] is not None], units)

    def cell(row: Any) -> Cell:
        value = row[key]
        return Cell(text=UNKNOWN if value is None else digits(value / size), value=value)

    return Column(title=title, unit=f"{name}{per}", priority=priority, key=key, stacked=stacked), cell


def share_field(key: str, title: str, priority: int) -> Field:
    """A column of shares in percent."""

    def cell(row: Any) -> Cell:
        return Cell(text=UNKNOWN if row[key] is None else f"{100 * row[key]:.1f}", value=row[key])

    return Column(title=title, unit="%", priority=priority, key=key), cell


def count(value: int | None) -> Cell:
    """A count in full."""
    return Cell(text=UNKNOWN if value is None else f"{value:,}", value=value)


def percentage(value: float | None) -> Cell:
    """A share with its percent sign."""
    return Cell(text=UNKNOWN if value is None else f"{100 * value:.1f}%", value=value)


def latency_cell(report: Report, label: str | None, size: float, mark: str = "") -> Cell:
    """Seconds in units of `size` with their half-width; for a failed case its kind."""
    if label is None:
        return Cell(text=UNKNOWN)
    failure, estimate = report.failure(label), report.estimate(label, LATENCY)
    if failure:
        return Cell(text=FAILED.get(failure.kind, failure.kind.value) + mark, style="red")
    if estimate is None:
        return Cell(text=UNKNOWN + mark)
    return Cell(text=seconds_text(estimate, size) + mark, value=estimate.value)


def ratio_cell(comparison: Comparison | None) -> Cell:
    """The ratio to the reference with its interval and the verdict."""
    if comparison is None:
        return Cell(text=UNKNOWN)
    value, style = comparison.ratio and comparison.ratio.value, STYLES.get(comparison.verdict, "")
    return Cell(text=ratio_text(comparison.verdict, comparison.ratio), value=value, style=style)
