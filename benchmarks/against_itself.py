"""A module timed against itself by ffnbench, torch's Timer and a loop of medians, in
equal wall time, quiet and beside a neighbour: `python benchmarks/against_itself.py -o
FILE`, half an hour.

The true ratio is 1, so whatever a method says beyond it is its error. Each run is a
line of FILE, and the same command goes on where it was stopped. `--report FILE` prints
the table of a file, `--chart PICTURE` draws it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd
from simulated import latency_plan

from ffnbench.common.errors import Unfinished
from ffnbench.plan.plan import Plan
from ffnbench.run.runner import run_workers
from ffnbench.run.world import World
from ffnbench.stats.verdict import summarise

QUIET, BURSTS = "quiet", "bursts 1 s"
TITLES = {QUIET: "nothing else runs", BURSTS: "another program works at times"}
OURS, TIMER, LOOP = "ffnbench", "torch Timer", "median loop"
NAMES = {OURS: OURS, TIMER: TIMER, LOOP: "loop of medians"}
WARM_UP_S = 0.025  # of the loop: what triton.testing.do_bench takes by default
# works and rests by turns of a second on average, until it is killed
NEIGHBOUR = """
import itertools, random, sys, time
dice, until = random.Random(sys.argv[1]), time.time()
for works in itertools.cycle((True, False)):
    until += min(dice.expovariate(1.0), 4.0)
    while works and time.time() < until:
        pass
    time.sleep(max(0.0, until - time.time()))
