"""How narrow the intervals of README's main job are by this code and by another
checkout, by turns: `python benchmarks/sharpness.py TREE -o FOLDER [--d-model 768]
[--seeds 0 1 2 3 4]`.

Prints, here and there, half the interval of each ratio to relu and the share of the
wall time that are samples, in percent, and the medians of here over there. A run takes
15 s, on a quiet machine; FOLDER keeps it, and it is not made again.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parents[1]
FIGURES = ("gelu", "swiglu", "samples")


def measured(tree: Path, d_model: int, seed: int, file: Path) -> dict[str, float]:
    """The figures of the main job by the code of this tree; a row without an interval
    has none.
    """
    if not file.exists():
        job = f"compare relu gelu swiglu -q --d-model {d_model} --seed {seed} -o {file}"
        subprocess.run(
            [sys.executable, "-m", "ffnbench", *job.split()],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree)},
            capture_output=True,
            check=True,
        )
    run = json.loads(file.read_text())
    figures = {}
    for row in run["comparisons"]:
        low = row["ratio"] and row["ratio"].get("low")
        if low:
            figures[row["case"]] = 100 * ((row["ratio"]["high"] / low) ** 0.5 - 1)
    latencies = [one for one in run["samples"] if one["metric"] == "latency"]
    sampled_s = sum(one["value"] * one["calls"] for one in latencies)
    return {**figures, "samples": 100 * sampled_s / run["wall_s"]}


def main() -> None:
    """Print a line for each pair of runs, and the medians of each d_model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tree", type=Path, help="a folder with another ffnbench/")
    parser.add_argument("-o", type=Path, required=True, help="a folder for the runs")
    parser.add_argument("--d-model", type=int, nargs="+", default=[768, 256])
    parser.add_argument("--seeds", type=int, nargs="+", default=range(5))
    asked = parser.parse_args()
    trees = {"here": HERE, "there": asked.tree.resolve()}
    asked.o.mkdir(parents=True, exist_ok=True)
    for d_model in asked.d_model:
        shares: dict[str, list[float]] = {name: [] for name in FIGURES}
        for seed in asked.seeds:
            both = {}
            for name in sorted(trees, reverse=seed % 2 == 1):  # goes first by turns
                file = asked.o.resolve() / f"{name}-{d_model}-{seed}.json"
                both[name] = measured(trees[name], d_model, seed, file)
            print(f"d_model {d_model}, seed {seed}", end="")
            for figure in FIGURES:
                here, there = (both[name].get(figure) for name in trees)
                texts = [f"{one:.2f}" if one else "-" for one in (here, there)]
                print(f"; {figure} {texts[0]} here, {texts[1]} there", end="")
                if here and there:
                    shares[figure].append(here / there)
            print(flush=True)
        for figure, known in shares.items():
            if known:
                text = f"{median(known):.2f} in the median of {len(known)}"
                print(f"d_model {d_model}: {figure}, here / there {text}")


if __name__ == "__main__":
    main()
