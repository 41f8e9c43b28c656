"""When a run has enough: by the rules, by a simulated clock, and that looking costs
what was said.
"""

from __future__ import annotations

import math
import random
import re
from dataclasses import replace
from statistics import median

import pytest
from exam import machine
from exam.machine import WORLDS, Machine, World
from made_up_runs import run_of

from ffnbench.gate.interim import latency_report
from ffnbench.plan import Plan
from ffnbench.planning.compare import plan_compare
from ffnbench.planning.effort import MIN_WORKERS, protocol_of
from ffnbench.report.sentences import to_do_line
from ffnbench.request import CompareRequest
from ffnbench.result import Report, Sample, Verdict
from ffnbench.run import runner
from ffnbench.stats.figures import with_figures
from ffnbench.stats.rounds import RoundTable
from ffnbench.stats.stopping import (
    FIRST_ANALYSIS,
    MOST_WORKERS,
    Pace,
    Scatter,
    rounds_wanted,
    scatter_of_rounds,
    stop_rule,
)
from ffnbench.stats.verdict import summarise

PACE = Pace(0.2, 0.075)


def plan_of(**options: object) -> Plan:
    settings: dict[str, object] = {
        "variants": "a=relu,b=relu",
        "d_model": 64,
        "metrics": "latency",
        **options,
    }
    return plan_compare(CompareRequest(**settings)).with_device("cpu")


def samples_of(logs: list[list[float]]) -> tuple[Sample, ...]:
    """Case b against a case a of 1 s: logs[worker][round]."""
    a = [[1.0] * len(rounds) for rounds in logs]
    b = [[math.exp(log) for log in rounds] for rounds in logs]
    return run_of(plan_of(), {"a": a, "b": b}).samples


def limit_met(table: RoundTable, fits: bool) -> str:
    return stop_rule(table.plan.protocol).limit(table, fits=fits, expected=MOST_WORKERS)


def test_the_two_scatters_are_told_apart() -> None:
    dice = random.Random(0)
    wide = [[dice.gauss(0, 0.03) for _ in range(60)] for _ in range(12)]
    apart = [
        [mean + dice.gauss(0, 0.003) for _ in range(60)]
        for mean in [dice.gauss(0, 0.03) for _ in range(12)]
    ]
    noisy, layouts = (
        scatter_of_rounds(RoundTable(plan_of(), samples_of(wide))),
        scatter_of_rounds(RoundTable(plan_of(), samples_of(apart))),
    )
    assert math.sqrt(noisy.within) == pytest.approx(0.03, rel=0.15)
    assert (
        math.sqrt(noisy.between) < 0.01
    )  # a third of what the others show: it is drawn towards 2 %
    assert math.sqrt(layouts.within) == pytest.approx(0.003, rel=0.15)
    assert 0.015 < math.sqrt(layouts.between) < 0.045
    few = scatter_of_rounds(
        RoundTable(plan_of(), samples_of([rounds[:5] for rounds in wide]))
    )
    assert (
        math.sqrt(few.between) < 0.013
    )  # medians of few rounds differ by chance, and say nothing of workers


def test_a_case_alone_is_judged_by_its_seconds() -> None:
    alone = plan_of(variants="a=relu")
    samples = [
        replace(s, case="a")
        for s in samples_of([[0.0, 0.1, 0.2, 0.1, 0.15, 0.05]] * 6)
        if s.case == "b"
    ]
    assert scatter_of_rounds(RoundTable(alone, samples)).within > 0
    assert limit_met(RoundTable(alone, samples), True) == "precision"


@pytest.mark.parametrize(
    ("within", "between", "open_s"),
    [(0.06, 0.02, 0.2), (0.1, 0.01, 1.0), (0.03, 0.01, 3.0)],
)
def test_so_many_rounds_are_best(within: float, between: float, open_s: float) -> None:
    """Of all numbers of rounds the one that is wanted leaves the least variance of a
    run's mean, within a few percent: found by trying, from the variance of a median of
    that many rounds by simulation.
    """
    patient, pace = (
        protocol_of(3, CompareRequest(budget=600, precision=1)),
        Pace(open_s, 0.075),
    )
    chosen = rounds_wanted(patient, Scatter(within**2, between**2), pace, 600)

    def left(rounds: int) -> float:
        dice = random.Random(rounds)
        middles = [
            median(dice.gauss(0, within) for _ in range(rounds)) for _ in range(400)
        ]
        of_worker = between**2 + sum(m * m for m in middles) / 400
        return of_worker * (pace.worker_s + rounds * pace.round_s)

    assert left(chosen) < 1.1 * min(
        left(rounds) for rounds in range(patient.rounds, 61, 3)
    )


