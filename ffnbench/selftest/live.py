"""The selftest on this machine: a module against itself and against itself slowed down by known shares.

Measured by ffnbench, by torch.utils.benchmark.Timer and by a plain median loop in the same total time, quiet and
beside a neighbour that works in bursts. Every figure is kept, so that the table can be made again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from ffnbench import jsonable
from ffnbench.bench.environment import usable_cpus
from ffnbench.bench.runner import run
from ffnbench.bench.session import Session, WorkerLost
from ffnbench.errors import Interrupted, Unfinished
from ffnbench.plan import Plan
from ffnbench.result import Report, Verdict
from ffnbench.selftest.alarms import (
    NEIGHBOUR,
    QUIET,
    SLOWED,
    Alarm,
    alarms_of,
    check_plan,
    check_policy,
    refused,
    slowed,
)
from ffnbench.selftest.noisy_neighbour import Neighbour
from ffnbench.selftest.rates import CONDITIONS, OURS, RIVALS, SLOWER, Reading, comparison_plan
from ffnbench.stats.enough import Answered
from ffnbench.stats.looks import blind_row, report_of, two_looks
from ffnbench.stats.verdict import decide, summarise

NEIGHBOURS: dict[str, Callable[[int], AbstractContextManager[object]]] = dict(
    zip(CONDITIONS, (lambda seed: nullcontext(), Neighbour), strict=True)
)


def live_plan(budget: float, d_model: int, tokens: int) -> Plan:
    """The trial on the real machine: all usable CPUs, the time given."""
    return comparison_plan(
        d_model=d_model, seq_len=tokens, budget=budget, threads=usable_cpus(), precision=0.05
    )  # the precision is out of reach, so that the budget is used up


def measure(
    plan: Plan, repeats: int, seed: int = 0, on_progress: Callable[[float, str], None] = lambda done, text: None
) -> list[Reading]:
    """Every method on every row, `repeats` times in each condition: ours, then the rivals by turns in its time.

    Interrupted, it gives the repeats that were whole by then; raises Interrupted where there is none.
    """
    readings: list[Reading] = []
    try:
        _measure_into(readings, plan, range(seed, seed + repeats), on_progress)
    except KeyboardInterrupt:
        of_repeat = plan.compared * len((OURS, *RIVALS))
        whole = len(readings) // of_repeat * of_repeat
        if not whole:
            raise Interrupted("interrupted before one repeat was whole") from None
        return readings[:whole]
    return readings


def _measure_into(
    readings: list[Reading], plan: Plan, repeats: range, on_progress: Callable[[float, str], None]
) -> None:
    methods = (OURS, *RIVALS)
    steps = len(CONDITIONS) * len(repeats) * len(methods)
    for condition, neighbour in NEIGHBOURS.items():
        for repeat in repeats:
            seconds = plan.protocol.budget_s or 0.0
            for place in range(len(methods)):
                method = methods[0] if place == 0 else methods[1 + (repeat + place) % len(RIVALS)]
                done = len(readings) / plan.compared / steps
                on_progress(done, f"{condition} {repeat - repeats.start + 1}/{len(repeats)}  {method}")
                with neighbour(repeat):
                    seeded = replace(plan, protocol=replace(plan.protocol, seed=repeat))
                    found = _ours(seeded) if method == OURS else _theirs(seeded, method, seconds)
                if method == OURS:
                    seconds = found[0].seconds
                readings += [replace(r, condition=condition, repeat=repeat) for r in found]


def _reading(method: str, row: str, ratio: float, seconds: float, verdict: Verdict) -> Reading:
    return Reading(
        condition="", method=method, repeat=0, row=row, truth=1 + SLOWER.get(row, 0.0), ratio=ratio, low=None,
        high=None, verdict=verdict.value, seconds=seconds,
    )  # fmt: skip


def _ours(plan: Plan) -> list[Reading]:
    done = run(plan)
    if done.interrupted:
        raise KeyboardInterrupt
    _, comparisons, _ = summarise(done)
    found = []
    for c in comparisons:
        if c.ratio and c.verdict is not Verdict.REFERENCE:
            reading = _reading(OURS, c.case, c.ratio.value, done.wall_s, c.verdict)
            found.append(replace(reading, low=c.ratio.low, high=c.ratio.high))
    if len(found) < plan.compared:
        raise Unfinished("a case of the selftest failed", done.failures[0].message if done.failures else "")
    return found


def _theirs(plan: Plan, method: str, seconds: float) -> list[Reading]:
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
    return [_reading(method, label, ratio, seconds, decide(ratio, ratio)) for label, ratio in ratios.items()]


CHECKS = ((QUIET, 0.0), *((QUIET, share) for share in SLOWED.values()), (NEIGHBOUR, 0.0))


def live_check_plan(d_model: int) -> Plan:
    """The main job on this machine, with all its usable CPUs."""
    return check_plan(d_model=d_model, threads=usable_cpus())


def measure_checks(
    plan: Plan,
    repeats: int,
    budget: float,
    seed: int = 0,
    on_progress: Callable[[float, str], None] = lambda done, text: None,
) -> list[Alarm]:
    """A fresh baseline and its checks, `repeats` times.

    Interrupted, it gives the repeats that were whole by then; raises Interrupted where there is none.
    """
    alarms: list[Alarm] = []
    for number in range(repeats):
        try:
            alarms += _repeat(
                plan,
                seed + number,
                budget,
                lambda part, text: on_progress((number + part) / repeats, text),  # noqa: B023
            )
        except KeyboardInterrupt:
            if not alarms:
                raise Interrupted("interrupted before one repeat was whole") from None
            break
    return alarms


def _repeat(plan: Plan, seed: int, budget: float, tell: Callable[[float, str], None]) -> list[Alarm]:
    seeded = replace(plan, protocol=replace(plan.protocol, seed=seed))
    steps = 1 + len(CHECKS)
    tell(0.0, f"seed {seed}  baseline")
    before = _measured(seeded, None)
    found: list[Alarm] = []
    for place, (condition, injected) in enumerate(CHECKS):
        tell((1 + place) / steps, f"seed {seed}  {condition}, slowed by {injected:.0%}")
        found += _check(before, condition, injected, seed, budget)
    return found


def _check(before: Report, condition: str, injected: float, seed: int, budget: float) -> list[Alarm]:
    """One check; the code under test is the baseline's with a row slowed down, which the check does not know."""
    policy = check_policy()
    if blind := blind_row(before, policy, budget):
        return [refused(blind.case, condition=condition, repeat=seed, injected=injected)]

    def measure(asked: Plan, answered: Answered) -> Report:
        return _measured(slowed(asked, injected), answered)

    start = time.monotonic()
    with NEIGHBOURS[condition](seed):
        looks = two_looks(before, policy, budget, measure)
    return alarms_of(
        looks.findings, condition=condition, repeat=seed, injected=injected, seconds=time.monotonic() - start,
        twice=looks.again is not None,
    )  # fmt: skip


def _measured(plan: Plan, answered: Answered | None) -> Report:
    done = run(plan, answered=answered)
    if done.interrupted:
        raise KeyboardInterrupt
    if done.failures or done.stopped:
        raise Unfinished("a case of the selftest failed", done.failures[0].message if done.failures else done.stopped)
    return report_of(done)
