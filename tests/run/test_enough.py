"""When a run has enough, by a simulated clock."""

from __future__ import annotations

import math
import re

import pytest
import simulated as machine
from fake_machine import planned
from simulated import WORLDS, Machine, World

from ffnbench.gate.interim import latency_report
from ffnbench.plan.plan import Plan
from ffnbench.plan.protocol import MIN_WORKERS
from ffnbench.record.result import Report, Verdict
from ffnbench.report.sentences import what_would_help
from ffnbench.run import runner
from ffnbench.stats.figures import with_figures
from ffnbench.stats.verdict import summarise


def plan_of(**options: object) -> Plan:
    settings: dict[str, object] = {
        "variants": "a=relu,b=relu",
        "d_model": 64,
        "metrics": "latency",
        **options,
    }
    return planned(**settings).with_device("cpu")


@pytest.mark.parametrize(
    ("world", "options", "limit"),
    [
        (
            World(name="still", sample=0.002, layout=0.001, starter=0.0005),
            {},
            "precision",
        ),
        (World(name="loud", sample=0.3, layout=0.1), {}, "budget"),
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
        if hint := what_would_help(first):
            flags = re.split(" should", hint)[0].split(" ")
            typed = on(world, seed, *flags)
            assert Verdict.UNCLEAR not in {c.verdict for c in typed.comparisons}
            reached += typed.limit == "precision"
        else:
            reached += 1
    assert reached > 2


def test_a_loud_machine_is_too_noisy_for_any_budget() -> None:
    loud = World(name="loud", sample=0.3, layout=0.1)
    assert what_would_help(on(loud, 0)).startswith(
        "too noisy to decide 2 rows within 30 min"
    )
