"""The journey of `selftest`: which of the four, checked, then measured and told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ffnbench.errors import FfnbenchError
from ffnbench.ffn.spec import require_positive
from ffnbench.plan import Plan
from ffnbench.planning.effort import LEAST_BUDGET_S, LONG_BUDGET_S
from ffnbench.report.selftest import alarm_records, alarm_table, live_records, live_table, rates_records, rates_table
from ffnbench.report.store import read_readings
from ffnbench.report.table import Table
from ffnbench.result import Progress
from ffnbench.selftest.alarms import Alarm, broken_promises, simulate_gate
from ffnbench.selftest.live import CHECKS, live_gate_plan, live_plan, measure, measure_gate
from ffnbench.selftest.rates import CONDITIONS, RIVALS, Reading, failures, simulate, total

Told = tuple[list[dict[str, Any]], Table, list[str]]  # records, table, broken promises
Listener = Callable[[Progress], None]
FEWEST_RUNS = 12
ENDED_EARLY = "interrupted; the table holds the repeats that were whole by then"
RUNS, REPEATS, BUDGET_S, D_MODEL, TOKENS = 1000, 5, 20.0, 256, 256
GATE_RUNS, GATE_REPEATS, GATE_D_MODEL = 140, 20, 768


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The flags of `selftest`; None is "not given"."""

    gate: bool = False
    live: bool = False
    runs: int | None = None
    repeats: int | None = None
    budget: float | None = None
    d_model: int | None = None
    seed: int = 0
    saved: tuple[str, ...] = ()


def question(asked: Asked) -> Callable[[Listener], Told]:
    """What is to be done, with every mistake found first."""
    if (asked.live or asked.saved) and asked.runs is not None:
        raise FfnbenchError("--runs is about simulated runs", "give --live or --from without it")
    if asked.live and asked.saved:
        raise FfnbenchError("--from shows what --live saved", "give one of the two")
    if not 0 <= asked.seed < 2**31:
        raise FfnbenchError(f"--seed {asked.seed} is out of range", "a seed is between 0 and 2^31 - 1")
    if asked.saved:
        return _saved(asked.gate, asked.saved)
    if not asked.live:
        return _simulated(asked)
    width = require_positive("d_model", asked.d_model or (GATE_D_MODEL if asked.gate else D_MODEL))
    repeats = GATE_REPEATS if asked.gate else REPEATS
    repeats = require_positive("repeats", repeats if asked.repeats is None else asked.repeats)
    if not asked.gate:
        plan = live_plan(BUDGET_S if asked.budget is None else asked.budget, width, TOKENS)
        return partial(_live, plan, repeats, asked.seed)
    budget = LONG_BUDGET_S if asked.budget is None else asked.budget
    if not LEAST_BUDGET_S <= budget < float("inf"):
        raise FfnbenchError(f"--budget {budget:g} is too short", f"give at least {LEAST_BUDGET_S:g} seconds")
    return partial(_live_gate, live_gate_plan(width), repeats, budget, asked.seed)


def _simulated(asked: Asked) -> Callable[[Listener], Told]:
    for name, value in {"repeats": asked.repeats, "budget": asked.budget, "d-model": asked.d_model}.items():
        if value is not None:
            raise FfnbenchError(f"--{name} needs --live", "simulated runs take no time and have no width")
    runs = asked.runs if asked.runs is not None else GATE_RUNS if asked.gate else RUNS
    if runs < FEWEST_RUNS:
        raise FfnbenchError(f"--runs {runs} is too few to count anything", f"give at least {FEWEST_RUNS}")
    return partial(_gate_rates if asked.gate else _rates, runs, asked.seed)


def _saved(gate: bool, paths: tuple[str, ...]) -> Callable[[Listener], Told]:
    if gate:
        alarms = [read_readings(path, Alarm, "ffnbench selftest --gate --live") for path in paths]
        return lambda _: _told_gate([alarm for of in alarms for alarm in of])
    return partial(_told, [read_readings(path, Reading, "ffnbench selftest --live") for path in paths])


def _counting(on_progress: Listener, what: str) -> Callable[[int, int], None]:
    return lambda done, of: on_progress(Progress(done=done / of, text=f"simulating  {done} of {of} {what}"))


def _rates(runs: int, seed: int, on_progress: Listener) -> Told:
    rates = simulate(runs, seed=seed, on_progress=_counting(on_progress, "worlds"))
    whole = total(rates)
    return rates_records([*rates, whole]), rates_table([*rates, whole]), failures(whole)


def _gate_rates(runs: int, seed: int, on_progress: Listener) -> Told:
    return _told_gate(simulate_gate(runs, seed=seed, on_progress=_counting(on_progress, "baselines")))


def _told_gate(alarms: list[Alarm]) -> Told:
    return alarm_records(alarms), alarm_table(alarms), broken_promises(alarms)


def _live(plan: Plan, repeats: int, seed: int, on_progress: Listener) -> Told:
    readings = measure(plan, repeats, seed, lambda done, text: on_progress(Progress(done=done, text=text)))
    records, table, _ = _told([readings], on_progress)
    asked = len(CONDITIONS) * repeats * (1 + len(RIVALS)) * plan.compared
    return records, table, [] if len(readings) == asked else [ENDED_EARLY]


def _live_gate(plan: Plan, repeats: int, budget: float, seed: int, on_progress: Listener) -> Told:
    alarms = measure_gate(plan, repeats, budget, seed, lambda done, text: on_progress(Progress(done=done, text=text)))
    records, table, broken = _told_gate(alarms)
    made = {(alarm.condition, alarm.repeat, alarm.injected) for alarm in alarms}
    return records, table, broken if len(made) == repeats * len(CHECKS) else [ENDED_EARLY]


def _told(tables: list[list[Reading]], on_progress: Listener) -> Told:
    """One live selftest, or several together."""
    return [record for readings in tables for record in live_records(readings)], live_table(tables), []
