"""Checks on machines made of dice: a baseline of a few runs, then unchanged and slower code, by the real loop."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial, reduce

from ffnbench.bench.runner import run
from ffnbench.plan import Plan
from ffnbench.request import DEFAULT_BUDGET_S
from ffnbench.result import Report
from ffnbench.selftest.alarms import Alarm, alarms_of, check_policy, refused, slowed
from ffnbench.selftest.machine import Machine, World
from ffnbench.selftest.processes import Counting, each, silent
from ffnbench.stats.enough import Answered
from ffnbench.stats.history import KEPT
from ffnbench.stats.looks import foretell, look_back, report_of, unresolved

BASELINE_RUNS, BUDGET_S = 3, DEFAULT_BUDGET_S


def simulate_checks(
    plan: Plan,
    tolerance: float,
    shares: Iterable[float],
    repeats: int,
    worlds: Iterable[World],
    *,
    seed: int = 0,
    processes: int | None = None,
    counting: Counting = silent,
) -> list[Alarm]:
    """`repeats` baselines in every world, each with a check of code that is slower by each share."""
    tasks = [(world, seed + number) for world in worlds for number in range(repeats)]
    work = partial(_of_baseline, plan, tolerance, tuple(shares))
    return [alarm for alarms in each(work, tasks, processes, counting) for alarm in alarms]


def _of_baseline(plan: Plan, tolerance: float, shares: tuple[float, ...], task: tuple[World, int]) -> list[Alarm]:
    (world, seed), policy = task, check_policy(tolerance)
    machine = Machine(world, plan, seed)
    before = reduce(
        lambda first, later: first.with_repeat(later, KEPT),
        [report_of(machine.run(run)) for _ in range(BASELINE_RUNS)],
    )
    if blind := unresolved(foretell(before, policy, BUDGET_S)):
        return [refused(blind.case, condition=world.name, repeat=seed, injected=share) for share in shares]
    return [alarm for share in shares for alarm in _check(before, machine, share, seed, tolerance)]


def _check(before: Report, machine: Machine, injected: float, seed: int, tolerance: float) -> list[Alarm]:
    now = Machine(machine.world, slowed(machine.plan, injected), seed + 10**6)

    def measured(asked: Plan, answered: Answered) -> Report:
        return report_of(now.measure(asked, run, answered))

    looks = look_back(before, check_policy(tolerance), BUDGET_S, measured)
    return alarms_of(
        looks.findings, condition=machine.world.name, repeat=seed, injected=injected, seconds=now.clock_s,
    )  # fmt: skip
