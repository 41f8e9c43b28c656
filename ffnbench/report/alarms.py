"""The table of the gate's selftest: false alarms, slow-downs found, and what stayed undecided, by condition."""

from __future__ import annotations

from dataclasses import asdict
from math import sqrt
from typing import Any

from ffnbench.alarms import ROW, SLOWED, TOLERANCE, Alarm, Counts, conditions, counts
from ffnbench.report.table import UNKNOWN, Cell, Column, Table
from ffnbench.units import percent

Record = dict[str, Any]


def alarm_records(alarms: list[Alarm]) -> list[Record]:
    """One flat record a row of a check."""
    return [asdict(alarm) for alarm in alarms]


def alarm_table(alarms: list[Alarm]) -> Table:
    """One row a condition, all of them together in the last."""
    columns = (
        Column(title="", left=True),
        Column(title="false alarms", unit="unchanged"),
        *(Column(title="finds", unit=name) for name in SLOWED),
        Column(title="unclear", unit="unchanged", priority=1),
        Column(title="refused", priority=3),
        Column(title="error", unit="rms", priority=2),
        Column(title="a check", unit="s", priority=3),
    )
    named = conditions(alarms)
    rows = [_row(name, alarms, name) for name in named]
    if len(named) > 1:
        rows.append(_row("all", alarms, None))
    header = (
        f"ffnbench check at a tolerance of {percent(TOLERANCE)}, on unchanged code and on code whose {ROW} is slower "
        f"by {' or '.join(SLOWED)}",
    )
    notes = (
        "false alarms: checks of unchanged code that end with REGRESSED; finds: checks that accuse the slowed row",
        "unclear: checks of unchanged code with a row that stays UNCLEAR within the budget",
        *(_innocent(alarms)),
    )
    return Table(columns=columns, rows=tuple(rows), header=header, footnotes=notes)


def _innocent(alarms: list[Alarm]) -> list[str]:
    """Rows beside the slowed one are unchanged as well."""
    slowed = [a for a in alarms if a.injected and a.row != ROW and a.change is not None]
    accused = sum(a.status == "REGRESSED" for a in slowed)
    return [f"of {len(slowed)} unchanged rows beside the slowed one, {accused} were accused"] if slowed else []


def _row(name: str, alarms: list[Alarm], condition: str | None) -> tuple[Cell, ...]:
    every = [counts(alarms, condition, share) for share in (0.0, *SLOWED.values())]
    unchanged, *slowed = every
    errors = [of.error**2 for of in every if of.error is not None]
    seconds = [of.seconds for of in every if of.asked]
    texts = (
        name,
        _share(unchanged.false_alarms, unchanged),
        *(_share(of.found, of) for of in slowed),
        _share(unchanged.unclear, unchanged),
        str(unchanged.refused) if unchanged.refused else UNKNOWN,
        percent(sqrt(sum(errors) / len(errors))) if errors else UNKNOWN,
        f"{sum(seconds) / len(seconds):.0f}" if seconds else UNKNOWN,
    )
    return tuple(Cell(text=text) for text in texts)


def _share(hits: int, of: Counts) -> str:
    return f"{hits} of {of.asked}" if of.asked else UNKNOWN
