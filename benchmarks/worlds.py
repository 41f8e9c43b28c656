"""How often ffnbench is wrong on this machine, beside neighbours: `python
benchmarks/worlds.py`, half an hour.

swiglu against relu, and swiglu slowed down by exactly 5 %, in six worlds from quiet to
bursts on every CPU. Each run is held against a long quiet one. `--rivals` times the
same modules with torch's Timer and with a loop of medians too, in the same time. Prints
a row for each world and method; Ctrl-C prints what was measured by then. Ends with 1
where something that ffnbench said was wrong.
"""

from __future__ import annotations

import argparse
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
from statistics import fmean, median

from exam.text import share, table

from ffnbench.common.errors import Unfinished
from ffnbench.device.environment import usable_cpus
from ffnbench.plan import Plan
from ffnbench.planning.compare import plan_compare
from ffnbench.request import CompareRequest
from ffnbench.result import Comparison, Verdict
from ffnbench.run.runner import run_workers
from ffnbench.run.world import World
from ffnbench.stats.verdict import SAME_RATIO, decide, summarise

# how many processes work beside a run (None: one a CPU, all in step), and how long a
# turn of work or rest is on average
WORLDS: dict[str, tuple[int | None, float | None]] = {
    "quiet": (0, None),
    "spinner": (1, None),
    "spinners": (None, None),
    "bursts 0.1 s": (1, 0.1),
    "bursts 1 s": (1, 1.0),
    "bursts 3 s": (None, 3.0),
}
OURS, TIMER, LOOP = "ffnbench", "torch Timer", "median loop"
FORM, SLOWED = "swiglu", "swiglu5"
VARIANTS = f"relu,{FORM},{SLOWED}={FORM}@slowdown=0.05"
# of the long run: a fraction, and budgets of a run
TRUTH_PRECISION, TRUTH_BUDGETS = (0.003, 4)
LOOK_S = 0.05  # so often a neighbour looks whether the run has ended
WARM_UP_S = 0.025  # of the loop: what triton.testing.do_bench takes by default
HEAD = (
    "world",
    "method",
    "runs",
    "wrong",
    "busy",
    "finds +5%",
    "error",
    "half-width",
    "a run",
)


@contextmanager
def beside(world: str, seed: int) -> Iterator[None]:
    """In here the neighbours of a world work."""
    processes, mean_s = WORLDS[world]
    command = [
        sys.executable,
        __file__,
        "--neighbour",
        str(seed),
        str(mean_s or math.inf),
        str(time.time()),
    ]
    count = usable_cpus() if processes is None else processes
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


Truth = tuple[float, float]  # the interval of a ratio


def is_wrong(said: Said, truth: Truth) -> bool:
    """Whether the truth contradicts what was said.

    Slower though it is not above 1, faster though it is not below, the same though it
    is wholly outside of what is called the same; or an interval that has no ratio in
    common with it.
    """
    low, high = truth
    contradicted = {
        Verdict.SLOWER: high <= 1,
        Verdict.FASTER: low >= 1,
        Verdict.SAME: high < SAME_RATIO[0] or low > SAME_RATIO[1],
    }
    missed = (
        said.low is not None
        and said.high is not None
        and (said.low > high or said.high < low)
    )
    return missed or contradicted.get(said.verdict, False)


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

    from ffnbench.messages import Open
    from ffnbench.worker.jobs import Jobs

    jobs, times = Jobs(plan.with_device("cpu")), {}
    for case in plan.cases:
        jobs.open(Open(label=case.label, calls=1))
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


def truths_of(plan: Plan, seed: int) -> dict[str, Truth]:
    """The interval of each row's ratio, by a long quiet run."""
    protocol = plan.protocol
    budget_s = TRUTH_BUDGETS * (protocol.budget_s or 0.0)
    long = replace(protocol, precision=TRUTH_PRECISION, budget_s=budget_s)
    cases = tuple(case for case in plan.cases if case.label != SLOWED)
    [form] = ours(seeded(replace(plan, cases=cases, protocol=long), seed, "truth"))
    if form.low is None or form.high is None:
        raise Unfinished(
            "the truth has no interval",
            "`ffnbench env` shows what else runs; wait, or stop it",
        )
    slowdown = plan.case(SLOWED).workload.slowdown
    return {
        FORM: (form.low, form.high),
        SLOWED: (form.low * (1 + slowdown), form.high * (1 + slowdown)),
    }


