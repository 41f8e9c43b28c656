"""What was prepared -> a report: one run, or several with a pause between them."""

from __future__ import annotations

import math
import os
import time
from contextlib import closing, nullcontext
from dataclasses import replace
from typing import Any

from ffnbench.api import world
from ffnbench.api.preparing import NULL_SINK, Prepared, new_report, refuse_at_once
from ffnbench.api.sweeping import Sweep, refuse_short
from ffnbench.errors import FfnbenchError, termination_as_interruption
from ffnbench.plan import OWN, Note, NoteKind, Plan
from ffnbench.report.output import NullSink
from ffnbench.report.progress import wait_text
from ffnbench.report.shown_report import ShownReport
from ffnbench.result import Progress, raw_of
from ffnbench.run.log import Finder
from ffnbench.run.neighbours import machine_lock
from ffnbench.run.runner import run
from ffnbench.run.schedule import Schedule
from ffnbench.run.worker_pool import Launch, WorkerPool
from ffnbench.stats.figures import with_figures
from ffnbench.stats.rounds import table_of
from ffnbench.stats.stopping import Answered


def measure(prepared: Prepared, sink: NullSink = NULL_SINK, launch: Launch | None = None) -> ShownReport:
    """Measure what was prepared; raises FfnbenchError where memory does not hold it, or it could tell nothing."""
    plan = prepared.plan
    refuse_at_once(plan)
    refuse_short(plan)
    runs, pause = plan.protocol.runs, plan.protocol.pause_s
    once = plan.protocol.budget_s if plan.protocol.precision is not None else None
    tell_wait(sink, plan, budget=None if once is None else runs * once + (runs - 1) * pause)
    if runs == 1:
        return measured_once(prepared, sink, launch)
    if sink.before() or plan.shard:
        raise FfnbenchError("--runs is of a whole plan, and --resume and --shard are of a part", "leave --runs out")
    return _several(prepared, sink, launch, runs, pause)


def tell_wait(sink: NullSink, plan: Plan, *, budget: float | None = None) -> None:
    """One line before anything is measured: how long it takes at most where a budget says so, and that this machine is
    busy now.
    """
    if sink.tells and "latency" in plan.metrics:
        others = world.MACHINE.others(max(case.workload.threads for case in plan.cases))
        if text := wait_text(budget, groups=len(plan.groups), others=others, cpus=os.cpu_count() or 1):
            sink.tell(text)


