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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from exam.machine import STATES, WORLDS, Machine, World, as_measured
from exam.plans import latency_plan
from exam.processes import each
from exam.text import share, table

from ffnbench.plan.plan import Plan
from ffnbench.record.result import Run, Verdict
from ffnbench.run.runner import run_workers
from ffnbench.stats.verdict import summarise

# the labels of rows: the reference, rows equal to it, and rows that are slower by a
# known share
REFERENCE, EQUAL = "base", "same"
EQUAL_ROWS = (1, 2, 5, 12)  # of the runs that have no others
SLOWDOWNS = {"+3%": 0.03, "+5%": 0.05, "+10%": 0.10}
# what is promised: the share of runs with a false difference at most, and the bounds of
# the share of runs in which every interval holds the truth
FALSE_AT_MOST, COVERAGE = 0.05, (0.94, 0.965)
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


@dataclass(frozen=True, slots=True)
class RunRow:
    """What one run said of one row. `low` and `high` are None in a row without an
    interval, and `truth` is the true ratio of the row to the reference.
    """

    run: int
    row: str
    truth: float
    low: float | None
    high: float | None
    verdict: Verdict
    seconds: float  # the whole run

    @property
    def covers(self) -> bool:
        """Whether the interval holds the truth; a row without one does not."""
        if self.low is None or self.high is None:
            return False
        return self.low <= self.truth <= self.high


@dataclass(frozen=True, slots=True)
class Rate:
    """How many of some runs or rows something is true of."""

    hits: int
    of: int

    @property
    def value(self) -> float:
        """The rate as a fraction; 0 of 0 is 0."""
        return self.hits / self.of if self.of else 0.0

    def __str__(self) -> str:
        return share(self.hits, self.of)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """How often some runs were right and wrong. A run has a false difference if any of
    its equal rows is called slower or faster.
    """

    runs: int
    false_difference: Rate
    covered: Rate  # of the runs with an interval: each holds the truth
    detected: dict[str, Rate]  # by the label of a slowed row
    wrong_way: Rate  # of the slowed rows: called faster, or the same
    busy: Rate  # of the runs: a row is not decided because others used the CPUs
    seconds: float  # of a run, the mean


def comparison_plan(
    workers: int | None = None,
    equal: int = 2,
    slowdowns: Mapping[str, float] = SLOWDOWNS,
) -> Plan:
    """Plan a comparison of the reference with itself, so many times, and with itself
    slowed down by known shares.
    """
    variants = [f"{REFERENCE}=relu"]
    variants += [f"{EQUAL}{number}=relu" for number in range(equal)]
    variants += [f"{name}=relu@slowdown={share}" for name, share in slowdowns.items()]
    return latency_plan(",".join(variants), d_model=256, workers=workers)


def rows_of_run(run: Run, plan: Plan, number: int) -> list[RunRow]:
    """What a run of the plan says of each row but the reference. `number` is that of
    the run.
    """
    rows = []
    _, comparisons, _ = summarise(run)
    for comparison in comparisons:
        if comparison.case == comparison.reference:
            continue
        ratio = comparison.ratio
        row = RunRow(
            run=number,
            row=comparison.case,
            truth=1 + plan.case(comparison.case).workload.slowdown,
            low=ratio.low if ratio else None,
            high=ratio.high if ratio else None,
            verdict=comparison.verdict,
            seconds=run.wall_s or 0.0,
        )
        rows.append(row)
    return rows


