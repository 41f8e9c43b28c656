"""Which columns an answer shows, and in which order its rows stand: `--columns` and `--sort`.

A column is named as in the CSV, or by its heading. Rows of one group stay together, the reference among them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ffnbench.common.errors import FfnbenchError
from ffnbench.common.names import hint_for
from ffnbench.report.columns import COLUMNS
from ffnbench.report.frame import EXTRA, Column, Frame, Row

FIRST_SHOWN = 12  # names in a hint


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """`sort` is a column, with `-` before it for the largest first; `columns` a list of them, or with `+` before each
    those that stay longest beside the usual ones. Empty is as it comes.
    """

    sort: str = ""
    columns: str = ""

    def __bool__(self) -> bool:
        return bool(self.sort or self.columns)

    @property
    def sorted_by(self) -> str:
        """The name of the column to sort by."""
        return self.sort.removeprefix("-").strip()

    @property
    def chosen(self) -> dict[str, bool]:
        """The columns by name, each with whether it is only added."""
        names = [part.strip() for part in self.columns.split(",") if part.strip()]
        return {name.removeprefix("+").strip(): name.startswith("+") for name in names}


def key_of(name: str, frame: Frame) -> str:
    """The key of a column by that key, its heading or what others call it; raises FfnbenchError for what is none."""
    keys = list(frame.records()[0])
    shown = [column for part in frame.parts for column in part.headings()]
    titles = {title: one.column.key for one in reversed(shown) for title in (one.name, one.title)}  # the first has it
    core = [column for column in COLUMNS.values() if column.key in keys]
    others: dict[str, str] = {alias: column.key for column in core for alias in (column.title, *column.also) if alias}
    known: dict[str, str] = {key: key for key in keys} | others | titles
    known |= {alias: column.key for column in core for alias in column.also}
    if name in known:
        return known[name]
    lower = {written.lower(): key for written, key in known.items()}
    for wanted in (name.lower(), name.lower().replace("-", "_")):
        if wanted in lower:
            return lower[wanted]
    readable = list(dict.fromkeys([*(one.title for one in shown), *others, *keys]))
    example = f"for example {', '.join(readable[:FIRST_SHOWN])}; -f csv has them all"
    raise FfnbenchError(f"no column is called {name!r}", hint_for(name, readable, example))


def arranged(frame: Frame, how: Arrangement) -> Frame:
    """The frames in the order and with the columns that were asked for, and so what programs read."""
    wanted = {key_of(name, frame): added for name, added in how.chosen.items()}
    key = key_of(how.sorted_by, frame) if how.sort else ""
    parts = []
    for part in frame.parts:
        changed = replace(part, short=())
        if key:
            changed = sorted_by(changed, key, down=how.sort.startswith("-"))
        if wanted:
            changed = with_columns(changed, wanted)
        parts.append(changed)
    return replace(parts[-1], above=tuple(parts[:-1]))


def in_order(rows: Iterable[Row], key: str, *, down: bool) -> list[Row]:
    """The rows by a value; unknown ones come last either way, and equals stay as they are."""
    rows = list(rows)
    known = [row for row in rows if row.get(key) is not None]
    known.sort(key=lambda row: row[key], reverse=down)
    return known + [row for row in rows if row.get(key) is None]


def sorted_by(frame: Frame, key: str, *, down: bool) -> Frame:
    """Its rows by a value, group by group; its groups where all rows of each have one value, as on an axis."""
    if not any(key in row for row in frame.rows):
        return frame
    groups: list[Row] = [{"heading": heading, "rows": frame.rows[at.start : at.stop]} for heading, at in frame.blocks]
    values = [{row[key] for row in group["rows"]} for group in groups]
    if len(groups) > 1 and all(len(of_group) == 1 for of_group in values):
        groups = [group | {"value": value} for group, (value,) in zip(groups, values, strict=True)]
        groups = in_order(groups, "value", down=down)
    rows: list[Row] = []
    headings = []
    for group in groups:
        headings.append((len(rows), group["heading"]))
        rows += in_order(group["rows"], key, down=down)
    saved = None if frame.saved is None else in_order(frame.saved, key, down=down)
    return replace(frame, rows=rows, groups=tuple(headings) if frame.groups else (), saved=saved)


def with_columns(frame: Frame, wanted: dict[str, bool]) -> Frame:
    """The frame with the columns of these keys: beside its own where each is only added, else alone."""
    only = not all(wanted.values())
    kept = list(frame.columns[:1] if only else frame.columns)
    own = {column.key: column for column in frame.columns}
    for rank, key in enumerate(wanted, start=1):
        if key not in own and not any(key in row for row in frame.rows[:1]):
            continue
        column = own.get(key) or COLUMNS.get(key) or Column(key=key)
        place = kept.index(column) if column in kept else len(kept)
        if column is not frame.columns[0]:
            column = replace(column, priority=min(rank, EXTRA - 1))
        kept = [other for other in kept if other.key != key]
        kept.insert(len(kept) if only else place, column)
    keys = list(frame.records()[0])
    if only and any(key in keys for key in wanted):
        frame = replace(frame, exported=list(dict.fromkeys([keys[0], *(key for key in wanted if key in keys)])))
    return frame if only and len(kept) == 1 else replace(frame, columns=tuple(kept))
