"""The gate on this machine: unchanged code, quiet and beside a neighbour, and code slowed down by known shares."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from ffnbench.alarms import NEIGHBOUR, QUIET, SLOWED, Alarm, alarms_of, gate_policy, gate_trial_plan, refused, slowed
from ffnbench.bench.environment import usable_cpus
from ffnbench.bench.live import NEIGHBOURS
from ffnbench.bench.runner import run
from ffnbench.errors import Interrupted, Unfinished
from ffnbench.plan import Plan
from ffnbench.result import Report
from ffnbench.sampling import Answered
from ffnbench.twolooks import blind_row, report_of, two_looks

CHECKS = ((QUIET, 0.0), *((QUIET, share) for share in SLOWED.values()), (NEIGHBOUR, 0.0))


def live_gate_plan(d_model: int) -> Plan:
    """The main job on this machine, with all its usable CPUs."""
    return gate_trial_plan(d_model=d_model, threads=usable_cpus())


def measure_gate(
    plan: Plan,
    repeats: int,
    budget: float,
    seed: int = 0,
    on_progress: Callable[[float, str], None] = lambda done, text: None,
) -> list[Alarm]:
    """A fresh baseline and its checks, `repeats` times.

    Interrupted, it gives the repeats that were whole by then; raises Interrupted where there is none.
    """
    alarms: list[Alarm] = []
    for number in range(repeats):
        try:
            alarms += _repeat(
                plan,
                seed + number,
                budget,
                lambda part, text: on_progress((number + part) / repeats, text),  # noqa: B023
            )
        except KeyboardInterrupt:
            if not alarms:
                raise Interrupted("interrupted before one repeat was whole") from None
            break
    return alarms


def _repeat(plan: Plan, seed: int, budget: float, tell: Callable[[float, str], None]) -> list[Alarm]:
    seeded = replace(plan, protocol=replace(plan.protocol, seed=seed))
    steps = 1 + len(CHECKS)
    tell(0.0, f"seed {seed}  baseline")
    before = _measured(seeded, None)
    found: list[Alarm] = []
    for place, (condition, injected) in enumerate(CHECKS):
        tell((1 + place) / steps, f"seed {seed}  {condition}, slowed by {injected:.0%}")
        found += _check(before, condition, injected, seed, budget)
    return found


def _check(before: Report, condition: str, injected: float, seed: int, budget: float) -> list[Alarm]:
    """One check; the code under test is the baseline's with a row slowed down, which the gate does not know."""
    policy = gate_policy()
    if blind := blind_row(before, policy, budget):
        return [refused(blind.case, condition=condition, repeat=seed, injected=injected)]

    def measure(asked: Plan, answered: Answered) -> Report:
        return _measured(slowed(asked, injected), answered)

    start = time.monotonic()
    with NEIGHBOURS[condition](seed):
        looks = two_looks(before, policy, budget, measure)
    return alarms_of(
        looks.findings, condition=condition, repeat=seed, injected=injected, seconds=time.monotonic() - start,
        twice=looks.again is not None,
    )  # fmt: skip


def _measured(plan: Plan, answered: Answered | None) -> Report:
    done = run(plan, answered=answered)
    if done.interrupted:
        raise KeyboardInterrupt
    if done.failures or done.stopped:
        raise Unfinished("a case of the selftest failed", done.failures[0].message if done.failures else done.stopped)
    return report_of(done)