def rates_of(rows: Sequence[RunRow]) -> Rates:
    """Count how often these rows, of any number of runs, are right and wrong."""
    seconds = {row.run: row.seconds for row in rows}

    def runs_with(rows: Iterable[RunRow], *verdicts: Verdict) -> Rate:
        """The runs in which one of these rows has one of these verdicts."""
        hits = {row.run for row in rows if row.verdict in verdicts}
        return Rate(len(hits), len(seconds))

    slowed = [row for row in rows if row.row in SLOWDOWNS]
    equal = [row for row in rows if row.row not in SLOWDOWNS]
    wrong_way = [row for row in slowed if row.verdict in (Verdict.FASTER, Verdict.SAME)]
    with_interval = [row for row in rows if row.low is not None]
    known = {row.run for row in with_interval}
    missed = {row.run for row in with_interval if not row.covers}
    return Rates(
        runs=len(seconds),
        false_difference=runs_with(equal, Verdict.SLOWER, Verdict.FASTER),
        covered=Rate(len(known - missed), len(known)),
        detected={
            name: runs_with([row for row in slowed if row.row == name], Verdict.SLOWER)
            for name in SLOWDOWNS
        },
        wrong_way=Rate(len(wrong_way), len(slowed)),
        busy=runs_with(rows, Verdict.BUSY),
        seconds=sum(seconds.values()) / max(1, len(seconds)),
    )


def broken_promises(rates: Rates) -> list[str]:
    """Say which promises the runs did not keep, by more than chance explains."""
    problems = []
    most_false = FALSE_AT_MOST + chance(FALSE_AT_MOST, rates.runs)
    if rates.false_difference.value > most_false:
        problems.append(
            f"false differences in {rates.false_difference.value:.1%} of the runs"
        )
    least, most = COVERAGE
    least -= chance(least, rates.runs)
    most += chance(most, rates.runs)
    if rates.covered.of and not least <= rates.covered.value <= most:
        problems.append(f"all intervals hold in {rates.covered.value:.1%} of the runs")
    return problems


def chance(share: float, runs: int) -> float:
    """How far the share in so many runs may be from the true one: three standard
    errors.
    """
    return 3 * math.sqrt(share * (1 - share) / runs)


def simulate(
    runs: int,
    *,
    seed: int = 0,
    worlds: Iterable[World] = WORLDS,
    processes: int | None = None,
    plan: Plan | None = None,
) -> dict[str, list[RunRow]]:
    """What `runs` runs of the plan say, spread evenly over the worlds; each has a
    number of its own.
    """
    chosen = list(worlds)
    numbers = [range(place, runs, len(chosen)) for place in range(len(chosen))]
    told = each(
        partial(_one_world, seed, plan or comparison_plan()),
        list(zip(chosen, numbers, strict=True)),
        processes,
    )
    return {world.name: found for world, found in zip(chosen, told, strict=True)}


def _one_world(seed: int, plan: Plan, task: tuple[World, range]) -> list[RunRow]:
    world, numbers = task
    rows = []
    for place, number in enumerate(numbers):
        run = Machine(world, plan, seed + place).run(run_workers)
        rows += rows_of_run(run, plan, number)
    return rows


def table_row(name: str, rows: Sequence[RunRow]) -> tuple[str, ...]:
    """What a world's runs came to."""
    rates = rates_of(rows)
    shares = (
        rates.false_difference,
        rates.wrong_way,
        rates.covered,
        *rates.detected.values(),
        rates.busy,
    )
    return name, str(rates.runs), *map(str, shares), f"{rates.seconds:.0f} s"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=900, help="in all worlds together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, help="processes of a run, if fixed")
    asked = parser.parse_args(arguments)
    how = {"seed": asked.seed, "plan": comparison_plan(asked.workers)}
    found = simulate(asked.runs, worlds=(as_measured(), *WORLDS), **how)
    beyond = simulate(asked.runs // 3, worlds=STATES, **how)
    together = {"all worlds": [one for told in found.values() for one in told]}
    for equal in EQUAL_ROWS:
        how["plan"] = comparison_plan(asked.workers, equal, {})
        alone = simulate(asked.runs, **how)
        together[f"{equal} equal"] = [one for told in alone.values() for one in told]
    every = {**found, **together, **beyond}
    broken = [
        f"{name}: {problem}"
        for name, told in together.items()
        for problem in broken_promises(rates_of(told))
    ]
    print(
        table(HEAD, [table_row(name, told) for name, told in every.items() if told]),
        *broken,
        sep="\n",
    )
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
