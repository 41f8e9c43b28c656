"""A module timed by ffnbench, torch's Timer and a loop of medians, alone or beside a
neighbour: what against_itself.py compares.
"""

from __future__ import annotations

import itertools
import math
import multiprocessing
import random
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import median

from ffnbench.common.errors import Unfinished
from ffnbench.plan.plan import Plan
from ffnbench.record.result import Comparison
from ffnbench.run.runner import run_workers
from ffnbench.run.world import World
from ffnbench.stats.verdict import decide, summarise

# how many processes work beside a run, and how long a turn of work or rest is on
# average
WORLDS: dict[str, tuple[int, float]] = {"quiet": (0, math.inf), "bursts 1 s": (1, 1.0)}
OURS, TIMER, LOOP = "ffnbench", "torch Timer", "median loop"
LOOK_S = 0.05  # so often a neighbour looks whether the run has ended
WARM_UP_S = 0.025  # of the loop: what triton.testing.do_bench takes by default


@contextmanager
def beside(world: str, seed: int) -> Iterator[None]:
    """In here the neighbours of a world work."""
    count, mean_s = WORLDS[world]
    command = [sys.executable, __file__, str(seed), str(mean_s), str(time.time())]
    neighbours = [
        subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(count)
    ]
    try:
        yield
    finally:
        for neighbour in neighbours:
            neighbour.kill()
            neighbour.communicate()


def be_a_neighbour(seed: int, mean_s: float, start: float) -> None:
    """Spin and rest by turns, in step with those of the same seed, until the parent is
    gone.
    """
    dice, until = random.Random(seed), start
    for works in itertools.cycle((True, False)):
        until += min(dice.expovariate(1.0), 4.0) * mean_s
        while time.time() < until:
            look = min(until, time.time() + LOOK_S)
            while works and time.time() < look:
                pass
            if select.select([sys.stdin], [], [], 0 if works else look - time.time())[
                0
            ]:
                return


@dataclass(frozen=True)
class Said:
    """What a method said of a row."""

    row: str
    ratio: float | None
    low: float | None
    high: float | None
    verdict: str


def ours(plan: Plan) -> list[Said]:
    """What ffnbench says of each row that is no reference."""
    done = run_workers(plan, World())
    if done.interrupted:
        raise KeyboardInterrupt
    if done.failures or done.stopped:
        raise Unfinished(done.failures[0].message if done.failures else done.stopped)
    comparisons: Sequence[Comparison] = summarise(done)[1]
    said = []
    for row in comparisons:
        if not plan.is_reference(row.case):
            ratio = row.ratio
            interval = (
                (ratio.value, ratio.low, ratio.high) if ratio else (None, None, None)
            )
            said.append(Said(row.case, *interval, row.verdict.value))
    return said


def rival(plan: Plan, method: str, seconds: float) -> list[Said]:
    """What another way to time the same modules says, taken at its word; in a process
    of its own.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        times = pool.submit(times_by, plan, method, seconds).result()
    ratios = {
        label: times[label] / times[plan.reference]
        for label in times
        if label != plan.reference
    }
    return [
        Said(label, ratio, None, None, decide(ratio, ratio).value)
        for label, ratio in ratios.items()
    ]


def times_by(plan: Plan, method: str, seconds: float) -> dict[str, float]:
    """Seconds of a call of every case, one case after another, in so many seconds
    altogether.
    """
    from torch.utils.benchmark import Timer

    from ffnbench.worker.jobs import Jobs

    jobs, times = Jobs(plan.with_device("cpu")), {}
    for case in plan.cases:
        jobs.open(label=case.label, calls=1)
        subject = jobs.subjects[case.label]
        call = subject.timed_call(subject.x, subject.grad)
        part_s = seconds / len(plan.cases)
        if method == TIMER:  # as its documentation uses it
            timer = Timer(
                stmt="call()", globals={"call": call}, num_threads=case.workload.threads
            )
            times[case.label] = timer.blocked_autorange(min_run_time=part_s).median
        else:
            times[case.label] = median_of_loop(call, part_s)
    return times


def median_of_loop(call: Callable[[], object], seconds: float) -> float:
    """A warm-up, then one call after another until the time is over."""
    times, start = [], time.perf_counter()
    while (begin := time.perf_counter()) < start + WARM_UP_S + seconds:
        call()
        if begin >= start + WARM_UP_S:
            times.append(time.perf_counter() - begin)
    return median(times)


def seeded(plan: Plan, *place: object) -> Plan:
    """The plan with a seed of its own."""
    seed = random.Random("/".join(map(str, place))).getrandbits(32)
    return replace(plan, protocol=replace(plan.protocol, seed=seed))


if __name__ == "__main__":
    be_a_neighbour(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]))
