"""The table of `selftest`: how often runs on this machine were wrong."""

from __future__ import annotations

from dataclasses import asdict, replace

from ffnbench.common.errors import Unfinished
from ffnbench.common.units import percent
from ffnbench.extras.selftest.measuring import (
    COVERAGE,
    FALSE_AT_MOST,
    SLOWDOWNS,
    Rate,
    Rates,
    SelftestRuns,
    broken_promises,
    error_rates,
)
from ffnbench.report.formats import View
from ffnbench.report.frame import UNKNOWN_CELL, Column, Frame, Row
from ffnbench.result import Verdict

BUSY = Verdict.BUSY


def rates_frame(rates: Rates) -> Frame:
    """The table of one row: the rates of all runs together."""
    shares = {
        "false": rates.false_difference,
        "wrong": rates.wrong_way,
        "coverage": rates.covered,
        "says": rates.busy,
    }
    row: Row = {"runs": rates.runs, **shares, **rates.detected, "a run": rates.seconds}
    columns = (
        Column(key="runs", write=str),
        Column(key="false", unit="diffs", write=_rate_text),
        Column(key="wrong", unit="way", write=_rate_text),
        Column(key="coverage", unit="of 95%", write=_rate_text),
        *(
            Column(key=name, title="finds", unit=name, priority=1, write=_rate_text)
            for name in rates.detected
        ),
        Column(key="says", unit=BUSY, priority=2, write=_rate_text),
        Column(key="a run", unit="s", priority=3, write="{:.0f}".format),
    )
    header = (
        "Runs on this machine as it is: one module against itself twice, and slowed down by exactly "
        f"{', '.join(name[1:] for name in SLOWDOWNS)}",
    )
    notes = (
        f"false diffs: runs in which an equal row is called slower or faster (at most {percent(FALSE_AT_MOST)})",
        "wrong way: slowed rows that are called faster, or the same",
        f"coverage: intervals that hold the true ratio ({COVERAGE[0]:.0%} to {COVERAGE[1]:.0%})",
        "finds: runs in which the slowed row is called slower",
        f"says {BUSY}: runs with a row that had too few rounds, since other processes used the CPUs",
    )
    undecided = (
        f"no row has an interval: this machine is {BUSY}; try again when it is quiet",
    )
    return Frame(
        columns=columns,
        rows=[row],
        header=header,
        summary=() if rates.covered.of else undecided,
        details=notes,
    )


def _rate_text(share: Rate) -> str:
    return f"{100 * share.value:.1f}%" if share.of else UNKNOWN_CELL


def selftest_view(runs: SelftestRuns) -> View:
    """The answer of `selftest`, which saves a record for each row of each run. It ends
    with an error where not all runs were measured or a promise is broken.
    """
    rates = error_rates(runs.rows)
    records = [asdict(row) for row in runs.rows]
    view = View(
        frame=lambda: replace(rates_frame(rates), saved=records), title="selftest"
    )
    if runs.problem is not None:
        return view.ending(0, runs.problem)
    broken = broken_promises(rates)
    if broken:
        hint = "the numbers of this ffnbench can't be trusted"
        problem = Unfinished(f"the selftest failed: {'; '.join(broken)}", hint)
        return view.ending(0, problem)
    return view
