"""A plan of what is trained -> a report: each run by itself, and behind them the cells that are timed."""

from __future__ import annotations

import math
import time
from contextlib import closing
from dataclasses import dataclass, replace

from ffnbench.api import world
from ffnbench.api.measuring import ended, measured_once, tell_wait, telling, visited
from ffnbench.api.preparing import NULL_SINK, Prepared, new_report, refuse_at_once
from ffnbench.api.sweeping import Sweep
from ffnbench.extras.train.decoder import trained_by
from ffnbench.extras.train.lessons import Lessons
from ffnbench.plan import Plan
from ffnbench.report.output import NullSink
from ffnbench.report.shown_report import ShownReport
from ffnbench.result import raw_of
from ffnbench.run.log import Finder
from ffnbench.run.neighbours import machine_lock
from ffnbench.run.schedule import Schedule
from ffnbench.run.worker_pool import WorkerPool


@dataclass(slots=True)
class RunsAndTimes(Sweep):
    """The cells of such a plan. Those that are timed still are where the time for training is over."""

    def ends(self, found: ShownReport, cell: Plan) -> bool:
        """Where it was interrupted, or what is timed was stopped."""
        return found.interrupted or (bool(found.stopped) and not trained_by(cell.cases[0]))


def measure(prepared: Prepared, sink: NullSink = NULL_SINK) -> ShownReport:
    """Train and time what was prepared, all of it or one cell; what there is to know of its text and seeds is told
    before. Raises FfnbenchError where memory does not hold it.
    """
    plan = prepared.plan
    refuse_at_once(plan)
    tell_wait(sink, plan)
    if not any(trained_by(case) for case in plan.cases):
        return measured_once(prepared, sink)  # a job that times one cell
    for note in plan.notes:
        if not note.label:
            sink.tell(f"note: {note.text}")
    lessons, pool = Lessons(plan), WorkerPool(plan, world.MACHINE.launch)

    def visit(cell: Plan, sink: NullSink, on_found: Finder) -> ShownReport:
        if trained_by(cell.cases[0]):
            start = new_report(cell, prepared.costs_of(cell))
            return replace(start, **raw_of(lessons(cell, pool, sink, telling(start, sink, on_found))))
        cell = lessons.with_rest(cell, sink.left)
        return visited(
            cell,
            prepared,
            sink,
            on_found,
            launch=world.MACHINE.launch,
            pool=pool,
            bound_s=cell.protocol.budget_s or math.inf,
        )

    spent_s = time.monotonic() - sink.began if sink.began else 0.0
    with closing(pool), machine_lock(sink.waits, sink.tell) as beside:
        budget = Schedule(time.monotonic, plan.protocol, spent_s=spent_s)
        before = sink.before()
        if before or plan.is_sweep:
            found = RunsAndTimes(prepared, sink, visit, before, budget).measure()
        else:
            found = visit(plan, sink, lambda _: None)
    return ended(found, plan, beside)