def test_a_fixed_protocol_is_what_it_says() -> None:
    protocol = protocol_of(3, CompareRequest(workers=7, rounds=3))
    assert rounds_wanted(protocol, Scatter(1, 1), PACE, 15.0) == 3
    plan = plan_of(workers=3, rounds=2)
    assert limit_met(RoundTable(plan, samples_of([[0, 0]] * 2)), True) == ""
    assert limit_met(RoundTable(plan, samples_of([[0, 0]] * 3)), True) == "workers"


def test_limits_and_their_order() -> None:
    plan = plan_of(precision=1.0, budget=30.0)
    sharp, wide = [0.0, 0.001] * 3, [0.0, 0.1, -0.1] * 2
    apart = [[v + shift for v in wide] for shift in (-0.2, 0.0, 0.2, 0.1, -0.1, 0.3)]
    assert (
        limit_met(RoundTable(plan, samples_of([sharp] * 2)), True) == ""
    )  # three workers, if there is time for them
    assert limit_met(RoundTable(plan, samples_of([sharp] * 2)), False) == "budget"
    assert (
        limit_met(RoundTable(plan, samples_of([sharp] * (FIRST_ANALYSIS - 1))), True)
        == ""
    )  # too few to stop on
    assert limit_met(RoundTable(plan, samples_of([sharp] * 3)), False) == "budget"
    assert (
        limit_met(RoundTable(plan, samples_of([sharp] * FIRST_ANALYSIS)), True)
        == "precision"
    )
    assert limit_met(RoundTable(plan, samples_of(apart)), True) == ""
    assert limit_met(RoundTable(plan, samples_of(apart)), False) == "budget"
    assert (
        limit_met(RoundTable(plan, samples_of(apart[:4] * (MOST_WORKERS // 4))), True)
        == "workers"
    )


@pytest.mark.parametrize(
    ("world", "options", "limit"),
    [
        (
            World(name="still", sample=0.002, layout=0.001, starter=0.0005),
            {},
            "precision",
        ),
        (World(name="loud", sample=0.3, layout=0.1), {}, "budget"),
        (
            World(name="still", sample=0.002, layout=0.001, starter=0.0005),
            {"precision": 0.8},
            "precision",
        ),
        (
            World(name="loud", sample=0.3, layout=0.1),
            {"precision": 0.1, "budget": 40.0},
            "budget",
        ),
    ],
)
def test_a_run_ends_at_the_limit_that_it_says(
    world: World, options: dict, limit: str
) -> None:
    plan = plan_of(**options)
    done = Machine(world, plan, seed=3).run(runner.run_workers)
    assert done.limit == limit
    workers = len({s.worker for s in done.samples})
    ratio = summarise(done)[1][1].ratio
    half = math.sqrt(ratio.high / ratio.low) - 1
    assert workers >= MIN_WORKERS
    assert done.wall_s <= 1.05 * plan.protocol.budget_s
    assert (half <= plan.protocol.precision) == (limit == "precision")
    if limit == "budget":
        assert done.wall_s >= 0.95 * plan.protocol.budget_s


def on(world: World, seed: int, *flags: str) -> Report:
    """What three rows, of which two differ by 1 and 3 %, show on a machine; with the
    flags of a hint.
    """
    given = dict(
        zip((flag.removeprefix("--") for flag in flags[::2]), flags[1::2], strict=True)
    )
    rows = "a=relu,b=relu@slowdown=0.01,c=relu@slowdown=0.03"
    done = Machine(
        world, plan_of(variants=rows, match="none", **planning_of(given)), seed
    ).run(runner.run_workers)
    return with_figures(latency_report(done))


def planning_of(given: dict[str, str]) -> dict[str, float]:
    """Seconds, and percent, as a command line reads them."""
    return {
        name: float(text[:-1]) * (60 if text[-1] == "m" else 1)
        for name, text in given.items()
    }


@pytest.mark.parametrize("name", ["usual", "quiet"])
def test_a_budget_that_three_processes_hint_at_decides(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine where a call takes so long that a run has three."""
    monkeypatch.setattr(machine, "SAMPLE_S", 0.5)
    monkeypatch.setattr(machine, "OPEN_S", 1.0)
    world = next(world for world in WORLDS if world.name == name)
    reached = 0
    for seed in range(4):
        first = on(world, seed)
        assert {c.ratio.workers for c in first.comparisons[1:]} == {3}
        if hint := to_do_line(first):
            flags = re.split(" would| may", hint[0])[0].split(" ")
            typed = on(world, seed, *flags)
            assert Verdict.UNCLEAR not in {c.verdict for c in typed.comparisons}
            reached += typed.limit == "precision"
        else:
            reached += 1
    assert reached > 2


def test_many_processes_can_show_that_it_is_too_noisy_and_few_can_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loud = World(name="loud", sample=0.3, layout=0.1)
    assert to_do_line(on(loud, 0))[0].startswith(
        "too noisy to decide 2 rows within 30 min"
    )
    monkeypatch.setattr(machine, "SAMPLE_S", 0.5)
    assert to_do_line(on(loud, 0)) == [
        "--budget 30m may narrow the intervals to about ±1%"
    ]
