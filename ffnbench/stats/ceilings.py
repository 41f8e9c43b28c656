"""Samples of roofs -> how near each case is to what the machine can do, and the least time that it can take. Pure.

A call needs so many FLOPs, so many bytes, and to be called. Each is a bound: the least time that the machine needs for
it, by the fastest roof of its kind. The bound with the largest least time is the one that binds, and a case's share is
that time over its own; its interval is that of their ratio, paired by round. FLOPs are those of the matrix products in
the mode that was timed. Bytes are those that no call can do without: the weights that it touches, its input, its
output; with a backward those of the forward alone.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable

from ffnbench.ffn.spec import item_bytes
from ffnbench.metrics import ROOF
from ffnbench.plan import Case, MatmulPrecision, Needed, needed_by
from ffnbench.result import MEMORY, Bound, CaseCost, Ceiling, Roof, Run, Share
from ffnbench.stats.rounds import paired, table_of

ALIKE = 0.05  # sizes that differ by no more share one roof


_EXACT = [one.value for one in (MatmulPrecision.MEDIUM, MatmulPrecision.HIGH, MatmulPrecision.HIGHEST)]


def fits(roof: Roof, case: Case, needed: Needed) -> bool:
    """Whether a roof bounds a case: of its device and threads, and for products no coarser than its dtype, for a
    call may always compute more exactly; for bytes of its own size, or both of memory.
    """
    work = case.workload
    if roof.device != work.device:
        return False
    if roof.bound is Bound.CALL:
        return True
    if roof.threads != work.threads:
        return False
    if roof.bound is Bound.PRODUCTS:
        finer = _EXACT.index(roof.matmul_precision) >= _EXACT.index(work.matmul_precision)
        return item_bytes(roof.dtype) >= item_bytes(work.dtype) and (work.dtype != "float32" or finer)
    size = roof.read_bytes
    return abs(size - needed.bytes) <= 2 * ALIKE * needed.bytes or (roof.level == MEMORY and size <= needed.bytes)


def may_bind(
    cases: Iterable[Case], costs: Iterable[CaseCost], reached: Iterable[Ceiling], share: float
) -> frozenset[str]:
    """The roofs whose least time for some case is at least that share of the one that binds it."""
    known, reached = {found.case: found.cost for found in costs}, tuple(reached)
    names: set[str] = set()
    for case in cases:
        if case.label not in known:
            continue
        needed = needed_by(case, known[case.label])
        least = [(c, seconds) for c in reached if fits(c.roof, case, needed) and (seconds := c.least_s(needed))]
        fastest = {
            bound: min(s for c, s in least if c.roof.bound is bound) for bound in {c.roof.bound for c, _ in least}
        }
        names |= {c.roof.name for c, seconds in least if fastest[c.roof.bound] >= share * max(fastest.values())}
    return frozenset(names)


def ceilings_of(run: Run, costs: Iterable[CaseCost]) -> dict[str, dict[Bound, Ceiling]]:
    """For each case the fastest roof of each bound, by the run's estimate over clean rounds; those that are known. Of a
    roof's seconds it leaves out what its rounds did to all rows, for it is sampled in few of them.
    """
    roofs, table = table_of(run, ROOF).rounds, table_of(run)
    measured = [
        Ceiling(roof=roof, seconds=math.exp(mean.mean))
        for roof in run.roofs
        if (mean := paired(roofs.get(roof.name, {}), table.common, table.starters).mean())
    ]
    known = {found.case: found.cost for found in costs}
    found: dict[str, dict[Bound, Ceiling]] = defaultdict(dict)
    for case in run.plan.shown:
        if case.label not in known:
            continue
        needed = needed_by(case, known[case.label])
        for ceiling in _nearest([c for c in measured if fits(c.roof, case, needed)], needed):
            best = found[case.label].get(ceiling.roof.bound)
            if best is None or ceiling.rate > best.rate:
                found[case.label][ceiling.roof.bound] = ceiling
    return dict(found)


def _nearest(ceilings: list[Ceiling], needed: Needed) -> list[Ceiling]:
    """Of the bytes only those that are nearest to the case's own."""
    apart = {c.roof.name: abs(math.log(c.roof.read_bytes / needed.bytes))
             for c in ceilings if c.roof.bound is Bound.BYTES}  # fmt: skip
    least = min(apart.values(), default=0.0)
    return [c for c in ceilings if apart.get(c.roof.name, 0.0) <= least + ALIKE]


def shares_of(run: Run, costs: Iterable[CaseCost]) -> tuple[Share, ...]:
    """The share of every case that was timed beside the ceiling that binds it, in the plan's order."""
    costs = tuple(costs)
    roofs, table = table_of(run, ROOF), table_of(run)
    known = {found.case: found.cost for found in costs}
    failed = {failure.case for failure in run.failures}
    bounds = ceilings_of(run, costs) if run.roofs else {}
    shares = []
    for case in run.plan.shown:
        if case.label in failed or case.label not in table.rounds or case.label not in bounds:
            continue
        needed = needed_by(case, known[case.label])
        least = {bound: seconds for bound, c in bounds[case.label].items() if (seconds := c.least_s(needed))}
        if not least:
            continue
        bound = max(least, key=lambda one: least[one])
        ceiling = bounds[case.label][bound]
        mean = table.seconds(case.label).mean()
        row = paired(roofs.rounds[ceiling.roof.name], table.rounds[case.label], table.starters)
        if mean and not row.disturbed and (share := row.around(least[bound] / math.exp(mean.mean))):
            shares.append(Share(case=case.label, bound=bound, roof=ceiling.roof.name, share=share))
    return tuple(shares)
