"""Samples of roofs -> how near each case is to what the machine can do, and the least
time that it can take. Pure.

This is the roofline model (Williams, Waterman and Patterson 2009), with the call itself
as a third bound. A call needs so many FLOPs, so many bytes, and to be called. Each is a
bound: the least time that the machine needs for it, by the fastest roof of its kind.
The bound with the largest least time is the one that binds, and a case's share is that
time over its own; its interval is that of their ratio, paired by round. FLOPs are those
of the matrix products in the mode that was timed. Bytes are those that no call can do
without: the weights that it touches, its input, its output; with a backward those of
the forward alone.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from ffnbench.choices import MatmulPrecision, Weights
from ffnbench.ffn.spec import item_bytes
from ffnbench.metrics import ROOF
from ffnbench.plan import Case, Needed, needed_by
from ffnbench.result import (
    MEMORY,
    SIZES_ALIKE,
    Bound,
    CaseCost,
    Ceiling,
    Report,
    Roof,
    Run,
    Share,
)
from ffnbench.stats.rounds import paired_logs, table_of

COARSEST_FIRST = (MatmulPrecision.MEDIUM, MatmulPrecision.HIGH, MatmulPrecision.HIGHEST)
# rates of one kind that differ by no more (a share of the faster one) are drawn as one
# line of a roofline
ONE_LINE_WITHIN = 0.1

# by the label of a case: for each bound, the ceiling that is the fastest for the case
CeilingsByCase = Mapping[str, Mapping[Bound, Ceiling]]


def fits(roof: Roof, case: Case, needed: Needed) -> bool:
    """Whether a roof bounds a case: whether it was measured on the same device, with as
    many threads, and computes or reads something comparable.

    A roof of products fits if its dtype and its matmul precision are those of the case
    or finer, for a call may always compute more exactly. A roof of bytes fits if it
    reads about as many bytes as the case needs, or if both are so large that they come
    from memory.
    """
    work = case.workload
    if roof.device != work.device:
        return False
    if roof.bound is Bound.CALL:
        return True
    if roof.threads != work.threads:
        return False
    if roof.bound is Bound.BYTES:
        both_of_memory = roof.level == MEMORY and roof.read_bytes <= needed.bytes
        return (
            both_of_memory
            or abs(roof.read_bytes - needed.bytes) <= 2 * SIZES_ALIKE * needed.bytes
        )
    # runtimes compute these products in 8 bits, which no roof is of
    if work.weights != Weights.NONE:
        return False
    if item_bytes(roof.dtype) < item_bytes(work.dtype):
        return False
    # the matmul precision says how products of float32 are computed, and no others
    return work.dtype != "float32" or COARSEST_FIRST.index(
        roof.matmul_precision
    ) >= COARSEST_FIRST.index(work.matmul_precision)


def needed_by_cases(
    cases: Iterable[Case], costs: Iterable[CaseCost]
) -> list[tuple[Case, Needed]]:
    """The cases whose cost is known, each with what a call of it needs."""
    by_label = {entry.case: entry.cost for entry in costs}
    return [
        (case, needed_by(case, by_label[case.label]))
        for case in cases
        if case.label in by_label
    ]


def may_bind(
    cases: Iterable[Case],
    costs: Iterable[CaseCost],
    reached: Sequence[Ceiling],
    share: float,
) -> frozenset[str]:
    """The names of the roofs that bind a case, or nearly do: by whose bound the least
    time of some case is at least `share` of that of the bound that binds it.
    """
    names: set[str] = set()
    for case, needed in needed_by_cases(cases, costs):
        fitting = [ceiling for ceiling in reached if fits(ceiling.roof, case, needed)]
        fastest: dict[Bound, float] = {}
        for ceiling in fitting:
            least_s = ceiling.least_s(needed)
            if least_s:
                bound = ceiling.roof.bound
                fastest[bound] = min(least_s, fastest.get(bound, math.inf))
        binding_s = max(fastest.values(), default=0.0)
        near_bounds = {
            bound for bound, least_s in fastest.items() if least_s >= share * binding_s
        }
        names |= {
            ceiling.roof.name
            for ceiling in fitting
            if ceiling.roof.bound in near_bounds
        }
    return frozenset(names)


def ceilings_of(run: Run, costs: Iterable[CaseCost]) -> CeilingsByCase:
    """For each case and each bound the fastest roof that fits the case, with its mean
    seconds over clean rounds; a roof without a clean round is left out.

    A roof is sampled in few rounds, so its seconds are divided by what each of these
    rounds did to all rows. In a sweep a cell has the roofs of its own workers.
    """
    table = table_of(run)
    roof_rounds = table_of(run, ROOF).rounds
    measured = []
    for roof in run.roofs:
        mean = paired_logs(
            roof_rounds.get(roof.name, {}), table.round_effects, table.starters
        ).mean()
        if mean:
            measured.append(Ceiling(roof=roof, seconds=math.exp(mean.mean)))
    fastest: dict[str, dict[Bound, Ceiling]] = defaultdict(dict)
    for case, needed in needed_by_cases(run.plan.shown, costs):
        workers = table.rounds.get(case.label, {}).keys()
        fitting = [
            ceiling
            for ceiling in measured
            # workers in common: the roof was measured in the case's cell
            if workers & roof_rounds[ceiling.roof.name].keys()
            and fits(ceiling.roof, case, needed)
        ]
        for ceiling in _of_nearest_size(fitting, needed):
            of_case, bound = fastest[case.label], ceiling.roof.bound
            if bound not in of_case or ceiling.rate > of_case[bound].rate:
                of_case[bound] = ceiling
    return dict(fastest)


def _of_nearest_size(ceilings: Sequence[Ceiling], needed: Needed) -> list[Ceiling]:
    """The ceilings, of those of bytes only the ones whose size is nearest to that of
    the case (by SIZES_ALIKE, which is a difference of logs here).
    """
    distances: dict[str, float] = {}
    for ceiling in ceilings:
        if ceiling.roof.bound is Bound.BYTES:
            distances[ceiling.roof.name] = abs(
                math.log(ceiling.roof.read_bytes / needed.bytes)
            )
    nearest = min(distances.values(), default=0.0)
    return [
        ceiling
        for ceiling in ceilings
        if distances.get(ceiling.roof.name, 0.0) <= nearest + SIZES_ALIKE
    ]


def shares_of(
    run: Run, costs: Iterable[CaseCost], ceilings: CeilingsByCase
) -> tuple[Share, ...]:
    """The share of every case that was timed beside the ceiling that binds it, in the
    plan's order.
    """
    roof_rounds, table = table_of(run, ROOF).rounds, table_of(run)
    failed = {failure.case for failure in run.failures}
    shares = []
    for case, needed in needed_by_cases(run.plan.shown, costs):
        label = case.label
        if label in failed or label not in table.rounds or label not in ceilings:
            continue
        least_s = {
            bound: ceiling.least_s(needed) or 0.0
            for bound, ceiling in ceilings[label].items()
        }
        bound = max(least_s, key=least_s.__getitem__)
        mean = table.seconds(label).mean()
        if not mean or not least_s[bound]:
            continue
        roof = ceilings[label][bound].roof.name
        # the share follows from the reported means, its interval from paired rounds
        ratios = paired_logs(roof_rounds[roof], table.rounds[label], table.starters)
        share = ratios.centred_at(least_s[bound] / math.exp(mean.mean))
        if share and not ratios.disturbed:
            shares.append(Share(case=label, bound=bound, roof=roof, share=share))
    return tuple(shares)


def roofline_of(report: Report, ceilings: CeilingsByCase) -> tuple[Ceiling, ...]:
    """The ceilings that a roofline of the timed cases shows, the fastest first.

    All ceilings of products are shown, and of those of bytes the ones that bind a case.
    Where they bind none, the slowest of them is shown, so that a reader sees how far
    away it is.
    """
    products, reads, binding_reads = [], [], []
    for case in report.plan.shown:
        if not report.has_time(case.label):
            continue
        of_case, share = ceilings.get(case.label, {}), report.share(case.label)
        if Bound.PRODUCTS in of_case:
            products.append(of_case[Bound.PRODUCTS])
        if Bound.BYTES in of_case:
            reads.append(of_case[Bound.BYTES])
            if share and share.bound is Bound.BYTES:
                binding_reads.append(of_case[Bound.BYTES])
    reads.sort(key=_rate_of)
    shown = products + (binding_reads or reads[:1])
    lines: list[Ceiling] = []
    for ceiling in sorted(shown, key=_rate_of, reverse=True):
        if not any(_lies_on(line, ceiling) for line in lines):
            lines.append(ceiling)
    return tuple(lines)


def _rate_of(ceiling: Ceiling) -> float:
    return ceiling.rate


def _lies_on(faster: Ceiling, ceiling: Ceiling) -> bool:
    """Whether a ceiling is so near to a faster one of its kind that the line of the
    faster one stands for both.
    """
    roof, other = ceiling.roof, faster.roof
    is_alike = (roof.bound, roof.level, roof.threads) == (
        other.bound,
        other.level,
        other.threads,
    )
    is_same_dtype = roof.bound is Bound.BYTES or roof.dtype == other.dtype
    return (
        is_alike
        and is_same_dtype
        and ceiling.rate >= (1 - ONE_LINE_WITHIN) * faster.rate
    )
