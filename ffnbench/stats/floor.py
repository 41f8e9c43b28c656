"""The least time that a call can take: what is faster by more than the margin can't have done its work. Pure.

A call needs the FLOPs of its matrix products and the bytes of its weights. Each takes a least time by the fastest roof
of its kind (ceilings.py), and the larger of the two over MARGIN is the floor. It is meant to accuse nobody who is
honest: where two answers are possible, it takes the smaller one, and where a call is short it says nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ffnbench.ffn.cost import Cost, flops_backward, flops_forward, params
from ffnbench.ffn.dtypes import item_bytes
from ffnbench.ffn.spec import FFNSpec, ImportedSpec
from ffnbench.metrics import ROOF
from ffnbench.plan import Case, Mode
from ffnbench.result import Bound, CaseCost, Sample
from ffnbench.stats.ceilings import ALIKE, Ceiling, Needed, fits, needed_by, read_bytes

MARGIN = 1.25  # what noise, the edges of caches and a better library can be worth
FEWEST_CALLS = 10  # of an empty module: in a shorter time, what a call itself takes is part of every roof
SHORTEST_S = 1e-5  # the same, where no empty call was timed


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """The least seconds that a call of a case can take, what takes them, and the name of the roof that says so."""

    bound: Bound
    seconds: float
    roof: str


def floors_of(cases: Iterable[Case], costs: Iterable[CaseCost], reached: Iterable[Ceiling]) -> dict[str, Floor]:
    """The floors of the cases, by label; a case of which too little is known has none.

    `reached` is what the machine was seen to do (quickest).
    """
    known, reached = {found.case: found.cost for found in costs}, tuple(reached)
    found = {}
    for case in cases:
        if case.label in known:
            floor = _floor(case, known[case.label], reached)
            if floor is not None:
                found[case.label] = floor
    return found


def quickest(reached: Iterable[Ceiling], samples: Iterable[Sample]) -> tuple[Ceiling, ...]:
    """The roofs with the least seconds that each was ever seen to take: when it was looked for, or in any sample of it.

    By the mean of a roof that others disturbed, a quiet sample of an honest row lies below its floor.
    """
    least: dict[str, float] = {}
    for sample in samples:
        if sample.metric == ROOF:
            least[sample.case] = min(sample.value, least.get(sample.case, math.inf))
    return tuple(replace(c, seconds=min(c.seconds, least.get(c.roof.name, math.inf))) for c in reached)


def _floor(case: Case, cost: Cost, reached: tuple[Ceiling, ...]) -> Floor | None:
    needed = needed_by(case, cost)
    amounts = {Bound.PRODUCTS: flops_of(case, cost), Bound.BYTES: weights_of(case, cost)}
    ceilings = {
        Bound.PRODUCTS: [c for c in reached if c.roof.bound is Bound.PRODUCTS and fits(c.roof, case, needed)],
        Bound.BYTES: _reads(case, needed, amounts[Bound.BYTES], reached),
    }
    floors = [
        Floor(bound=bound, seconds=amounts[bound] / best.rate / MARGIN, roof=best.roof.name)
        for bound, found in ceilings.items()
        if found and (best := max(found, key=lambda ceiling: ceiling.rate))
    ]
    floor = max(floors, key=lambda one: one.seconds, default=None)
    empty = [c.seconds for c in reached if c.roof.bound is Bound.CALL and c.roof.device == case.workload.device]
    least = FEWEST_CALLS * min(empty) if empty else SHORTEST_S
    return floor if floor and floor.seconds >= least else None


def flops_of(case: Case, cost: Cost) -> float:
    """The FLOPs that no call of a case can do without; 0.0 where that is not known. Of a module that is held to be one
    of our forms they are the form's.
    """
    if form := form_of(case, cost):
        passes = {
            Mode.FORWARD.value: flops_forward(form),
            Mode.TRAIN.value: flops_forward(form) + flops_backward(form),
            Mode.BACKWARD.value: flops_backward(form),
        }
        return case.workload.tokens * passes[case.workload.mode]
    return needed_by(case, cost).flops or 0


def weights_of(case: Case, cost: Cost) -> float:
    """The bytes of its declared weights that no call of a case can do without reading.

    Of experts they are those of one token, which routing decides. A module of the user's may have experts as well, or
    look its weights up: each weight that a token meets in a product is worth two FLOPs at least.
    """
    declared = cost.weight_bytes * (cost.params_active / cost.params if cost.params else 1.0)
    if cost.counted:
        return min(declared, (cost.flops_forward or 0) / 2 * item_bytes(case.workload.dtype))
    return declared


def form_of(case: Case, cost: Cost) -> FFNSpec | None:
    """The form of ours that a module of the user's is held to be, if it has the parameters of it."""
    like = case.ffn.like if isinstance(case.ffn, ImportedSpec) else None
    return like if like is not None and params(like) <= cost.params else None


def _reads(case: Case, needed: Needed, weights: float, reached: tuple[Ceiling, ...]) -> list[Ceiling]:
    """The roofs that say how fast the weights can be read: no larger than they are, for a larger buffer is read more
    slowly; or as large as all that a call reads and writes, where the weights are most of it. Of these the level of
    cache of the one that is nearest in size.
    """
    most = 2 * weights >= needed.bytes
    eligible = [
        (read_bytes(c.roof), c)
        for c in reached
        if c.roof.bound is Bound.BYTES
        and (c.roof.device, c.roof.threads) == (case.workload.device, case.workload.threads)
        and (read_bytes(c.roof) <= (1 + 2 * ALIKE) * weights or (most and fits(c.roof, case, needed)))
    ]
    if not eligible:
        return []
    nearest, one = min(eligible, key=lambda found: abs(math.log(found[0] / weights)))
    level = one.roof.level
    return [c for size, c in eligible if (c.roof.level == level if level else 2 * size >= nearest)]
