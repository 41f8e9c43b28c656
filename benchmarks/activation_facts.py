"""Writes ffnbench/activations/facts.json, the facts of every activation: `python benchmarks/activation_facts.py`.

Run it after a change of the table. f and f' (by autograd, in float64) are traced on a grid that is fine near zero and
wide far out, and all else is read off the trace. Where f, f' or f'' jumps is looked for on the core of the grid: a step
whose change does not fit that of its neighbours is halved until the change remains, which is a jump, or is as small as
the step.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from ffnbench.activations.facts import FILE, Facts
from ffnbench.common import jsonable
from ffnbench.ffn.activations import ACTIVATIONS
from ffnbench.ffn.spec import ActivationSpec
from ffnbench.worker.functions import Function, function_of, value_and_slope

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """An interval on which f has one value and the slope zero; an end may be infinite."""

    start: float
    end: float
    value: float

    @property
    def distance(self) -> float:
        """From zero."""
        return max(self.start, -self.end, 0.0)


def at(function: Function, x: float) -> tuple[float, float]:
    """f(x) and f'(x) at one x."""
    y, slope = value_and_slope(function, torch.tensor([x], dtype=torch.float64))
    return float(y[0]), float(slope[0])


def grid() -> Tensor:
    """The core [-40, 40] in steps of 1/1024, tails to 1e64, and points ever nearer to zero."""
    core = torch.arange(-EDGE, EDGE + STEP / 2, STEP, dtype=torch.float64)
    far = EDGE * GROWTH ** torch.arange(1, math.ceil(math.log(FAR / EDGE, GROWTH)) + 1, dtype=torch.float64)
    near = STEP * 2 ** (-torch.arange(1, 61, dtype=torch.float64) / 2)
    return torch.cat([core, far, -far, near, -near]).unique()


def trace(function: Function, extra: tuple[float, ...] = ()) -> Trace:
    """Trace f over the grid and the extra points; raises ValueError where it is not finite on the core."""
    x = torch.cat([grid(), torch.tensor(extra, dtype=torch.float64)]).unique()
    y, slope = value_and_slope(function, x)
    lost = ~slope.isfinite()
    lost[1:-1] &= lost[:-2] | lost[2:]  # alone, it is a point without a derivative; side by side, f' is unknown
    core = x.abs() <= EDGE
    for bad, what in ((~y.isfinite(), "f"), (lost, "f'")):
        if bool((bad & core).any()):
            where = float(x[(bad & core).nonzero()[0]])
            raise ValueError(f"{what} is not finite at x = {where:g}")
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
        start = _end(function, value, float(x[first]), float(x[first - 1]), least) if first else -math.inf
        end = _end(function, value, float(x[last]), float(x[last + 1]), least) if last + 1 < len(x) else math.inf
        if not (math.isnan(start) or math.isnan(end)):
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
    x = torch.arange(-EDGE, EDGE + STEP / 2, STEP, dtype=torch.float64)
    slope_size = typical(x, value_and_slope(function, x)[1])
    jumps = _found(lambda x: function(x).detach(), x, 1e-13, (1e-10, 0.0))
    kinks = _found(lambda x: value_and_slope(function, x)[1], x, 1e-13, (1e-10, 0.0), beside=1e-9)
    at_jumps = _places(jumps, 10)
    at_kinks = tuple(place for place in _places(kinks, 10) if place not in at_jumps)
    bends = []
    if not jumps and not kinks:
        bends = _found(lambda x: _second(function, x), x, 10 * H, (1e-6, 1e-7 * slope_size), beside=10 * H)
    sides = tuple(side for pair in jumps + kinks for side in pair)
    return Breaks(jumps=at_jumps, kinks=at_kinks, bends=_places(bends, 4), sides=sides)


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
    values = g(x).nan_to_num()
    size, change = typical(x, values), values[1:] - values[:-1]
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
    left, local = at_b - at_a, g(a).nan_to_num().abs().maximum(g(b).nan_to_num().abs()).clamp(min=size)
    jump = (left.abs() > REMAINS * most) & (left.abs() > noise[0] * local) & (left.abs() > noise[1])
    if beside:
        differ = (g(b + beside) - g(a - beside)).abs() > REMAINS * left.abs()
        jump &= differ | (g(a - 1e-9).abs() > GROWN * g(a - 1e-4).abs()) & (left.abs() > size)
    return list(zip(a[jump].tolist(), b[jump].tolist(), strict=True))


MARKS = (1e4, 1e8, 1e16, 1e32, 1e64)  # each the square of the one before, so that even log(log(x)) grows evenly
PARTS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)  # where f is no number far out: shares of the farthest x
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


