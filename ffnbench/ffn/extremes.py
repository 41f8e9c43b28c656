"""The lowest and the highest value of a traced function: how far it goes, whether it gets there, and where.

Both are one search, for the highest value on the function turned over. Runs in a worker.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from ffnbench.ffn.trace import FAR, Stretch, Trace, typical

if TYPE_CHECKING:
    from torch import Tensor

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
    if -math.inf in (sign * trace.beyond[0], sign * trace.beyond[1]) or falls_for_ever(trace.x, h, size):
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
    found = _golden(lambda x: sign * trace.slope_at(x), a, b)[0]
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
    value, at = _golden(lambda x: sign * trace.value(x), a, b)
    if not sign * trace.slope_at(a) < 0 < sign * trace.slope_at(b):
        on_grid = sign * float(trace.y[i])
        return (value, at) if value < on_grid else (on_grid, float(trace.x[i]))
    for _ in range(80):
        middle = (a + b) / 2
        a, b = (middle, b) if sign * trace.slope_at(middle) < 0 else (a, middle)
    at = 0.0 if abs(a + b) < 2e-12 else (a + b) / 2
    return min(value, sign * trace.value(at)), at


def _golden(f: Callable[[float], float], a: float, b: float) -> tuple[float, float]:
    """Minimum and place within [a, b], by golden section (Kiefer 1953)."""
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(60):
        c, d = b - ratio * (b - a), a + ratio * (b - a)
        a, b = (a, d) if f(c) <= f(d) else (c, b)
    middle = (a + b) / 2
    return f(middle), middle


def _only_approached(trace: Trace, value: float, at: float, jumps: tuple[float, ...], size: float) -> bool:
    """Whether the low point is the side of a jump that does not include the jump's place, as 1 of x - floor(x)."""
    return any(abs(at - jump) < 1e-9 and abs(trace.value(jump) - value) > 1e-9 * size for jump in jumps)


def _distance(flat: Stretch) -> float:
    """From zero."""
    start, end = -math.inf if flat.start is None else flat.start, math.inf if flat.end is None else flat.end
    return max(start, -end, 0.0)
