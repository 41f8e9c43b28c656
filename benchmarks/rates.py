"""How often `compare` is wrong on simulated machines: `python benchmarks/rates.py
[--runs N]`, two minutes on two CPUs.

Workers made of dice go through the real runner, statistics and decisions: one module
against itself, and slowed down by 3, 5 and 10 %. Prints a row a world, all together,
and worlds with states that outlast a run, which no run can cover; then rows for 1, 2, 5
and 12 equal modules. Coverage is of all rows of a run together. Ends with
1 where intervals or verdicts are wrong more often than promised, by more than chance.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from functools import partial

import pandas as pd
from simulated import STATES, WORLDS, Machine, World, as_measured, each, latency_plan

from ffnbench.plan.plan import Plan
from ffnbench.record.result import Verdict
from ffnbench.run.runner import run_workers
from ffnbench.stats.verdict import summarise

EQUAL_ROWS = (1, 2, 5, 12)  # of the runs that have no others
SLOWDOWNS = {"+3%": 0.03, "+5%": 0.05, "+10%": 0.10}
# what is promised: the share of runs with a false difference at most, and the bounds of
# the share of runs in which every interval holds the truth
FALSE_AT_MOST, COVERAGE = 0.05, (0.94, 0.965)


def comparison_plan(
    workers: int | None = None,
    equal: int = 2,
    slowdowns: Mapping[str, float] = SLOWDOWNS,
) -> Plan:
    """Plan a comparison of a module with itself, so many times, and with itself slowed
    down by known shares.
    """
    variants = ["base=relu", *(f"same{number}=relu" for number in range(equal))]
    variants += [f"{name}=relu@slowdown={share}" for name, share in slowdowns.items()]
    return latency_plan(",".join(variants), d_model=256, workers=workers)


def simulate(
    runs: int,
    *,
    seed: int = 0,
    worlds: Sequence[World] = WORLDS,
    processes: int | None = None,
    plan: Plan | None = None,
) -> pd.DataFrame:
    """What `runs` runs of the plan say, spread evenly over the worlds: a row of the
    frame is what a run says of a row but the reference.
    """
    tasks = [
        (worlds[run % len(worlds)], seed + run // len(worlds)) for run in range(runs)
    ]
    work = partial(_rows_of_run, plan or comparison_plan())
    found = each(work, tasks, processes)
    rows = [{"run": run, **row} for run, of in enumerate(found) for row in of]
    return pd.DataFrame(rows)


def _rows_of_run(plan: Plan, task: tuple[World, int]) -> list[dict[str, object]]:
    world, seed = task
    run = Machine(world, plan, seed).run(run_workers)
    rows = []
    for comparison in summarise(run)[1]:
        if comparison.case == comparison.reference:
            continue
        truth = 1 + plan.case(comparison.case).workload.slowdown
        low = high = math.nan
        if comparison.ratio and comparison.ratio.low and comparison.ratio.high:
            low, high = comparison.ratio.low, comparison.ratio.high
        row = {
            "world": world.name,
            "case": comparison.case,
            "is_equal": truth == 1,
            "has_interval": not math.isnan(low),
            "misses": not low <= truth <= high,
            "verdict": comparison.verdict,
            "seconds": run.wall_s or 0.0,
        }
        rows.append(row)
    return rows


def rates_of(rows: pd.DataFrame) -> pd.Series:
    """How often some runs were right and wrong, as shares of the runs. A run has a
    false difference if any of its equal rows is called slower or faster; it goes the
    wrong way if a slowed row is called faster, or the same. `coverage` is of the runs
    with an interval.
    """
    differs = rows.verdict.isin([Verdict.SLOWER, Verdict.FASTER])
    flags = rows.assign(
        false=rows.is_equal & differs,
        wrong=~rows.is_equal & rows.verdict.isin([Verdict.FASTER, Verdict.SAME]),
        misses=rows.has_interval & rows.misses,
        busy=rows.verdict == Verdict.BUSY,
    )
    runs = flags.groupby("run")[
        ["false", "wrong", "misses", "busy", "has_interval"]
    ].any()
    rates = {
        "runs": len(runs),
        "false diffs": runs.false.mean(),
        "wrong way": runs.wrong.mean(),
    }
    rates["coverage"] = 1 - runs.misses[runs.has_interval].mean()
    for name in SLOWDOWNS:
        of_row = rows[rows.case == name]
        rates[f"finds {name}"] = (of_row.verdict == Verdict.SLOWER).mean()
    return pd.Series(
        {**rates, "busy": runs.busy.mean(), "a run, s": rows.seconds.mean()}
    )


def broken_promises(rates: pd.Series) -> list[str]:
    """Say which promises the runs did not keep, by more than chance explains."""
    problems = []
    runs, false, coverage = rates["runs"], rates["false diffs"], rates["coverage"]
    if false > FALSE_AT_MOST + chance(FALSE_AT_MOST, runs):
        problems.append(f"false differences in {false:.1%} of the runs")
    least, most = COVERAGE
    if coverage < least - chance(least, runs) or coverage > most + chance(most, runs):
        problems.append(f"all intervals hold in {coverage:.1%} of the runs")
    return problems


def chance(share: float, runs: int) -> float:
    """How far the share in so many runs may be from the true one: three standard
    errors.
    """
    return 3 * math.sqrt(share * (1 - share) / runs)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=900, help="in all worlds together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, help="processes of a run, if fixed")
    asked = parser.parse_args(arguments)
    of_runs = partial(simulate, seed=asked.seed)
    plan = comparison_plan(asked.workers)
    found = of_runs(asked.runs, worlds=(as_measured(), *WORLDS), plan=plan)
    together = {"all worlds": found}
    for equal in EQUAL_ROWS:
        plan_of_equal = comparison_plan(asked.workers, equal, {})
        together[f"{equal} equal"] = of_runs(asked.runs, plan=plan_of_equal)
    beyond = of_runs(asked.runs // 3, worlds=STATES, plan=plan)
    every = dict(iter(pd.concat([found, beyond]).groupby("world", sort=False)))
    every |= together
    table = pd.DataFrame({name: rates_of(rows) for name, rows in every.items()}).T
    print(table.round(3).to_string())
    broken = [
        f"{name}: {problem}"
        for name in together
        for problem in broken_promises(table.loc[name])
    ]
    print(*broken, sep="\n")
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
