"""What a table is, and the columns and cells that several answers share.

A TextTable is text in cells with priorities; how much of it fits is the writer's business (text.py). Nothing is
decided here: verdicts come from the report. Text from elsewhere becomes visible here, for every writer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ffnbench.metrics import LATENCY
from ffnbench.report.frame import Column as FrameColumn
from ffnbench.report.frame import Frame
from ffnbench.report.tables.words import CERTAIN, half_width, interval_text, seconds_text, verdict_text
from ffnbench.result import Estimate, Report, Verdict
from ffnbench.streams import visible
from ffnbench.units import TIME, Units, digits, percent, scale

UNKNOWN = "-"
STYLES = {Verdict.SLOWER: "red", Verdict.FASTER: "green", Verdict.UNCLEAR: "yellow", Verdict.BUSY: "yellow"}
# what a measured column takes whatever was measured, so that which columns fit depends on the question alone
OF_NUMBER, OF_RATIO, OF_VERDICT = 7, 20, 11


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A heading of two lines (name, unit) and its priority: 0 stays longest, EXTRA needs -v."""

    title: str
    unit: str = ""
    left: bool = False
    priority: int = 0
    flexible: bool = False  # prose, which may be wrapped; a number never is
    key: str = ""  # the record's, whose value it shows
    takes: int = 0  # the least width that is kept free for it

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", visible(self.title))

    @property
    def name(self) -> str:
        """The heading in one line."""
        unit = self.unit if self.unit.startswith("[") else f"({self.unit})"
        return f"{self.title} {unit}" if self.unit else self.title


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
    """A table, the lines above it, the few below it that answer, the details that -v shows, and tables before it."""

    columns: tuple[Column, ...]
    rows: Sequence[tuple[Cell, ...]]
    header: tuple[str, ...] = ()
    summary: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    above: tuple[TextTable, ...] = ()
    extra: bool = False  # its rows are shown by -v alone
    headings: tuple[tuple[int, str], ...] = ()  # of groups of rows: the place of the first row of each, and what it is
    short: tuple[TextTable, ...] = ()  # what is shown in its place where that fits, the fullest first; not by -v

    def __post_init__(self) -> None:
        for name in ("header", "summary", "details"):
            object.__setattr__(self, name, tuple(map(visible, getattr(self, name))))


Field = tuple[Column, Callable[[Any], Cell]]  # a column, and its cell of a row


class _Rows(Sequence[tuple[Cell, ...]]):
    """Rows whose cells are made when they are looked at: of a long table a terminal shows the beginning alone."""

    def __init__(self, fields: Sequence[Field], rows: Iterable[Any]) -> None:
        self._cells, self._rows = [cell for _, cell in fields], list(rows)
        self._made: dict[int, tuple[Cell, ...]] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return tuple(map(self.__getitem__, range(len(self))[place]))
        if place not in self._made:
            row = self._rows[place]
            self._made[place] = tuple(cell(row) for cell in self._cells)
        return self._made[place]


def as_frame(table: TextTable | Frame) -> Frame:
    """A table as a frame, while both are about."""
    if isinstance(table, Frame):
        return table
    keys = [column.key or column.title for column in table.columns]
    columns = tuple(
        FrameColumn(
            key=key, title=column.title, unit=column.unit, left=column.left, priority=column.priority,
            flexible=column.flexible, takes=column.takes,
            text=lambda row, at=at: row["cells"][at].text, style=lambda row, at=at: row["cells"][at].style,
        )
        for at, (key, column) in enumerate(zip(keys, table.columns, strict=True))
    )  # fmt: skip
    rows = [{"cells": row, **{key: cell.value for key, cell in zip(keys, row, strict=True)}} for row in table.rows]
    return Frame(
        columns=columns, rows=rows, header=table.header, summary=table.summary, details=table.details,
        groups=table.headings, above=tuple(map(as_frame, table.above)), verbose_only=table.extra,
        short=tuple(map(as_frame, table.short)),
    )  # fmt: skip


