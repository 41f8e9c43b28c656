"""How often a history is told a step that is none, and finds one that is there: `python
benchmarks/steps.py`.

Series of runs, made of dice, go through `extras/history/timeline.py` as runs of files
do. Unchanged code first: 10 to 200 runs whose scatter is this machine's, 0.4 to 0.6 %,
with tails, with odd runs, or with a state that lasts some runs. Then a step in the
middle third of 30 runs. The penalty was chosen with even seeds; odd ones, of which 1 is
the default, were kept back. Ends with 1 where a promise is broken. Takes five minutes.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

import numpy as np
from exam.text import share, table

from ffnbench.extras.history.timeline import LevelStep, steps_of
from ffnbench.stats.interval import Mean

Dice = np.random.Generator
# of so many runs, with a standard deviation of 1
Scatter = Callable[[Dice, int], np.ndarray]
LENGTHS = (10, 20, 30, 50, 100, 200)
# between runs, and of a run as its own processes show it
SCATTER, OWN, FREEDOM = ((0.004, 0.006), (0.001, 0.002), 6.0)
FALSE, FOUND = 0.05, 0.95  # promised: of unchanged series, and of steps of 5 %
STEPS = (0.02, 0.03, 0.05, 0.10)


def normal(dice: Dice, runs: int) -> np.ndarray:
    """As most do."""
    return dice.normal(0, 1, runs)


def tails(dice: Dice, runs: int) -> np.ndarray:
    """Student's with three degrees of freedom."""
    return dice.standard_t(3, runs) / math.sqrt(3)


def odd_runs(dice: Dice, runs: int) -> np.ndarray:
    """One run in twenty is off by 2 to 10 times the scatter, to either side."""
    off = (
        (dice.random(runs) < 0.05)
        * dice.choice((-1, 1), runs)
        * dice.uniform(2, 10, runs)
    )
    return normal(dice, runs) + off


def slow_runs(dice: Dice, runs: int) -> np.ndarray:
    """One run in twelve is slower by 2 to 10 times the scatter."""
    return normal(dice, runs) + (dice.random(runs) < 1 / 12) * dice.uniform(2, 10, runs)


def lasting(dice: Dice, runs: int) -> np.ndarray:
    """A fifth of what moves a run is still there at the next one."""
    found = normal(dice, runs)
    for at in range(1, runs):
        found[at] = 0.2 * found[at - 1] + math.sqrt(1 - 0.2**2) * found[at]
    return found


PROMISED: dict[str, Scatter] = {
    "normal": normal,
    "tails": tails,
    "odd runs": odd_runs,
    "slow runs": slow_runs,
}
WORLDS = PROMISED | {"lasting": lasting}  # of the last one nothing is promised


def series(
    dice: Dice, world: Scatter, runs: int, step: float = 0.0, at: int = 0
) -> list[Mean]:
    """Runs as files hold them."""
    logs = dice.uniform(*SCATTER) * world(dice, runs) + np.where(
        np.arange(runs) < at, 0.0, math.log1p(step)
    )
    own = dice.uniform(*OWN)
    errors = own * np.sqrt(dice.chisquare(FREEDOM, runs) / FREEDOM)
    return [
        Mean(float(m), float(e), FREEDOM)
        for m, e in zip(logs + dice.normal(0, own, runs), errors, strict=True)
    ]


def false_steps(dice: Dice, world: Scatter, runs: int, number: int) -> int:
    """Series of unchanged code that are told a step."""
    return sum(bool(steps_of(series(dice, world, runs))) for _ in range(number))


def found_steps(
    dice: Dice, world: Scatter, step: float, number: int
) -> tuple[int, int, int]:
    """Steps that were found alone, within a run of their place; intervals that hold
    them, of those; other steps.
    """
    found = held = others = 0
    for _ in range(number):
        at = int(dice.integers(10, 21))
        told = steps_of(series(dice, world, 30, step, at))
        here = [one for one in told if abs(one.at - at) <= 1]
        found += bool(here)
        held += any(_holds(one, step) for one in here)
        others += len(told) > len(here)
    return found, held, others


def _holds(step: LevelStep, truth: float) -> bool:
    change = step.change
    return bool(change.low and change.high and change.low <= 1 + truth <= change.high)


def main() -> int:
    """Both tables; 1 where a promise is broken."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--series", type=int, default=100, help="of each kind")
    asked.add_argument(
        "--seed", type=int, default=1, help="even ones chose the penalty"
    )
    given = asked.parse_args()
    dice, broken, rows = np.random.default_rng(given.seed), False, []
    for name, world in WORLDS.items():
        told = [false_steps(dice, world, runs, given.series) for runs in LENGTHS]
        broken |= name in PROMISED and sum(told) > FALSE * given.series * len(LENGTHS)
        rows.append(
            [name, *map(str, told), share(sum(told), given.series * len(LENGTHS))]
        )
    print(
        table(
            [
                "unchanged: series with a step",
                *(f"{runs} runs" for runs in LENGTHS),
                "in all",
            ],
            rows,
        )
    )
    rows = []
    for name, world in WORLDS.items():
        for step in STEPS:
            found, held, others = found_steps(dice, world, step, given.series)
            broken |= name in PROMISED and step == 0.05 and found < FOUND * given.series
            of = given.series
            rows.append(
                [
                    name,
                    f"{step:.0%}",
                    share(found, of),
                    share(held, found),
                    share(others, of),
                ]
            )
    print(
        table(
            [
                "a step in 30 runs",
                "of",
                "found, within a run",
                "interval holds it",
                "and another one",
            ],
            rows,
        )
    )
    return int(broken)


if __name__ == "__main__":
    raise SystemExit(main())
