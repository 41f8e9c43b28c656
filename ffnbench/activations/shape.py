"""Where a function is not smooth: where f, f' or f'' jumps. In float64, on the core of the grid. Runs in a worker.

A step of the grid whose change does not fit to that of its neighbours is halved until the change remains, which
is a jump, or has become as small as the step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from ffnbench.activations.trace import EDGE, FAR, HUGE, STEP, Stretch, Trace, snapped, typical, value_and_slope

if TYPE_CHECKING:
    from torch import Tensor

    from ffnbench.activations.trace import Function


CANDIDATES = 400  # steps that are looked at: a staircase has three for each of its jumps
REMAINS = 0.25  # of the largest change met while halving, in a jump
GROWN = 10.0  # times its value 1e-4 away: a slope that has no bound
H = 1e-7  # of the difference quotient for f'': not every backward kernel can be differentiated again


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaks:
    """Places of the jumps of f, of f' (kinks) and of f'' (bends, looked for only where there is nothing worse).

    `sides` are points just left and just right of every jump and kink, for one-sided limits.
    """

    jumps: tuple[float, ...]
    kinks: tuple[float, ...]
    bends: tuple[float, ...]
    sides: tuple[float, ...]


def find_breaks(function: Function) -> Breaks:
    """All breaks within [-40, 40]."""
    import torch

    x = torch.arange(-EDGE, EDGE + STEP / 2, STEP, dtype=torch.float64)
    slope_size = typical(x, value_and_slope(function, x)[1])
    jumps = _found(lambda x: function(x).detach(), x, 1e-13, (1e-10, 0.0))
    kinks = _found(lambda x: value_and_slope(function, x)[1], x, 1e-13, (1e-10, 0.0), beside=1e-9)
    at_jumps = _places(jumps, 10)
    at_kinks = tuple(place for place in _places(kinks, 10) if place not in at_jumps)
    bends = []
    if not jumps and not kinks:
        bends = _found(lambda x: _second(function, x), x, 10 * H, (1e-6, 1e-7 * slope_size), beside=10 * H)
    return Breaks(
        jumps=at_jumps,
        kinks=at_kinks,
        bends=_places(bends, 4),
        sides=tuple(side for pair in jumps + kinks for side in pair),
    )


def _places(found: list[tuple[float, float]], decimals: int) -> tuple[float, ...]:
    return tuple(sorted({snapped((a + b) / 2, decimals) + 0.0 for a, b in found}))


def _second(function: Function, x: Tensor) -> Tensor:
    """f'' by central differences of f'."""
    return (value_and_slope(function, x + H)[1] - value_and_slope(function, x - H)[1]) / (2 * H)


def _found(
    g: Function, x: Tensor, width: float, noise: tuple[float, float], *, beside: float = 0.0
) -> list[tuple[float, float]]:
    """Intervals of about `width` (relative beyond 1) across which g jumps by more than relative and absolute noise.

    With `beside`, both sides must still differ at that distance, or grow without bound: autograd may give a
    single point any slope, as it does to sign(x) log1p(|x|) at 0.
    """
    import torch

    values = g(x).nan_to_num()
    change = values[1:] - values[:-1]
    before, after = change.roll(1), change.roll(-1)
    before[0], after[-1] = change[0], change[-1]
    misfit = torch.maximum((change - before).abs(), (change - after).abs())
    worst = misfit.topk(min(CANDIDATES, len(misfit))).indices
    trend = torch.where(before.abs() < after.abs(), before, after)[worst] / STEP

    def rest(points: Tensor, of: Tensor) -> Tensor:
        """g without the trend of the neighbours, which would hide a small jump."""
        return g(points).nan_to_num() - of * points

    a, b = x[worst], x[worst + 1]
    at_a, at_b = rest(a, trend), rest(b, trend)
    most = misfit[worst]
    for _ in range(64):
        middle = (a + b) / 2
        open_ = (b - a > width * b.abs().clamp(min=1)) & (middle > a) & (middle < b)
        at_middle = rest(middle, trend)
        left = (at_middle - at_a).abs() >= (at_b - at_middle).abs()
        b, at_b = torch.where(open_ & left, middle, b), torch.where(open_ & left, at_middle, at_b)
        a, at_a = torch.where(open_ & ~left, middle, a), torch.where(open_ & ~left, at_middle, at_a)
        most = torch.maximum(most, (at_b - at_a).abs())
    return _remaining(g, a, b, at_b - at_a, most, noise, typical(x, values), beside)


