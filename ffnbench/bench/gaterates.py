"""The gate on simulated machines: how often it cries wolf, how often it sleeps. Deterministic."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace

from ffnbench.alarms import SLOWED, Alarm, alarms_of, gate_policy, gate_trial_plan, refused, slowed
from ffnbench.bench.runner import run
from ffnbench.bench.simulate import WORLDS, Machine, World
from ffnbench.check import DEFAULT_LATENCY, Policy, between_runs
from ffnbench.plan import Plan
from ffnbench.protocol import LONG_BUDGET_S
from ffnbench.result import Report
from ffnbench.sampling import Answered
from ffnbench.twolooks import blind_row, report_of, two_looks


def simulate_gate(
    repeats: int,
    *,
    seed: int = 0,
    worlds: Iterable[World] = WORLDS,
    on_progress: Callable[[int, int], None] = lambda done, of: None,
) -> list[Alarm]:
    """`repeats` baselines, spread evenly over the worlds, each checked unchanged and slowed down by known shares.

    Baselines are made while the machine is quiet. Between a baseline and its checks the ratios of different forms
    move by as much as the gate assumes they do.
    """
    chosen, plan = list(worlds), gate_trial_plan()
    alarms: list[Alarm] = []
    for repeat in range(repeats):
        alarms += _one(chosen[repeat % len(chosen)], plan, seed + repeat)
        on_progress(repeat + 1, repeats)
    return alarms


def _one(world: World, plan: Plan, seed: int) -> list[Alarm]:
    """A baseline and its checks; where the tolerance asks too much of this world, unchanged code at the default one."""
    quiet = replace(world, drift=0.0, burst=0.0, neighbour_s=0.0)
    before = report_of(Machine(quiet, plan, seed, moved=_moved(plan, seed)).run(run))
    if not blind_row(before, gate_policy(), LONG_BUDGET_S):
        shares = (0.0, *SLOWED.values())
        return [a for n, share in enumerate(shares) for a in _check(before, gate_policy(), world, share, seed, n)]
    name, policy = f"{world.name}, at {DEFAULT_LATENCY:.0%}", gate_policy(DEFAULT_LATENCY)
    if blind := blind_row(before, policy, LONG_BUDGET_S):
        return [refused(blind.case, condition=name, repeat=seed, injected=0.0)]
    return _check(before, policy, replace(world, name=name), 0.0, seed, 0)


def _check(before: Report, policy: Policy, world: World, injected: float, seed: int, number: int) -> list[Alarm]:
    later = 1000 * (number + 1) + seed
    now = Machine(world, slowed(before.plan, injected), later, moved=_moved(before.plan, later))

    def measure(asked: Plan, answered: Answered) -> Report:
        return report_of(now.measure(asked, run, answered))

    looks = two_looks(before, policy, LONG_BUDGET_S, measure, now.now)
    return alarms_of(
        looks.findings, condition=world.name, repeat=seed, injected=injected, seconds=now.clock_s,
        twice=looks.again is not None,
    )  # fmt: skip


def _moved(plan: Plan, seed: int) -> dict[str, float]:
    """By how much each row's ratio is another than in other runs."""
    dice = random.Random(f"moved/{seed}")
    return {
        case.label: dice.gauss(0, between_runs(plan, case.label)) for case in plan.shown if case.label != plan.reference
    }
