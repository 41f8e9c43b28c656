"""How often `check` is wrong on simulated machines: `python benchmarks/gate.py
[--baselines N]`, minutes on two CPUs.

Baselines of three runs on machines made of dice, and checks of each by the real loop:
of unchanged code and of code that is slower by 3, 5, 7, 8 and 10 %, at the default
tolerance. `--ab` simulates `ab` in place of `check`. Prints a row a world; ends with 1
if more than 1 % of the checks accuse a row that has not changed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial, reduce

import pandas as pd
from simulated import STATES, WORLDS, Machine, World, as_measured, each, latency_plan

from ffnbench.gate.decision import DEFAULT_LATENCY, Policy, Status, baseline_times
from ffnbench.gate.interim import UntilDecided, latency_report, plan_of_check
from ffnbench.plan.metrics import LATENCY
from ffnbench.plan.plan import Plan
from ffnbench.plan.protocol import DEFAULT_BUDGET_S
from ffnbench.run.runner import run_workers

CHOSEN = (*WORLDS[:3], STATES[0])
ROW = "swiglu"  # the row that is slowed down
SHARES = (0.0, 0.03, 0.05, 0.07, 0.08, 0.10)
BASELINE_RUNS = 3
AGES = 10**6  # between the seeds of a baseline and of its checks
FALSE_AT_MOST = 0.01  # of checks


def check_plan(variants: str = "relu,gelu,swiglu") -> Plan:
    """The main job."""
    return latency_plan(variants, d_model=768)


def slowed(plan: Plan, share: float) -> Plan:
    """The plan with ROW slowed down: what the code under test has become."""
    case = plan.case(ROW)
    slower = replace(case, workload=replace(case.workload, slowdown=share))
    cases = tuple(slower if each is case else each for each in plan.cases)
    return replace(plan, cases=cases)


def simulate(
    plan: Plan,
    worlds: Iterable[World],
    repeats: int,
    *,
    shares: Sequence[float] = SHARES,
    tolerance: float = DEFAULT_LATENCY,
    runs: int = BASELINE_RUNS,
    budget: float = DEFAULT_BUDGET_S,
    seed: int = 0,
    processes: int | None = None,
) -> pd.DataFrame:
    """`repeats` baselines of so many runs in every world, each with a check of code
    that is slower by each share; a row of the frame is what a check said of a row.
    Without runs there is no baseline: the plan's reference is base of `ab`, ROW is
    head.
    """
    tasks = [(world, seed + number) for world in worlds for number in range(repeats)]
    policy = Policy(tolerances={("", LATENCY): tolerance})
    work = partial(_checks, plan, policy, tuple(shares), runs, budget)
    return pd.DataFrame([row for rows in each(work, tasks, processes) for row in rows])


def _checks(
    plan: Plan,
    policy: Policy,
    shares: tuple[float, ...],
    runs: int,
    budget: float,
    task: tuple[World, int],
) -> list[dict[str, object]]:
    """What the checks against one baseline say, a record a check and row."""
    world, seed = task
    before = None
    if runs:
        machine = Machine(world, plan, seed)
        made = [latency_report(machine.run(run_workers)) for _ in range(runs)]
        report = reduce(lambda first, later: first.with_repeat(later), made)
        before, seed = baseline_times(report), seed + AGES
    records = []
    for share in shares:
        now, stop = (
            Machine(world, slowed(plan, share), seed),
            UntilDecided(policy, before),
        )
        run = now.measure(plan_of_check(plan, policy, budget), run_workers, stop)
        for finding in stop.conclusion(latency_report(run)):
            truth = 1 + share if finding.case == ROW else 1.0
            change = finding.change
            record = {
                "world": world.name,
                "seed": seed,
                "share": share,
                "case": finding.case,
                "status": finding.status,
                "is_slower": truth > 1,
                "covers": change and change.low and change.low <= truth <= change.high,
                "seconds": now.clock_s,
            }
            records.append(record)
    return records


def checks_of(found: pd.DataFrame) -> pd.DataFrame:
    """By world, seed and share, whether a check accuses a row that is not slower
    (`false`), finds one that is, or decides a row neither way (`unclear`).
    """
    regressed = found.status == Status.REGRESSED
    flags = found.assign(
        false=regressed & ~found.is_slower,
        found=regressed & found.is_slower,
        unclear=found.status == Status.UNCLEAR,
    )
    checks = flags.groupby(["world", "seed", "share"], sort=False)
    return checks[["false", "found", "unclear", "seconds"]].max()


def table(found: pd.DataFrame) -> pd.DataFrame:
    """A row a world: its checks of unchanged code, and those that find a slowdown."""
    checks = checks_of(found).reset_index()
    by_world = checks[checks.share == 0].groupby("world", sort=False)
    counted = by_world[["false", "unclear"]].sum().assign(checks=by_world.size())
    finds = checks[checks.share > 0].pivot_table(
        "found", "world", "share", "sum", sort=False
    )
    finds.columns = [f"finds +{share:.0%}" for share in finds.columns]
    worlds = counted.join(finds)
    worlds.loc["all"] = worlds.sum()
    worlds = worlds.astype(int)
    worlds["seconds"] = checks.groupby("world").seconds.mean().round()
    return worlds


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--baselines", type=int, default=60, help="in all worlds")
    parser.add_argument("--runs", type=int, default=BASELINE_RUNS, help="of a baseline")
    parser.add_argument("--ab", action="store_true", help="two sides, no baseline")
    parser.add_argument("--budget", type=float, default=DEFAULT_BUDGET_S)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(arguments)
    worlds = (as_measured(), *CHOSEN)
    found = simulate(
        check_plan("relu,swiglu") if asked.ab else check_plan(),
        worlds,
        max(1, asked.baselines // len(worlds)),
        runs=0 if asked.ab else asked.runs,
        budget=asked.budget,
        seed=asked.seed,
    )
    print(table(found).to_string())
    covered = found.covers.dropna().astype(float).groupby(found.share).mean()
    print("\nintervals that hold the true change:", covered.round(3).to_dict())
    false = checks_of(found)["false"].mean()
    print(f"checks that accuse a row that is not slower: {false:.1%}")
    return int(false > FALSE_AT_MOST)


if __name__ == "__main__":
    raise SystemExit(main())
