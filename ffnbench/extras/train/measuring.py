"""A plan of what is trained -> a report: each run by itself, and behind them the cells that are timed."""

from __future__ import annotations

import math
import time
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ffnbench.api.measuring import ended, measured_once, tell_wait, visited
from ffnbench.api.preparing import Prepared, new_report, refuse_at_once
from ffnbench.api.sweeping import Sweep
from ffnbench.extras.train.decoder import trained_by
from ffnbench.extras.train.lessons import Lessons
from ffnbench.following import UNFOLLOWED, Following
from ffnbench.plan import Plan
from ffnbench.report.shown_report import ShownReport
from ffnbench.result import raw_of
from ffnbench.run.schedule import Schedule
from ffnbench.run.worker_pool import WorkerPool
from ffnbench.run.world import World

CHECKPOINTS = "[0-9a-f]" * 16 + ".*"  # named by a hash


@dataclass(slots=True)
class RunsAndTimes(Sweep):
    """The cells of such a plan. Those that are timed still are where the time for training is over."""

    def ends(self, found: ShownReport, cell: Plan) -> bool:
        """Where it was interrupted, or what is timed was stopped."""
        return found.interrupted or (bool(found.stopped) and not trained_by(cell.cases[0]))


def measure(prepared: Prepared, world: World, following: Following = UNFOLLOWED) -> ShownReport:
    """Train and time what was prepared, all of it or one cell; what there is to know of its text and seeds is told
    before. Raises FfnbenchError where memory does not hold it.
    """
    plan = prepared.plan
    refuse_at_once(plan, world)
    tell_wait(plan, world, following.progress)
    if not any(trained_by(case) for case in plan.cases):
        return measured_once(prepared, world, following)  # a job that times one cell
    for note in plan.notes:
        if not note.label:
            following.progress.tell(f"note: {note.text}")
    lessons, pool = Lessons(plan), WorkerPool(plan, world.launch, world.now)

    def visit(cell: Plan, of_cell: Following) -> ShownReport:
        if trained_by(cell.cases[0]):
            start = new_report(cell, prepared.costs_of(cell))
            of_cell.journal(start)
            return replace(start, **raw_of(lessons(cell, pool, of_cell)))
        cell = lessons.with_rest(cell, of_cell.progress.left)
        return visited(cell, prepared, world, of_cell, pool=pool, bound_s=cell.protocol.budget_s or math.inf)

    spent_s = world.spent_s
    with closing(pool), world.lock(following.progress.tell) as beside:
        budget = Schedule(time.monotonic, plan.protocol, spent_s=spent_s)
        before = following.resumed()
        if before is None and following.folder is not None:
            forget_checkpoints(following.folder)
        if before or plan.is_sweep:
            report = RunsAndTimes(prepared, world, following, visit, before, budget).measure()
        else:
            report = visit(plan, following)
    return ended(report, plan, beside)


def forget_checkpoints(folder: Path) -> None:
    """Delete the checkpoints of an earlier run; a folder that holds anything else is the user's, and stays."""
    checkpoints = list(folder.glob(CHECKPOINTS))
    with suppress(OSError):
        for file in checkpoints:
            file.unlink()
        if checkpoints:
            folder.rmdir()
