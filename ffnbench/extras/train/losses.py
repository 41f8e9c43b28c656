"""From the losses of runs to what can be said of variants: paired by seed, Student over seeds, Holm. Pure.

Three seeds tell little of how much a difference scatters. So its error is that of all variants together (randomised
blocks, Fisher 1935; a seed is a block), unless a difference scatters by itself more than chance explains (ALIKE).

Rates are chosen on a part of the text that is not the one whose loss is told.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import correlation, fmean, median
from typing import TypeVar

from ffnbench.extras.train.decoder import TrainCase, trained_by
from ffnbench.extras.train.metrics import CHOOSING, CURVE, HELD_OUT, LOSS
from ffnbench.extras.train.planning import OF
from ffnbench.plan import Case, Plan
from ffnbench.result import Report, Verdict
from ffnbench.stats.cells import restricted
from ffnbench.stats.interval import CONFIDENCE, Mean, VarianceEstimate, WorkerValue, mean_of
from ffnbench.stats.pairs import Pair, in_both_orders, pairs_of, pareto_front
from ffnbench.stats.verdict import verdicts

ALIKE = 0.95  # confidence, above which a difference scatters more than others do
SAME_NATS = 0.01  # per byte: half of what is between relu and gelu in a small model
SAME = math.exp(-SAME_NATS), math.exp(SAME_NATS)
CITED = {  # held-out loss of T5-base by FFN at equal parameters; the two name SiLU "Swish"
    "Shazeer 2020": {  # Table 1, 65,536 steps; runs scatter by 0.003 to 0.010
        "relu": 1.997, "gelu": 1.983, "silu": 1.994, "glu": 1.982, "bilinear": 1.960, "geglu": 1.942, "swiglu": 1.944,
        "reglu": 1.953,
    },
    "Narang 2021": {  # Table 1, final loss
        "relu": 1.838, "gelu": 1.838, "silu": 1.847, "elu": 1.932, "glu": 1.814, "geglu": 1.792, "reglu": 1.803,
        "swiglu": 1.789, "bilinear": 1.798, "sigmoid": 1.867, "softplus": 1.850,
    },
}  # fmt: skip
LEAST_CITED = 4  # forms, of which a rank correlation says anything

K = TypeVar("K")


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """What is known of a variant at its best rate: its losses by seed, in nats per byte, and the difference to the
    reference's. Curves are (step, loss), the mean over seeds: of the batches up to there, and of what is held out,
    empty in files of earlier versions.
    """

    name: str
    rate: float | None
    losses: Mapping[int, float]
    loss: Mean | None
    difference: Mean | None
    verdict: Verdict
    failed: tuple[str, ...]
    curve: tuple[tuple[int, float], ...]
    held_out: tuple[tuple[int, float], ...]


def learnt(report: Report) -> dict[str, Learnt]:
    """Of each variant, by its name, in the order of the plan."""
    found = {name: _at_best(report, name, cases) for name, cases in runs_of(report.plan).items()}
    reference = found[report.plan.name_of(report.plan.reference)]
    common = scatter_of([one.losses for one in found.values()])
    differences = {name: mean for name, one in found.items() if one is not reference
                   and (mean := paired(one.losses, reference.losses, common))}  # fmt: skip
    told = verdicts_of(differences)
    return {
        name: replace(
            one,
            difference=differences.get(name),
            verdict=Verdict.REFERENCE if one is reference else told.get(name, Verdict.UNCLEAR),
        )
        for name, one in found.items()
    }


def of_cell(plan: Plan, of: str) -> dict[str, Case]:
    """The cases of one of the cells that are timed, by the names of their variants."""
    return {plan.name_of(case.label): case for case in plan.shown if dict(case.point)[OF] == of}


def runs_of(plan: Plan) -> dict[str, list[TrainCase]]:
    """The runs of each variant."""
    found: dict[str, list[TrainCase]] = defaultdict(list)
    for case in plan.shown:
        if isinstance(case, TrainCase) and case.training:
            found[plan.name_of(case.label)].append(case)
    return dict(found)


def verdicts_of(differences: Mapping[K, Mean]) -> dict[K, Verdict]:
    """Of each difference of losses, as of the log of a ratio of times: SLOWER learns worse, FASTER better."""
    return {name: verdict for name, (verdict, _) in verdicts(differences, same=SAME).items()}


def scatter_of(runs: Sequence[Mapping[int, float]]) -> VarianceEstimate | None:
    """How much losses scatter beyond what a variant and a seed do to them, over the seeds that all variants have."""
    known = [losses for losses in runs if losses]
    seeds = sorted(set[int].intersection(*map(set, known))) if known else []
    if len(known) < 2 or len(seeds) < 2:
        return None
    freedom = (len(known) - 1) * (len(seeds) - 1)
    rows = [[losses[seed] for seed in seeds] for losses in known]
    columns, mean = list(map(fmean, zip(*rows, strict=True))), fmean(map(fmean, rows))
    squares = ((x - fmean(row) - of_seed + mean) ** 2 for row in rows for x, of_seed in zip(row, columns, strict=True))
    return VarianceEstimate(math.fsum(squares) / freedom, freedom)


def paired(
    losses: Mapping[int, float], others: Mapping[int, float], common: VarianceEstimate | None = None
) -> Mean | None:
    """The mean of the differences, seed by seed, with its own error or that of all variants."""
    from scipy.special import fdtrc

    own = _mean(losses[seed] - others[seed] for seed in losses.keys() & others.keys())
    if own is None or common is None or not 0 < own.freedom < common.freedom:
        return own
    shared = 2 * common.variance / (own.freedom + 1)
    if shared and fdtrc(own.freedom, common.freedom, own.error**2 / shared) < 1 - ALIKE:
        return own
    return replace(own, error=math.sqrt(shared), freedom=common.freedom)


def _mean(values: Iterable[float]) -> Mean | None:
    found = [WorkerValue(value, number) for number, value in enumerate(values)]
    return mean_of(found) if found else None


def _at_best(report: Report, name: str, cases: list[TrainCase]) -> Learnt:
    """At the rate that is best where it is chosen: of those that most seeds could be trained with."""
    losses, choosing = _values(report, LOSS), _values(report, CHOOSING)
    by_rate: dict[float, list[TrainCase]] = defaultdict(list)
    for case in cases:
        assert case.training is not None
        if case.label in losses:
            by_rate[case.training.rate].append(case)
    most = max(map(len, by_rate.values()), default=0)
    whole = {rate: runs for rate, runs in by_rate.items() if len(runs) == most}
    best = min(whole, key=lambda rate: fmean(choosing.get(case.label, math.inf) for case in whole[rate]), default=None)
    runs = [] if best is None else whole[best]
    by_seed = {case.training.seed: losses[case.label] for case in runs if case.training}
    asked = [case for case in cases if best is None or (case.training and case.training.rate == best)]
    failed = tuple(dict.fromkeys(failure.message for case in asked if (failure := report.failure(case.label))))
    labels = [case.label for case in runs]
    return Learnt(
        name=name, rate=best, losses=by_seed, loss=_mean(by_seed.values()), difference=None, verdict=Verdict.UNCLEAR,
        failed=failed, curve=_curve(report, labels, CURVE), held_out=_curve(report, labels, HELD_OUT),
    )  # fmt: skip


def _values(report: Report, metric: str) -> dict[str, float]:
    return {sample.case: sample.value for sample in report.samples if sample.metric == metric}


def _curve(report: Report, labels: list[str], metric: str) -> tuple[tuple[int, float], ...]:
    """Steps and loss, the mean over these runs. A loss is of the steps since the one before it, or held out by then."""
    losses: dict[int, list[float]] = defaultdict(list)
    steps = dict.fromkeys(labels, 0)
    for sample in report.samples:
        if sample.case in steps and sample.metric == metric:
            steps[sample.case] = sample.calls + (steps[sample.case] if metric == CURVE else 0)
            losses[steps[sample.case]].append(sample.value)
    return tuple((step, fmean(values)) for step, values in losses.items())


def resolves(found: Mapping[str, Learnt]) -> float | None:
    """About the smallest difference that so many seeds can show: half an interval, the median over rows."""
    halves = [
        one.difference.half_width(CONFIDENCE) for one in found.values() if one.difference and one.difference.freedom
    ]
    return median(halves) if halves else None


def front_of(report: Report, found: Mapping[str, Learnt], of: str) -> list[str]:
    """The variants on the Pareto front of loss and time. `of` is the cell of the times; without a time a variant is not
    on it.
    """
    cases = of_cell(report.plan, of)
    if not cases:
        return []
    plan = replace(report.plan, cases=tuple(cases.values()), reference=next(iter(cases.values())).label)
    names = {case.label: name for name, case in cases.items()}
    times = {(names[one], names[other]): pair for (one, other), pair in pairs_of(restricted(report, plan)).items()}
    timed = {name for pair in times for name in pair}
    known = [name for name, one in found.items() if one.losses and name in timed]
    return pareto_front(known, times, pairs_of_losses(found))


def pairs_of_losses(found: Mapping[str, Learnt]) -> dict[tuple[str, str], Pair]:
    """How the first of any two variants learns beside the other, in both orders. Those without the reference are one
    family for Holm.
    """
    reference = next(name for name, one in found.items() if one.verdict is Verdict.REFERENCE)
    pairs = {(name, reference): Pair(one.difference, one.verdict) for name, one in found.items() if one.difference}
    common = scatter_of([one.losses for one in found.values()])
    others = combinations([name for name in found if name != reference], 2)
    means = {(one, other): paired(found[one].losses, found[other].losses, common) for one, other in others}
    known = {names: mean for names, mean in means.items() if mean}
    pairs |= {names: Pair(known[names], verdict) for names, verdict in verdicts_of(known).items()}
    return in_both_orders(pairs)


@dataclass(frozen=True, slots=True)
class WiderRates:
    """Who learns best at the lowest or the highest of several rates, and the longer list to try."""

    names: tuple[str, ...] = ()
    rates: tuple[float, ...] = ()


def wider_rates(report: Report, found: Mapping[str, Learnt]) -> WiderRates:
    """What rates to try where the best one is at an end. Whoever was not trained at all of them is not named."""
    rates = sorted({training.rate for case in report.plan.shown if (training := trained_by(case))})
    if len(rates) == 1:
        return WiderRates()
    beyond = {rates[0]: rates[0] ** 2 / rates[1], rates[-1]: rates[-1] ** 2 / rates[-2]}
    tried: dict[str, set[float]] = defaultdict(set)
    for sample in report.samples:
        training = trained_by(report.plan.case(sample.case)) if sample.metric == LOSS else None
        if training:
            tried[report.plan.name_of(sample.case)].add(training.rate)
    at_end = {
        name: beyond[one.rate] for name, one in found.items() if one.rate in beyond and len(tried[name]) == len(rates)
    }
    return WiderRates(tuple(at_end), tuple(sorted({*rates, *at_end.values()})))


def agreement(found: Mapping[str, Learnt]) -> dict[str, tuple[float, int]]:
    """The rank correlation (Spearman 1904) of losses with published ones, and of how many forms."""
    told = {}
    for source, losses in CITED.items():
        shared = [name for name, one in found.items() if one.loss and name in losses]
        ours = _ranks([found[name].loss.mean for name in shared])  # type: ignore[union-attr]
        if len(shared) >= LEAST_CITED and len(set(ours)) > 1:
            told[source] = correlation(ours, _ranks([losses[name] for name in shared])), len(shared)
    return told


def _ranks(values: list[float]) -> list[float]:
    """The place of each; equal ones share theirs."""
    return [sum(other < value for other in values) + sum(other == value for other in values) / 2 for value in values]
