"""How often `bisect` names the right commit on simulated machines: `python
benchmarks/bisection.py [--repeats N]`.

64 commits, one of which is slower, or none; the real loop measures each probe on a
machine made of dice, and the rules of `bisect` choose the next, at most ten. Prints a
row a world; ends with 1 where fewer than 19 of 20 are right. `right` is named with 95
%, `likeliest` with less when ten probes are spent; `held` is in the range that is told.
"""

from __future__ import annotations

import argparse
import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from exam.alarms import check_plan, check_policy, slowed
from exam.machine import STATES, WORLDS, Machine, World, as_measured
from exam.text import table

from ffnbench.extras.bisect.posterior import (
    Posterior,
    ProbeResult,
    posterior_of,
    result_of,
)
from ffnbench.gate.interim import UntilDecided, latency_report, plan_of_check
from ffnbench.plan import Plan
from ffnbench.run.runner import run_workers

COMMITS, PROBES, LIMIT, BUDGET_S = 64, 10, 0.03, 120.0
BETWEEN = 0.0045  # sd of a log ratio between runs, as on the reference machine
RIGHT = 0.95


@dataclass(frozen=True)
class History:
    """Commits and how much slower each is than the good one; some of them can't be
    built.
    """

    name: str
    world: World
    step: float = 0.05
    second: float = 0.0  # a smaller step anywhere else
    skipped: float = 0.0  # share

    def made(self, dice: random.Random) -> tuple[int, list[float], set[int]]:
        """The first slow commit, 0 for none, the log of every commit, and those that
        can't be built.
        """
        first, other = dice.randint(1, COMMITS), dice.randint(1, COMMITS)
        logs = [
            math.log1p(self.step) * (number >= first)
            + math.log1p(self.second) * (number >= other)
            for number in range(COMMITS + 1)
        ]
        skipped = {
            number for number in range(1, COMMITS) if dice.random() < self.skipped
        }
        return first if self.step else 0, logs, skipped


def measured(
    world: World, plan: Plan, log: float, tolerance: float, seed: int
) -> tuple[float, float] | None:
    """The interval of one probe by the real loop, as `ab` takes it; None without
    one.
    """
    machine, policy = (
        Machine(world, slowed(plan, math.expm1(log)), seed),
        check_policy(tolerance),
    )
    stop = UntilDecided(policy)
    done = latency_report(
        machine.measure(plan_of_check(plan, policy, BUDGET_S), run_workers, stop)
    )
    change = stop.conclusion(done)[0].change
    return (change.low, change.high) if change and change.low and change.high else None


def bisected(history: History, plan: Plan, seed: int) -> tuple[str, int]:
    """What one bisect says, and after how many probes."""
    dice = random.Random(f"{history.name}/{seed}")
    first, logs, broken = history.made(dice)
    probes: list[ProbeResult] = []
    skipped: set[int] = set()
    posterior = posterior_of(COMMITS, ())
    while len(probes) < PROBES:
        commit = posterior.next_probe
        if commit in broken:
            skipped.add(commit)
        else:
            place = dice.randrange(10**9)
            seen = measured(
                history.world, plan, logs[commit], posterior.tolerance(LIMIT), place
            )
            probes.append(
                result_of(commit, *seen) if seen else ProbeResult(commit, 0.0, 10.0)
            )
        posterior = posterior_of(COMMITS, probes, skipped)
        if answer := _answer(posterior, first):
            return answer, len(probes)
    return (
        "likeliest"
        if first in posterior.likeliest
        else "held"
        if first in posterior.credible_range
        else "missed",
        PROBES,
    )


def _answer(posterior: Posterior, first: int) -> str:
    if posterior.without_step(LIMIT):
        return "none" if first else "right"
    found = posterior.first_slow()
    return "" if found is None else "right" if first in found else "wrong"


def histories(kept_back: bool) -> list[History]:
    """What the rules were made with, or what was kept back until they stood."""

    def world(of: World) -> World:
        return replace(of, run=of.run or BETWEEN / 2**0.5)

    named = {one.name: world(one) for one in (*WORLDS, *STATES, as_measured())}
    usual = named["usual"]
    if not kept_back:
        known = [named[name] for name in ("as measured", "noisy", "usual")]
        return [
            History(one.name + ("" if step else ", no step"), one, step)
            for one in known
            for step in (0.05, 0)
        ]
    other = [
        named[name]
        for name in ("drift", "bursts", "neighbour", "two layouts", "states of 1.0%")
    ]
    return [
        *(History(one.name, one) for one in other),
        History("+4 %", usual, 0.04),
        History("+8 %", usual, 0.08),
        History("and +2 %", usual, second=0.02),
        History("a fifth broken", usual, skipped=0.2),
        *(History(f"{one.name}, no step", one, 0.0) for one in other[1:4]),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=40, help="bisects of each row")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--kept-back",
        action="store_true",
        help="the worlds that the rules were not made with",
    )
    asked = parser.parse_args(arguments)
    plan, rows, poor = check_plan(precision=None, variants="relu,swiglu"), [], 0
    for history in histories(asked.kept_back):
        told = [
            bisected(history, plan, 2 * asked.seed + asked.kept_back + 2 * n)
            for n in range(asked.repeats)
        ]
        counts = Counter(answer for answer, _ in told)
        poor += counts["right"] + counts["likeliest"] < RIGHT * asked.repeats
        probes = sum(number for _, number in told) / asked.repeats
        rows.append(
            [history.name, *(str(counts[name]) for name in NAMES), f"{probes:.1f}"]
        )
        print(" ".join(rows[-1]), flush=True)
    print(table(["of", *NAMES, "probes"], rows))
    return 1 if poor else 0


NAMES = ("right", "wrong", "none", "likeliest", "held", "missed")

if __name__ == "__main__":
    raise SystemExit(main())
