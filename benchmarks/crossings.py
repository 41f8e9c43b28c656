"""How often a crossing of a sweep is where it is told to be: `python
benchmarks/crossings.py [--sweeps N]`.

Log ratios of two variants by worker, made of dice, go through the real means, verdicts
and intervals. The truth is a curve over the axis; a long run would put the crossing
where straight lines between the true values at its points pass 0. Prints for each shape
how many crossings were told, and how many of their intervals are right, which hold that
place; then for shapes that never cross how many sweeps told none. Ends with 1 where a
promise is broken by more than chance.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from random import Random

import pandas as pd

from ffnbench.plan.plan import Axis
from ffnbench.record.result import CONFIDENCE
from ffnbench.stats.curves import Pair, Place, crossing_between, side_changes
from ffnbench.stats.interval import Mean, WorkerValue, mean_of
from ffnbench.stats.verdict import verdict_of

# the log of the ratio, by the logarithm to base 2 of the axis
Truth = Callable[[float], float]
GRIDS = {f"x{2**step}": tuple(2.0**k for k in range(0, 13, step)) for step in (1, 2, 3)}
# of what one worker says, as results/ has it, and of a starter
LAYOUT, STARTER = ((0.008, 0.03), 0.002)
WORKERS = (5, 7, 10, 14)
STARTERS = 3
PROMISED = 0.95


def line(dice: Random) -> Truth:
    """As much more with each doubling."""
    at, slope = dice.uniform(1, 11), dice.choice((-1, 1)) * dice.uniform(0.01, 0.1)
    return lambda x: slope * (x - at)


def overheads(dice: Random) -> Truth:
    """Two calls with an overhead each and a time a token: the one with less overhead
    loses later.
    """
    first, each, at = dice.uniform(1.1, 2.5), dice.uniform(1.1, 2.0), dice.uniform(3, 9)
    rise = 2.0**-at
    return lambda x: math.log((1 + each * rise * 2**x) / (first + rise * 2**x))


def twice(dice: Random) -> Truth:
    """A hump above 1: two crossings."""
    at, wide = dice.uniform(5, 7), dice.uniform(2, 3)
    high = dice.choice((-1, 1)) * dice.uniform(0.1, 0.3)
    return lambda x: high * (2 * math.exp(-(((x - at) / wide) ** 2)) - 1)


def kernels(dice: Random) -> Truth:
    """A line with a step: another kernel from some size on."""
    rest, at, step = line(dice), dice.uniform(2, 10), dice.uniform(-0.1, 0.1)
    return lambda x: rest(x) + step * (x > at)


SHAPES = {shape.__name__: shape for shape in (line, overheads, twice, kernels)}
NEVER: dict[str, Truth] = {
    "equal": lambda x: 0.0,
    "1% slower": lambda x: 0.01,
    "towards 1": lambda x: 0.2 * 2 ** (-x / 3),
    "to 1 and back": lambda x: 0.1 * min(1.0, abs(x - 6) / 4),
}


def sample(dice: Random, truth: float, scatter: float, workers: int) -> Mean:
    """What a cell says: workers of a few starters."""
    starters = [dice.gauss(0, STARTER) for _ in range(STARTERS)]
    return mean_of(
        WorkerValue(
            truth + starters[n % STARTERS] + dice.gauss(0, scatter), n % STARTERS
        )
        for n in range(workers)
    )


def sweep(dice: Random, truth: Truth, values: Sequence[float]) -> list[bool]:
    """For each crossing that one sweep tells of two variants, whether its interval
    holds a true one.
    """
    scatter = math.exp(dice.uniform(*map(math.log, LAYOUT)))
    workers = dice.choice(WORKERS)
    axis = Axis("seq_len", tuple(values))
    means = {x: sample(dice, truth(math.log2(x)), scatter, workers) for x in values}
    each = CONFIDENCE ** (1 / len(means))
    places = [
        Place(axis.place(x), mean, Pair(mean, verdict_of(mean, each)).side)
        for x, mean in means.items()
    ]
    crossings = list(zeros(truth, [math.log2(x) for x in values]))
    told = []
    for first, last in side_changes(places):
        _, low, high = crossing_between(places, first, last)
        holds = any(low <= math.log(2) * at <= high for at in crossings)
        told.append(holds)
    return told


def zeros(truth: Truth, points: Sequence[float]) -> Iterator[float]:
    """Where straight lines between points pass 0."""
    for a, b in pairwise(points):
        if truth(a) * truth(b) < 0:
            yield a + (b - a) * truth(a) / (truth(a) - truth(b))


def broken(hits: int, of: int, promised: float = PROMISED) -> bool:
    """Whether a promise is missed by more than chance."""
    return hits < promised * of - 3 * math.sqrt(promised * (1 - promised) * of)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sweeps", type=int, default=200, help="of a shape and grid")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(arguments)
    rows, bad = {}, []
    for name in (*SHAPES, *NEVER):
        for grid, values in GRIDS.items():
            dice = Random(f"{name}/{grid}/{asked.seed}")
            told = []
            for _ in range(asked.sweeps):
                truth = SHAPES[name](dice) if name in SHAPES else NEVER[name]
                told.append(sweep(dice, truth, values))
            crossings = [holds for of_sweep in told for holds in of_sweep]
            hits, of = sum(crossings), len(crossings)
            if name in NEVER:
                hits, of = told.count([]), asked.sweeps
            rows[name, grid] = {"sweeps": asked.sweeps, "right": hits, "of": of}
            if broken(hits, of):
                bad.append(f"{name} {grid}: a promise is broken")
    print(pd.DataFrame(rows).T.to_string(), *bad, sep="\n")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