def _remaining(
    g: Function,
    a: Tensor,
    b: Tensor,
    left: Tensor,
    most: Tensor,
    noise: tuple[float, float],
    size: float,
    beside: float,
) -> list[tuple[float, float]]:
    """Those of the intervals [a, b] where enough of the change is `left`, and it is no noise, and not of one point."""
    at_a, at_b = g(a).nan_to_num().abs(), g(b).nan_to_num().abs()
    local = at_a.maximum(at_b).clamp(min=size)
    jump = (left.abs() > REMAINS * most) & (left.abs() > noise[0] * local) & (left.abs() > noise[1])
    if beside:
        differ = (g(b + beside) - g(a - beside)).abs() > REMAINS * left.abs()
        jump &= differ | (g(a - 1e-9).abs() > GROWN * g(a - 1e-4).abs()) & (left.abs() > size)
    return list(zip(a[jump].tolist(), b[jump].tolist(), strict=True))


MARKS = (1e4, 1e8, 1e16, 1e32, 1e64)  # each the square of the one before, so that even log(log(x)) grows evenly
NEARER = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)  # where f is no number far out: shares of the farthest x
EVEN, LITTLE = 0.8, 1e-6  # growth that goes on is this share of the growth before, and no noise
SAME = 1e-12  # relative to the typical size: values that differ by less are one
NEAREST = 8  # of equal low points, those that are looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class Extreme:
    """A bound of f, None where there is none, and whether f reaches it.

    Reached at x = `at`, or `flat`: on [at, until], where None is an end at infinity.
    """

    value: float | None
    reached: bool = False
    at: float | None = None
    until: float | None = None
    flat: bool = False


def extreme(trace: Trace, flats: list[Stretch], jumps: tuple[float, ...], sign: int) -> Extreme:
    """The infimum of f for sign 1, its supremum for sign -1."""
    h = sign * trace.y
    size = typical(trace.x, trace.y)
    if float(h.min()) <= -HUGE or falls_for_ever(trace.x, h, size):
        return Extreme(value=None)
    same = SAME * max(size, abs(float(h.min())))
    limit = min(float(h[0]), float(h[-1]))
    points = [_refined(trace, sign, i) for i in _low_points(trace.x, h, same, size)]
    lowest = min([limit, *(value for value, _ in points)])
    for flat in sorted(flats, key=_distance):
        if sign * flat.value <= lowest + same:
            return Extreme(value=flat.value + 0.0, reached=True, at=flat.start, until=flat.end, flat=True)
    best = [(value, at) for value, at in points if value <= lowest + same]
    for value, at in best:
        if not _only_approached(trace, sign * value, at, jumps, size):
            return Extreme(value=sign * value + 0.0, reached=True, at=at)
    return Extreme(value=sign * lowest + 0.0)


def falls_for_ever(x: Tensor, h: Tensor, size: float) -> bool:
    """Whether h has no lower bound: it still falls, and no more slowly than before, at the far end of either side."""
    for side in (-1, 1):
        out = side * x
        farthest = float(out.max())
        marks = MARKS if farthest > FAR / 2 else tuple(farthest * part for part in NEARER)
        levels = [float(h[(out >= 0) & (out <= mark * 1.001)].min()) for mark in marks]
        falls = [a - b for a, b in pairwise(levels)]
        if falls[-1] > LITTLE * size and falls[-1] > EVEN * falls[-2] > 0:
            return True
    return False


