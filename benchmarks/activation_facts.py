"""Writes ffnbench/activations/facts.json, the facts of every activation: `python
benchmarks/activation_facts.py`.

Run it after a change of the table. f and f' (by autograd, in float64) are evaluated on
a grid of [-40, 40], at the places where definitions may branch, and far out on both
sides.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from numpy.polynomial.legendre import leggauss
from scipy.optimize import brentq, minimize_scalar
from scipy.special import ndtr

from ffnbench.activations.facts import FACTS_FILE, Facts
from ffnbench.common import jsonable
from ffnbench.ffn.activations import ACTIVATIONS
from ffnbench.ffn.spec import ActivationSpec
from ffnbench.worker.activation_jobs import Function, torch_function, value_and_slope

STEP = 1 / 64
GRID = [i * STEP for i in range(-2560, 2561)]  # of [-40, 40]
PLACES = GRID[::16]  # of branches that are looked at: multiples of a quarter
BESIDE = 1e-13  # where one-sided limits are taken
H = 1e-5  # of difference quotients for f''
ALIKE = 1e-6  # f and f' jump by more, and f'' by a thousand times as much
FAR = 1e4, 1e8  # what is unbounded has grown between these
# slopes below it are rounded zeros, and minima that are lower by less are approached,
# not reached
ROUNDED = 1e-12
SATURATED = 0.01
Interval = tuple[float, float]
At = Callable[[float], float]


def value_and_slope_at(function: Function, x: float) -> tuple[float, float]:
    value, slope = value_and_slope(function, torch.tensor([x], dtype=torch.float64))
    return float(value), float(slope)


def breaks_of(function: Function) -> tuple[list[float], list[float], list[float]]:
    """Places of jumps of f, of f', and of f'', which are looked for only where neither
    f nor f' jumps.
    """
    jumps, kinks, bends = [], [], []
    for place in PLACES:
        left, slope_left = value_and_slope_at(function, place - BESIDE)
        right, slope_right = value_and_slope_at(function, place + BESIDE)
        before, here, after = (
            value_and_slope_at(function, x)[1] for x in (place - H, place, place + H)
        )
        if abs(right - left) > ALIKE:
            jumps.append(place)
        elif abs(slope_right - slope_left) > ALIKE:
            kinks.append(place)
        elif abs((after - here) - (here - before)) / H > 1000 * ALIKE:
            bends.append(place)
    return jumps, kinks, bends if not jumps and not kinks else []


def dead_of(function: Function, breaks: list[float]) -> list[Interval]:
    """The pieces between breaks on which f' is zero."""
    dead = []
    for start, end in pairwise([-math.inf, *breaks, math.inf]):
        if not any(value_and_slope_at(function, x)[1] for x in GRID if start < x < end):
            dead.append((start, end))
    return dead


def has_no_bound(at: At, sign: int) -> bool:
    """Whether sign times a function falls on and on, on either side."""
    return any(
        sign * at(side * FAR[1]) < sign * at(side * FAR[0]) - 1 for side in (-1, 1)
    )


def least_of(at: At, x: list[float], sign: int) -> tuple[float, float]:
    """The least value of sign times a function and its place, found between the
    neighbours of the lowest point.
    """
    values = [sign * at(place) for place in x]
    lowest = values.index(min(values))
    if 0 < lowest < len(x) - 1:
        found = minimize_scalar(
            lambda place: sign * at(place), bounds=(x[lowest - 1], x[lowest + 1]), method="bounded",
            options={"xatol": 1e-12},
        )  # fmt: skip
        if found.fun < values[lowest]:
            return float(found.fun), float(found.x)
    return values[lowest], x[lowest]


@dataclass
class Bound:
    """A bound of f, None where there is none; whether f reaches it, at a point or from
    `at` until `until`.
    """

    value: float | None
    reached: bool = False
    at: float | None = None
    until: float | None = None
    flat: bool = False


def bound_of(function: Function, dead: list[Interval], sign: int) -> Bound:
    """The infimum of f for sign 1, its supremum for sign -1."""

    def value(x: float) -> float:
        return value_and_slope_at(function, x)[0]

    def slope(x: float) -> float:
        return value_and_slope_at(function, x)[1]

    if has_no_bound(value, sign):
        return Bound(None)
    limit = min(sign * value(side * place) for side in (-1, 1) for place in FAR)
    least, place = least_of(value, GRID, sign)
    for piece in dead:
        if sign * value(midst(piece)) <= min(least, limit) + ROUNDED:
            return Bound(
                value(midst(piece)) + 0.0,
                True,
                finite(piece[0]),
                finite(piece[1]),
                True,
            )
    if least >= limit - ROUNDED:
        # far out, a difference of large numbers has half as many digits
        return Bound(round(sign * limit, 8) + 0.0)
    place = brentq(slope, place - STEP, place + STEP, xtol=1e-15)
    if abs(place) < ROUNDED:
        place = 0.0
    return Bound(value(place), True, place)


