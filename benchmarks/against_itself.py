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
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

from exam.plans import latency_plan
from exam.text import table
from timers import LOOP, OURS, TIMER, beside, ours, rival, seeded

NEIGHBOURS = {
    "quiet": "nothing else runs",
    "bursts 1 s": "another program works at times",
}
METHODS = (OURS, TIMER, LOOP)


@dataclass(frozen=True)
class Timing:
    """What a method said in one run. `ratio` is None where it said that the machine is
    busy.
    """

    world: str
    method: str
    number: int
    ratio: float | None
    wall_s: float


def read(path: Path) -> list[Timing]:
    """The runs of a file; none where there is no file."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    return [Timing(**json.loads(line)) for line in lines]


def measure(path: Path, repeats: int, budget_s: float, d_model: int) -> None:
    """Run what is left, by turns: ours first, then the others in the time it took."""
    plan = latency_plan("relu,again=relu", d_model=d_model, budget=budget_s)
    done = {timing.number for timing in read(path)}
    for number in range(repeats):
        if number in done:
            continue
        timings = []
        for world in NEIGHBOURS:
            seconds = 0.0
            for method in METHODS:
                asked = seeded(plan, number, world, method)
                start = time.monotonic()
                with beside(world, number):
                    if method == OURS:
                        [said] = ours(asked)
                        seconds = time.monotonic() - start
                    else:
                        [said] = rival(asked, method, seconds)
                wall_s = round(time.monotonic() - start, 1)
                timings.append(Timing(world, method, number, said.ratio, wall_s))
                print(world, method, said.ratio, file=sys.stderr)
        with path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(asdict(timing)) + "\n" for timing in timings)


def errors_of(timings: Sequence[Timing], world: str, method: str) -> list[float]:
    """The log of each ratio that a method said in a world."""
    return [
        math.log(timing.ratio)
        for timing in timings
        if timing.world == world and timing.method == method and timing.ratio
    ]


def rms(errors: Sequence[float]) -> float:
    """The root of their mean square."""
    return math.sqrt(fmean(error**2 for error in errors))


def report(timings: Sequence[Timing]) -> str:
    """For each world and method its rms error, the largest, and its busy runs."""
    rows = []
    for world in NEIGHBOURS:
        for method in METHODS:
            own = [t for t in timings if t.world == world and t.method == method]
            errors = errors_of(timings, world, method)
            if errors:
                largest = max(abs(error) for error in errors)
                figures = [f"{rms(errors):.1%}", f"{largest:.1%}"]
            else:
                figures = ["-", "-"]
            busy = sum(timing.ratio is None for timing in own)
            rows.append([world, method, str(len(own)), *figures, str(busy)])
    head = ["world", "method", "runs", "rms error", "largest", "busy"]
    return table(head, rows, left=2)


def draw(timings: Sequence[Timing], path: str) -> None:
    """Every run a dot at the ratio that it said, a panel a world."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = {OURS: "ffnbench", TIMER: "torch Timer", LOOP: "loop of medians"}
    figure, panels = plt.subplots(
        1, 2, figsize=(7, 1.9), sharex=True, sharey=True, layout="constrained"
    )
    for axes, (world, title) in zip(panels, NEIGHBOURS.items(), strict=True):
        axes.axvline(1, color="0.75", linewidth=1, zorder=0)
        for place, method in enumerate(METHODS):
            ratios = [math.exp(error) for error in errors_of(timings, world, method)]
            colour = "C0" if method == OURS else "0.45"
            axes.plot(ratios, [place] * len(ratios), "o", alpha=0.6, color=colour, ms=6)
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("reported ratio of an FFN to itself", fontsize=9)
        axes.set_yticks(range(len(METHODS)), [names[method] for method in METHODS])
        axes.set_ylim(len(METHODS) - 0.5, -0.5)
        axes.tick_params(labelsize=8, left=False)
        axes.spines[["top", "right", "left"]].set_visible(False)
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
    timings = read(path)
    if not timings:
        sys.exit(f"error: no run in {path}")
    print(report(timings))
    if asked.chart:
        draw(timings, asked.chart)


if __name__ == "__main__":
    main()
