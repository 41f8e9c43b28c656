"""The frame of an answer: flat rows, and how each of its columns is headed and written.
Every writer reads this and nothing else.

A row is a dict in base units; a value that is not known is None or is not there. A
value `latency_s` has its interval in `latency_low_s` and `latency_high_s`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cache
from typing import Any

from ffnbench.common.streams import visible
from ffnbench.common.units import Units, digits, scale
from ffnbench.record.result import Estimate

Row = dict[Any, Any]
# the groups of rows: of each the number of its first row, from 0, and its heading
Groups = tuple[tuple[int, str], ...]
UNKNOWN_CELL = "-"
EXTRA = 9  # the priority of a column that only -v shows
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
    return dict(
        zip(
            interval_keys(key),
            (estimate.value, estimate.low, estimate.high),
            strict=True,
        )
    )


def estimate_in(row: Row, key: str) -> Estimate | None:
    """The value of a row with its interval; None where the value is not known."""
    value, low, high = (row.get(name) for name in interval_keys(key))
    if value is None:
        return None
    return Estimate(value=value, low=low, high=high)


@dataclass(frozen=True, slots=True)
class Column:
    """How a value of the rows is headed and written. Where the width is short, a column
    of priority 0 is the last one that is left out; one of EXTRA needs -v.

    With `units` all values of the column, and of the columns `scaled_with`, are written
    in one unit; `unit` stands behind it in the heading. A value is written by
    `interval`, together with the ends of its interval, else by `write`, else by its
    type; what `text` gives for a row stands there instead, unless it is None. `style`
    gives a colour that repeats what the text says. Prose is `flexible` and may be
    wrapped. `least_width` is kept free for it.
    """

    key: str
    title: str = ""
    unit: str = ""
    _: KW_ONLY
    units: Units | None = None
    priority: int = 0
    interval: Callable[[Estimate], str] | None = None
    write: Callable[[Any], str] | None = None
    text: Callable[[Row], str | None] | None = None
    style: Callable[[Row], str] | None = None
    left: bool = False
    flexible: bool = False
    least_width: int = 0
    scaled_with: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.title:
            object.__setattr__(self, "title", self.key)


def default_text(value: Any) -> str:
    """A value as text where its column does not say how: counts with a comma at the
    thousands, fractions in four digits.
    """
    if isinstance(value, float):
        return digits(value, 4)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


@dataclass(frozen=True, slots=True)
class ShownColumn:
    """A column with its texts: the two lines of its heading, and for each row the text
    of its cell and the style of that.
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
    """Rows with their columns, the `header` above them, the few sentences below that
    answer, and the `details` that -v shows.

    `above` are frames that stand before this one. Programs read `saved`, or the rows
    where it is None. The first `naming` columns tell rows apart. `short` are frames of
    fewer columns, the fullest first: without -v the first that fits is shown in place
    of this one.
    """

    columns: tuple[Column, ...]
    rows: Sequence[Row]
    header: Sequence[str] = ()
    summary: Sequence[str] = ()
    details: Sequence[str] = ()
    groups: Groups = ()
    naming: int = 1
    above: tuple[Frame, ...] = ()
    short: tuple[Frame, ...] = ()
    saved: Sequence[Row] | None = None

    @property
    def parts(self) -> tuple[Frame, ...]:
        """All frames of the answer, each by itself."""
        return (*self.above, replace(self, above=()))

    @property
    def at_its_widest(self) -> Frame:
        """The frame that a wide terminal would show: the fullest of the short frames,
        or the frame itself.
        """
        return self.short[0] if self.short else self

    @property
    def blocks(self) -> list[tuple[str, range]]:
        """The heading of each group with the numbers of its rows; all rows under an
        empty heading where there are no groups.
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
            self._shown(column)
            for column in self.columns
            if every or column.priority < EXTRA
        ]

    def _shown(self, column: Column) -> ShownColumn:
        unit, size = "", 1.0
        if column.units:
            keys = column.scaled_with or (column.key,)
            values = [row.get(key) for row in self.rows for key in keys]
            unit, size = scale(
                [value for value in values if value is not None], column.units
            )
        texts = [visible(_text(column, row, size)) for row in self.rows]
        styles = [column.style(row) if column.style else "" for row in self.rows]
        return ShownColumn(
            column, visible(column.title), visible(unit + column.unit), texts, styles
        )

    def records(self) -> list[Row]:
        """The rows for programs."""
        return list(self.rows if self.saved is None else self.saved)


def frame_of_records(
    records: Sequence[Row], below: Iterable[str] = (), prose: Iterable[str] = ()
) -> Frame:
    """Records as a frame with the sentences `below`. The columns are left out from the
    last one on where the width is short; those of `prose` may be wrapped.
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
        low, high = (row.get(key) for key in interval_keys(column.key)[1:])
        estimate = Estimate(
            value=value / size,
            low=None if low is None else low / size,
            high=None if high is None else high / size,
        )
        return column.interval(estimate)
    if column.write:
        return column.write(value)
    return digits(value / size) if column.units else default_text(value)