"""


@contextmanager
def beside(world: str, seed: int) -> Iterator[None]:
    """In here the neighbour of a world works."""
    if world == QUIET:
        yield
        return
    neighbour = subprocess.Popen([sys.executable, "-c", NEIGHBOUR, str(seed)])
    try:
        yield
    finally:
        neighbour.kill()
        neighbour.wait()


def ours(plan: Plan) -> float | None:
    """The ratio that ffnbench says; None where it says that the machine is busy."""
    done = run_workers(plan, World())
    if done.interrupted:
        raise KeyboardInterrupt
    if done.failures or done.stopped:
        raise Unfinished(done.failures[0].message if done.failures else done.stopped)
    [again] = [row for row in summarise(done)[1] if row.case != row.reference]
    return again.ratio.value if again.ratio else None


def ratio_by(plan: Plan, method: str, seconds: float) -> float:
    """The ratio by another way to time the same modules, one after another, in so many
    seconds altogether.
    """
    from torch.utils.benchmark import Timer

    from ffnbench.worker.jobs import Jobs

    jobs, times = Jobs(plan.with_device("cpu")), []
    for case in plan.cases:
        jobs.open(label=case.label, calls=1)
        subject = jobs.subjects[case.label]
        call = subject.timed_call(subject.x, subject.grad)
        part_s = seconds / len(plan.cases)
        if method == TIMER:  # as its documentation uses it
            timer = Timer("call()", globals={"call": call}, num_threads=1)
            times.append(timer.blocked_autorange(min_run_time=part_s).median)
        else:
            times.append(median_of_loop(call, part_s))
    return times[1] / times[0]


def median_of_loop(call: Callable[[], object], seconds: float) -> float:
    """A warm-up, then one call after another until the time is over."""
    times, start = [], time.perf_counter()
    while (begin := time.perf_counter()) < start + WARM_UP_S + seconds:
        call()
        if begin >= start + WARM_UP_S:
            times.append(time.perf_counter() - begin)
    return median(times)


def measure(path: Path, repeats: int, budget_s: float, d_model: int) -> None:
    """Run what is left, by turns: ours first, then the others in the time it took."""
    plan = latency_plan("relu,again=relu", d_model=d_model, budget=budget_s)
    spawn = multiprocessing.get_context("spawn")
    done = set(read(path).number) if path.exists() else set()
    for number in sorted({*range(repeats)} - done):
        records = []
        for world in TITLES:
            seconds = 0.0
            for method in NAMES:
                seed = random.Random(f"{number}/{world}/{method}").getrandbits(32)
                asked = replace(plan, protocol=replace(plan.protocol, seed=seed))
                start = time.monotonic()
                with beside(world, number):
                    if method == OURS:
                        ratio = ours(asked)
                        seconds = time.monotonic() - start
                    else:  # in a process of its own
                        with ProcessPoolExecutor(1, spawn) as pool:
                            said = pool.submit(ratio_by, asked, method, seconds)
                            ratio = said.result()
                record = {
                    "world": world,
                    "method": method,
                    "number": number,
                    "ratio": ratio,
                    "wall_s": round(time.monotonic() - start, 1),
                }
                records.append(record)
                print(record, file=sys.stderr)
        with path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(record) + "\n" for record in records)


def read(path: Path) -> pd.DataFrame:
    """The runs of a file, with the error of each in logs."""
    runs = pd.read_json(path, lines=True)
    return runs.assign(error=np.log(runs.ratio.astype(float)))


def rms(errors: pd.Series) -> float:
    """The root of their mean square, in percent."""
    return float(100 * np.sqrt((errors**2).mean()))


def report(runs: pd.DataFrame) -> pd.DataFrame:
    """For each world and method its rms and its largest error in percent, and its busy
    runs.
    """
    cells = runs.groupby(["world", "method"], sort=False)
    return pd.DataFrame(
        {
            "runs": cells.size(),
            "rms error": cells.error.agg(rms).round(1),
            "largest": (100 * cells.error.agg(lambda of: of.abs().max())).round(1),
            "busy": cells.ratio.agg(lambda of: of.isna().sum()),
        }
    )


def draw(runs: pd.DataFrame, path: str) -> None:
    """Every run a dot at the difference that it reported, a panel a world."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 2), layout="constrained")
    panels = figure.subplots(1, len(TITLES), sharex=True, sharey=True)
    for axes, (world, title) in zip(panels, TITLES.items(), strict=True):
        axes.axvline(0, color="0.75", linewidth=1, zorder=0)
        for place, method in enumerate(NAMES):
            is_cell = (runs.world == world) & (runs.method == method)
            percents = 100 * (runs.ratio[is_cell].dropna() - 1)
            colour = "C0" if method == OURS else "0.45"
            style = dict(alpha=0.6, color=colour, ms=6)
            axes.plot(percents, [place] * len(percents), "o", **style)
        axes.set_title(title, fontsize=9)
        axes.set_yticks(range(len(NAMES)), NAMES.values())
        axes.set_ylim(len(NAMES) - 0.5, -0.5)
        axes.xaxis.set_major_formatter(
            lambda percent, _: f"{percent:+.0f} %" if percent else "0"
        )
        axes.tick_params(labelsize=8, left=False)
        axes.spines[["top", "right", "left"]].set_visible(False)
    label = "reported difference between an FFN and itself (0 is right); a dot is a run"
    figure.supxlabel(label, fontsize=9)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Measure, or report what was measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--budget", type=float, default=15, help="seconds of a run")
    parser.add_argument("--d-model", type=int, default=768)
    parser.add_argument("-o", "--out", default="against-itself.jsonl")
    parser.add_argument("--report", metavar="FILE", help="the table of a file, no more")
    parser.add_argument("--chart", metavar="PICTURE", help="draw it, too")
    asked = parser.parse_args()
    path = Path(asked.report or asked.out)
    if not asked.report:
        try:
            measure(path, asked.repeats, asked.budget, asked.d_model)
        except KeyboardInterrupt:
            print("interrupted: the same command goes on", file=sys.stderr)
    if not path.exists():
        sys.exit(f"error: no run in {path}")
    print(report(read(path)).to_string())
    if asked.chart:
        draw(read(path), asked.chart)


if __name__ == "__main__":
    main()
