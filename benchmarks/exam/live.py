"""Runs, and checks, on this machine beside neighbours of several kinds, each held against the truth.

The truth of a run is a long quiet one; that of a check is a slow-down by a known share.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from exam.alarms import SLOWED, TOLERANCE, Alarm, alarms_of, check_policy, slowed
from exam.noisy_neighbour import HERE, Neighbour
from exam.readings import FORM, OURS, RIVALS, Reading, Truth, truth_plan, truths_of
from exam.worlds import LIVE_WORLDS, QUIET, LiveWorld, seed_of
from ffnbench.common import jsonable
from ffnbench.common.errors import Unfinished
from ffnbench.gate.decision import baseline_times
from ffnbench.gate.interim import UntilDecided, plan_of_check, report_of
from ffnbench.plan import Plan
from ffnbench.result import Comparison, Report, Run
from ffnbench.run.runner import run
from ffnbench.run.world import World
from ffnbench.stats.verdict import decide, summarise

REPEATS_A_TRUTH = 5
BASELINE_RUNS = 5  # one alone knows too little of what moves between runs for a tolerance that asks much
CHECKS = (  # the world, and by how much the code is slower than it was
    (QUIET, 0.0),
    *((QUIET, share) for share in SLOWED.values()),
    *((name, 0.0) for name in LIVE_WORLDS if name != QUIET),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What one method said of one row."""

    method: str
    row: str
    ratio: float | None
    low: float | None = None
    high: float | None = None
    verdict: str
    seconds: float


def readings(
    plan: Plan, worlds: Sequence[LiveWorld], repeats: int, seed: int = 0, *, rivals: bool = False
) -> Iterator[list[Reading]]:
    """What each run says: every method in each world, `repeats` times, ours first, the rivals by turns in its time."""
    truths: dict[str, Truth] = {}
    for number in range(repeats):
        if number % REPEATS_A_TRUTH == 0:
            truths = _truths(plan, seed + number)
        for world in worlds:
            yield from _in_world(plan, world, truths, seed + number, RIVALS if rivals else ())


def _in_world(
    plan: Plan, world: LiveWorld, truths: dict[str, Truth], repeat: int, rivals: Sequence[str]
) -> Iterator[list[Reading]]:
    seed, seconds = seed_of(repeat, world.name), 0.0
    for method in (OURS, *(rivals[(repeat + place) % len(rivals)] for place in range(len(rivals)))):
        asked = _seeded(plan, seed)
        with Neighbour(world, seed):
            said = _ours(asked) if method == OURS else _theirs(asked, method, seconds)
        seconds = said[0].seconds
        yield [_placed(one, world, repeat, truths[one.row]) for one in said]


def _truths(plan: Plan, repeat: int) -> dict[str, Truth]:
    """The truth of each row, by a long quiet run."""
    comparisons, _ = _compared(_seeded(truth_plan(plan), seed_of(repeat, None)))
    ratio = comparisons[FORM].ratio
    if ratio is None or ratio.low is None or ratio.high is None:
        raise Unfinished("the truth has no interval", "`ffnbench env` shows what else runs; wait, or stop it")
    return truths_of(Truth(value=ratio.value, low=ratio.low, high=ratio.high), plan)


def _seeded(plan: Plan, seed: int) -> Plan:
    return replace(plan, protocol=replace(plan.protocol, seed=seed))


def _placed(said: Said, world: LiveWorld, repeat: int, truth: Truth) -> Reading:
    return Reading(
        world=world.name, method=said.method, repeat=repeat, row=said.row, truth=truth.value, truth_low=truth.low,
        truth_high=truth.high, ratio=said.ratio, low=said.low, high=said.high, verdict=said.verdict,
        seconds=said.seconds,
    )  # fmt: skip


def _finished(done: Run) -> Run:
    """A run that nothing went wrong in."""
    if done.interrupted:
        raise KeyboardInterrupt
    if done.failures or done.stopped:
        raise Unfinished("a case failed", done.failures[0].message if done.failures else done.stopped)
    return done


def _compared(plan: Plan) -> tuple[dict[str, Comparison], float]:
    """The comparison of each row that is no reference, and how many seconds that took."""
    done = _finished(run(plan, World()))
    _, comparisons, _ = summarise(done)
    by = {c.case: c for c in comparisons if not plan.is_reference(c.case)}
    if len(by) < plan.compared:
        raise Unfinished("a row has no comparison")
    return by, done.wall_s


def _ours(plan: Plan) -> list[Said]:
    comparisons, seconds = _compared(plan)
    return [
        Said(
            method=OURS, row=row, ratio=c.ratio.value if c.ratio else None, low=c.ratio.low if c.ratio else None,
            high=c.ratio.high if c.ratio else None, verdict=c.verdict.value, seconds=seconds,
        )
        for row, c in comparisons.items()
    ]  # fmt: skip


def _theirs(plan: Plan, method: str, seconds: float) -> list[Said]:
    """A rival's point estimates, taken at their word: a ratio within 2 % is the same."""
    asked = json.dumps({"plan": jsonable.encode(plan), "method": method, "seconds": seconds})
    command = [sys.executable, "-m", "exam.rivals"]
    done = subprocess.run(command, input=asked, stdout=subprocess.PIPE, text=True, check=True, cwd=HERE)
    times = json.loads(done.stdout)
    ratios = {label: times[label] / times[plan.reference] for label in times if label != plan.reference}
    return [
        Said(method=method, row=label, ratio=ratio, verdict=decide(ratio, ratio).value, seconds=seconds)
        for label, ratio in ratios.items()
    ]


def checks(
    plan: Plan, worlds: Sequence[LiveWorld], repeats: int, budget: float, seed: int = 0
) -> Iterator[list[Alarm]]:
    """What each check says: `repeats` times a fresh quiet baseline of several runs, then the checks of these worlds."""
    for repeat in range(seed, seed + repeats):
        seeds = range(BASELINE_RUNS * repeat, BASELINE_RUNS * (repeat + 1))
        runs = [report_of(_finished(run(_seeded(plan, one), World()))) for one in seeds]
        before = reduce(lambda first, later: first.with_repeat(later), runs)
        for name, injected in CHECKS:
            for world in worlds:
                if world.name == name:
                    yield _check(before, world, injected, repeat, budget)


def _check(before: Report, world: LiveWorld, injected: float, repeat: int, budget: float) -> list[Alarm]:
    """One check; the code under test is the baseline's with a row slowed down, which the check does not know."""
    policy = check_policy(TOLERANCE)
    stop = UntilDecided(policy, baseline_times(before, policy))
    asked = slowed(plan_of_check(before.plan, policy, budget), injected)
    start = time.monotonic()
    with Neighbour(world, seed_of(repeat, world.name)):
        done = run(asked, World(), stop=stop)
    if done.interrupted:
        raise KeyboardInterrupt
    return alarms_of(
        stop.conclusion(report_of(done)),  # what is missing in the run is for the check to say
        condition=world.name,
        repeat=repeat,
        injected=injected,
        seconds=time.monotonic() - start,
    )
