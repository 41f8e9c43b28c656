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

FIRST_SHOWN = 12  # names of columns in a hint


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """The values of `--sort` and `--columns`, empty where they are not given. `sort` is
    the name of a column, with `-` before it for the largest first. `columns` are names
    with commas between them: those that are shown, or with `+` before each those that
    are added to the usual ones and are the last to be left out.
    """

    sort: str = ""
    columns: str = ""

    @property
    def sorted_by(self) -> str:
        """The name of the column to sort by."""
        return self.sort.removeprefix("-").strip()

    @property
    def chosen(self) -> dict[str, bool]:
        """The names in `columns`, each with whether a `+` stood before it."""
        names = [part.strip() for part in self.columns.split(",") if part.strip()]
        return {name.removeprefix("+").strip(): name.startswith("+") for name in names}


def key_of(name: str, frame: Frame) -> str:
    """The key of the column that is called `name`: its key or its heading. Raises
    FfnbenchError where there is none.
    """
    keys = list(frame.records()[0])
    columns = [column for part in frame.parts for column in part.columns]
    columns += [COLUMNS[key] for key in keys if key in COLUMNS]
    key_by_name: dict[str, str] = {key: key for key in keys}
    # of several columns with one title the first has it: it is set last
    key_by_name |= {column.title.lower(): column.key for column in reversed(columns)}
    lower = name.lower()
    for spelling in (lower, lower.replace("-", "_")):
        if spelling in key_by_name:
            return key_by_name[spelling]
    names = list(dict.fromkeys([*(column.title for column in columns), *keys]))
    example = f"for example {', '.join(names[:FIRST_SHOWN])}; -f csv has them all"
    raise FfnbenchError(f"no column is called {name!r}", hint_for(name, names, example))


def arranged(frame: Frame, how: Arrangement) -> Frame:
    """The frame, and those above it, in the order and with the columns that were asked
    for; programs read them in this order too.
    """
    wanted = {key_of(name, frame): is_added for name, is_added in how.chosen.items()}
    key = key_of(how.sorted_by, frame) if how.sort else ""
    parts = []
    for part in frame.parts:
        changed = replace(part, short=())
        if key and any(key in row for row in part.rows):
            changed = _sorted_by(changed, key, down=how.sort.startswith("-"))
        if wanted:
            changed = _with_columns(changed, wanted)
        parts.append(changed)
    return replace(parts[-1], above=tuple(parts[:-1]))


def _in_order(rows: Iterable[Row], key: str, *, down: bool) -> list[Row]:
    """The rows in the order of their values, `down` with the largest first. Rows
    without a value come last in both; rows of equal values keep their order.
    """
    rows = list(rows)
    with_value = [row for row in rows if row[key] is not None]
    with_value.sort(key=lambda row: row[key], reverse=down)
    return with_value + [row for row in rows if row[key] is None]


def _sorted_by(frame: Frame, key: str, *, down: bool) -> Frame:
    """The frame with the rows of each group in the order of their values."""
    rows: list[Row] = []
    for _, places in frame.blocks:
        rows += _in_order([frame.rows[place] for place in places], key, down=down)
    saved = None if frame.saved is None else _in_order(frame.saved, key, down=down)
    return replace(frame, rows=rows, saved=saved)


def _with_columns(frame: Frame, wanted: dict[str, bool]) -> Frame:
    """The frame with the columns of these keys: in addition to its own where all are
    only added, else in place of all but those that tell rows apart. A frame that has
    none of them keeps its columns.
    """
    naming, own = frame.columns[: frame.naming], frame.columns[frame.naming :]
    names = [column.key for column in naming]
    by_key = COLUMNS | {column.key: column for column in own}
    chosen = {}
    for rank, key in enumerate(wanted, start=1):
        is_here = key in frame.rows[0] or any(column.key == key for column in own)
        if is_here and key not in names:
            # EXTRA - 1 is the last priority that is shown without -v
            priority = min(rank, EXTRA - 1)
            chosen[key] = replace(by_key.get(key, Column(key)), priority=priority)
    if all(wanted.values()):
        own_or_chosen = [chosen.pop(column.key, column) for column in own]
        return replace(frame, columns=(*naming, *own_or_chosen, *chosen.values()))
    records = frame.records()
    first, *others = records[0]
    saved = [first, *(key for key in wanted if key in others)]
    if len(saved) > 1:
        records = [{key: row[key] for key in saved} for row in records]
    columns = (*naming, *chosen.values()) if chosen else frame.columns
    return replace(frame, columns=columns, saved=records)
