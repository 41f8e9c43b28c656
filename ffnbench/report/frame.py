"""The one frame of an answer: flat rows, and how each of its columns is headed and
written. Every writer reads this.

A row is a dict in base units; what is not known is None or is not there. A value
`latency_s` has its interval in `latency_low_s` and `latency_high_s`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from ffnbench.common.streams import visible
from ffnbench.common.units import Units, digits, scale
from ffnbench.result import Estimate

Row = dict[Any, Any]
# of rows: the place of the first row of each group, and what the group is
Groups = tuple[tuple[int, str], ...]
UNKNOWN_CELL = "-"
EXTRA = 9  # the priority of a column that -v alone shows
# what a measured column takes whatever was measured, so that which columns fit depends
# on the question alone
OF_NUMBER, OF_RATIO, OF_VERDICT = 7, 20, 11


@cache
def interval_keys(key: str) -> tuple[str, str, str]:
    """The keys of a value and of the ends of its interval: `latency_s`,
    `latency_low_s`, `latency_high_s`.
    """
    unit = "_s" if key.endswith("_s") else ""
    stem = key.removesuffix(unit)
    return key, f"{stem}_low{unit}", f"{stem}_high{unit}"


def in_row(key: str, estimate: Estimate | None) -> Row:
    """An estimate as the three values of a row."""
    if not estimate:
        return dict.fromkeys(interval_keys(key))
    return dict(
        zip(
            interval_keys(key),
            (estimate.value, estimate.low, estimate.high),
            strict=True,
        )
    )


def estimate_in(row: Row, key: str) -> Estimate | None:
    """The value of a row with its interval, None where it is not known."""
    value, low, high = (row.get(name) for name in interval_keys(key))
    if value is None:
        return None
    return Estimate(value=value, low=low, high=high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """How a value of the rows is headed and written. Priority 0 stays longest, EXTRA
    needs -v.

    With `units` the column has one scale, together with the columns `scaled_with`;
    `unit` stands behind that in the heading. A value is written by `interval` where its
    ends belong to it, else by `write`, else by its type; `text` may say of a row what
    stands there instead. `style` is a colour that repeats what the text says. Prose is
    `flexible` and may be wrapped. `takes` is the least width that is kept free. `also`
    are other names of it.

    `of` gives the value of a case, or where there is an `interval` the estimate.
    """

    key: str
    title: str = ""
    of: Callable[[Any], Any] | None = None
    also: tuple[str, ...] = ()
    unit: str = ""
    units: Units | None = None
    priority: int = 0
    interval: Callable[[Estimate], str] | None = None
    write: Callable[[Any], str] | None = None
    text: Callable[[Row], str | None] | None = None
    style: Callable[[Row], str] | None = None
    left: bool = False
    flexible: bool = False
    takes: int = 0
    scaled_with: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.title:
            object.__setattr__(self, "title", self.key)


def written(value: Any) -> str:
    """A value as it stands where no column says how: counts with thousands apart,
    fractions in four digits.
    """
    if isinstance(value, float):
        return digits(value, 4)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


@dataclass(frozen=True, slots=True)
class ShownColumn:
    """A column with its texts: the heading, in one line and in two, and a cell of each
    row with its style.
    """

    column: Column
    title: str
    unit: str
    texts: Sequence[str]
    styles: Sequence[str]

    @property
    def name(self) -> str:
        """The heading in one line."""
        if not self.unit:
            return self.title
        unit = self.unit if self.unit.startswith("[") else f"({self.unit})"
        return f"{self.title} {unit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Rows with their columns, the lines above them, the few below that answer, the
    details that -v shows.

    `above` are frames that stand before this one; `exported` are the keys that programs
    read, all where it is empty. The first `naming` columns tell rows apart.
    """

    columns: tuple[Column, ...]
    rows: Sequence[Row]
    header: Sequence[str] = ()
    summary: Sequence[str] = ()
    details: Sequence[str] = ()
    groups: Groups = ()
    naming: int = 1
    above: tuple[Frame, ...] = ()
    # what is shown in its place where that fits, the fullest first; not by -v
    short: tuple[Frame, ...] = ()
    exported: Sequence[str] = ()
    saved: Sequence[Row] | None = None  # what programs read, where that is not its rows
    # the rows that the scales of columns are of, where these are not its own
    scaled_as: Sequence[Row] = ()

    @property
    def parts(self) -> tuple[Frame, ...]:
        """All frames of the answer, each by itself."""
        return (*self.above, replace(self, above=()))

    @property
    def blocks(self) -> list[tuple[str, range]]:
        """The headings of its groups with the places of their rows; one without a
        heading where there are none.
        """
        groups = self.groups or ((0, ""),)
        ends = [*(start for start, _ in groups[1:]), len(self.rows)]
        return [
            (heading, range(start, end))
            for (start, heading), end in zip(groups, ends, strict=True)
        ]

    def shown(self, *, every: bool = True) -> list[ShownColumn]:
        """The columns with their texts; without those of priority EXTRA where not
        `every`.
        """
        return [
            self._shown(column, self.rows)
            for column in self.columns
            if every or column.priority < EXTRA
        ]

    def headings(self) -> list[ShownColumn]:
        """The columns without a row."""
        return [self._shown(column, []) for column in self.columns]

    def _shown(self, column: Column, rows: Sequence[Row]) -> ShownColumn:
        unit, size = "", 1.0
        if column.units:
            keys = column.scaled_with or (column.key,)
            values = [
                row.get(key) for row in self.scaled_as or self.rows for key in keys
            ]
            unit, size = scale(
                [value for value in values if value is not None], column.units
            )
        texts = [visible(_text(column, row, size)) for row in rows]
        styles = [column.style(row) if column.style else "" for row in rows]
        return ShownColumn(
            column, visible(column.title), visible(unit + column.unit), texts, styles
        )

    def records(self) -> list[Row]:
        """The rows for programs."""
        rows = self.rows if self.saved is None else self.saved
        if not self.exported:
            return list(rows)
        return [{key: row[key] for key in self.exported} for row in rows]


def frame_of_records(
    records: Sequence[Row], below: Iterable[str] = (), prose: Iterable[str] = ()
) -> Frame:
    """Records as a frame: the first column stays longest, then in their order; columns
    of `prose` may be wrapped.
    """
    columns = []
    for place, (key, value) in enumerate(records[0].items()):
        is_text = not isinstance(value, int)
        columns.append(
            Column(key=key, left=is_text, priority=place, flexible=key in prose)
        )
    return Frame(columns=tuple(columns), rows=records, summary=tuple(below))


def _text(column: Column, row: Row, size: float) -> str:
    if column.text and (text := column.text(row)) is not None:
        return text
    value = row.get(column.key)
    if value is None:
        return UNKNOWN_CELL
    if column.interval:
        ends = (row.get(key) for key in interval_keys(column.key))
        value, low, high = (None if end is None else end / size for end in ends)
        return column.interval(Estimate(value=value, low=low, high=high))  # type: ignore[arg-type]
    if column.write:
        return column.write(value)
    return digits(value / size) if column.units else written(value)
