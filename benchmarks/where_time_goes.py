"""Where each second of a run goes: `python benchmarks/where_time_goes.py`, or with
another `compare` behind it; without one it is README's main job.

Every wait for a worker is timed in the parent; what is left of the wall time is the
parent's own. A job's first and later workers stand apart.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

START = time.perf_counter()  # before ffnbench and what it needs are imported

from ffnbench.app import main as cli  # noqa: E402
from ffnbench.record.messages import Sampled  # noqa: E402
from ffnbench.report.files import RunFile  # noqa: E402
from ffnbench.run.worker import Worker  # noqa: E402

MAIN_JOB = ["compare", "--d-model", "768", "--variants", "relu,gelu,swiglu"]
SAMPLES = "samples"
seconds: Counter[str] = Counter()
times: Counter[str] = Counter()


def spend(what: str, spent_s: float) -> None:
    """Add seconds to what they are spent on."""
    seconds[what] += spent_s
    times[what] += 1


def timed(owner: Any, method: str) -> None:
    """Have every call of a method timed."""
    original = getattr(owner, method)

    def call(self: object, *args: Any, **named: Any) -> Any:
        start = time.perf_counter()
        answer = original(self, *args, **named)
        spent_s = time.perf_counter() - start
        job = args[0] if method == "ask" else method
        if isinstance(answer, Sampled):
            sampled_s = named["calls"] * answer.value
            spend(SAMPLES, sampled_s)
            spend("beside samples: inputs, messages", spent_s - sampled_s)
        else:
            worker = "first worker" if times["begin"] < 2 else "later workers"
            spend(f"{job}, {worker}" if method == "ask" else job, spent_s)
            times["begin"] += job == "begin"
        return answer

    setattr(owner, method, call)


def main() -> None:
    """Run the command, and print where its seconds went."""
    for owner, method in ((Worker, "ask"), (Worker, "greeting"), (RunFile, "keep")):
        timed(owner, method)
    with tempfile.TemporaryDirectory() as folder:
        output = ["-o", str(Path(folder, "run.json"))]
        cli.run_command_line([*(sys.argv[1:] or MAIN_JOB), *output])
    all_s = time.perf_counter() - START
    spend("the parent's own", all_s - sum(seconds.values()))
    print(f"\n{all_s:.2f} s of wall time, {times['begin']} workers")
    for what, spent_s in seconds.most_common():
        print(f"{spent_s:7.2f} s {spent_s / all_s:6.1%} {times[what]:6} x  {what}")


if __name__ == "__main__":
    main()
