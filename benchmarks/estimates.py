"""How near bounds are to measured times: `python benchmarks/estimates.py [--shapes
50]`, when nothing else runs.

One run finds the ceilings of this machine: the fastest products of each dtype, and
reads of memory. Shapes that it has not seen are drawn by a seed: variants, d_model 256
to 4096, tokens 1 to 2048, float32 and bfloat16, of at most 5e10 FLOPs a call. Each is
measured with a cold cache, as the bound has it, and estimated by those ceilings with
`ffnbench estimate`. Writes both into results/, and the summary into the package;
`--summary` writes that alone, of what stands in results/.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import median, quantiles
from typing import Any

from exam.text import table

from ffnbench.extras.estimate.bounds import HOW_NEAR_FILE
from ffnbench.metrics import ROOF
from ffnbench.report.files.store import read_report
from ffnbench.result import MEMORY, Bound, Report
from ffnbench.stats.rounds import table_of

RESULTS = Path(__file__).parents[1] / "results" / "amd-epyc-2cpu"
FOUND, CEILINGS = "estimates.csv", "estimates-ceilings.json"
FEWEST = 10  # shapes: the ends of 90 % are known of no fewer
VARIANTS, DTYPES = ("relu", "gelu", "silu", "geglu", "swiglu"), ("float32", "bfloat16")
# of a call; shapes of one width, which are measured in one run
MOST_FLOPS, BESIDE = (5e10, 5)
CEILINGS_OF = "relu --d-model 4096 --seq-len 1 --dtype float32,bfloat16 --metrics latency,ceilings --budget 60"
EFFORT = "--metrics latency --workers 3 --rounds 4"
HEAD = (
    "variant",
    "d_model",
    "tokens",
    "dtype",
    "bound ms",
    "measured ms",
    "quotient",
    "bound by",
)


def drawn(shapes: int, seed: int) -> dict[int, list[str]]:
    """Variants with keys of their own, by d_model."""
    dice, found = Random(seed), defaultdict(list)
    for number in range(shapes):
        if number % BESIDE == 0:
            d_model = 64 * round(256 * 16 ** dice.random() / 64)
        tokens = round(min(2048, MOST_FLOPS / (16 * d_model**2)) ** dice.random())
        name, dtype = dice.choice(VARIANTS), dice.choice(DTYPES)
        found[d_model].append(f"s{number}={name}@seq_len={tokens}@dtype={dtype}")
    return found


def ffnbench(*words: str) -> None:
    """Run a command; what it says of a mistake ends this script."""
    done = subprocess.run(
        [sys.executable, "-m", "ffnbench", *words, "-f", "json"],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(f"ffnbench {' '.join(words)}\n{done.stderr}")


def rows_of(path: Path) -> dict[str, dict[str, str]]:
    """The lines of a CSV by label."""
    with path.open(encoding="utf-8", newline="") as file:
        return {row["label"]: row for row in csv.DictReader(file)}


def measured(
    shapes: int, seed: int, hardware: Path, folder: Path, **of: str
) -> list[dict[str, Any]]:
    """Every shape with its bound and time, and what is the same of all; what failed, or
    was busy, is left out.
    """
    found = []
    for d_model, variants in drawn(shapes, seed).items():
        cold = ",".join(f"{variant}={variant}@cache=cold" for variant in variants)
        width = ["--d-model", str(d_model)]
        times, bounds = folder / "times.csv", folder / "bounds.csv"
        ffnbench(
            "compare",
            cold,
            *width,
            *EFFORT.split(),
            "--seed",
            str(seed),
            "-q",
            "-o",
            str(times),
        )
        ffnbench(
            "estimate",
            ",".join(variants),
            *width,
            "--hardware",
            str(hardware),
            "-o",
            str(bounds),
        )
        bound_of = rows_of(bounds)
        for label, row in rows_of(times).items():
            bound, seconds = bound_of[label], row["latency_s"]
            if not seconds or 2 * int(row["clean_rounds"]) < int(row["made_rounds"]):
                print(f"left out: {row['variant']}: {row['failure'] or 'busy'}")
                continue
            found.append({
                **of, "variant": row["variant"].partition("@")[0], "d_model": d_model, "d_ff": int(row["d_ff"]),
                "tokens": int(row["seq_len"]), "dtype": row["dtype"], "bound_by": bound["bound_by"],
                "at_least_s": float(bound["at_least_s"]), "measured_s": float(seconds),
                "quotient": float(seconds) / float(bound["at_least_s"]),
            })  # fmt: skip
    return found


def figures_of(run: Report) -> dict[str, float]:
    """What a file of `--hardware` says of the machine of a run, by its ceilings over
    clean rounds.
    """
    roofs, found = table_of(run, ROOF), defaultdict(float)
    for roof in run.roofs:
        if mean := roofs.seconds(roof.name).mean():
            rate = roof.amount / math.exp(mean.mean)
            if roof.bound is Bound.PRODUCTS:
                found[f"tflops_{roof.dtype}"] = max(
                    found[f"tflops_{roof.dtype}"], rate / 1e12
                )
            elif roof.level == MEMORY:
                found["gb_per_s"] = max(found["gb_per_s"], rate / 1e9)
    return dict(found)


def spread_of(quotients: list[float]) -> dict[str, float] | None:
    """Of measured times over their bounds: the median, and the ends of the middle
    90 %.
    """
    if len(quotients) < FEWEST:
        return None
    ends = quantiles(quotients, n=20, method="inclusive")
    return {
        "shapes": len(quotients),
        "median": median(quotients),
        "low": ends[0],
        "high": ends[-1],
    }


def summary(shapes: Sequence[dict[str, str]]) -> dict[str, Any]:
    """What stands in the package, of what stands in results/."""
    by = {bound: [float(s["quotient"]) for s in shapes if bound in ("all", s["bound_by"])]
          for bound in ("all", Bound.PRODUCTS, MEMORY)}  # fmt: skip
    spreads = {bound: spread for bound, of in by.items() if (spread := spread_of(of))}
    if "all" not in spreads:
        sys.exit(f"{len(by['all'])} shapes are too few to say how near bounds are")
    return {"machine": shapes[0]["machine"], "measured": shapes[0]["measured"], "mode": "forward",
            "dtypes": sorted({s["dtype"] for s in shapes}), **spreads}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument(
        "--summary", action="store_true", help="only write the summary into the package"
    )
    asked = parser.parse_args(arguments)
    path, ceilings = asked.results / FOUND, asked.results / CEILINGS
    if not asked.summary:
        asked.results.mkdir(parents=True, exist_ok=True)
        ffnbench("compare", *CEILINGS_OF.split(), "-q", "-o", str(ceilings))
        run = read_report(str(ceilings))
        here, figures = run.environment, figures_of(run)
        if (
            missing := {"gb_per_s", *(f"tflops_{dtype}" for dtype in DTYPES)}
            - figures.keys()
        ):
            sys.exit(
                f"other work disturbed the ceilings: {', '.join(sorted(missing))} not known"
            )
        with tempfile.TemporaryDirectory() as folder:
            rows = Path(folder, "here.toml")
            rows.write_text(
                "\n".join(
                    ["[here]", *(f"{key} = {value}" for key, value in figures.items())]
                )
            )
            machine = f"{here.usable_cpus} CPUs of an {here.cpu}"
            shapes = measured(
                asked.shapes,
                asked.seed,
                rows,
                Path(folder),
                machine=machine,
                measured=run.created[:10],
            )
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(shapes[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(shapes)
        print(table(HEAD, [
            [s["variant"], f"{s['d_model']:,}", f"{s['tokens']:,}", s["dtype"], f"{1e3 * s['at_least_s']:.3f}",
             f"{1e3 * s['measured_s']:.3f}", f"{s['quotient']:.2f}", s["bound_by"]] for s in shapes
        ]))  # fmt: skip
    with path.open(encoding="utf-8", newline="") as file:
        near = summary(list(csv.DictReader(file)))
    HOW_NEAR_FILE.write_text(json.dumps(near, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(near, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