def bound_of_slope(function: Function, breaks: list[float], sign: int) -> float | None:
    """The infimum of f' for sign 1, its supremum for sign -1; None where there is
    none.
    """

    def slope(x: float) -> float:
        return value_and_slope_at(function, x)[1]

    if has_no_bound(slope, sign):
        return None
    beside = [place + side * BESIDE for place in breaks for side in (-1, 1)]
    least, _ = least_of(slope, sorted([*GRID, *beside, FAR[0], -FAR[0]]), sign)
    return sign * least if abs(least) > ROUNDED else 0.0


def share_of_normal(start: float, end: float) -> float:
    """P(start < x < end), from the tail where both lie on one side of zero."""
    if start > 0:
        start, end = -end, -start
    return float(ndtr(end) - ndtr(start))


def saturated_of(function: Function) -> float:
    """P(|f'| < 0.01)."""

    def over(x: float) -> float:
        return abs(value_and_slope_at(function, x)[1]) - SATURATED

    crossings = [
        brentq(over, a, b, xtol=1e-14)
        for a, b in pairwise(GRID)
        if over(a) * over(b) < 0
    ]
    edges = [-math.inf, *crossings, math.inf]
    first = 0 if over(GRID[0]) < 0 else 1
    return sum(
        share_of_normal(start, end) for start, end in list(pairwise(edges))[first::2]
    )


def moment(function: Function, power: int, breaks: list[float]) -> float:
    """E f(x)^power by Gauss-Legendre on unit pieces of [-12, 12], cut at the breaks."""
    edges = sorted(
        {float(i) for i in range(-12, 13)}
        | {place for place in breaks if abs(place) < 12}
    )
    at, weights = (torch.from_numpy(each) for each in leggauss(64))
    total = 0.0
    for start, end in pairwise(edges):
        x = start + (end - start) / 2 * (1 + at)
        density = torch.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
        total += (
            float((function(x).detach() ** power * density * weights).sum())
            * (end - start)
            / 2
        )
    return total


def finite(x: float) -> float | None:
    """None for an end at infinity."""
    return x if math.isfinite(x) else None


def midst(piece: Interval) -> float:
    """A point of an interval, whose ends may be infinite."""
    return (max(piece[0], GRID[0]) + min(piece[1], GRID[-1])) / 2


def monotony_of(function: Function) -> str:
    slopes = value_and_slope(function, torch.tensor(GRID, dtype=torch.float64))[1]
    if slopes.min() >= -ROUNDED:
        return "increasing"
    if slopes.max() <= ROUNDED:
        return "decreasing"
    return "no"


def find_facts(function: Function) -> Facts:
    """All facts of a function."""
    jumps, kinks, bends = breaks_of(function)
    breaks = sorted([*jumps, *kinks, *bends])
    dead = dead_of(function, breaks)
    low, high = bound_of(function, dead, 1), bound_of(function, dead, -1)
    mean = moment(function, 1, breaks)
    return Facts(
        low=low.value,
        low_reached=low.reached,
        high=high.value,
        high_reached=high.reached,
        minimum=low.value if low.reached else None,
        minimum_at=low.at,
        minimum_until=low.until,
        minimum_flat=low.flat,
        monotonic=monotony_of(function),
        jumps=tuple(jumps),
        kinks=tuple(kinks),
        bends=tuple(bends),
        slope_low=bound_of_slope(function, breaks, 1),
        slope_high=bound_of_slope(function, breaks, -1),
        zero_gradient=sum(share_of_normal(*piece) for piece in dead),
        saturated=saturated_of(function),
        mean=mean if abs(mean) > 1e-14 else 0.0,
        second_moment=moment(function, 2, breaks),
        dead=tuple((finite(start), finite(end)) for start, end in dead),
    )


def main() -> None:
    """Write the facts of every row of the table, each at its own beta."""
    # the order of sums, and so the last digit, is the same everywhere
    torch.set_num_threads(1)
    specs = [ActivationSpec(activation=row.name) for row in ACTIVATIONS]
    found = {
        spec.activation: jsonable.encode(find_facts(torch_function(spec)))
        for spec in specs
    }
    FACTS_FILE.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
