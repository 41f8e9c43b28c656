"""Intervals, verdicts and crossings against a second computation by numpy and scipy,
and their error rates on runs made of dice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
from made_up_runs import plan_of, run_of
from scipy import integrate, optimize, stats

from ffnbench.gate.interim import latency_report
from ffnbench.plan.plan import Plan
from ffnbench.plan.protocol import protocol_of
from ffnbench.record.result import Crossing, Run, Verdict
from ffnbench.stats.figures import with_figures
from ffnbench.stats.rounds import rounds_of
from ffnbench.stats.stopping import (
    Pace,
    Scatter,
    rounds_wanted,
    scatter_of_rounds,
)
from ffnbench.stats.verdict import summarise

SIZES = (1, 2, 4, 16)
DIFFERENT = (Verdict.SLOWER, Verdict.FASTER)
Logs = dict[str, np.ndarray]  # of seconds, by label: workers x rounds


def sweep(names: str, sizes: tuple[int, ...], *, looks: int = 1, **effort: int) -> Plan:
    """These equal variants at these sequence lengths."""
    variants = ",".join(f"{name}=relu" for name in names)
    plan = plan_of(variants, seq_len=sizes, match="none", **effort)
    return replace(plan, protocol=replace(plan.protocol, looks=looks))


def seconds(plan: Plan, logs: Logs) -> Run:
    return run_of(plan, {label: np.exp(of).tolist() for label, of in logs.items()})


def dice_of(plan: Plan, dice: np.random.Generator, scatter: float) -> Logs:
    """Equal rows: what scatters is between workers, and a little within."""
    shape = plan.protocol.workers, plan.protocol.rounds
    logs = {}
    for case in plan.shown:
        workers = dice.normal(0, scatter, (shape[0], 1))
        logs[case.label] = workers + dice.normal(0, scatter / 5, shape)
    return logs


def joint(rows: int, together: float) -> float:
    """The quantile within which so many normal values with correlations of 1/2 all lie
    with this probability.
    """
    covariance = np.full((rows, rows), 0.5) + 0.5 * np.eye(rows)
    normal = stats.multivariate_normal(cov=covariance, seed=1)

    def excess(quantile: float) -> float:
        ends = np.full(rows, quantile)
        return float(normal.cdf(ends, lower_limit=-ends)) - together

    return float(optimize.brentq(excess, 1.0, 5.0, xtol=1e-4))


def centres(logs: np.ndarray, cases: int) -> np.ndarray:
    """A value of each worker: the mean of the middle half of four copies of its rounds,
    or their median if more than three cases share a round.
    """
    if cases > 3 or logs.shape[1] < 4:
        return np.median(logs, axis=1)
    rounds = logs.shape[1]
    copies = np.sort(np.repeat(logs, 4, axis=1), axis=1)
    return copies[:, rounds : 3 * rounds].mean(axis=1)


@pytest.mark.parametrize(
    ("names", "sizes", "workers", "rounds", "looks"),
    [
        ("ab", (1,), 6, 1, 1),
        ("ab", (1,), 5, 9, 1),
        ("abc", (1,), 4, 10, 2),
        ("abcde", (1,), 7, 6, 1),
        ("abc", (1, 2), 5, 5, 1),
        ("abcd", (1, 2, 4), 6, 4, 2),
    ],
)
def test_the_interval_of_a_ratio_is_students_over_workers(
    names: str, sizes: tuple[int, ...], workers: int, rounds: int, looks: int
) -> None:
    """Of all rows of a reference together by Dunnett, of several references by Sidak,
    of interim analyses by Bonferroni.
    """
    plan = sweep(names, sizes, workers=workers, rounds=rounds, looks=looks)
    logs = dice_of(plan, np.random.default_rng(workers), 0.03)
    compared = {row.case: row for row in summarise(seconds(plan, logs))[1]}
    together = (1 - 0.05 / looks) ** (1 / len(sizes))
    confidence = 2 * stats.norm.cdf(joint(len(names) - 1, together)) - 1
    quantile = stats.t.ppf(0.5 + confidence / 2, workers - 1)
    for group in plan.groups:
        for case in group.cases[1:]:
            ratios = logs[case.label] - logs[group.reference]
            values = centres(ratios, len(names))
            half = quantile * stats.sem(values)
            ends = np.exp(values.mean() + np.array([-half, 0.0, half]))
            ratio = compared[case.label].ratio
            found = ratio.low, ratio.value, ratio.high
            assert found == pytest.approx(tuple(ends), rel=1e-4)


def false_runs(plan: Plan, runs: int, scatter: float) -> float:
    """The share of runs of equal rows that call any row different."""
    dice, false = np.random.default_rng(runs), 0
    for _ in range(runs):
        rows = summarise(seconds(plan, dice_of(plan, dice, scatter)))[1]
        false += any(row.verdict in DIFFERENT for row in rows)
    return false / runs


@pytest.mark.parametrize(("names", "sizes"), [("ab", (1, 2, 4, 8)), ("abcd", (1, 2))])
def test_one_run_of_twenty_has_a_false_verdict_however_many_references(
    names: str, sizes: tuple[int, ...]
) -> None:
    """Uncorrected it would be one of five to seven."""
    plan = sweep(names, sizes, workers=8, rounds=1)
    assert 0.025 < false_runs(plan, 600, 0.1) < 0.075


def test_two_analyses_together_have_a_false_verdict_in_one_run_of_twenty() -> None:
    """After 5 workers and after 10; each at the stated level it would be one of
    twelve.
    """
    plan = sweep("ab", (1,), workers=10, rounds=1, looks=2)
    dice, runs, false = np.random.default_rng(2), 1500, 0
    for _ in range(runs):
        logs = dice_of(plan, dice, 0.1)
        first = {label: of[:5] for label, of in logs.items()}
        rows = [summarise(seconds(plan, of))[1][1] for of in (first, logs)]
        false += any(row.verdict in DIFFERENT for row in rows)
    assert 0.025 < false / runs < 0.06


@pytest.mark.parametrize("true", [1.0, 1.01, 0.98])
def test_a_row_is_the_same_as_often_as_its_interval_lies_within_two_percent(
    true: float,
) -> None:
    """By integration over the scatter that 8 workers show, which is chi-squared. A row
    that differs by 2 % is called the same in one run of forty.
    """
    workers, runs, scatter = 8, 700, 0.012
    quantile = stats.t.ppf(0.975, workers - 1)

    def within(square: float) -> float:
        """The probability, where the workers scatter by this."""
        sem = scatter / math.sqrt(workers)
        half = quantile * sem * math.sqrt(square / (workers - 1))
        low, high = math.log(0.98) + half, math.log(1.02) - half
        mean = stats.norm(math.log(true), sem)
        inside = max(0.0, float(mean.cdf(high) - mean.cdf(low)))
        return inside * float(stats.chi2.pdf(square, workers - 1))

    expected = integrate.quad(within, 0, 60, limit=200)[0]
    plan = sweep("ab", (1,), workers=workers, rounds=1)
    dice, same = np.random.default_rng(9), 0
    for _ in range(runs):
        ratios = dice.normal(math.log(true), scatter, (workers, 1))
        logs = {"a": np.zeros((workers, 1)), "b": ratios}
        same += summarise(seconds(plan, logs))[1][1].verdict is Verdict.SAME
    chance = 3 * math.sqrt(expected * (1 - expected) / runs)
    assert same / runs == pytest.approx(expected, abs=chance)
    assert (expected < 0.026) == (true == 0.98)
    assert expected > 0.5 or true != 1.0


def crossings_by_numpy(plan: Plan, logs: Logs) -> Iterator[tuple[object, ...]]:
    """Every two variants at each size: on which side of 1 the interval of their ratio
    lies. Where sides change, the place is read off the line between the two.
    """
    names = [case.name for case in plan.groups[0].cases]
    place = [math.log(size) for size in SIZES]
    together = 0.95 ** (1 / len(SIZES))
    of_reference = 2 * stats.norm.cdf(joint(len(names) - 1, together)) - 1
    others = len(SIZES) * math.comb(len(names) - 1, 2)
    for than, variant in combinations(range(len(names)), 2):
        confidence = 1 - 0.05 / others if than else of_reference
        decided = []
        for number, group in enumerate(plan.groups):
            one, other = group.cases[variant].label, group.cases[than].label
            values = centres(logs[one] - logs[other], len(names))
            half = stats.t.ppf(0.5 + confidence / 2, len(values) - 1)
            half *= stats.sem(values)
            low, high = values.mean() - half, values.mean() + half
            is_same = low >= math.log(0.98) and high <= math.log(1.02)
            if (low > 0 or high < 0) and not is_same:
                decided.append((number, values.mean()))
        for (first, before), (last, after) in pairwise(decided):
            if (before > 0) != (after > 0):
                xs = [before, after], [place[first], place[last]]
                order = np.argsort(xs[0])
                at = np.interp(0.0, np.array(xs[0])[order], np.array(xs[1])[order])
                ends = SIZES[first], math.exp(at), SIZES[last]
                yield names[variant], names[than], after > 0, *ends


def crossing_tuple(found: Crossing) -> tuple[object, ...]:
    ends = found.at.low, found.at.value, found.at.high
    return found.variant, found.than, found.slower, *ends


def curves(
    plan: Plan, dice: np.random.Generator, crossing: dict[str, float], scatter: float
) -> Logs:
    """Rows that pass 1 at a size of their own: b rises by 4 % at each fourfold size, c
    falls as much.
    """
    logs = dice_of(plan, dice, scatter)
    for case in plan.shown:
        if case.name in crossing:
            size = case.workload.seq_len / crossing[case.name]
            slope = 0.04 if case.name == "b" else -0.04
            logs[case.label] = logs[case.label] + slope * math.log(size, 4)
    return logs


def test_crossings_are_those_of_the_intervals_of_every_two_variants() -> None:
    plan = sweep("abc", SIZES, workers=6, rounds=1)
    dice, counts = np.random.default_rng(4), []
    for _ in range(60):
        places = {"b": dice.uniform(0.5, 20), "c": dice.uniform(0.5, 20)}
        logs = curves(plan, dice, places, 0.012)
        made = with_figures(latency_report(seconds(plan, logs)))
        found = sorted(map(crossing_tuple, made.figures.crossings))
        expected = sorted(crossings_by_numpy(plan, logs))
        assert [each[:3] for each in found] == [each[:3] for each in expected]
        numbers = [each[3:] for each in expected]
        assert [each[3:] for each in found] == [pytest.approx(each) for each in numbers]
        counts.append(len(found))
    assert {0, 1, 2} <= set(counts)


def test_a_crossing_holds_the_truth_and_equal_variants_cross_nowhere() -> None:
    """The interval is that of the two decided sizes; each of them is wrong in few
    runs.
    """
    plan = sweep("ab", SIZES, workers=6, rounds=1)
    dice, told, held, false = np.random.default_rng(6), 0, 0, 0
    for _ in range(200):
        truth = math.exp(dice.uniform(0.0, math.log(16)))
        for at in ({"b": truth}, {}):
            logs = curves(plan, dice, at, 0.01)
            made = with_figures(latency_report(seconds(plan, logs)))
            places = [found.at for found in made.figures.crossings]
            if at:
                told += len(places)
                held += sum(place.low <= truth <= place.high for place in places)
            else:
                false += bool(places)
    assert told > 80
    assert held / told > 0.95
    assert false <= 3


def test_the_scatter_of_rounds_and_of_workers_is_told_apart() -> None:
    """Of a ratio of normal logs: twice the variance of one of its rows."""
    workers, rounds = 400, 12
    plan = sweep("ab", (1,), workers=workers, rounds=rounds)
    dice = np.random.default_rng(1)
    logs = {
        label: dice.normal(0, 0.02, (workers, 1))
        + dice.normal(0, 0.05, (workers, rounds))
        for label in "ab"
    }
    found = scatter_of_rounds(rounds_of(seconds(plan, logs)))
    assert found.within == pytest.approx(2 * 0.05**2, rel=0.25)
    assert found.between == pytest.approx(2 * 0.02**2, rel=0.3)


@pytest.mark.parametrize("within", [0.02, 0.05, 0.2])
def test_a_worker_makes_the_rounds_with_which_a_second_tells_most(
    within: float,
) -> None:
    """By trying all: the variance of a mean of medians after an hour is least."""
    seen, pace = Scatter(within**2, 0.02**2), Pace(worker_s=1.5, round_s=0.1)
    numbers = np.arange(1, 61)
    of_worker = seen.between + math.pi / 2 * seen.within / numbers
    workers = 3600 / (pace.worker_s + pace.round_s * numbers)
    best = int(numbers[np.argmin(of_worker / workers)])
    protocol = protocol_of(precision=1.0)
    wanted = rounds_wanted(protocol, seen, pace, 3600)
    assert abs(wanted - max(best, protocol.rounds)) <= 1
    # eight workers fit into what is left
    left_s = 8 * (pace.worker_s + 4 * pace.round_s)
    fewer = rounds_wanted(protocol, seen, pace, left_s)
    assert fewer <= max(4, protocol.rounds)
