"""What is true of an activation: minimum, range, monotony, smoothness, and what it does to N(0, 1). In float64.

Everything is found from the function and its derivative by autograd, so it holds for a function of the user's
as well. torch is imported where it is used: the dataclass belongs to the parent too. Runs in a worker.
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

EDGE, STEP = 40.0, 1 / 1024  # the grid: kinks at binary fractions lie on it
FAR, UNBOUNDED = 1e8, 1e4  # where a limit is read, and what is none
SATURATED, UNDERFLOW = 0.01, 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts of a scalar function f. None stands for a bound that is not finite, or a minimum that is not reached.

    `minimum_until` is set where the minimum is held on a whole ray or interval [minimum_at, minimum_until], with
    None for an end at infinity in `minimum_at`. `kinks` is where f' jumps, `bends` where only f'' does.
    Shares and moments are of f'(x) and f(x) for x ~ N(0, 1).
    """

    low: float | None
    high: float | None
    minimum: float | None
    minimum_at: float | None
    minimum_until: float | None
    monotonic: bool
    kinks: tuple[float, ...]
    bends: tuple[float, ...]
    slope_low: float | None
    slope_high: float | None
    zero_gradient: float
    saturated: float
    mean: float
    second_moment: float


def checked(function: Function, name: str) -> Function:
    """The function, tried once: it must keep shape and dtype, differ by element only, and be differentiable."""
    import torch

    x = torch.linspace(-2, 2, 9, dtype=torch.float64, requires_grad=True)
    try:
        y = function(x)
    except Exception as problem:
        text = " ".join(str(problem).split())
        raise FfnbenchError(
            f"{name} raised {type(problem).__name__}: {text}", "it is called with one float64 tensor"
        ) from problem
    if not isinstance(y, torch.Tensor):
        raise FfnbenchError(f"{name} returns {type(y).__name__}, not a tensor", "return torch operations on x")
    if y.shape != x.shape:
        raise FfnbenchError(
            f"{name} changes the shape {tuple(x.shape)} to {tuple(y.shape)}", "an activation works element by element"
        )
    if y.dtype != x.dtype:
        raise FfnbenchError(f"{name} changes the dtype {x.dtype} to {y.dtype}", "keep the dtype of x")
    if y is not x and not y.requires_grad:
        raise FfnbenchError(f"{name} has no derivative by autograd", "use torch operations on x, and no .detach()")
    if not torch.allclose(function(x[2:3]), y[2:3], equal_nan=True):
        raise FfnbenchError(f"{name} mixes elements", "an activation works element by element")
    return function


def value_and_slope(function: Function, x: Tensor) -> tuple[Tensor, Tensor]:
    """f(x) and f'(x), elementwise."""
    import torch

    x = x.detach().requires_grad_(True)
    y = function(x)
    (slope,) = torch.autograd.grad(y.sum(), x)
    return y.detach(), slope


def find_facts(function: Function) -> Facts:
    """All facts of a function that `checked` let pass; raises FfnbenchError where it is not finite."""
    import torch

    grid = torch.arange(-EDGE, EDGE + STEP / 2, STEP, dtype=torch.float64)
    y, slope = value_and_slope(function, grid)
    if bool((bad := ~(y.isfinite() & slope.isfinite())).any()):
        at = float(grid[bad.nonzero()[0]])
        raise FfnbenchError(f"f or f' is not finite at x = {at:g}", f"facts are about all x of [-{EDGE:g}, {EDGE:g}]")
    ends = torch.tensor([-FAR, FAR], dtype=torch.float64)
    (left, right), (left_slope, right_slope) = (v.tolist() for v in value_and_slope(function, ends))
    f = _scalar(function)
    low, high = (_bound(f, grid, y, (left, right), sign) for sign in (1, -1))
    slope_of = _scalar(lambda x: value_and_slope(function, x)[1])
    minimum = _minimum(f, slope_of, grid, y, low, min(left, right))
    kinks = _jumps(lambda x: value_and_slope(function, x)[1], grid, 1e-12, 1e-3)
    slope_ends = (left_slope, right_slope)
    return Facts(
        low=low,
        high=high,
        minimum=minimum[0],
        minimum_at=minimum[1],
        minimum_until=minimum[2],
        monotonic=bool((slope >= -1e-12).all()),
        kinks=kinks,
        bends=() if kinks else _jumps(lambda x: _second(function, x), grid, 1e-5, 1e-2),
        slope_low=_bound(slope_of, grid, slope, slope_ends, 1),
        slope_high=_bound(slope_of, grid, slope, slope_ends, -1),
        zero_gradient=_normal_share(lambda x: slope_of(x) == 0, grid, slope == 0),
        saturated=_normal_share(lambda x: abs(slope_of(x)) < SATURATED, grid, slope.abs() < SATURATED),
        mean=_normal_mean(function),
        second_moment=_normal_mean(lambda x: function(x) ** 2),
    )


def flat_zones(function: Function, low: float, high: float) -> list[tuple[float, float]]:
    """Intervals within [low, high] where the gradient is exactly zero: the dead zone.

    Stretches far out, where an exponential has merely underflowed, are left out.
    """
    import torch

    grid = torch.linspace(low, high, 4097, dtype=torch.float64)
    flat = (value_and_slope(function, grid)[1] == 0).tolist()
    zones: list[tuple[float, float]] = []
    start = None
    for i, zero in enumerate([*flat, False]):
        if zero and start is None:
            start = i
        elif not zero and start is not None:
            if i - start > 1 and grid[i - 1] >= -UNDERFLOW and grid[start] <= UNDERFLOW:
                zones.append((float(grid[start]), float(grid[i - 1])))
            start = None
    return zones


