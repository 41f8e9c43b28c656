"""What the losses of runs say of variants: differences paired by seed, Student's
intervals over seeds, Holm's correction. Pure.

Three seeds tell little of how much a difference scatters. So its error is that of all
variants together (randomised blocks, Fisher 1935; a seed is a block), unless a
difference scatters more by itself than chance explains (SCATTER_CONFIDENCE).

Rates are chosen on a part of the text that is not the one whose loss is reported.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations, permutations
from statistics import fmean, median
from typing import TypeVar

from ffnbench.extras.train.plan import (
    CELL_AXIS,
    CHOOSING,
    CURVE,
    HELD_OUT,
    LOSS,
    TIMED_CELL,
    TrainCase,
)
from ffnbench.plan import Plan, group_suffix
from ffnbench.result import CONFIDENCE, Report, Verdict
from ffnbench.stats.curves import Pair, in_both_orders, pairs_of, pareto_front, sides_of
from ffnbench.stats.interval import Mean, VarianceEstimate, WorkerValue, mean_of
from ffnbench.stats.verdict import verdicts

# level of an F test of whether a difference scatters more than the others do
SCATTER_CONFIDENCE = 0.95
SAME_NATS = 0.01  # per byte: half of what is between relu and gelu in a small model
SAME_LOSS = math.exp(-SAME_NATS), math.exp(SAME_NATS)

K = TypeVar("K")
Losses = Mapping[int, float]  # seed -> nats per byte
LossCurve = tuple[tuple[int, float], ...]  # steps, and the loss after them


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantLosses:
    """What is known of a variant at its best rate: its losses by seed, their mean, and
    the difference to the reference.

    Curves are means over seeds: `held_out` of the loss on what is held out, and `curve`
    of the losses of the steps, which only files of earlier versions have. `failed` says
    why runs have no loss.
    """

    name: str
    rate: float | None = None
    losses: Losses = field(default_factory=dict)
    loss: Mean | None = None
    difference: Mean | None = None
    verdict: Verdict = Verdict.UNCLEAR
    failed: tuple[str, ...] = ()
    curve: LossCurve = ()
    held_out: LossCurve = ()


def learnt(report: Report) -> dict[str, VariantLosses]:
    """The losses of each variant by its name, in the order of the plan."""
    variants = {
        name: _at_best_rate(report, name, runs)
        for name, runs in runs_of(report.plan).items()
    }
    reference = report.plan.name_of(report.plan.reference)
    scatter = scatter_of(variant.losses for variant in variants.values())
    differences = {}
    for name, variant in variants.items():
        difference = mean_paired_difference(
            variant.losses, variants[reference].losses, scatter
        )
        if name != reference and difference is not None:
            differences[name] = difference
    for name, verdict in verdicts_of(differences).items():
        variants[name] = replace(
            variants[name], difference=differences[name], verdict=verdict
        )
    variants[reference] = replace(variants[reference], verdict=Verdict.REFERENCE)
    return variants


def runs_of(plan: Plan) -> dict[str, list[TrainCase]]:
    """The runs of each variant, by its name."""
    runs: dict[str, list[TrainCase]] = defaultdict(list)
    for case in plan.shown:
        if isinstance(case, TrainCase) and case.training is not None:
            runs[plan.name_of(case.label)].append(case)
    return dict(runs)


def _at_best_rate(report: Report, name: str, runs: list[TrainCase]) -> VariantLosses:
    """The losses of a variant, without its difference to the reference."""
    losses = _final_losses(report, LOSS)
    trained = [run for run in runs if run.label in losses]
    best = _best_rate(report, trained)
    messages = []
    for run in runs:
        failure = report.failure(run.label)
        if failure is not None and best in (None, run.recipe.rate):
            messages.append(failure.message)
    failed = tuple(dict.fromkeys(messages))
    if best is None:
        return VariantLosses(name=name, failed=failed)
    at_best = [run for run in trained if run.recipe.rate == best]
    by_seed = {run.recipe.seed: losses[run.label] for run in at_best}
    labels = [run.label for run in at_best]
    return VariantLosses(
        name=name,
        rate=best,
        losses=by_seed,
        loss=_mean_over_seeds(by_seed.values()),
        failed=failed,
        curve=_mean_curve(report, labels, CURVE),
        held_out=_mean_curve(report, labels, HELD_OUT),
    )


def _best_rate(report: Report, trained: list[TrainCase]) -> float | None:
    """The rate with the least loss on the part that rates are chosen by, of those with
    which most seeds could be trained; None where no run was.
    """
    choosing = _final_losses(report, CHOOSING)
    labels: dict[float, list[str]] = defaultdict(list)
    for run in trained:
        labels[run.recipe.rate].append(run.label)

    def order(rate: float) -> tuple[int, float]:
        losses = [choosing.get(label, math.inf) for label in labels[rate]]
        return -len(losses), fmean(losses)

    return min(labels, key=order, default=None)


def _final_losses(report: Report, metric: str) -> dict[str, float]:
    """Label of a run -> its loss at the end."""
    return {
        sample.case: sample.value
        for sample in report.samples
        if sample.metric == metric
    }


def _mean_curve(report: Report, labels: list[str], metric: str) -> LossCurve:
    """The mean curve of these runs. The `calls` of a sample are the steps up to it; of
    CURVE they are those since the sample before it.
    """
    losses: dict[int, list[float]] = defaultdict(list)
    steps = dict.fromkeys(labels, 0)
    for sample in report.samples:
        if sample.metric != metric or sample.case not in steps:
            continue
        step = sample.calls
        if metric == CURVE:
            step += steps[sample.case]
            steps[sample.case] = step
        losses[step].append(sample.value)
    return tuple((step, fmean(values)) for step, values in losses.items())


# Differences and verdicts


def verdicts_of(differences: Mapping[K, Mean]) -> dict[K, Verdict]:
    """The verdict on each difference of losses, decided like the log of a ratio of
    times: SLOWER learns worse, FASTER better.
    """
    return {
        name: verdict
        for name, (verdict, _) in verdicts(differences, same=SAME_LOSS).items()
    }


def scatter_of(variants: Iterable[Losses]) -> VarianceEstimate | None:
    """The variance of losses beyond the effects of variant and seed, over the seeds
    that all variants have; None for fewer than two variants or seeds.
    """
    trained = [losses for losses in variants if losses]
    if len(trained) < 2:
        return None
    seeds = sorted(set[int].intersection(*map(set, trained)))
    if len(seeds) < 2:
        return None
    seed_means = {seed: fmean(losses[seed] for losses in trained) for seed in seeds}
    mean = fmean(seed_means.values())
    squares = 0.0
    for losses in trained:
        variant_mean = fmean(losses[seed] for seed in seeds)
        squares += math.fsum(
            (losses[seed] - variant_mean - seed_means[seed] + mean) ** 2
            for seed in seeds
        )
    freedom = (len(trained) - 1) * (len(seeds) - 1)
    return VarianceEstimate(squares / freedom, freedom)


def mean_paired_difference(
    losses: Losses, others: Losses, scatter: VarianceEstimate | None = None
) -> Mean | None:
    """The mean of the differences, seed by seed; None where the two share no seed.

    Its error is that of all variants by `scatter`, unless an F test says that these
    differences scatter more.
    """
    from scipy.special import fdtrc

    own = _mean_over_seeds(
        losses[seed] - others[seed] for seed in losses.keys() & others.keys()
    )
    if own is None or scatter is None or not 0 < own.freedom < scatter.freedom:
        return own
    seeds = own.freedom + 1
    # of the mean of so many differences of two losses
    variance = 2 * scatter.variance / seeds
    if variance:
        chance = fdtrc(own.freedom, scatter.freedom, own.error**2 / variance)
        if chance < 1 - SCATTER_CONFIDENCE:
            return own
    return replace(own, error=math.sqrt(variance), freedom=scatter.freedom)


def _mean_over_seeds(values: Iterable[float]) -> Mean | None:
    """The mean with Student's interval over seeds: each is an independent replicate,
    like a worker with a starter of its own. None without values.
    """
    replicates = [WorkerValue(value, number) for number, value in enumerate(values)]
    return mean_of(replicates) if replicates else None


def resolvable_difference(variants: Mapping[str, VariantLosses]) -> float | None:
    """About the smallest difference that so many seeds can show: the half-width of an
    interval, as the median over variants. None where no difference has an interval.
    """
    differences = [variant.difference for variant in variants.values()]
    half_widths = [
        mean.half_width(CONFIDENCE)
        for mean in differences
        if mean is not None and mean.freedom
    ]
    return median(half_widths) if half_widths else None


# Any two variants, and the Pareto front


def pairs_of_losses(
    variants: Mapping[str, VariantLosses],
) -> dict[tuple[str, str], Pair]:
    """How the first of any two variants learns, compared with the second, in both
    orders. The pairs without the reference are one family for Holm's correction.
    """
    [reference] = [
        name
        for name, variant in variants.items()
        if variant.verdict is Verdict.REFERENCE
    ]
    scatter = scatter_of(variant.losses for variant in variants.values())
    pairs, differences = {}, {}
    for name, other in combinations(variants, 2):
        if reference not in (name, other):
            difference = mean_paired_difference(
                variants[name].losses, variants[other].losses, scatter
            )
            if difference is not None:
                differences[name, other] = difference
    for names, verdict in verdicts_of(differences).items():
        pairs[names] = Pair(differences[names], verdict)
    for name, variant in variants.items():
        if variant.difference is not None:
            pairs[name, reference] = Pair(variant.difference, variant.verdict)
    return in_both_orders(pairs)


def front_of(report: Report, variants: Mapping[str, VariantLosses]) -> list[str]:
    """The variants on the Pareto front of loss and the time of a step. A variant
    without a loss or a time is not on it.
    """
    with_time = [
        name
        for name, variant in variants.items()
        if variant.losses and report.has_time(timed_label(name))
    ]
    pairs = pairs_of(report)
    times = {}
    for name, other in permutations(with_time, 2):
        pair = pairs.get((timed_label(name), timed_label(other)))
        if pair is not None:
            times[name, other] = pair
    return pareto_front(with_time, sides_of(times), sides_of(pairs_of_losses(variants)))


def timed_label(name: str) -> str:
    """The label of a variant in the cell that is timed."""
    return name + group_suffix({CELL_AXIS: TIMED_CELL})


def at_an_end_of_rates(
    report: Report, variants: Mapping[str, VariantLosses]
) -> tuple[list[str], list[float]]:
    """The variants whose best rate is the lowest or the highest of several, and a
    longer list of rates to try. No variants where not every rate was tried.
    """
    rates = sorted(
        {run.recipe.rate for runs in runs_of(report.plan).values() for run in runs}
    )
    if len(rates) == 1 or report.interrupted or report.stopped:
        return [], rates
    # the next rate on either side, at the same ratio as the last two
    beyond = {rates[0]: rates[0] ** 2 / rates[1], rates[-1]: rates[-1] ** 2 / rates[-2]}
    at_end = {
        name: beyond[variant.rate]
        for name, variant in variants.items()
        if variant.rate in beyond
    }
    return list(at_end), sorted({*rates, *at_end.values()})
