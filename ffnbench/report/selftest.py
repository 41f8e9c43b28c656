"""The selftest's tables: error rates of simulated runs, and errors on this machine beside those of other methods."""

from __future__ import annotations

from dataclasses import asdict
from math import sqrt
from statistics import median

from ffnbench.errors import Interrupted, Unfinished
from ffnbench.report.formats import View, view_of
from ffnbench.report.records import Record
from ffnbench.report.table import UNKNOWN, Cell, Column, Table
from ffnbench.result import Verdict
from ffnbench.selftest.alarms import ROW, SLOWED, TOLERANCE, Alarm, Counts, conditions, counts
from ffnbench.selftest.exam import ENDED_EARLY, Result
from ffnbench.selftest.rates import (
    CONDITIONS,
    COVERAGE,
    FALSE_AT_MOST,
    OURS,
    RIVALS,
    SLOWER,
    Rates,
    Reading,
    Share,
    advantage,
    of_method,
    rms_error,
)
from ffnbench.units import percent

DECIDED = (Verdict.SLOWER.value, Verdict.FASTER.value)


def rates_records(rates: list[Rates]) -> list[Record]:
    """One flat record a world."""
    return [
        {
            "world": r.world, "runs": r.runs, "false_difference": r.false_difference.value,
            "coverage": r.covered.value, **{f"found_{name}": r.found[name].value for name in SLOWER},
            "wrong_way": r.wrong_way.value, "workers": r.workers, "seconds": r.seconds,
        }
        for r in rates
    ]  # fmt: skip


def rates_table(rates: list[Rates]) -> Table:
    """The same for people, the total in the last row."""
    columns = (
        Column(title="world", left=True),
        Column(title="runs"),
        Column(title="false", unit="diffs"),
        Column(title="coverage", unit="of 95%"),
        *(Column(title="finds", unit=name, priority=1) for name in SLOWER),
        Column(title="workers", unit="mean", priority=2),
    )
    rows = tuple(
        tuple(
            Cell(text=text)
            for text in (
                r.world, str(r.runs), _share(r.false_difference), _share(r.covered),
                *(_share(r.found[name]) for name in SLOWER), f"{r.workers:.1f}",
            )
        )
        for r in rates
    )  # fmt: skip
    header = (
        "Simulated runs through the real runner, statistics and decisions: one module against itself twice, and",
        f"slowed down by {', '.join(SLOWER)}; five rows a run, precision 1%, Holm over the rows",
    )
    notes = (
        f"false diffs: runs in which an equal row is called slower or faster (at most {percent(FALSE_AT_MOST)})",
        f"coverage: intervals that hold the true ratio ({COVERAGE[0]:.0%} to {COVERAGE[1]:.0%})",
    )
    return Table(columns=columns, rows=rows, header=(" ".join(header),), footnotes=notes)


def _share(share: Share) -> str:
    return f"{100 * share.value:.1f}%"


def live_records(readings: list[Reading]) -> list[Record]:
    """One flat record a reading."""
    return [asdict(reading) for reading in readings]


def live_table(tables: list[list[Reading]]) -> Table:
    """Errors and conclusions by condition and method, of one live selftest or of several together."""
    readings = [reading for table in tables for reading in table]
    columns = (
        Column(title="", left=True),
        Column(title="method", left=True),
        Column(title="itself", unit="rms error"),
        Column(title="against", unit=OURS),
        Column(title="slowed", unit="rms error", priority=2),
        Column(title="false", unit="diffs"),
        *(Column(title="finds", unit=name, priority=1) for name in SLOWER),
        Column(title="a run", unit="s", priority=3),
    )
    rows = []
    for condition in [c for c in CONDITIONS if any(r.condition == c for r in readings)]:
        ours = rms_error([r for r in of_method(readings, condition, OURS) if r.truth == 1])
        for method in (OURS, *RIVALS):
            of = of_method(readings, condition, method)
            equal, slowed = [r for r in of if r.truth == 1], [r for r in of if r.truth != 1]
            texts = (
                condition if method == OURS else "", method, percent(rms_error(equal)),
                "1x" if method == OURS else f"{rms_error(equal) / ours:.0f}x", percent(rms_error(slowed)),
                _count(equal, DECIDED),
                *(_count([r for r in slowed if r.row == name], ("slower",)) for name in SLOWER),
                f"{sum(r.seconds for r in of) / len(of):.0f}",
            )  # fmt: skip
            rows.append(tuple(Cell(text=text) for text in texts))
    header = (
        "A module against itself, and against itself slowed down by known shares, on this machine, "
        "each method in the same total time",
    )
    notes = (
        "itself, slowed: rms error of the log of the ratio, against its true value",
        "false diffs: rows of the module itself that are called slower or faster; finds: slowed rows called slower",
        "the other methods give no verdict: their ratios are taken at their word, within 2% the same",
    )
    return Table(columns=columns, rows=tuple(rows), header=header, footnotes=notes, summary=_medians(tables))


def _medians(tables: list[list[Reading]]) -> tuple[str, ...]:
    """How many times smaller our error is than each rival's: the median over several selftests."""
    if len(tables) < 2:
        return ()
    said = []
    for condition in CONDITIONS:
        times = [
            f"{median(advantage(t, condition, rival) for t in tables):.0f} times smaller than that of the {rival}"
            for rival in RIVALS
        ]
        said.append(f"{condition}: the error on the module itself is {' and '.join(times)}")
    return (f"medians of {len(tables)} selftests:", *said)


def _count(readings: list[Reading], verdicts: tuple[str, ...]) -> str:
    return f"{sum(r.verdict in verdicts for r in readings)} of {len(readings)}"


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
    rows = [_alarm_row(name, alarms, name) for name in named]
    if len(named) > 1:
        rows.append(_alarm_row("all", alarms, None))
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


def _alarm_row(name: str, alarms: list[Alarm], condition: str | None) -> tuple[Cell, ...]:
    every = [counts(alarms, condition, share) for share in (0.0, *SLOWED.values())]
    unchanged, *slowed = every
    errors = [of.error**2 for of in every if of.error is not None]
    seconds = [of.seconds for of in every if of.asked]
    texts = (
        name,
        _of_checks(unchanged.false_alarms, unchanged),
        *(_of_checks(of.found, of) for of in slowed),
        _of_checks(unchanged.unclear, unchanged),
        str(unchanged.refused) if unchanged.refused else UNKNOWN,
        percent(sqrt(sum(errors) / len(errors))) if errors else UNKNOWN,
        f"{sum(seconds) / len(seconds):.0f}" if seconds else UNKNOWN,
    )
    return tuple(Cell(text=text) for text in texts)


def _of_checks(hits: int, of: Counts) -> str:
    return f"{hits} of {of.asked}" if of.asked else UNKNOWN


def selftest_view(result: Result) -> View:
    """The answer of `selftest`, whichever exam it was; a broken promise is how it ends."""
    records: list[Record]
    if result.rates:
        records, table = rates_records(list(result.rates)), rates_table(list(result.rates))
    elif result.readings:
        records = [record for readings in result.readings for record in live_records(list(readings))]
        table = live_table([list(readings) for readings in result.readings])
    else:
        records, table = alarm_records(list(result.alarms)), alarm_table(list(result.alarms))
    view = view_of(table, lambda: records)
    if ENDED_EARLY in result.broken:
        return view.ending(0, Interrupted(ENDED_EARLY))
    if result.broken:
        hint = "the numbers of this ffnbench can't be trusted"
        return view.ending(0, Unfinished("the selftest failed: " + "; ".join(result.broken), hint))
    return view
