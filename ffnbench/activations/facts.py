"""What is true of an activation: minimum, range, monotony, smoothness, and what it does to N(0, 1). In float64.

Everything is found from the function and its derivative by autograd, so it holds for a function of the user's
as well. torch is imported where it is used: the dataclass belongs to the parent too. Runs in a worker.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ffnbench.activations.shape import bound_of_slope, extreme, find_breaks
from ffnbench.activations.trace import EDGE, Trace, scaled, stretches, trace, typical, value_and_slope
from ffnbench.errors import FfnbenchError

if TYPE_CHECKING:
    from torch import Tensor

    from ffnbench.activations.trace import Function

SATURATED = 0.01
ZERO = 1e-14  # a mean below this share of the root of the second moment is the rounding of its sum
LEAST_SCALE, LARGEST_SCALE = 1e-200, 1e200  # beyond, f at the far end of the grid is no float64


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts of a scalar function f. None stands for a bound that is not finite, or a minimum that is not reached.

    `low_reached` and `high_reached` tell whether f takes the values of its bounds. `minimum_flat` is a minimum
    held on a whole interval, [minimum_at, minimum_until], where None is then an end at infinity; a minimum at one
    point has no `minimum_until`. `monotonic` is increasing (never decreasing), decreasing, constant or no. `jumps`
    is where f itself jumps, `kinks` where f' does, `bends` where only f'' does. Shares and moments are of f'(x)
    and f(x) for x ~ N(0, 1).
    """

    low: float | None
    low_reached: bool
    high: float | None
    high_reached: bool
    minimum: float | None
    minimum_at: float | None
    minimum_until: float | None
    minimum_flat: bool
    monotonic: str
    jumps: tuple[float, ...]
    kinks: tuple[float, ...]
    bends: tuple[float, ...]
    slope_low: float | None
    slope_high: float | None
    zero_gradient: float
    saturated: float
    mean: float
    second_moment: float

    @property
    def smooth(self) -> bool:
        """Whether neither f nor f' nor f'' jumps."""
        return not (self.jumps or self.kinks or self.bends)


def find_facts(function: Function, scale: float = 1.0) -> Facts:
    """All facts of a function that `checked` let pass; raises FfnbenchError where it is not finite.

    `scale` is the |x| at which f does what other activations do at 1; everything is found for f(scale t) / scale.
    """
    if not LEAST_SCALE <= scale <= LARGEST_SCALE:
        raise FfnbenchError(f"facts can't be found at a scale of {scale:g}", "choose a beta nearer to 1")
    g = scaled(function, scale)
    breaks = find_breaks(g)
    seen = trace(g, breaks.sides + breaks.jumps + breaks.kinks)
    flats = stretches(g, seen.x, seen.y, seen.slope)
    low, high = (extreme(seen, flats, breaks.jumps, sign) for sign in (1, -1))
    places = [x * scale for x in breaks.jumps + breaks.kinks]
    mean, second_moment = (moment(function, power, places) for power in (1, 2))

    def times(value: float | None) -> float | None:
        return None if value is None else value * scale

    return Facts(
        low=times(low.value),
        low_reached=low.reached,
        high=times(high.value),
        high_reached=high.reached,
        minimum=times(low.value) if low.reached else None,
        minimum_at=times(low.at),
        minimum_until=times(low.until),
        minimum_flat=low.flat,
        monotonic=_monotony(seen),
        jumps=tuple(x * scale for x in breaks.jumps),
        kinks=tuple(x * scale for x in breaks.kinks),
        bends=tuple(x * scale for x in breaks.bends),
        slope_low=bound_of_slope(seen, breaks.kinks, 1),
        slope_high=bound_of_slope(seen, breaks.kinks, -1),
        zero_gradient=sum(
            _between(-math.inf if s.start is None else s.start * scale, math.inf if s.end is None else s.end * scale)
            for s in flats
        ),
        saturated=share(lambda x: value_and_slope(function, x)[1].abs() < SATURATED, seen.x * scale),
        mean=mean if abs(mean) > ZERO * math.sqrt(second_moment) else 0.0,
        second_moment=second_moment,
    )


def _monotony(seen: Trace) -> str:
    """By the values and by the slopes; a slope against the others counts if it is more than rounding."""
    change, slope = seen.y[1:] - seen.y[:-1], seen.slope[seen.slope.isfinite()]
    noise = 4 * 2.0**-52 * (seen.y[1:].abs() + seen.y[:-1].abs())
    little = 1e-12 * typical(seen.x, seen.slope)
    core = (seen.x.abs() <= EDGE)[seen.slope.isfinite()]
    if bool((change == 0).all()):
        return "constant"
    if bool((change >= -noise).all() and (slope[core] >= -little).all()):
        return "increasing"
    return "decreasing" if bool((change <= noise).all() and (slope[core] <= little).all()) else "no"


REACH, PANELS, NODES, NEARER = 12.0, 2048, 16, 120


def share(holds: Callable[[Tensor], Tensor], x: Tensor) -> float:
    """P(holds(x)): the ends of each stretch between points of x by bisection, then the distribution function."""
    import torch

    flags = holds(x)
    change = (flags[1:] != flags[:-1]).nonzero().flatten()
    a, b = x[change], x[change + 1]
    for _ in range(60 if len(change) else 0):
        middle = (a + b) / 2
        same = holds(middle) == flags[change]
        a, b = torch.where(same, middle, a), torch.where(same, b, middle)
    edges = [-math.inf, *b.tolist(), math.inf]
    skip = 0 if bool(flags[0]) else 1
    return sum(_between(start, end) for start, end in zip(edges[skip::2], edges[skip + 1 :: 2], strict=False))


def moment(function: Function, power: int, places: list[float]) -> float:
    """E f(x)^power by Gauss-Legendre on panels of [-12, 12], cut at these places, and ever smaller towards zero."""
    import torch
    from numpy.polynomial.legendre import leggauss

    near = REACH / PANELS * 2 ** (-torch.arange(NEARER, dtype=torch.float64) / 2)
    inside = torch.tensor([x for x in places if abs(x) < REACH], dtype=torch.float64)
    edges = torch.cat([torch.linspace(-REACH, REACH, PANELS + 1, dtype=torch.float64), near, -near, inside]).unique()
    at, weights = (torch.from_numpy(each) for each in leggauss(NODES))
    half = edges.diff()[:, None] / 2
    x = edges[:-1, None] + half * (1 + at)
    density = torch.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    values = function(x.flatten()).detach().view(x.shape) ** power
    return float((values * density * weights * half).sum())


def _between(start: float, end: float) -> float:
    """P(start < x < end), from the tail where both lie on one side of zero."""
    if start > 0:
        start, end = -end, -start
    return _phi(end) - _phi(start)


def _phi(x: float) -> float:
    """The normal distribution function."""
    return 0.5 * math.erfc(-x / math.sqrt(2))
