"""From the losses of runs to what can be said of variants: paired by seed, Student over seeds, Holm. Pure.

Three seeds tell little of how much a difference scatters. So its error is that of all variants together (randomised
blocks, Fisher 1935; a seed is a block), unless a difference scatters by itself more than chance explains (ALIKE).

Rates are chosen on a part of the text that is not the one whose loss is told.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from statistics import fmean, median
from typing import TypeVar

from ffnbench.extras.train.plan import CHOOSING, CURVE, HELD_OUT, LOSS, OF, TrainCase
from ffnbench.plan import Case, Plan
from ffnbench.result import CONFIDENCE, Report, Verdict
from ffnbench.stats.cells import restricted
from ffnbench.stats.curves import Pair, in_both_orders, pairs_of, pareto_front
from ffnbench.stats.interval import Mean, VarianceEstimate, WorkerValue, mean_of
from ffnbench.stats.verdict import verdicts

ALIKE = 0.95  # confidence, above which a difference scatters more than others do
SAME_NATS = 0.01  # per byte: half of what is between relu and gelu in a small model
SAME = math.exp(-SAME_NATS), math.exp(SAME_NATS)
# fmt: off
CITED = {  # held-out loss of T5-base by FFN at equal parameters; the two name SiLU "Swish"
    "Shazeer 2020": {  # Table 1, 65,536 steps; runs scatter by 0.003 to 0.010
        "relu": 1.997, "gelu": 1.983, "silu": 1.994, "glu": 1.982, "bilinear": 1.960, "geglu": 1.942, "swiglu": 1.944,
        "reglu": 1.953,
    },
    "Narang 2021": {  # Table 1, final loss
        "relu": 1.838, "gelu": 1.838, "silu": 1.847, "elu": 1.932, "glu": 1.814, "geglu": 1.792, "reglu": 1.803,
        "swiglu": 1.789, "bilinear": 1.798, "sigmoid": 1.867, "softplus": 1.850,
    },
}
# fmt: on

K = TypeVar("K")
Curve = tuple[tuple[int, float], ...]  # of (steps, loss)


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """What is known of a variant at its best rate: its losses by seed, in nats per byte, and the difference to the
    reference's. Curves are (step, loss), the mean over seeds: of the batches up to there, and of what is held out,
    empty in files of earlier versions.
    """

    name: str
    rate: float | None = None
    losses: Mapping[int, float] = field(default_factory=dict)
    loss: Mean | None = None
    difference: Mean | None = None
    verdict: Verdict = Verdict.UNCLEAR
    failed: tuple[str, ...] = ()
    curve: Curve = ()
    held_out: Curve = ()


def learnt(report: Report) -> dict[str, Learnt]:
    """Of each variant, by its name, in the order of the plan."""
    variants = {name: _at_best_rate(report, name, cases) for name, cases in runs_of(report.plan).items()}
    reference = report.plan.name_of(report.plan.reference)
    scatter = scatter_of([variant.losses for variant in variants.values()])
    differences = {}
    for name, variant in variants.items():
        difference = paired(variant.losses, variants[reference].losses, scatter)
        if name != reference and difference is not None:
            differences[name] = difference
    for name, verdict in verdicts_of(differences).items():
        variants[name] = replace(variants[name], difference=differences[name], verdict=verdict)
    variants[reference] = replace(variants[reference], verdict=Verdict.REFERENCE)
    return variants


def of_cell(plan: Plan, of: str) -> dict[str, Case]:
    """The cases of one of the cells that are timed, by the names of their variants."""
    return {plan.name_of(case.label): case for case in plan.shown if dict(case.point)[OF] == of}


def runs_of(plan: Plan) -> dict[str, list[TrainCase]]:
    """The runs of each variant, by its name."""
    runs: dict[str, list[TrainCase]] = defaultdict(list)
    for case in plan.shown:
        if isinstance(case, TrainCase) and case.training is not None:
            runs[plan.name_of(case.label)].append(case)
    return dict(runs)


def verdicts_of(differences: Mapping[K, Mean]) -> dict[K, Verdict]:
    """Of each difference of losses, as of the log of a ratio of times: SLOWER learns worse, FASTER better."""
    return {name: verdict for name, (verdict, _) in verdicts(differences, same=SAME).items()}


def scatter_of(variants: Iterable[Mapping[int, float]]) -> VarianceEstimate | None:
    """The variance of losses beyond what a variant and a seed do to them, over the seeds that all variants have."""
    trained = [losses for losses in variants if losses]
    if len(trained) < 2:
        return None
    seeds = sorted(set[int].intersection(*map(set, trained)))
    if len(seeds) < 2:
        return None
    rows = [[losses[seed] for seed in seeds] for losses in trained]
    of_seeds = [fmean(column) for column in zip(*rows, strict=True)]
    mean = fmean(of_seeds)
    squares = 0.0
    for row in rows:
        of_variant = fmean(row)
        squares += math.fsum(
            (loss - of_variant - of_seed + mean) ** 2 for loss, of_seed in zip(row, of_seeds, strict=True)
        )
    freedom = (len(rows) - 1) * (len(seeds) - 1)
    return VarianceEstimate(squares / freedom, freedom)


def paired(
    losses: Mapping[int, float], others: Mapping[int, float], scatter: VarianceEstimate | None = None
) -> Mean | None:
    """The mean of the differences, seed by seed, with its own error or that of all variants."""
    from scipy.special import fdtrc

    own = _mean(losses[seed] - others[seed] for seed in losses.keys() & others.keys())
    if own is None or scatter is None or not 0 < own.freedom < scatter.freedom:
        return own
    shared = 2 * scatter.variance / (own.freedom + 1)
    if shared and fdtrc(own.freedom, scatter.freedom, own.error**2 / shared) < 1 - ALIKE:
        return own
    return replace(own, error=math.sqrt(shared), freedom=scatter.freedom)


def _mean(values: Iterable[float]) -> Mean | None:
    found = [WorkerValue(value, number) for number, value in enumerate(values)]
    return mean_of(found) if found else None


def _at_best_rate(report: Report, name: str, cases: list[TrainCase]) -> Learnt:
    """At the rate that is best where rates are chosen: of those that most seeds could be trained with."""
    losses, choosing = _values(report, LOSS), _values(report, CHOOSING)
    trained: dict[float, list[TrainCase]] = defaultdict(list)
    for case in cases:
        if case.label in losses:
            trained[case.recipe.rate].append(case)

    def order(rate: float) -> tuple[int, float]:
        runs = trained[rate]
        return -len(runs), fmean(choosing.get(case.label, math.inf) for case in runs)

    rate = min(trained, key=order, default=None)
    asked = [case for case in cases if rate in (None, case.recipe.rate)]
    failures = [report.failure(case.label) for case in asked]
    failed = tuple(dict.fromkeys(failure.message for failure in failures if failure is not None))
    if rate is None:
        return Learnt(name=name, failed=failed)
    by_seed = {case.recipe.seed: losses[case.label] for case in trained[rate]}
    labels = [case.label for case in trained[rate]]
    return Learnt(
        name=name,
        rate=rate,
        losses=by_seed,
        loss=_mean(by_seed.values()),
        failed=failed,
        curve=_curve(report, labels, CURVE),
        held_out=_curve(report, labels, HELD_OUT),
    )


def _values(report: Report, metric: str) -> dict[str, float]:
    return {sample.case: sample.value for sample in report.samples if sample.metric == metric}


def _curve(report: Report, labels: list[str], metric: str) -> Curve:
    """The mean over these runs. A training loss is that of the steps since the one before it."""
    losses: dict[int, list[float]] = defaultdict(list)
    steps = dict.fromkeys(labels, 0)
    for sample in report.samples:
        if sample.metric == metric and sample.case in steps:
            before = steps[sample.case] if metric == CURVE else 0
            steps[sample.case] = before + sample.calls
            losses[steps[sample.case]].append(sample.value)
    return tuple((step, fmean(values)) for step, values in losses.items())


def resolves(variants: Mapping[str, Learnt]) -> float | None:
    """About the smallest difference that so many seeds can show: half an interval, the median over rows."""
    differences = [variant.difference for variant in variants.values()]
    halves = [mean.half_width(CONFIDENCE) for mean in differences if mean is not None and mean.freedom]
    return median(halves) if halves else None


def front_of(report: Report, variants: Mapping[str, Learnt], of: str) -> list[str]:
    """The variants on the Pareto front of loss and time. `of` is the cell of the times; without a time a variant is not
    on it.
    """
    names = {case.label: name for name, case in of_cell(report.plan, of).items()}
    if not names:
        return []
    cases = tuple(case for case in report.plan.cases if case.label in names)
    timed = restricted(report, replace(report.plan, cases=cases, reference=cases[0].label))
    times = {(names[label], names[other]): pair for (label, other), pair in pairs_of(timed).items()}
    with_time = {name for pair in times for name in pair}
    known = [name for name, variant in variants.items() if variant.losses and name in with_time]
    return pareto_front(known, times, pairs_of_losses(variants))


def pairs_of_losses(variants: Mapping[str, Learnt]) -> dict[tuple[str, str], Pair]:
    """How the first of any two variants learns beside the second, in both orders. Those without the reference are one
    family for Holm.
    """
    [reference] = [name for name, variant in variants.items() if variant.verdict is Verdict.REFERENCE]
    scatter = scatter_of([variant.losses for variant in variants.values()])
    pairs, differences = {}, {}
    for name, variant in variants.items():
        if variant.difference is not None:
            pairs[name, reference] = Pair(variant.difference, variant.verdict)
    for name, other in combinations([name for name in variants if name != reference], 2):
        difference = paired(variants[name].losses, variants[other].losses, scatter)
        if difference is not None:
            differences[name, other] = difference
    for names, verdict in verdicts_of(differences).items():
        pairs[names] = Pair(differences[names], verdict)
    return in_both_orders(pairs)


def at_an_end_of_rates(report: Report, variants: Mapping[str, Learnt]) -> tuple[list[str], list[float]]:
    """Who learns best at the lowest or the highest of several rates, and the longer list to try; nobody where not all
    rates were tried.
    """
    rates = sorted({case.recipe.rate for cases in runs_of(report.plan).values() for case in cases})
    if len(rates) == 1 or report.interrupted or report.stopped:
        return [], rates
    beyond = {rates[0]: rates[0] ** 2 / rates[1], rates[-1]: rates[-1] ** 2 / rates[-2]}
    at_end = {name: beyond[variant.rate] for name, variant in variants.items() if variant.rate in beyond}
    return list(at_end), sorted({*rates, *at_end.values()})
