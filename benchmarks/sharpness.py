"""How sharp runs are: `python benchmarks/sharpness.py --runs 10 compare --d-model 768
--variants relu,gelu,swiglu`.

Runs a command of ffnbench several times, each with its own seed, and prints half-widths
of its intervals (in nine of ten runs, and the median), its verdicts, the seconds that
it took and the share of them that are samples. `compare` and `ab` are understood. Let
nothing else run: the load at the beginning is printed.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from ffnbench.metrics import LATENCY


@dataclass
class Seen:
    """What the runs have said: half-widths and verdicts by row, and of each run its
    seconds and the samples' share.
    """

    halves: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    verdicts: dict[str, Counter[str]] = field(
        default_factory=lambda: defaultdict(Counter)
    )
    seconds: list[float] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)

    def interval(self, name: str, low: float | None, high: float | None) -> None:
        """Half an interval, relative; infinite where there is none."""
        self.halves[name].append(
            math.sqrt(high / low) - 1 if low and high else math.inf
        )

    def add(self, data: Any, wall_s: float) -> None:
        """A run of `compare`, or what `ab` has found."""
        run = data.get("now", data)
        for finding in data.get("findings", ()):
            if finding["metric"] == LATENCY:
                self.interval(
                    finding["case"], finding["change_low"], finding["change_high"]
                )
                self.verdicts[finding["case"]][finding["status"]] += 1
        for row in () if "findings" in data else run["comparisons"]:
            self.verdicts[row["case"]][row["verdict"]] += 1
            if row["verdict"] != "reference":
                self.interval(
                    row["case"], row["ratio"].get("low"), row["ratio"].get("high")
                )
        for one in run["measured"]:
            if one["metric"] == LATENCY:
                self.interval(
                    f"{one['case']}, ms",
                    one["estimate"].get("low"),
                    one["estimate"].get("high"),
                )
        self.seconds.append(wall_s)
        self.shares.append(
            sum(
                s["value"] * s["calls"]
                for s in run["samples"]
                if s["metric"] == LATENCY
            )
            / wall_s
        )


def main() -> None:
    """Run, and print a line for each row."""
    runs, words = int(sys.argv[2]), sys.argv[3:]
    print(f"ffnbench {' '.join(words)}: {runs} runs, load {os.getloadavg()[0]:.2f}")
    seen = Seen()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.json")
        for seed in range(runs):
            start = time.monotonic()
            command = [
                sys.executable,
                "-m",
                "ffnbench",
                *words,
                "--seed",
                str(seed),
                "-q",
                "-o",
                str(path),
            ]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if not path.exists():
                sys.exit(done.stderr)
            seen.add(
                json.loads(path.read_text(encoding="utf-8")), time.monotonic() - start
            )
            path.unlink()
    for name, halves in seen.halves.items():
        nine = sorted(halves)[math.ceil(0.9 * len(halves)) - 1]
        said = ", ".join(
            f"{count} {word}"
            for word, count in seen.verdicts.get(name, Counter()).most_common()
        )
        print(
            f"  {name:14} +-{nine:.1%} in 9 of 10, +-{median(halves):.1%} in the median  {said}"
        )
    print(
        f"  {median(seen.seconds):.1f} s a run, {median(seen.shares):.0%} of it samples"
    )


if __name__ == "__main__":
    main()