def _several(prepared: Prepared, sink: NullSink, launch: Launch | None, runs: int, pause: float) -> ShownReport:
    """So many runs apart in one report. One that is lost, without clean rounds or any row, is made up for, at most half
    as many times as runs were asked for. One that is interrupted is not kept.
    """
    found = measured_once(prepared, sink.within(1, runs, "run"), launch)
    if found.interrupted or found.stopped or found.failed_wholly:
        return found
    kept = int(not table_of(found).without_quiet())
    for _ in range(runs - 1 + (runs + 1) // 2):
        if kept == runs:
            return found
        turn = sink.within(kept + 1, runs, "run")
        try:
            with termination_as_interruption():
                _pause(pause, turn)
            now = measured_once(prepared, turn, launch)
        except KeyboardInterrupt:
            return _cut_short(found, runs)
        if now.interrupted or now.stopped:
            return _cut_short(found, runs)
        if not now.failed_wholly and not table_of(now).without_quiet():
            found = found.with_repeat(now) if kept else now
            kept += 1
    text = f"{len(found.runs)} of {runs} runs could be kept: in the others a row had no undisturbed round"
    return found if kept == runs else replace(found, warnings=(*found.warnings, Note(text=text, kind=NoteKind.GENERAL)))


def _cut_short(found: ShownReport, runs: int) -> ShownReport:
    text = f"interrupted: {len(found.runs)} of {runs} runs are complete, and kept"
    return replace(found, cut_short=True, warnings=(*found.warnings, Note(text=text, kind=NoteKind.GENERAL)))


def _pause(seconds: float, sink: NullSink) -> None:
    """Wait, and say for how long."""
    end = time.monotonic() + seconds
    with sink.progress() as listener:
        while (left := end - time.monotonic()) > 0:
            listener(Progress(done=0.0, text="waiting for the next run", eta_s=left))
            time.sleep(min(1.0, left))


def measured_once(
    prepared: Prepared,
    sink: NullSink,
    launch: Launch | None = None,
    answered: Answered | None = None,
    weights: str = "",
) -> ShownReport:
    """One run of a prepared plan, with its figures; `answered` may end it early, `weights` holds a base's. A plan of
    several cells is measured cell by cell, unless it is to answer as a whole. Its budget began with the command, and
    stands still while another run is waited for.
    """
    plan, launch_ = prepared.plan, launch or world.MACHINE.launch
    bound_s = _bound_of(plan, gate=answered is not None)
    before_s = time.monotonic() - sink.began if sink.began else 0.0
    pool = WorkerPool(plan, launch_)  # cells share its processes, where these know nothing of labels

    def visit(plan: Plan, sink: NullSink, on_found: Finder) -> ShownReport:
        spent_s = whole.elapsed_s if plan is prepared.plan else 0.0  # of the budget of a cell nothing is
        return visited(
            plan,
            prepared,
            sink,
            on_found,
            launch=launch_,
            answered=answered,
            weights=weights,
            pool=pool if plan.arms == (OWN,) else None,
            spent_s=spent_s,
            bound_s=bound_s - whole.elapsed_s + spent_s,
        )

    timed = "latency" in plan.metrics  # bytes are the same beside anyone
    with closing(pool), machine_lock(sink.waits, sink.tell) if timed else nullcontext("") as beside:
        whole = Schedule(time.monotonic, plan.protocol, spent_s=before_s, bound_s=bound_s)
        before = sink.before()  # what another run has left that was waited for
        if before or (answered is None and plan.is_sweep):
            found = Sweep(prepared, sink, visit, before, whole).measure()
        else:
            found = visit(plan, sink, lambda _: None)
    return ended(found, plan, beside)


def visited(plan: Plan, prepared: Prepared, sink: NullSink, on_found: Finder, **how: Any) -> ShownReport:
    """One run of a plan, or of a cell of it. What it finds is told and kept as it comes; `how` is what `run` takes."""
    costs = prepared.costs_of(plan)
    told = telling(new_report(plan, costs), sink, on_found)
    with sink.progress() as listener:
        done = run(plan, on_progress=listener, on_found=told, costs=costs, **how)
    return replace(new_report(done.plan, prepared.costs_of(done.plan)), **raw_of(done))


def telling(start: ShownReport, sink: NullSink, on_found: Finder) -> Finder:
    """Begin the journal of a run, and give what is told of all that it finds."""
    keep = sink.journal(start)

    def told(found: Any) -> None:
        on_found(found)
        keep(found)

    return told


def ended(found: ShownReport, plan: Plan, beside: str) -> ShownReport:
    """What a plan was measured to be, with its figures; `beside` is what is to be said of another run."""
    timed = "latency" in plan.metrics
    if timed and found.limit == "budget" and not (found.interrupted or table_of(found).whole_workers):
        found = replace(found, stopped=f"the budget of {plan.protocol.budget_s:g} s was over before all was measured")
    seen = (Note(text=beside, kind=NoteKind.SEEN),) if beside else ()
    return with_figures(replace(found, warnings=(*seen, *found.warnings)))


def _bound_of(plan: Plan, *, gate: bool) -> float:
    """The budget that was typed, or is that of a gate, in seconds; else infinite: what nobody typed gives way to the
    least that can answer.
    """
    bound = gate or (plan.protocol.bound and plan.protocol.precision is not None)
    return (plan.protocol.budget_s if bound else None) or math.inf
