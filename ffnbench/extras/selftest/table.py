"""The selftest's table: how often runs were wrong on this machine, whose rows have ratios that are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from ffnbench.errors import Interrupted, Unfinished
from ffnbench.extras.selftest.exam import COVERAGE, FALSE_AT_MOST, SLOWER, Rate, Rates, Told, failures, rates_of
from ffnbench.report.formats import NOT_ALL, View, view_of
from ffnbench.report.tables.table import UNKNOWN, Cell, Column, TextTable
from ffnbench.result import Verdict
from ffnbench.units import percent

BUSY = Verdict.BUSY.value
ENDED_EARLY = f"interrupted; {NOT_ALL}"


def rates_table(rates: Rates) -> TextTable:
    """One row: what all runs together came to."""
    columns = (
        Column(title="runs"),
        Column(title="false", unit="diffs"),
        Column(title="wrong", unit="way"),
        Column(title="coverage", unit="of 95%"),
        *(Column(title="finds", unit=name, priority=1) for name in SLOWER),
        Column(title="says", unit=BUSY, priority=2),
        Column(title="a run", unit="s", priority=3),
    )
    shares = (rates.false_difference, rates.wrong_way, rates.covered, *rates.found.values(), rates.busy)
    texts = (str(rates.runs), *map(_share, shares), f"{rates.seconds:.0f}")
    header = (
        "Runs on this machine as it is: one module against itself twice, and slowed down by exactly "
        f"{', '.join(name[1:] for name in SLOWER)}",
    )
    notes = (
        f"false diffs: runs in which an equal row is called slower or faster (at most {percent(FALSE_AT_MOST)})",
        "wrong way: slowed rows that are called faster, or the same",
        f"coverage: intervals that hold the true ratio ({COVERAGE[0]:.0%} to {COVERAGE[1]:.0%})",
        "finds: runs in which the slowed row is called slower",
        f"says {BUSY}: runs with a row that had too few rounds, since other processes used the CPUs",
    )
    undecided = (f"no row has an interval: this machine is {BUSY}; try again when it is quiet",)
    return TextTable(
        columns=columns, rows=(tuple(Cell(text=text) for text in texts),), header=header,
        summary=() if rates.covered.of else undecided, details=notes,
    )  # fmt: skip


def _share(share: Rate) -> str:
    return f"{100 * share.value:.1f}%" if share.of else UNKNOWN


def selftest_view(told: Sequence[Told], repeats: int) -> View:
    """The answer of `selftest`, its records one a row of each run; a broken promise is how it ends."""
    rates = rates_of(told)
    view = view_of(rates_table(rates), lambda: [asdict(one) for one in told])
    if rates.runs < repeats:
        return view.ending(0, Interrupted(ENDED_EARLY))
    if broken := failures(rates):
        hint = "the numbers of this ffnbench can't be trusted"
        return view.ending(0, Unfinished("the selftest failed: " + "; ".join(broken), hint))
    return view
