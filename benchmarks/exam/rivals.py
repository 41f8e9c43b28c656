"""How else one might time the cases of a plan: torch.utils.benchmark.Timer, and a loop with a median. For comparison.

Both get the same modules in the same process, one case after another, and the same total time as ffnbench's run.
`python -m exam.rivals` reads what to measure from stdin.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from statistics import median
from time import perf_counter

from torch.utils.benchmark import Timer

from ffnbench.common import jsonable
from ffnbench.plan import Plan
from ffnbench.worker.jobs import Jobs
from ffnbench.worker.loop import keep_freed_memory

WARM_UP_S = 0.025  # what triton.testing.do_bench takes by default


def _timer(call: Callable[[], None], seconds: float, threads: int) -> float:
    """torch.utils.benchmark.Timer as its documentation uses it."""
    measurement = Timer(stmt="call()", globals={"call": call}, num_threads=threads)
    return float(measurement.blocked_autorange(min_run_time=seconds).median)


def _loop(call: Callable[[], None], seconds: float, threads: int) -> float:
    """A warm-up, then one call after another until the time is over; the median of them."""
    start = perf_counter()
    while perf_counter() - start < WARM_UP_S:
        call()
    times = []
    start = perf_counter()
    while perf_counter() - start < seconds:
        before = perf_counter()
        call()
        times.append(perf_counter() - before)
    return median(times)


METHODS = {"torch Timer": _timer, "median loop": _loop}


def rival(plan: Plan, method: str, seconds: float) -> dict[str, float]:
    """Seconds of every case by one of METHODS, `seconds` in all."""
    jobs, share = Jobs(plan), seconds / len(plan.cases)
    found = {}
    for case in plan.cases:
        jobs.open(case.label, 1)
        call = jobs.subjects[case.label].timed()
        found[case.label] = METHODS[method](call, share, case.workload.threads)
    return found


def main() -> None:
    """Answer one line of JSON on stdin."""
    asked = json.load(sys.stdin)
    json.dump(rival(jsonable.decode(Plan, asked["plan"]), asked["method"], asked["seconds"]), sys.stdout)


if __name__ == "__main__":
    keep_freed_memory()  # as in ffnbench's own workers
    main()
