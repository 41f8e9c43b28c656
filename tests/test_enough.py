"""When a run has enough: by the rules, by a simulated clock, and that looking costs what was said."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import stdtrit

from ffnbench.bench.runner import run
from ffnbench.metrics import LATENCY
from ffnbench.plan import Plan
from ffnbench.planning.compare import plan_compare
from ffnbench.planning.effort import MIN_WORKERS, protocol_of
from ffnbench.request import CompareRequest, Effort
from ffnbench.result import Sample
from ffnbench.selftest.machine import START_S, Machine, World
from ffnbench.stats.enough import (
    FIRST_LOOK,
    MOST_WORKERS,
    Advance,
    Amount,
    Pace,
    Scatter,
    limit_met,
    looks,
    scatter,
    wanted,
)
from ffnbench.stats.verdict import LOOKS_ALPHA, LOOKS_CONFIDENCE, summarise

PACE = Pace(1.7, 0.075)
SIX = Amount(rounds_each=6, placements=1)
TWO = Amount(rounds_each=2, placements=1)


def plan_of(**options: object) -> Plan:
    settings: dict[str, object] = {"variants": "a=relu,b=relu", "d_model": 64, "metrics": "latency", **options}
    return plan_compare(CompareRequest(**settings)).with_device("cpu")


def samples_of(logs: list[list[float]]) -> list[Sample]:
    """Case b against a case a of 1 s: logs[worker][round]."""
    return [
        Sample(case=label, metric=LATENCY, worker=w, round=r, order=0, value=math.exp(log), calls=1)
        for w, rounds in enumerate(logs) for r, value in enumerate(rounds) for label, log in (("a", 0.0), ("b", value))
    ]  # fmt: skip


def test_the_two_scatters_are_told_apart() -> None:
    dice = random.Random(0)
    wide = [[dice.gauss(0, 0.03) for _ in range(60)] for _ in range(12)]
    apart = [[mean + dice.gauss(0, 0.003) for _ in range(60)] for mean in [dice.gauss(0, 0.03) for _ in range(12)]]
    noisy, layouts = scatter(plan_of(), samples_of(wide)), scatter(plan_of(), samples_of(apart))
    assert math.sqrt(noisy.within) == pytest.approx(0.03, rel=0.15)
    assert math.sqrt(noisy.between) < 0.005
    assert math.sqrt(layouts.within) == pytest.approx(0.003, rel=0.15)
    assert 0.015 < math.sqrt(layouts.between) < 0.045


def test_a_burst_is_not_the_scatter_of_the_other_rounds() -> None:
    dice = random.Random(1)
    logs = [[dice.gauss(0, 0.01) + (0.5 if r % 8 == 0 else 0) for r in range(64)] for _ in range(4)]
    assert math.sqrt(scatter(plan_of(), samples_of(logs)).within) < 0.02


def test_a_case_alone_is_judged_by_its_seconds() -> None:
    alone = plan_of(variants="a=relu")
    samples = [replace(s, case="a") for s in samples_of([[0.0, 0.1, 0.2, 0.1]] * 4) if s.case == "b"]
    assert scatter(alone, samples).within > 0
    assert limit_met(alone, samples, True) == "precision"


def test_rounds_are_added_where_rounds_scatter_and_workers_where_workers_do() -> None:
    patient = protocol_of(3, Effort(budget=600, precision=1))
    calm, rounds_scatter, workers_scatter = Scatter(1e-6, 1e-6), Scatter(0.03**2, 1e-6), Scatter(1e-6, 0.02**2)
    assert wanted(patient, rounds_scatter, PACE).amount.rounds > 2 * wanted(patient, calm, PACE).amount.rounds
    assert wanted(patient, rounds_scatter, PACE).workers <= 8
    assert wanted(patient, workers_scatter, PACE).amount.rounds == patient.rounds
    assert wanted(patient, workers_scatter, PACE).workers > 15


def test_placements_are_spread_where_placements_scatter() -> None:
    patient, pace = protocol_of(3, Effort(budget=600, precision=1)), Pace(1.7, 0.075, 0.03)
    same, apart = Scatter(0.03**2, 1e-6, placement=0.0), Scatter(0.03**2, 1e-6, placement=0.02**2)
    still, moved = wanted(patient, same, pace).amount, wanted(patient, apart, pace).amount
    assert moved.placements > 2 * still.placements
    assert moved.rounds_each < still.rounds_each
    costly = wanted(patient, apart, Pace(1.7, 0.075, 0.6)).amount
    assert costly.rounds_each > moved.rounds_each


def test_what_is_left_of_the_budget_is_shared_by_the_workers_to_come() -> None:
    protocol, noisy = protocol_of(3, Effort(budget=15, precision=0.1)), Scatter(0.1**2, 0.002**2)
    last = wanted(protocol, noisy, PACE, Advance(workers=3, elapsed_s=12.0)).amount
    assert 2.0 < PACE.seconds(last) <= 3.0  # one more worker, as long as it may be
    early = wanted(protocol, noisy, PACE, Advance(workers=0, elapsed_s=0.0)).amount
    assert 3 * PACE.seconds(early) <= 15.0


def test_what_is_out_of_reach_fills_the_budget_and_no_more() -> None:
    for budget in (10.0, 15.0, 60.0):
        protocol = protocol_of(3, Effort(budget=budget, precision=0.1))
        noisy = Scatter(0.1**2, 0.02**2)
        amount, workers = wanted(protocol, noisy, PACE).amount, wanted(protocol, noisy, PACE).workers
        assert workers * PACE.seconds(amount) <= budget
        assert (workers + 1) * PACE.seconds(amount) > budget
    slow = Pace(20.0, 5.0)  # three workers take longer than the budget: they are run, with the fewest rounds
    protocol = protocol_of(3, Effort(budget=15))
    assert wanted(protocol, noisy, slow).workers == MIN_WORKERS
    assert wanted(protocol, noisy, slow).amount.rounds == protocol.rounds


def test_a_fixed_protocol_is_what_it_says() -> None:
    protocol = protocol_of(3, Effort(workers=7, rounds=3))
    assert wanted(protocol, Scatter(1, 1), PACE).workers == 7
    assert wanted(protocol, Scatter(1, 1), PACE).amount.rounds == 3
    plan = plan_of(workers=3, rounds=2)
    assert limit_met(plan, samples_of([[0, 0]] * 2), False) == ""
    assert limit_met(plan, samples_of([[0, 0]] * 3), True) == "workers"


def test_limits_and_their_order() -> None:
    plan = plan_of(precision=1.0, budget=30.0)
    sharp, wide = [0.0, 0.001] * 3, [0.0, 0.1, -0.1] * 2
    apart = [[v + shift for v in wide] for shift in (-0.2, 0.0, 0.2, 0.1)]
    assert limit_met(plan, samples_of([sharp] * 2), False) == ""  # never fewer than three workers
    assert limit_met(plan, samples_of([sharp] * 3), True) == ""  # three values are too few to stop on
    assert limit_met(plan, samples_of([sharp] * 3), False) == "budget"
    assert limit_met(plan, samples_of([sharp] * 4), True) == "precision"
    assert limit_met(plan, samples_of(apart), True) == ""
    assert limit_met(plan, samples_of(apart), False) == "budget"
    assert limit_met(plan, samples_of(apart * (MOST_WORKERS // 4)), True) == "workers"


@pytest.mark.parametrize(
    ("world", "options", "limit"),
    [
        (World(name="still", sample=0.002, layout=0.001), {}, "precision"),
        (World(name="loud", sample=0.3, layout=0.1), {}, "budget"),
        (World(name="still", sample=0.002, layout=0.001), {"precision": 0.1}, "precision"),
        (World(name="loud", sample=0.3, layout=0.1), {"precision": 0.1, "budget": 40.0}, "budget"),
    ],
)
def test_a_run_ends_at_the_limit_that_it_says(world: World, options: dict, limit: str) -> None:
    plan = plan_of(**options)
    done = Machine(world, plan, seed=3).run(run)
    assert done.limit == limit
    workers = len({s.worker for s in done.samples})
    ratio = summarise(done)[1][1].ratio
    half = math.sqrt(ratio.high / ratio.low) - 1
    assert workers >= MIN_WORKERS
    assert done.wall_s <= plan.protocol.budget_s + START_S  # a worker's cost is foreseen, not known
    assert (half <= plan.protocol.precision) == (limit == "precision")
    if limit == "budget":  # the last worker goes on with what is too little for another
        assert done.wall_s >= 0.98 * plan.protocol.budget_s


def test_a_finer_precision_costs_more() -> None:
    def seconds(precision: float) -> float:
        return sum(
            Machine(World(name="quiet"), plan_of(precision=precision), seed).run(run).wall_s for seed in range(5)
        )

    assert seconds(2.0) < seconds(0.7) < seconds(0.3)


def test_looking_repeatedly_is_paid_for() -> None:
    """Normal workers, every precision from never reached to reached at once, few and many workers: the worst cases."""
    workers, runs = MOST_WORKERS, 20_000
    values = np.random.default_rng(0).standard_normal((runs, workers))
    count = np.arange(1, workers + 1)
    mean = np.cumsum(values, 1) / count
    variance = (np.cumsum(values**2, 1) - count * mean**2) / np.maximum(count - 1, 1)
    error = np.sqrt(np.maximum(variance, 0) / count)
    uncorrected = []
    for most in (FIRST_LOOK, 8, 16, workers):
        for precision in np.geomspace(0.2, 3, 9):
            covered, false, naive = (np.zeros(runs, bool) for _ in range(3))
            going = np.ones(runs, bool)
            for n in [n for n in looks() if n < most] + [most]:
                half = stdtrit(n - 1, 0.5 + LOOKS_CONFIDENCE / 2) * error[:, n - 1]
                stop = going & ((half <= precision) | (n == most))
                off = np.abs(mean[:, n - 1])
                covered[stop] = (off <= half)[stop]
                false[stop] = (off > stdtrit(n - 1, 1 - LOOKS_ALPHA / 2) * error[:, n - 1])[stop]
                naive[stop] = (off <= stdtrit(n - 1, 0.975) * error[:, n - 1])[stop]
                going &= ~stop
            assert 0.93 <= covered.mean() <= 0.97
            assert false.mean() <= 0.05 + 0.003  # two standard errors
            uncorrected.append(naive.mean())
    assert min(uncorrected) < 0.93  # without the correction the interval would not be what it says
