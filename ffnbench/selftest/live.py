"""The selftest on this machine: runs, and checks, beside neighbours of several kinds, each held against the truth.

The truth of a run is a long quiet one; that of a check is a slow-down by a known share. Every figure is kept, so that
the table can be made again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from ffnbench import jsonable
from ffnbench.bench.runner import run
from ffnbench.bench.session import Session, WorkerLost
from ffnbench.errors import Interrupted, Unfinished
from ffnbench.plan import Plan
from ffnbench.result import Comparison, Report, Run
from ffnbench.selftest.alarms import SLOWED, Alarm, alarms_of, check_policy, refused, slowed
from ffnbench.selftest.noisy_neighbour import Neighbour
from ffnbench.selftest.readings import FORM, OURS, RIVALS, TRUTH_BUDGETS, Reading, Truth, truth_plan, truths_of
from ffnbench.selftest.worlds import LIVE_WORLDS, QUIET, LiveWorld, seed_of
from ffnbench.stats.enough import Answered
from ffnbench.stats.history import KEPT
from ffnbench.stats.looks import foretell, look_back, report_of, unresolved
from ffnbench.stats.verdict import decide, summarise

REPEATS_A_TRUTH = 5
BASELINE_RUNS = 5  # one alone knows too little of what moves between runs for a tolerance that asks much
TOO_EARLY = "interrupted before a first run was whole"
Tell = Callable[[float, str], None]  # what part is done, and what is measured now


def silent(done: float, text: str) -> None:
    """Tell nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What each repeat measures: a plan in each world, by each method."""

    plan: Plan
    worlds: Sequence[LiveWorld]
    rivals: bool = False

    @property
    def readings(self) -> int:
        """How many a repeat has."""
        return len(self.worlds) * self._methods * self.plan.compared

    @property
    def _methods(self) -> int:
        return 1 + (len(RIVALS) if self.rivals else 0)

    def runs(self, repeats: int) -> int:
        """What so many repeats take, in budgets of a run."""
        truths = -(-repeats // REPEATS_A_TRUTH)
        return repeats * len(self.worlds) * self._methods + truths * TRUTH_BUDGETS


def measure(trial: Trial, repeats: int, seed: int = 0, tell: Tell = silent) -> list[Reading]:
    """Every method in each world, `repeats` times: ours, then the rivals by turns in its time.

    Interrupted, or where one can't be finished, it gives what was measured by then; raises where that is nothing.
    """
    readings: list[Reading] = []
    try:
        for number in range(repeats):
            if number % REPEATS_A_TRUTH == 0:
                tell(number / repeats, "the truth  quiet")
                truths = _truths(trial.plan, seed + number)
            _exam(trial, truths, seed + number, _part_of(tell, number, repeats), readings.extend)
    except KeyboardInterrupt:
        if not readings:
            raise Interrupted(TOO_EARLY) from None
    except Unfinished:
        if not readings:
            raise
    return readings


def _part_of(tell: Tell, number: int, repeats: int) -> Tell:
    """Tells of one repeat as a part of them all."""
    return lambda part, text: tell((number + part) / repeats, f"repeat {number + 1} of {repeats}  {text}")


def _truths(plan: Plan, repeat: int) -> dict[str, Truth]:
    """The truth of each row, by a long quiet run."""
    comparisons, _ = _compared(_seeded(truth_plan(plan), seed_of(repeat, None)))
    ratio = comparisons[FORM].ratio
    if ratio is None or ratio.low is None or ratio.high is None:
        raise Unfinished("the truth has no interval", "`ffnbench env` tells what else runs here; wait, or stop it")
    return truths_of(Truth(value=ratio.value, low=ratio.low, high=ratio.high), plan)


def _exam(
    trial: Trial, truths: dict[str, Truth], repeat: int, tell: Tell, keep: Callable[[list[Reading]], None]
) -> None:
    """One repeat; what each run says is kept as it comes."""
    rivals = [RIVALS[(repeat + place) % len(RIVALS)] for place in range(len(RIVALS))] if trial.rivals else []
    found = 0
    for world in trial.worlds:
        seed, seconds = seed_of(repeat, world.name), 0.0
        for method in (OURS, *rivals):
            tell(found / trial.readings, f"{world.name}  {method}")
            plan = _seeded(trial.plan, seed)
            with Neighbour(world, seed):
                said = _ours(plan) if method == OURS else _theirs(plan, method, seconds)
            seconds = said[0].seconds
            keep([_placed(one, world, repeat, truths[one.row]) for one in said])
            found += len(said)


def _seeded(plan: Plan, seed: int) -> Plan:
    return replace(plan, protocol=replace(plan.protocol, seed=seed))


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


def _placed(said: Said, world: LiveWorld, repeat: int, truth: Truth) -> Reading:
    return Reading(
        world=world.name, method=said.method, repeat=repeat, row=said.row, truth=truth.value, truth_low=truth.low,
        truth_high=truth.high, ratio=said.ratio, low=said.low, high=said.high, verdict=said.verdict,
        seconds=said.seconds,
    )  # fmt: skip


def _compared(plan: Plan) -> tuple[dict[str, Comparison], float]:
    """The comparison of each row that is no reference, and how many seconds that took."""
    done = _whole(run(plan))
    _, comparisons, _ = summarise(done)
    by = {c.case: c for c in comparisons if not plan.is_reference(c.case)}
    if len(by) < plan.compared:
        raise Unfinished("a row of the selftest has no comparison")
    return by, done.wall_s


def _whole(done: Run) -> Run:
    """A run that nothing went wrong in."""
    if done.interrupted:
        raise KeyboardInterrupt
    if done.failures or done.stopped:
        raise Unfinished("a case of the selftest failed", done.failures[0].message if done.failures else done.stopped)
    return done


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
    worker = Session()
    try:
        request = {"do": "rival", "plan": jsonable.encode(plan), "method": method, "seconds": seconds}
        answer = worker.ask(request, 120 + 4 * seconds)
    except WorkerLost as lost:
        raise Unfinished(f"{method}: {lost}", "`ffnbench env` tells what else runs here") from lost
    finally:
        worker.close()
    if "failure" in answer:
        raise Unfinished(f"{method}: {answer['message']}")
    times = answer["seconds"]
    ratios = {label: times[label] / times[plan.reference] for label in times if label != plan.reference}
    return [
        Said(method=method, row=label, ratio=ratio, verdict=decide(ratio, ratio).value, seconds=seconds)
        for label, ratio in ratios.items()
    ]


CHECKS = (  # the world, and by how much the code is slower than it was
    (QUIET, 0.0),
    *((QUIET, share) for share in SLOWED.values()),
    *((name, 0.0) for name in LIVE_WORLDS.names() if name != QUIET),
)


def checks_in(worlds: Sequence[LiveWorld]) -> list[tuple[LiveWorld, float]]:
    """The checks that are made in these worlds."""
    by = {world.name: world for world in worlds}
    return [(by[name], injected) for name, injected in CHECKS if name in by]


def measure_checks(
    plan: Plan, worlds: Sequence[LiveWorld], repeats: int, budget: float, seed: int = 0, tell: Tell = silent
) -> list[Alarm]:
    """A fresh quiet baseline and its checks, `repeats` times.

    Interrupted, or where one can't be finished, it gives what was measured by then; raises where that is nothing.
    """
    alarms: list[Alarm] = []
    try:
        for number in range(repeats):
            _checked(plan, worlds, seed + number, budget, _part_of(tell, number, repeats), alarms.extend)
    except KeyboardInterrupt:
        if not alarms:
            raise Interrupted(TOO_EARLY) from None
    except Unfinished:
        if not alarms:
            raise
    return alarms


def _checked(
    plan: Plan,
    worlds: Sequence[LiveWorld],
    repeat: int,
    budget: float,
    tell: Tell,
    keep: Callable[[list[Alarm]], None],
) -> None:
    """One baseline of several runs and its checks; what each says is kept as it comes."""
    checks = checks_in(worlds)
    whole = BASELINE_RUNS + len(checks)
    runs = []
    for number in range(BASELINE_RUNS):
        tell(number / whole, f"baseline, run {number + 1} of {BASELINE_RUNS}")
        runs.append(report_of(_whole(run(_seeded(plan, BASELINE_RUNS * repeat + number)))))
    before = reduce(lambda first, later: first.with_repeat(later, KEPT), runs)
    for place, (world, injected) in enumerate(checks):
        tell((BASELINE_RUNS + place) / whole, f"{world.name}, slowed by {injected:.0%}")
        keep(_check(before, world, injected, repeat, budget))


def _check(before: Report, world: LiveWorld, injected: float, repeat: int, budget: float) -> list[Alarm]:
    """One check; the code under test is the baseline's with a row slowed down, which the check does not know."""
    policy = check_policy()
    if blind := unresolved(foretell(before, policy, budget)):
        return [refused(blind.case, condition=world.name, repeat=repeat, injected=injected)]

    def measured(asked: Plan, answered: Answered) -> Report:
        """What is missing in the run is for the check to say."""
        done = run(slowed(asked, injected), answered=answered)
        if done.interrupted:
            raise KeyboardInterrupt
        return report_of(done)

    start = time.monotonic()
    with Neighbour(world, seed_of(repeat, world.name)):
        looks = look_back(before, policy, budget, measured)
    return alarms_of(
        looks.findings, condition=world.name, repeat=repeat, injected=injected, seconds=time.monotonic() - start,
    )  # fmt: skip
