"""Checks of baselines of several runs, on machines made of dice: by the real loop and
decisions.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial, reduce

from exam.alarms import Alarm, alarms_of, check_policy, slowed
from exam.machine import Machine, World
from exam.processes import each
from ffnbench.gate.decision import baseline_times
from ffnbench.gate.interim import UntilDecided, latency_report, plan_of_check
from ffnbench.plan.plan import Plan
from ffnbench.plan.protocol import DEFAULT_BUDGET_S
from ffnbench.record.result import Report
from ffnbench.run.runner import run_workers

BASELINE_RUNS = 3
AGES = 10**6  # between the seeds of a baseline and of its checks


def simulate_checks(
    plan: Plan,
    tolerance: float,
    shares: Iterable[float],
    repeats: int,
    worlds: Iterable[World],
    *,
    runs: int = BASELINE_RUNS,
    budget: float = DEFAULT_BUDGET_S,
    seed: int = 0,
    processes: int | None = None,
) -> list[Alarm]:
    """`repeats` baselines of so many runs in every world, each with a check of code
    that is slower by each share.
    """
    tasks = [(world, seed + number) for world in worlds for number in range(repeats)]
    work = partial(_of_baseline, plan, tolerance, tuple(shares), runs, budget)
    return [alarm for alarms in each(work, tasks, processes) for alarm in alarms]


def _of_baseline(
    plan: Plan,
    tolerance: float,
    shares: tuple[float, ...],
    runs: int,
    budget: float,
    task: tuple[World, int],
) -> list[Alarm]:
    world, seed = task
    machine = Machine(world, plan, seed)
    before = reduce(
        lambda first, later: first.with_repeat(later),
        [latency_report(machine.run(run_workers)) for _ in range(runs)],
    )
    return [
        alarm
        for share in shares
        for alarm in _check(before, machine, share, seed, tolerance, budget)
    ]


def _check(
    before: Report,
    machine: Machine,
    injected: float,
    seed: int,
    tolerance: float,
    budget: float,
) -> list[Alarm]:
    now = Machine(machine.world, slowed(machine.plan, injected), seed + AGES)
    policy = check_policy(tolerance)
    stop = UntilDecided(policy, baseline_times(before))
    done = latency_report(
        now.measure(plan_of_check(before.plan, policy, budget), run_workers, stop)
    )
    return alarms_of(
        stop.conclusion(done), condition=machine.world.name, repeat=seed, injected=injected, seconds=now.clock_s,
    )  # fmt: skip


def simulate_sides(
    plan: Plan,
    tolerance: float,
    shares: Iterable[float],
    repeats: int,
    worlds: Iterable[World],
    *,
    budget: float = DEFAULT_BUDGET_S,
    seed: int = 0,
    processes: int | None = None,
) -> list[Alarm]:
    """`repeats` runs of `ab` in every world for each share; the plan's reference is the
    base, its ROW the head.
    """
    tasks = [(world, seed + number) for world in worlds for number in range(repeats)]
    work = partial(_of_sides, plan, tolerance, tuple(shares), budget)
    return [alarm for alarms in each(work, tasks, processes) for alarm in alarms]


def _of_sides(
    plan: Plan,
    tolerance: float,
    shares: tuple[float, ...],
    budget: float,
    task: tuple[World, int],
) -> list[Alarm]:
    (world, seed), policy, alarms = task, check_policy(tolerance), []
    for share in shares:
        machine, stop = Machine(world, slowed(plan, share), seed), UntilDecided(policy)
        done = latency_report(
            machine.measure(plan_of_check(plan, policy, budget), run_workers, stop)
        )
        alarms += alarms_of(
            stop.conclusion(done),
            condition=world.name,
            repeat=seed,
            injected=share,
            seconds=machine.clock_s,
        )
    return alarms
