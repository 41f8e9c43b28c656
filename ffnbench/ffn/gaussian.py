"""What a function does to x ~ N(0, 1): shares of the distribution and moments. Runs in a worker."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from ffnbench.ffn.trace import Function, Stretch

REACH, PANELS, NODES = 12.0, 2048, 8
HALVINGS, EXACT = 50, 1e-15  # of a panel on which the function is not yet a polynomial; relative to the integral


def interval_share(stretches: list[Stretch], scale: float) -> float:
    """P(x in any of the stretches), which are in units of `scale` and do not overlap."""
    ends = ((-math.inf if s.start is None else s.start, math.inf if s.end is None else s.end) for s in stretches)
    return sum(_between(start * scale, end * scale) for start, end in ends)


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


def moment(function: Function, power: int) -> float:
    """E f(x)^power by Gauss-Legendre on panels of [-12, 12], each halved until its two halves agree with it."""
    import torch

    edges = torch.linspace(-REACH, REACH, PANELS + 1, dtype=torch.float64)
    a, b = edges[:-1], edges[1:]
    whole, total = _panels(function, power, a, b), 0.0
    size = max(float(whole.abs().sum()), 1e-300)
    for _ in range(HALVINGS):
        middle = (a + b) / 2
        left, right = _panels(function, power, a, middle), _panels(function, power, middle, b)
        rough = (left + right - whole).abs() > EXACT * size
        total += float((left + right)[~rough].sum())
        if not bool(rough.any()):
            return total
        a, b = torch.cat([a[rough], middle[rough]]), torch.cat([middle[rough], b[rough]])
        whole = torch.cat([left[rough], right[rough]])
    return total + float(whole.sum())


def _panels(function: Function, power: int, a: Tensor, b: Tensor) -> Tensor:
    """The integral of f^power times the density over each [a, b]."""
    import torch

    k = torch.arange(1, NODES, dtype=torch.float64)
    off = k / torch.sqrt(4 * k**2 - 1)  # Golub & Welsch 1969
    at, vectors = torch.linalg.eigh(torch.diag(off, 1) + torch.diag(off, -1))
    half = (b - a)[:, None] / 2
    x = (a[:, None] + half + half * at).flatten()
    density = torch.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    values = (function(x).detach() ** power * density).reshape(len(a), NODES)
    return (values * (2 * vectors[0] ** 2) * half).sum(1)


def _between(start: float, end: float) -> float:
    """P(start < x < end), from the tail where both lie on one side of zero."""
    if start > 0:
        start, end = -end, -start
    return _phi(end) - _phi(start)


def _phi(x: float) -> float:
    """The normal distribution function."""
    return 0.5 * math.erfc(-x / math.sqrt(2))
