"""How often the verdicts are wrong, how often the intervals hold: counted over simulated runs. Deterministic."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ffnbench.bench.runner import run
from ffnbench.bench.simulate import WORLDS, Machine, World
from ffnbench.plan import Plan
from ffnbench.result import Comparison, Verdict
from ffnbench.selftest import SAME, SLOWER, Rates, Share, trial_plan
from ffnbench.stats import summarise


def simulate(
    runs: int,
    *,
    seed: int = 0,
    worlds: Iterable[World] = WORLDS,
    on_progress: Callable[[int, int], None] = lambda done, of: None,
) -> list[Rates]:
    """`runs` simulated runs, spread evenly over the worlds, through the real runner, statistics and decisions."""
    chosen, plan = list(worlds), trial_plan()
    rates = []
    for place, world in enumerate(chosen):
        each = runs // len(chosen) + (place < runs % len(chosen))
        rates.append(_one_world(world, plan, range(seed, seed + each)))
        on_progress(place + 1, len(chosen))
    return rates


def _one_world(world: World, plan: Plan, seeds: range) -> Rates:
    runs = len(seeds)
    false = covered = rows = wrong = workers = 0
    found = dict.fromkeys(SLOWER, 0)
    seconds = 0.0
    for seed in seeds:
        done = Machine(world, plan, seed).run(run)
        _, comparisons, _ = summarise(done)
        by = {c.case: c for c in comparisons if c.verdict is not Verdict.REFERENCE}
        seconds += done.wall_s
        workers += len({sample.worker for sample in done.samples})
        rows += len(by)
        covered += sum(_covers(by[name], 1 + SLOWER.get(name, 0.0)) for name in by)
        false += any(by[name].verdict in (Verdict.SLOWER, Verdict.FASTER) for name in SAME)
        for name in SLOWER:
            found[name] += by[name].verdict is Verdict.SLOWER
            wrong += by[name].verdict in (Verdict.FASTER, Verdict.SAME)
    return Rates(
        world=world.name,
        runs=runs,
        false_difference=Share(hits=false, of=runs),
        covered=Share(hits=covered, of=rows),
        found={name: Share(hits=hits, of=runs) for name, hits in found.items()},
        wrong_way=Share(hits=wrong, of=runs * len(SLOWER)),
        workers=workers / runs if runs else 0.0,
        seconds=seconds / runs if runs else 0.0,
    )


def _covers(comparison: Comparison, truth: float) -> bool:
    ratio = comparison.ratio
    return bool(ratio and ratio.low and ratio.high and ratio.low <= truth <= ratio.high)
