"""How often `compare` is wrong on simulated machines: `python benchmarks/rates.py
[--runs N]`, two minutes on two CPUs.

Workers made of dice go through the real runner, statistics and decisions: one module
against itself, and slowed down by 3, 5 and 10 %. Prints a row a world, all together,
and worlds with states that outlast a run, which no run can cover. Ends with 1 where
intervals or verdicts are wrong more often than promised, by more than chance.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from functools import partial

from exam.machine import STATES, WORLDS, Machine, World, as_measured
from exam.processes import each
from exam.text import share, table

from ffnbench.extras.selftest.measuring import (
    SLOWDOWNS,
    SelftestRow,
    broken_promises,
    comparison_plan,
    error_rates,
    rows_of_run,
)
from ffnbench.run.runner import run_workers

HEAD = (
    "world",
    "runs",
    "false diffs",
    "wrong way",
    "coverage",
    *(f"finds {name}" for name in SLOWDOWNS),
    "busy",
    "a run",
)


def simulate(
    runs: int,
    *,
    seed: int = 0,
    worlds: Iterable[World] = WORLDS,
    processes: int | None = None,
    workers: int | None = None,
) -> dict[str, list[SelftestRow]]:
    """What `runs` runs say, spread evenly over the worlds; each has a number of its
    own. `workers` fixes how many processes a run has.
    """
    chosen = list(worlds)
    numbers = [range(place, runs, len(chosen)) for place in range(len(chosen))]
    told = each(
        partial(_one_world, seed, workers),
        list(zip(chosen, numbers, strict=True)),
        processes,
    )
    return {world.name: found for world, found in zip(chosen, told, strict=True)}


def _one_world(
    seed: int, workers: int | None, task: tuple[World, range]
) -> list[SelftestRow]:
    (world, numbers), plan = task, comparison_plan(workers=workers)
    runs = [
        (number, Machine(world, plan, seed + place))
        for place, number in enumerate(numbers)
    ]
    return [
        one
        for number, machine in runs
        for one in rows_of_run(machine.run(run_workers), plan, number)
    ]


def row(name: str, told: Sequence[SelftestRow]) -> tuple[str, ...]:
    """What a world's runs came to."""
    of = error_rates(told)
    shares = (
        of.false_difference,
        of.wrong_way,
        of.covered,
        *of.detected.values(),
        of.busy,
    )
    return (
        name,
        str(of.runs),
        *(share(one.hits, one.of) for one in shares),
        f"{of.seconds:.0f} s",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=900, help="in all worlds together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, help="processes of a run, if fixed")
    asked = parser.parse_args(arguments)
    how = {"seed": asked.seed, "workers": asked.workers}
    found = simulate(asked.runs, worlds=(as_measured(), *WORLDS), **how)
    beyond = simulate(asked.runs // 3, worlds=STATES, **how)
    whole = [one for told in found.values() for one in told]
    every = {**found, "all worlds": whole, **beyond}
    broken = broken_promises(error_rates(whole))
    print(
        table(HEAD, [row(name, told) for name, told in every.items() if told]),
        *broken,
        sep="\n",
    )
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
