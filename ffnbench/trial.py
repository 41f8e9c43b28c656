"""The journey of `selftest`: which of the two, checked, then measured and told."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ffnbench.bench.errorrates import simulate
from ffnbench.bench.live import live_plan, measure
from ffnbench.errors import FfnbenchError
from ffnbench.ffn.spec import require_positive
from ffnbench.report.selftest import live_records, live_table, rates_records, rates_table
from ffnbench.report.store import read_readings
from ffnbench.report.table import Table
from ffnbench.result import Progress
from ffnbench.selftest import CONDITIONS, RIVALS, Reading, failures, total

Told = tuple[list[dict[str, Any]], Table, list[str]]  # records, table, broken promises
Listener = Callable[[Progress], None]
FEWEST_RUNS = 12
ENDED_EARLY = "interrupted; the table holds the repeats that were whole by then"
RUNS, REPEATS, BUDGET_S, D_MODEL, TOKENS = 1000, 5, 20.0, 256, 256


def question(
    runs: int | None, live: bool, repeats: int | None, budget: float | None, d_model: int | None, saved: list[str]
) -> Callable[[Listener], Told]:
    """What is to be done, with every mistake found first."""
    if (live or saved) and runs is not None:
        raise FfnbenchError("--runs is about simulated runs", "give --live or --from without it")
    if live and saved:
        raise FfnbenchError("--from shows what --live saved", "give one of the two")
    runs = RUNS if runs is None else runs
    if saved:
        return partial(_told, [read_readings(path) for path in saved])
    if live:
        plan = live_plan(
            BUDGET_S if budget is None else budget, require_positive("d_model", d_model or D_MODEL), TOKENS
        )
        many = require_positive("repeats", REPEATS if repeats is None else repeats)
        return partial(_live, plan, many)
    for name, value in {"repeats": repeats, "budget": budget, "d-model": d_model}.items():
        if value is not None:
            raise FfnbenchError(f"--{name} needs --live", "simulated runs take no time and have no width")
    if runs < FEWEST_RUNS:
        raise FfnbenchError(f"--runs {runs} is too few to count anything", f"give at least {FEWEST_RUNS}")
    return partial(_simulated, runs)


def _simulated(runs: int, on_progress: Listener) -> Told:
    rates = simulate(
        runs,
        on_progress=lambda done, of: on_progress(Progress(done=done / of, text=f"simulating  {done} of {of} worlds")),
    )
    whole = total(rates)
    return rates_records([*rates, whole]), rates_table([*rates, whole]), failures(whole)


def _live(plan: Any, repeats: int, on_progress: Listener) -> Told:
    readings = measure(plan, repeats, lambda done, text: on_progress(Progress(done=done, text=text)))
    records, table, _ = _told([readings], on_progress)
    asked = len(CONDITIONS) * repeats * (1 + len(RIVALS)) * plan.compared
    return records, table, [] if len(readings) == asked else [ENDED_EARLY]


def _told(tables: list[list[Reading]], on_progress: Listener) -> Told:
    """One live selftest, or several together."""
    return [record for readings in tables for record in live_records(readings)], live_table(tables), []
