"""What the selftest does: it measures the same comparison again and again, and counts how often it is wrong."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from ffnbench.api.measuring import tell_wait
from ffnbench.common.errors import Interrupted, Unfinished
from ffnbench.device.environment import usable_cpus
from ffnbench.extras.selftest.rates import SelftestRow, comparison_plan, rows_of_run
from ffnbench.extras.selftest.table import selftest_view
from ffnbench.ffn.spec import require_positive
from ffnbench.following import ProgressListener
from ffnbench.plan import Plan
from ffnbench.report.formats import View
from ffnbench.request import Request, Seconds
from ffnbench.result import Progress, Run
from ffnbench.run.runner import run
from ffnbench.run.world import World


@dataclass(frozen=True, kw_only=True)
class SelftestRequest(Request):
    """`ffnbench selftest`."""

    repeats: int = 10
    budget: Seconds = 15.0
    d_model: int = 256
    threads: int | None = None
    seed: int = 0


def selftest(request: SelftestRequest, world: World, progress: ProgressListener) -> View:
    """How often ffnbench is wrong on this machine."""
    plan, repeats = plan_selftest(request), request.repeats
    tell_wait(plan, world, progress, repeats * (plan.protocol.budget_s or 0.0))
    with world.lock(progress.tell):
        rows = measure(plan, repeats, world, progress)
    return selftest_view(rows, repeats)


def plan_selftest(request: SelftestRequest) -> Plan:
    """What is measured `repeats` times; raises FfnbenchError for every mistake."""
    threads = usable_cpus() if request.threads is None else request.threads
    require_positive("repeats", request.repeats)
    return comparison_plan(
        d_model=require_positive("d_model", request.d_model),
        threads=require_positive("threads", threads),
        budget=request.budget,
        seed=request.seed,
    )


def measure(plan: Plan, repeats: int, world: World, progress: Callable[[Progress], None]) -> list[SelftestRow]:
    """Every run, each with a seed of its own.

    Interrupted, or where one can't be finished, it gives what was measured by then; raises where that is nothing.
    """
    rows: list[SelftestRow] = []
    start = time.monotonic()
    try:
        for number in range(repeats):
            left_s = (time.monotonic() - start) / number * (repeats - number) if number else None
            progress(Progress(done=number / repeats, text=f"run {number + 1} of {repeats}", eta_s=left_s))
            protocol = replace(plan.protocol, seed=plan.protocol.seed + number)
            done = refuse_unfinished(run(replace(plan, protocol=protocol), world))
            rows += rows_of_run(done, plan, number)
    except KeyboardInterrupt:
        if not rows:
            raise Interrupted("interrupted before the first run was complete") from None
    except Unfinished:
        if not rows:
            raise
    return rows


def refuse_unfinished(done: Run) -> Run:
    """A run that nothing went wrong in; raises KeyboardInterrupt or Unfinished."""
    if done.interrupted:
        raise KeyboardInterrupt
    if done.failures:
        raise Unfinished("a case of the selftest failed", done.failures[0].message)
    if done.stopped:
        raise Unfinished("a case of the selftest failed", done.stopped)
    return done