def bound_of_slope(trace: Trace, kinks: tuple[float, ...], sign: int) -> float | None:
    """The infimum of f' for sign 1, its supremum for sign -1; None where it has none."""
    known = trace.slope.isfinite()
    x, h = trace.x[known], sign * trace.slope[known]
    steep = any(_grows_towards(trace, kink, side, sign) for kink in kinks for side in (-1, 1))
    if steep or falls_for_ever(x, h, typical(x, h)):
        return None
    i = int(h.argmin())
    a, b = float(x[max(i - 1, 0)]), float(x[min(i + 1, len(x) - 1)])
    found = _least(lambda x: sign * trace.slope_at(x), a, b)[0]
    lowest = min(found, float(h[i])) if math.isfinite(found) else float(h[i])
    return 0.0 if abs(lowest) < SAME * typical(x, h) else sign * lowest


def _grows_towards(trace: Trace, kink: float, side: int, sign: int) -> bool:
    """Whether f' falls below all bounds towards a kink from one side, as the slope of sqrt |x| does from the left."""
    near, far = (sign * trace.slope_at(kink + side * distance) for distance in (1e-9, 1e-4))
    return near < 0 and near < 10 * far


def _low_points(x: Tensor, h: Tensor, same: float, size: float) -> list[int]:
    """Indices of local minima near the lowest, nearest to zero first.

    Without both ends, as far as f differs from its limit by rounding only: a limit is approached, not reached.
    """
    inner = (h[1:-1] <= h[:-2]) & (h[1:-1] <= h[2:])
    for end, flip in ((h[0], False), (h[-1], True)):
        away = (h[1:-1] - end).abs() > same
        first = away.flip(0).cumsum(0).flip(0) if flip else away.cumsum(0)
        inner &= first > 0
    candidates = inner.nonzero().flatten() + 1
    if not len(candidates):
        return []
    best = float(h[candidates].min())
    close = candidates[h[candidates] <= best + 1e-5 * max(size, abs(best))]
    order = close[x[close].abs().argsort()].tolist()[:NEAREST]
    lowest = int(candidates[h[candidates].argmin()])
    return order if lowest in order else [*order, lowest]


def _refined(trace: Trace, sign: int, i: int) -> tuple[float, float]:
    """Value and place of a local minimum of sign * f between the neighbours of a grid point.

    The place is where f' changes its sign: the values alone would give half the digits.
    """
    a, b = float(trace.x[i - 1]), float(trace.x[i + 1])
    if not sign * trace.slope_at(a) < 0 < sign * trace.slope_at(b):
        on_grid = sign * float(trace.y[i])
        return min(_least(lambda x: sign * trace.value(x), a, b), (on_grid, float(trace.x[i])))
    for _ in range(80):
        middle = (a + b) / 2
        a, b = (middle, b) if sign * trace.slope_at(middle) < 0 else (a, middle)
    at = 0.0 if abs(a + b) < 2e-12 else (a + b) / 2
    return sign * trace.value(at), at


def _least(f: Callable[[float], float], a: float, b: float) -> tuple[float, float]:
    """Minimum and place within [a, b]."""
    from scipy.optimize import minimize_scalar

    found = minimize_scalar(f, bounds=(a, b), method="bounded", options={"xatol": 1e-12 * (b - a)})
    return float(found.fun), float(found.x)


def _only_approached(trace: Trace, value: float, at: float, jumps: tuple[float, ...], size: float) -> bool:
    """Whether the low point is the side of a jump that does not include the jump's place, as 1 of x - floor(x)."""
    return any(abs(at - jump) < 1e-9 and abs(trace.value(jump) - value) > 1e-9 * size for jump in jumps)


def _distance(flat: Stretch) -> float:
    """From zero."""
    start, end = -math.inf if flat.start is None else flat.start, math.inf if flat.end is None else flat.end
    return max(start, -end, 0.0)
