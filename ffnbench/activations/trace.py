"""A function of one variable traced in float64: f and f' on a grid that is fine near zero and wide far out.

The rest of `activations` reads everything off a trace. torch is imported where it is used. Runs in a worker.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ffnbench.errors import FfnbenchError

if TYPE_CHECKING:
    from torch import Tensor

    Function = Callable[[Tensor], Tensor]


EDGE, STEP = 40.0, 1 / 1024  # the core of the grid: kinks at binary fractions lie on it
FAR, GROWTH = 1e64, 1.1  # the tails: each point is a tenth farther out
HUGE = 1e300  # in place of infinity
TYPICAL = 4.0  # sizes are means over [-4, 4]
BESIDE, ROUNDED = 1 / 256, 1e-12  # a slope this small, this near to a stretch of zero slope, is rounded to zero there


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """x in increasing order, f(x), and f'(x), which may be NaN at single points.

    Where f is no number from some x on, the trace ends before it; where it overflows, y is -HUGE or HUGE.
    """

    function: Function
    x: Tensor
    y: Tensor
    slope: Tensor

    def value(self, x: float) -> float:
        """f(x)."""
        return at(self.function, x)[0]

    def slope_at(self, x: float) -> float:
        """f'(x)."""
        return at(self.function, x)[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """An interval on which f has one value and the slope zero; None is an end at infinity."""

    start: float | None
    end: float | None
    value: float


def value_and_slope(function: Function, x: Tensor) -> tuple[Tensor, Tensor]:
    """f(x) and f'(x), elementwise."""
    import torch

    x = x.detach().requires_grad_(True)
    y = function(x)
    (slope,) = torch.autograd.grad(y.sum(), x)
    return y.detach(), slope


def at(function: Function, x: float) -> tuple[float, float]:
    """f(x) and f'(x) at one x."""
    import torch

    y, slope = value_and_slope(function, torch.tensor([x], dtype=torch.float64))
    return float(y[0]), float(slope[0])


def grid() -> Tensor:
    """The core [-40, 40] in steps of 1/1024, tails to 1e64, and points ever nearer to zero."""
    import torch

    core = torch.arange(-EDGE, EDGE + STEP / 2, STEP, dtype=torch.float64)
    far = EDGE * GROWTH ** torch.arange(1, math.ceil(math.log(FAR / EDGE, GROWTH)) + 1, dtype=torch.float64)
    near = STEP * 2 ** (-torch.arange(1, 61, dtype=torch.float64) / 2)
    return torch.cat([core, far, -far, near, -near]).unique()


def trace(function: Function, extra: tuple[float, ...] = ()) -> Trace:
    """Trace f over the grid and the extra points; raises FfnbenchError where it is not finite on the core."""
    import torch

    x = torch.cat([grid(), torch.tensor(extra, dtype=torch.float64)]).unique()
    y, slope = value_and_slope(function, x)
    lost = ~slope.isfinite()
    lost[1:-1] &= lost[:-2] | lost[2:]  # alone, it is a point without a derivative; side by side, f' is unknown
    core = x.abs() <= EDGE
    for bad, what in ((~y.isfinite(), "f"), (lost, "f'")):
        if bool((bad & core).any()):
            where = float(x[(bad & core).nonzero()[0]])
            raise FfnbenchError(
                f"{what} is not finite at x = {where:g}", f"facts are about all x of [-{EDGE:g}, {EDGE:g}]"
            )
    middle = len(x) // 2
    ends = y.isnan().nonzero().flatten().tolist()
    first = max((i for i in ends if i < middle), default=-1)
    last = min((i for i in ends if i > middle), default=len(x))
    kept = slice(first + 1, last)
    return Trace(function=function, x=x[kept], y=y[kept].clamp(-HUGE, HUGE), slope=slope[kept])


def typical(x: Tensor, values: Tensor) -> float:
    """The mean of |values| near zero, where activations live; over the whole core where that is nothing."""
    for reach in (TYPICAL, EDGE):
        inside = values[(x.abs() <= reach) & values.isfinite()].abs()
        if len(inside) and float(inside.mean()) > 0:
            return float(inside.mean())
    return 0.0


def stretches(function: Function, x: Tensor, y: Tensor, slope: Tensor) -> list[Stretch]:
    """Where f' is zero on an interval, its ends found by bisection.

    A stretch where f' has only been rounded to zero (tanh is 1 from x = 19 on, exp is 0 below -745) is none: f' is
    then all but zero just outside as well, while a true one ends in a kink, a jump or a power of the distance.
    """
    level = (slope[1:] == 0) & (slope[:-1] == 0) & (y[1:] == y[:-1])
    flags = [False, *level.tolist(), False]
    edges = [i for i in range(len(flags) - 1) if flags[i] != flags[i + 1]]
    least = ROUNDED * typical(x, slope), 1e-9 * typical(x, y)
    found = []
    for first, last in zip(edges[::2], edges[1::2], strict=True):
        value = float(y[first])
        start = _end(function, value, float(x[first]), float(x[first - 1]), least) if first else None
        end = _end(function, value, float(x[last]), float(x[last + 1]), least) if last + 1 < len(x) else None
        if not (math.isnan(start or 0) or math.isnan(end or 0)):
            found.append(Stretch(start=start, end=end, value=value))
    return found


def _end(function: Function, value: float, inside: float, outside: float, least: tuple[float, float]) -> float:
    """Where a stretch ends between two points; NaN where it has no end, but fades out."""
    beside = BESIDE if outside > inside else -BESIDE
    for _ in range(60):
        middle = (inside + outside) / 2
        y, slope = at(function, middle)
        inside, outside = (middle, outside) if slope == 0 and y == value else (inside, middle)
    real = abs(at(function, inside + beside)[1]) > least[0] or abs(at(function, outside)[0] - value) > least[1]
    return snapped(inside) if real else math.nan


def snapped(x: float, decimals: int = 12) -> float:
    """A place, without the noise of its search: what is zero to 1e-12 is zero."""
    return 0.0 if abs(x) < 1e-12 else round(x, decimals)


def scaled(function: Function, scale: float) -> Function:
    """g(t) = f(scale t) / scale: the same slopes, and what f does at |x| = scale happens at 1."""
    return function if scale == 1 else lambda t: function(t * scale) / scale


def flat_zones(function: Function, low: float, high: float, scale: float = 1.0) -> list[tuple[float, float]]:
    """Intervals within [low, high] where the gradient is exactly zero, and not only rounded to it: the dead zones."""
    import torch

    seen = torch.linspace(low / scale, high / scale, 4097, dtype=torch.float64)
    x, g = torch.cat([grid(), seen]).unique(), scaled(function, scale)
    y, slope = value_and_slope(g, x)
    known = y.isfinite()
    zones = []
    for stretch in stretches(g, x[known], y[known], slope[known]):
        start = low if stretch.start is None else max(low, stretch.start * scale)
        end = high if stretch.end is None else min(high, stretch.end * scale)
        if end > start:
            zones.append((start, end))
    return zones
