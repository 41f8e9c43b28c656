"""Where a function is not smooth: where f, f' or f'' jumps. In float64, on the core of the grid. Runs in a worker.

A step of the grid whose change does not fit to that of its neighbours is halved until the change remains, which
is a jump, or has melted away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ffnbench.ffn.trace import EDGE, STEP, snapped, typical, value_and_slope

if TYPE_CHECKING:
    from torch import Tensor

    from ffnbench.ffn.trace import Function

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
