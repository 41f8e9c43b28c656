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

    def __bool__(self) -> bool:
        return bool(self.sort or self.columns)

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
    """The key of the column that is called `name`: its key, its heading or one of its
    aliases. Raises FfnbenchError where there is none.
    """
    keys = list(frame.records()[0])
    shown = [column for part in frame.parts for column in part.headings()]
    core = [COLUMNS[key] for key in keys if key in COLUMNS]
    key_by_name: dict[str, str] = {key: key for key in keys}
    key_by_name |= {column.title.lower(): column.key for column in core}
    # of several columns with one title the first has it: it is set last
    for column in reversed(shown):
        key_by_name[column.name.lower()] = column.column.key
        key_by_name[column.title.lower()] = column.column.key
    lower = name.lower()
    for spelling in (name, lower, lower.replace("-", "_")):
        if spelling in key_by_name:
            return key_by_name[spelling]
    readable = [column.title for column in shown]
    readable += [column.title for column in core]
    names = list(dict.fromkeys([*readable, *keys]))
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
        if key:
            changed = sorted_by(changed, key, down=how.sort.startswith("-"))
        if wanted:
            changed = with_columns(changed, wanted)
        parts.append(changed)
    return replace(parts[-1], above=tuple(parts[:-1]))


def in_order(rows: Iterable[Row], key: str, *, down: bool) -> list[Row]:
    """The rows in the order of their values, `down` with the largest first. Rows
    without a value come last in both; rows of equal values keep their order.
    """
    rows = list(rows)
    with_value = [row for row in rows if row.get(key) is not None]
    with_value.sort(key=lambda row: row[key], reverse=down)
    return with_value + [row for row in rows if row.get(key) is None]


def sorted_by(frame: Frame, key: str, *, down: bool) -> Frame:
    """The frame with the rows of each group in the order of their values. Where each
    group has only one value, as on an axis, the groups themselves are ordered.
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
    """The frame with the columns of these keys: in addition to its own where all are
    only added, else in place of all but those that tell rows apart. A frame that has
    none of them keeps its columns.
    """
    naming, own = frame.columns[: frame.naming], frame.columns[frame.naming :]
    names = [column.key for column in naming]
    by_key = {column.key: column for column in own}
    chosen = {}
    for rank, key in enumerate(wanted, start=1):
        is_here = key in by_key or any(key in row for row in frame.rows[:1])
        if is_here and key not in names:
            column = by_key.get(key) or COLUMNS.get(key) or Column(key=key)
            # EXTRA - 1 is the last priority that is shown without -v
            chosen[key] = replace(column, priority=min(rank, EXTRA - 1))
    if all(wanted.values()):
        own_or_chosen = [chosen.pop(column.key, column) for column in own]
        return replace(frame, columns=(*naming, *own_or_chosen, *chosen.values()))
    records = frame.records()
    first, *others = records[0]
    saved = [first, *(key for key in wanted if key in others)]
    if len(saved) > 1:
        frame = replace(
            frame, saved=[{key: row[key] for key in saved} for row in records]
        )
    if chosen:
        return replace(frame, columns=(*naming, *chosen.values()))
    return frame
