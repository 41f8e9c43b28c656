"""What the simulated selftest asks and what it counts: error rates of runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import sqrt

from ffnbench.bench.runner import run
from ffnbench.plan import Plan
from ffnbench.planning.compare import plan_compare
from ffnbench.request import CompareRequest
from ffnbench.result import Comparison, Verdict
from ffnbench.selftest.machine import WORLDS, Machine, World
from ffnbench.selftest.processes import Counting, each, silent
from ffnbench.stats.verdict import summarise

SAME = ("same1", "same2")
SLOWER = {"+3%": 0.03, "+5%": 0.05, "+10%": 0.10}
FALSE_AT_MOST, COVERAGE = 0.05, (0.93, 0.97)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """So many of so many."""

    hits: int
    of: int

    @property
    def value(self) -> float:
        """As a fraction; 0 of 0 is 0."""
        return self.hits / self.of if self.of else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What one world did. A run has a false difference if any of its equal rows is called slower or faster."""

    world: str
    runs: int
    false_difference: Share
    covered: Share
    found: dict[str, Share]  # by injected slow-down
    wrong_way: Share  # a slowed row called faster, or the same
    workers: float  # mean
    seconds: float  # mean, of the simulated clock


def comparison_plan(**options: object) -> Plan:
    """The reference, itself twice more, and itself slowed down by known shares."""
    variants = ["base=relu", *(f"{name}=relu" for name in SAME)]
    variants += [f"{name}=relu@slowdown={share}" for name, share in SLOWER.items()]
    settings: dict[str, object] = {"d_model": 256, "device": "cpu", "metrics": "latency", **options}
    return plan_compare(CompareRequest(variants=",".join(variants), **settings))  # type: ignore[arg-type]


def total(rates: list[Rates]) -> Rates:
    """All worlds together."""

    def add(shares: Iterable[Share]) -> Share:
        counted = list(shares)
        return Share(hits=sum(s.hits for s in counted), of=sum(s.of for s in counted))

    runs = sum(r.runs for r in rates)
    return Rates(
        world="all worlds",
        runs=runs,
        false_difference=add(r.false_difference for r in rates),
        covered=add(r.covered for r in rates),
        found={name: add(r.found[name] for r in rates) for name in SLOWER},
        wrong_way=add(r.wrong_way for r in rates),
        workers=sum(r.workers * r.runs for r in rates) / runs,
        seconds=sum(r.seconds * r.runs for r in rates) / runs,
    )


def failures(total: Rates) -> list[str]:
    """Which of the promises the simulated runs did not keep, by more than chance."""
    found = []
    if total.false_difference.value > FALSE_AT_MOST + _chance(FALSE_AT_MOST, total.runs):
        found.append(f"false differences in {total.false_difference.value:.1%} of the runs")
    low, high = (_chance(bound, total.runs) for bound in COVERAGE)  # the rows of a run share their reference
    if not COVERAGE[0] - low <= total.covered.value <= COVERAGE[1] + high:
        found.append(f"the 95% intervals cover {total.covered.value:.1%}")
    return found


def _chance(share: float, runs: int) -> float:
    """How far a true share may be missed in so many runs: three standard errors."""
    return 3 * sqrt(share * (1 - share) / runs)


def simulate(
    runs: int,
    *,
    seed: int = 0,
    worlds: Iterable[World] = WORLDS,
    processes: int | None = None,
    counting: Counting = silent,
) -> list[Rates]:
    """`runs` simulated runs, spread evenly over the worlds, through the real runner, statistics and decisions."""
    chosen = list(worlds)
    share, more = divmod(runs, len(chosen))
    tasks = [(world, range(seed, seed + share + (place < more))) for place, world in enumerate(chosen)]
    return each(_one_world, tasks, processes, counting)


def _one_world(task: tuple[World, range]) -> Rates:
    (world, seeds), plan = task, comparison_plan()
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
        rows += sum(bool(c.ratio and c.ratio.low) for c in by.values())  # a busy row claims no interval
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