def extreme(trace: Trace, flats: list[Stretch], sign: int) -> Extreme:
    """The infimum of f for sign 1, its supremum for sign -1."""
    h = sign * trace.y
    size = typical(trace.x, trace.y)
    if float(h.min()) <= -HUGE or falls_for_ever(trace.x, h, size):
        return Extreme(value=None)
    same = SAME * max(size, abs(float(h.min())))
    limit = min(float(h[0]), float(h[-1]))
    points = [_refined(trace, sign, i) for i in _low_points(trace.x, h, same, size)]
    lowest = min([limit, *(value for value, _ in points)])
    for flat in sorted(flats, key=lambda flat: flat.distance):
        if sign * flat.value <= lowest + same:
            return Extreme(
                value=flat.value + 0.0, reached=True, at=finite(flat.start), until=finite(flat.end), flat=True
            )
    reached = [(value, at) for value, at in points if value <= lowest + same]
    if not reached:
        return Extreme(value=sign * lowest + 0.0)
    value, at = reached[0]
    return Extreme(value=sign * value + 0.0, reached=True, at=at)


def finite(x: float) -> float | None:
    """None for an end at infinity."""
    return x if math.isfinite(x) else None


def falls_for_ever(x: Tensor, h: Tensor, size: float) -> bool:
    """Whether h has no lower bound: it still falls, and no more slowly than before, at the far end of either side."""
    for side in (-1, 1):
        out = side * x
        farthest = float(out.max())
        marks = MARKS if farthest > FAR / 2 else tuple(farthest * part for part in PARTS)
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
    found = _least(lambda x: sign * at(trace.function, x)[1], a, b)[0]
    lowest = min(found, float(h[i])) if math.isfinite(found) else float(h[i])
    return 0.0 if abs(lowest) < SAME * typical(x, h) else sign * lowest


def _grows_towards(trace: Trace, kink: float, side: int, sign: int) -> bool:
    """Whether f' falls below all bounds towards a kink from one side, as the slope of sqrt |x| does from the left."""
    near, far = (sign * at(trace.function, kink + side * distance)[1] for distance in (1e-9, 1e-4))
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

    def f(x: float) -> float:
        return sign * at(trace.function, x)[0]

    def slope(x: float) -> float:
        return sign * at(trace.function, x)[1]

    a, b = float(trace.x[i - 1]), float(trace.x[i + 1])
    if not slope(a) < 0 < slope(b):
        return min(_least(f, a, b), (sign * float(trace.y[i]), float(trace.x[i])))
    for _ in range(80):
        middle = (a + b) / 2
        a, b = (middle, b) if slope(middle) < 0 else (a, middle)
    place = 0.0 if abs(a + b) < 2e-12 else (a + b) / 2
    return f(place), place


def _least(f: Callable[[float], float], a: float, b: float) -> tuple[float, float]:
    """Minimum and place within [a, b]."""
    from scipy.optimize import minimize_scalar

    found = minimize_scalar(f, bounds=(a, b), method="bounded", options={"xatol": 1e-12 * (b - a)})
    return float(found.fun), float(found.x)


SATURATED = 0.01
ZERO = 1e-14  # a mean below this share of the root of the second moment is the rounding of its sum


def find_facts(function: Function) -> Facts:
    """All facts of a function; raises ValueError where it is not finite."""
    breaks = find_breaks(function)
    seen = trace(function, breaks.sides + breaks.jumps + breaks.kinks)
    flats = stretches(function, seen.x, seen.y, seen.slope)
    low, high = (extreme(seen, flats, sign) for sign in (1, -1))
    mean, second_moment = (moment(function, power, breaks.jumps + breaks.kinks) for power in (1, 2))
    return Facts(
        low=low.value,
        low_reached=low.reached,
        high=high.value,
        high_reached=high.reached,
        minimum=low.value if low.reached else None,
        minimum_at=low.at,
        minimum_until=low.until,
        minimum_flat=low.flat,
        monotonic=_monotony(seen),
        jumps=breaks.jumps,
        kinks=breaks.kinks,
        bends=breaks.bends,
        slope_low=bound_of_slope(seen, breaks.kinks, 1),
        slope_high=bound_of_slope(seen, breaks.kinks, -1),
        zero_gradient=sum(_between(flat.start, flat.end) for flat in flats),
        saturated=share(lambda x: value_and_slope(function, x)[1].abs() < SATURATED, seen.x),
        mean=mean if abs(mean) > ZERO * math.sqrt(second_moment) else 0.0,
        second_moment=second_moment,
        dead=tuple((finite(flat.start), finite(flat.end)) for flat in flats),
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


def moment(function: Function, power: int, places: tuple[float, ...]) -> float:
    """E f(x)^power by Gauss-Legendre on panels of [-12, 12], cut at these places, and ever smaller towards zero."""
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
    from scipy.special import ndtr

    if start > 0:
        start, end = -end, -start
    return float(ndtr(end) - ndtr(start))


def main() -> None:
    """Write the facts of every row of the table, each at its own beta."""
    torch.set_num_threads(1)  # the order of sums, and so the last digit, is the same everywhere
    specs = [ActivationSpec(activation=row.name, beta=row.beta) for row in ACTIVATIONS]
    found = {spec.activation: jsonable.encode(find_facts(function_of(spec))) for spec in specs}
    FILE.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