def _scalar(function: Function) -> Callable[[float], float]:
    import torch

    return lambda x: float(function(torch.tensor([x], dtype=torch.float64)).detach()[0])


def _second(function: Function, x: Tensor, h: float = 1e-6) -> Tensor:
    """f'' by central differences of f': not every backward kernel can be differentiated again."""
    return (value_and_slope(function, x + h)[1] - value_and_slope(function, x - h)[1]) / (2 * h)


def _bound(f: Callable[[float], float], grid: Tensor, y: Tensor, ends: tuple[float, float], sign: int) -> float | None:
    """Infimum (sign 1) or supremum (sign -1) over the grid and both limits; None where it is not finite."""
    if min(sign * end for end in ends) < -UNBOUNDED:
        return None
    at = float(grid[int((sign * y).argmin())])
    beside = (at - STEP + 1e-9, at + STEP - 1e-9)  # just beyond a jump that lies on the grid
    found = [
        sign * f(at),
        _golden(lambda x: sign * f(x), at)[0],
        *(sign * f(x) for x in beside),
        *(sign * end for end in ends),
    ]
    return sign * min(found) + 0.0


def _golden(f: Callable[[float], float], near: float) -> tuple[float, float]:
    """Minimum and place within a step of `near`, by golden section (Kiefer 1953)."""
    ratio = (math.sqrt(5) - 1) / 2
    a, b = near - STEP, near + STEP
    for _ in range(60):
        c, d = b - ratio * (b - a), a + ratio * (b - a)
        a, b = (a, d) if f(c) <= f(d) else (c, b)
    middle = (a + b) / 2
    return f(middle), middle


def _minimum(
    f: Callable[[float], float],
    slope: Callable[[float], float],
    grid: Tensor,
    y: Tensor,
    low: float | None,
    limit: float,
) -> tuple[float | None, float | None, float | None]:
    """Value, place and, where it is held on an interval, the interval's end. Nothing where it is only approached."""
    reached = (y == y.min()).nonzero().flatten()
    first, last = float(grid[reached[0]]), float(grid[reached[-1]])
    if low is None or (len(reached) == 1 and min(f(first - STEP), f(first + STEP)) < float(y.min())):
        return None, None, None
    if len(reached) > 2 and len(reached) == int(reached[-1] - reached[0]) + 1 and f(-FAR) == float(y.min()):
        return (low, None, last) if _still(first, last) else (None, None, None)
    value, at = _golden(f, first)
    if value > limit - 1e-9 or first <= -EDGE or first >= EDGE:
        return None, None, None
    return value, _root(slope, at), None


def _still(first: float, last: float) -> bool:
    """Whether f is constant on the whole stretch, and not only rounded to its limit far out."""
    return last > first and last > -5


def _root(slope: Callable[[float], float], near: float) -> float:
    """The place of a minimum: where f' changes its sign. The values alone would give half the digits."""
    a, b = near - STEP, near + STEP
    for _ in range(80):
        middle = (a + b) / 2
        a, b = (middle, b) if slope(middle) < 0 else (a, middle)
    return (a + b) / 2


def _jumps(g: Function, grid: Tensor, width: float, threshold: float) -> tuple[float, ...]:
    """Where g jumps: the steps with the largest change, halved until a jump remains or has melted away."""
    import torch

    inner = grid[(grid >= -12) & (grid <= 12)]
    values = g(inner)
    change = (values[1:] - values[:-1]).abs()
    found = set()
    for index in change.topk(8).indices.tolist():
        a, b = float(inner[index]), float(inner[index + 1])
        while b - a > width and (a + b) / 2 not in (a, b):
            middle = (a + b) / 2
            at = g(torch.tensor([a, middle, b], dtype=torch.float64))
            a, b = (a, middle) if abs(at[1] - at[0]) >= abs(at[2] - at[1]) else (middle, b)
        ends = g(torch.tensor([a, b], dtype=torch.float64))
        if abs(ends[1] - ends[0]) > threshold:
            found.add(round((a + b) / 2, 4) + 0.0)
    return tuple(sorted(found))


def _phi(x: float) -> float:
    """The normal distribution function."""
    return 0.5 * math.erfc(-x / math.sqrt(2))


def _normal_share(holds: Callable[[float], bool], grid: Tensor, on_grid: Tensor) -> float:
    """P(holds(x)) for x ~ N(0, 1): the ends of each stretch found by bisection, then the distribution function."""
    flags, points = on_grid.tolist(), grid.tolist()
    share = _phi(points[0]) if flags[0] else 0.0
    start = points[0]
    for i in range(1, len(flags)):
        if flags[i] == flags[i - 1]:
            continue
        a, b = points[i - 1], points[i]
        for _ in range(60):
            middle = (a + b) / 2
            a, b = (middle, b) if holds(middle) == flags[i - 1] else (a, middle)
        if flags[i - 1]:
            share += _phi(b) - _phi(start)
        start = b
    return share + (1 - _phi(start) if flags[-1] else 0.0)


def _normal_mean(function: Function, panels: int = 2048, nodes: int = 8) -> float:
    """E f(x), x ~ N(0, 1), by Gauss-Legendre on panels of [-12, 12] whose edges include the usual kinks."""
    import torch

    k = torch.arange(1, nodes, dtype=torch.float64)
    off = k / torch.sqrt(4 * k**2 - 1)  # Golub & Welsch 1969
    at, vectors = torch.linalg.eigh(torch.diag(off, 1) + torch.diag(off, -1))
    weight = 2 * vectors[0] ** 2
    half = 12 / panels
    middle = torch.arange(panels, dtype=torch.float64) * (2 * half) - 12 + half
    x = (middle[:, None] + half * at).flatten()
    density = torch.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    return float((function(x).detach() * density * (half * weight).repeat(panels)).sum())
