"""A table: rows, the columns that show them, and the lines around them. Every writer
reads this and nothing else.

A row is a dict in base units; a value that is not known is None or is not there. A
value `latency_s` has its interval in `latency_low_s` and `latency_high_s`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cache
from typing import Any

from ffnbench.common.streams import visible
from ffnbench.common.units import Units, digits, scale
from ffnbench.plan.plan import Case
from ffnbench.record.result import Estimate, Report

Row = dict[Any, Any]
UNKNOWN_CELL = "-"
FIRST = -1  # the priority of a column that tells rows apart
EXTRA = 9  # of one that only -v shows
# letters that are kept free for a measured column whatever was measured, so that which
# columns fit depends on the question alone
NUMBER_WIDTH, RATIO_WIDTH, VERDICT_WIDTH = 7, 20, 10


@cache
def interval_keys(key: str) -> tuple[str, str, str]:
    """The keys of a value and of the ends of its interval: `latency_s`,
    `latency_low_s`, `latency_high_s`.
    """
    unit = "_s" if key.endswith("_s") else ""
    stem = key.removesuffix(unit)
    return key, f"{stem}_low{unit}", f"{stem}_high{unit}"


def in_row(key: str, estimate: Estimate | None) -> Row:
    """An estimate as it stands in a row: its value and the ends of its interval, each
    under its key, all None where there is no estimate.
    """
    if not estimate:
        return dict.fromkeys(interval_keys(key))
    values = estimate.value, estimate.low, estimate.high
    return dict(zip(interval_keys(key), values, strict=True))


def estimate_in(row: Row, key: str, size: float = 1.0) -> Estimate | None:
    """The value of a row with its interval, in units of `size`; None where the value is
    not known.
    """
    value, low, high = (
        None if (number := row.get(name)) is None else number / size
        for name in interval_keys(key)
    )
    return None if value is None else Estimate(value=value, low=low, high=high)


@dataclass(frozen=True, slots=True)
class Column:
    """A quantity: its key in a row, its heading, and how its values read. `of` computes
    it of a case of a report.

    With `interval` a value has an interval, and `read` gets an Estimate. With `units`
    all values of the column, and of the columns `scaled_with`, are written in one unit,
    that of `size`; `unit` stands behind it in the heading. What `word` gives for a row
    stands in place of its value, unless it is None. `style` gives a colour that repeats
    what the text says.

    Where the width is short, a column of priority 0 is the last one that is left out;
    one of EXTRA needs -v. Prose may be wrapped. `least_width` is kept free.
    """

    key: str
    title: str = ""
    unit: str = ""
    _: KW_ONLY
    of: Callable[[Report, Case], Any] | None = None
    read: Callable[[Any], str] | None = None
    interval: bool = False
    units: Units | None = None
    scaled_with: tuple[str, ...] = ()
    size: float = 1.0
    word: Callable[[Row], str | None] | None = None
    style: Callable[[Row], str] | None = None
    priority: int = 0
    left: bool = False
    prose: bool = False
    least_width: int = 0

    def __post_init__(self) -> None:
        if not self.title:
            object.__setattr__(self, "title", self.key)

    @property
    def name(self) -> str:
        """The heading in one line."""
        if not self.unit:
            return self.title
        unit = self.unit if self.unit.startswith("[") else f"({self.unit})"
        return f"{self.title} {unit}"

    def for_rows(self, rows: Sequence[Row]) -> Column:
        """The column with the unit in which the values of these rows are written."""
        unit, size = "", 1.0
        if self.units:
            keys = self.scaled_with or (self.key,)
            values = [row.get(key) for row in rows for key in keys]
            known = [value for value in values if value is not None]
            unit, size = scale(known, self.units)
        title, unit = visible(self.title), visible(unit + self.unit)
        return replace(self, title=title, unit=unit, size=size)

    def text(self, row: Row) -> str:
        """The text of the cell of a row."""
        word = self.word(row) if self.word else None
        return visible(self._value_text(row) if word is None else word)

    def _value_text(self, row: Row) -> str:
        value = row.get(self.key)
        if self.interval:
            value = estimate_in(row, self.key, self.size)
        if value is None:
            return UNKNOWN_CELL
        if self.read:
            return self.read(value)
        return digits(value / self.size) if self.units else default_text(value)


def default_text(value: Any) -> str:
    """A value as text where its column does not say how: counts with a comma at the
    thousands, fractions in four digits.
    """
    if isinstance(value, float):
        return digits(value, 4)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows with their columns, the `header` above them, the few sentences below that
    answer, and the `details` that -v shows.

    Programs read `saved`, or the rows where it is None. `groups` are the numbers of
    rows that belong together. Where the `pivot` fits, it is shown instead.
    """

    columns: tuple[Column, ...]
    rows: Sequence[Row]
    header: Sequence[str] = ()
    summary: Sequence[str] = ()
    details: Sequence[str] = ()
    groups: Sequence[int] = ()
    pivot: Table | None = None
    saved: Sequence[Row] | None = None

    @property
    def records(self) -> Sequence[Row]:
        """The rows for programs."""
        return self.rows if self.saved is None else self.saved

    @property
    def at_its_widest(self) -> Table:
        """The table that a wide terminal would show."""
        return self.pivot or self

    def shown(self, *, every: bool = False) -> list[Column]:
        """The columns, each in one unit; with `every` also those that need -v."""
        return [
            column.for_rows(self.rows)
            for column in self.columns
            if every or column.priority < EXTRA
        ]