def table_of_fields(
    fields: Sequence[Field],
    rows: Iterable[Any],
    *,
    header: Iterable[str] = (),
    summary: Iterable[str] = (),
    details: Iterable[str] = (),
) -> TextTable:
    """The table of these columns, one row each."""
    return TextTable(
        columns=tuple(column for column, _ in fields),
        rows=_Rows(fields, rows),
        header=tuple(header),
        summary=tuple(summary),
        details=tuple(details),
    )


def known(value: Any, text: Callable[[Any], str] = str) -> Cell:
    """A value as this text; what is not known as a dash."""
    return Cell(text=UNKNOWN if value is None else text(value), value=value)


def estimated(found: Estimate | None, text: Callable[[Estimate], str]) -> Cell:
    """An estimate as this text; what is not known as a dash."""
    return Cell(text=UNKNOWN) if found is None else Cell(text=text(found), value=found.value)


def text_field(key: str, title: str, priority: int, *, left: bool = False) -> Field:
    """A column of texts."""
    return Column(title=title, priority=priority, left=left, key=key), lambda row: known(row[key])


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
    takes: int = 0,
) -> Field:
    """A column on one scale, its unit in the heading; on that of several columns together where these are named."""
    keys = tuple(scaled_as) or (key,)
    name, size = scale([row[one] for row in rows for one in keys if row[one] is not None], units)
    column = Column(title=title, unit=f"{name}{per}", priority=priority, key=key, takes=takes)
    return column, lambda row: known(row[key], lambda value: digits(value / size))


def share_field(key: str, title: str, priority: int) -> Field:
    """A column of shares in percent."""
    column = Column(title=title, unit="%", priority=priority, key=key)
    return column, lambda row: known(row[key], lambda value: f"{100 * value:.1f}")


def count(value: int | None) -> Cell:
    """A count in full."""
    return known(value, "{:,}".format)


def percentage(value: float | None) -> Cell:
    """A share with its percent sign."""
    return known(value, lambda share: f"{100 * share:.1f}%")


def timed_fields(report: Report, label: Callable[[Any], str], reference: str) -> list[Field]:
    """Latency, the ratio to the reference, and the verdict in a word, of rows that have a label."""
    seconds = [found.value for case in report.plan.shown if (found := report.estimate(case.label, LATENCY))]
    unit, size = scale(seconds, TIME)

    def verdict(row: Any) -> Cell:
        text, of = verdict_text(report, label(row))
        return Cell(text=text or UNKNOWN, value=of, style="red" if text and of is None else STYLES.get(of, ""))  # type: ignore[arg-type]

    alone = all(report.plan.is_reference(case.label) for case in report.plan.shown) and not report.failures
    shown: list[Field] = [
        (
            Column(title="latency", unit=unit, priority=1, key="latency_s", takes=OF_NUMBER),
            lambda row: latency_cell(report, label(row), size),
        ),
        (
            Column(title="±", priority=EXTRA),
            lambda row: _spread_cell(report, label(row)),
        ),
        (
            Column(title=f"time vs {reference}", unit=CERTAIN, key="ratio", takes=OF_RATIO),
            lambda row: ratio_cell(report, label(row)),
        ),
        (Column(title="verdict", left=True, key="verdict", takes=OF_VERDICT), verdict),
    ]
    return shown[:2] if alone else shown  # nothing to be compared with


def latency_cell(report: Report, label: str | None, size: float) -> Cell:
    """Seconds in units of `size`, in the digits that their interval supports; of a busy row the word."""
    if label is None:
        return Cell(text=UNKNOWN)
    word, verdict = verdict_text(report, label)
    if verdict is Verdict.BUSY:
        return Cell(text=word, style=STYLES[verdict])
    return estimated(report.estimate(label, LATENCY), lambda found: seconds_text(found, size))


def _spread_cell(report: Report, label: str) -> Cell:
    estimate = report.estimate(label, LATENCY)
    return known(half_width(estimate) if estimate else None, percent)


def ratio_cell(report: Report, label: str | None) -> Cell:
    """The ratio to the reference with its interval."""
    comparison = report.comparison(label) if label else None
    if comparison is None or comparison.ratio is None:
        return Cell(text=UNKNOWN)
    if comparison.verdict is Verdict.REFERENCE:
        return Cell(text="1", value=1.0)
    return Cell(text=interval_text(comparison.ratio), value=comparison.ratio.value)
