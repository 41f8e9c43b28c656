"""Which columns an answer shows, and in which order its rows stand: `--columns` and
`--sort`.

A column is named as in the CSV, or by its heading. Rows of one group stay together, the
reference among them.
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
    """`sort` is a column, with `-` before it for the largest first; `columns` a list of
    them, or with `+` before each those that stay longest beside the usual ones. Empty
    is as it comes.
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
    """The key of a column by that key, its heading or what others call it; raises
    FfnbenchError for what is none.
    """
    keys = list(frame.records()[0])
    shown = [column for part in frame.parts for column in part.headings()]
    core = [COLUMNS[key] for key in keys if key in COLUMNS]
    readable = [column.title for column in shown] + [column.title for column in core]
    named: dict[str, str] = {key: key for key in keys}
    named |= {column.title.lower(): column.key for column in core}
    for column in reversed(shown):  # the first of a title has it
        named |= {
            column.name.lower(): column.column.key,
            column.title.lower(): column.column.key,
        }
    for each in core:
        named |= dict.fromkeys(each.also, each.key)
        readable += each.also
    lower = name.lower()
    for wanted in (name, lower, lower.replace("-", "_")):
        if wanted in named:
            return named[wanted]
    readable = list(dict.fromkeys([*readable, *keys]))
    example = f"for example {', '.join(readable[:FIRST_SHOWN])}; -f csv has them all"
    raise FfnbenchError(
        f"no column is called {name!r}", hint_for(name, readable, example)
    )


def arranged(frame: Frame, how: Arrangement) -> Frame:
    """The frames in the order and with the columns that were asked for, and so what
    programs read.
    """
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
    """The rows by a value; unknown ones come last either way, and equals stay as they
    are.
    """
    rows = list(rows)
    with_value = [row for row in rows if row.get(key) is not None]
    with_value.sort(key=lambda row: row[key], reverse=down)
    return with_value + [row for row in rows if row.get(key) is None]


def sorted_by(frame: Frame, key: str, *, down: bool) -> Frame:
    """Its rows by a value, group by group; its groups where all rows of each have one
    value, as on an axis.
    """
    if not any(key in row for row in frame.rows):
        return frame
    blocks: list[Row] = []
    each_has_one_value = True
    for heading, places in frame.blocks:
        rows = frame.rows[places.start : places.stop]
        if len({row[key] for row in rows}) > 1:
            each_has_one_value = False
        blocks.append({"heading": heading, "rows": rows, "value": rows[0][key]})
    if each_has_one_value:
        blocks = in_order(blocks, "value", down=down)
    sorted_rows: list[Row] = []
    groups = []
    for block in blocks:
        groups.append((len(sorted_rows), block["heading"]))
        sorted_rows += in_order(block["rows"], key, down=down)
    saved = None if frame.saved is None else in_order(frame.saved, key, down=down)
    return replace(
        frame,
        rows=sorted_rows,
        groups=tuple(groups) if frame.groups else (),
        saved=saved,
    )


def with_columns(frame: Frame, wanted: dict[str, bool]) -> Frame:
    """The frame with the columns of these keys: beside its own where each is only
    added, else beside those that tell rows apart; unchanged where it has none of them.
    """
    naming, own = frame.columns[: frame.naming], frame.columns[frame.naming :]
    names = [column.key for column in naming]
    by_key = {column.key: column for column in own}
    chosen = {}
    for rank, key in enumerate(wanted, start=1):
        is_here = key in by_key or any(key in row for row in frame.rows[:1])
        if is_here and key not in names:
            column = by_key.get(key) or COLUMNS.get(key) or Column(key=key)
            chosen[key] = replace(column, priority=min(rank, EXTRA - 1))
    if all(wanted.values()):
        own_or_chosen = [chosen.pop(column.key, column) for column in own]
        return replace(frame, columns=(*naming, *own_or_chosen, *chosen.values()))
    keys = list(frame.records()[0])
    exported = [key for key in wanted if key in keys]
    if exported:
        frame = replace(frame, exported=list(dict.fromkeys([keys[0], *exported])))
    if chosen:
        return replace(frame, columns=(*naming, *chosen.values()))
    return frame