@dataclass(frozen=True)
class Reading:
    """What one run said of all rows, with the truths."""

    said: list[Said]
    truths: dict[str, Truth]
    seconds: float


def row_of(readings: Sequence[Reading]) -> list[str]:
    """What the runs of a method in a world came to: how many there are, and with a row
    that is wrong, with a busy row, with the slow-down found; the rms error of the log
    of FORM's ratio, the median half-width of its interval, seconds.
    """
    runs = len(readings)
    rows = [
        (said, reading.truths[said.row])
        for reading in readings
        for said in reading.said
    ]
    wrong = sum(
        any(is_wrong(said, reading.truths[said.row]) for said in reading.said)
        for reading in readings
    )
    busy = sum(
        any(said.verdict == Verdict.BUSY for said in reading.said)
        for reading in readings
    )
    found = sum(
        said.row == SLOWED and said.verdict == Verdict.SLOWER for said, _ in rows
    )
    of_form = [
        (said, math.sqrt(low * high))
        for said, (low, high) in rows
        if said.row == FORM and said.ratio
    ]
    squares = [math.log(said.ratio / truth) ** 2 for said, truth in of_form]
    halves = [
        (said.high - said.low) / 2 / said.ratio
        for said, _ in of_form
        if said.low and said.high
    ]
    error = share(math.sqrt(fmean(squares)), 1) if squares else "-"
    half = share(median(halves), 1) if halves else "-"
    seconds = f"{fmean(reading.seconds for reading in readings):.0f} s"
    return [*map(str, (runs, wrong, busy, found)), error, half, seconds]


def measured(
    plan: Plan, worlds: Sequence[str], repeats: int, seed: int, methods: Sequence[str]
) -> dict[tuple[str, str], list[Reading]]:
    """The runs of each world and method, ours first; also where it is interrupted."""
    readings: dict[tuple[str, str], list[Reading]] = {}
    try:
        for repeat in range(seed, seed + repeats):
            truths = truths_of(plan, repeat)
            for world in worlds:
                seconds = 0.0
                for method in methods:
                    start = time.monotonic()
                    with beside(world, repeat):
                        asked = seeded(plan, repeat, world)
                        said = (
                            ours(asked)
                            if method == OURS
                            else rival(asked, method, seconds)
                        )
                    seconds = time.monotonic() - start if method == OURS else seconds
                    readings.setdefault((world, method), []).append(
                        Reading(said, truths, seconds)
                    )
                    print(world, method, *said, sep="\n  ", file=sys.stderr)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    return readings


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rivals", action="store_true", help="torch's Timer and a median loop too"
    )
    parser.add_argument(
        "--world", action="append", choices=list(WORLDS), help="only this; repeatable"
    )
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--budget", type=float, help="seconds of a run, 15")
    parser.add_argument("--d-model", type=int, default=768)
    parser.add_argument("--threads", type=int, default=usable_cpus())
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--neighbour", nargs=3, type=float, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.neighbour:
        seed, mean_s, start = asked.neighbour
        be_a_neighbour(int(seed), mean_s, start)
        return 0
    plan = plan_compare(
        CompareRequest(
            variants=VARIANTS,
            device="cpu",
            metrics="latency",
            d_model=asked.d_model,
            threads=asked.threads,
            budget=asked.budget,
        )
    )
    methods = (OURS, TIMER, LOOP) if asked.rivals else (OURS,)
    readings = measured(
        plan, asked.world or list(WORLDS), asked.repeats, asked.seed, methods
    )
    if not readings:
        print("nothing was measured")
        return 1
    print(
        table(HEAD, [[*name, *row_of(runs)] for name, runs in readings.items()], left=2)
    )
    wrong = [
        (world, said)
        for (world, method), runs in readings.items()
        if method == OURS
        for reading in runs
        for said in reading.said
        if is_wrong(said, reading.truths[said.row])
    ]
    print(*(f"wrong in {world}: {said}" for world, said in wrong), sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
