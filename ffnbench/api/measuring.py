"""What was prepared -> a report: one run, or several with a pause between them."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import replace
from typing import Any

from ffnbench.api.preparing import Prepared, new_report, refuse_at_once
from ffnbench.common.errors import FfnbenchError, termination_as_interruption
from ffnbench.common.units import counted
from ffnbench.following import UNFOLLOWED, Following, ProgressListener
from ffnbench.plan import OWN, Note, NoteKind, Plan
from ffnbench.planning.effort import LEAST_BUDGET_S
from ffnbench.report.output import Destination
from ffnbench.report.progress import wait_text
from ffnbench.report.shown_report import ShownReport
from ffnbench.result import Progress, raw_of
from ffnbench.run.runner import run
from ffnbench.run.schedule import Schedule
from ffnbench.run.worker_pool import WorkerPool
from ffnbench.run.world import World
from ffnbench.stats.cells import cells_of
from ffnbench.stats.figures import with_figures
from ffnbench.stats.rounds import table_of
from ffnbench.stats.stopping import StopRule

Measure = Callable[[Prepared, World, Following], ShownReport]
Elsewhere = Callable[[Prepared, World, Destination, Measure], ShownReport]


def measure(prepared: Prepared, world: World, following: Following = UNFOLLOWED) -> ShownReport:
    """Measure what was prepared; raises FfnbenchError where memory does not hold it, or it could tell nothing."""
    plan = prepared.plan
    refuse_at_once(plan, world)
    refuse_short(plan)
    runs, pause_s = plan.protocol.runs, plan.protocol.pause_s
    budget_s = None
    if plan.protocol.precision is not None and plan.protocol.budget_s is not None:
        budget_s = runs * plan.protocol.budget_s + (runs - 1) * pause_s
    tell_wait(plan, world, following.progress, budget_s)
    if runs == 1:
        return measured_once(prepared, world, following)
    if following.resumed():
        raise FfnbenchError("--runs is of a whole plan, and --resume goes on with a part", "leave one of the two out")
    return _several(prepared, world, following, runs, pause_s)


def refuse_short(plan: Plan) -> None:
    """Raise FfnbenchError for a budget that its cells can't keep to, on whatever machine: warm-up and samples have a
    least length.
    """
    protocol, cells = plan.protocol, len(cells_of(plan))
    a_case_s = protocol.warmup_s + protocol.workers * (protocol.rounds + 1) * protocol.min_sample_s
    least_s = math.ceil(max(cells * LEAST_BUDGET_S, len(plan.cases) * a_case_s))
    adaptive = protocol.precision is not None
    if adaptive and protocol.budget_s is not None and protocol.budget_s < least_s:
        what = f"{counted(len(plan.cases), 'row')} in {counted(cells, 'group')}"
        raise FfnbenchError(f"{what} take {least_s:,} s at least", f"--budget {least_s}s")


def measure_here_or_elsewhere(
    prepared: Prepared,
    world: World,
    destination: Destination,
    elsewhere: Elsewhere | None,
    own: Measure | None = None,
) -> ShownReport:
    """Measure what was prepared in this process, or by `elsewhere`, which has each group measured by another one.

    `own` is how a feature measures a plan, or one group of it, in place of `measure`.
    """
    if elsewhere is not None:
        return elsewhere(prepared, world, destination, own or measured_once)
    return (own or measure)(prepared, world, destination.following)


def tell_wait(plan: Plan, world: World, progress: ProgressListener, budget_s: float | None = None) -> None:
    """One line before anything is measured: how long it takes at most where a budget says so, and that this machine is
    busy now.
    """
    if progress.tells and "latency" in plan.metrics:
        others = world.others(max(case.workload.threads for case in plan.cases))
        text = wait_text(budget_s, groups=len(plan.groups), others=others, cpus=os.cpu_count() or 1)
        if text:
            progress.tell(text)


def _several(prepared: Prepared, world: World, following: Following, runs: int, pause_s: float) -> ShownReport:
    """So many runs apart in one report. One that is lost, without clean rounds or any row, is made up for, at most half
    as many times as runs were asked for. One that is interrupted is not kept.
    """
    report = measured_once(prepared, world.from_now, following.part(1, runs, "run"))
    if report.interrupted or report.stopped or report.failed_wholly:
        return report
    kept = 0 if table_of(report).labels_without_clean() else 1
    for _ in range(runs - 1 + (runs + 1) // 2):
        if kept == runs:
            return report
        of_run = following.part(kept + 1, runs, "run")
        try:
            with termination_as_interruption():
                _pause(pause_s, of_run.progress)
            again = measured_once(prepared, world.from_now, of_run)
        except KeyboardInterrupt:
            return _cut_short(report, runs)
        if again.interrupted or again.stopped:
            return _cut_short(report, runs)
        if not again.failed_wholly and not table_of(again).labels_without_clean():
            report = with_figures(report.with_repeat(again)) if kept else again
            kept += 1
    if kept == runs:
        return report
    return _noted(
        report, f"{len(report.runs)} of {runs} runs could be kept: in the others a row had no undisturbed round"
    )


def _cut_short(report: ShownReport, runs: int) -> ShownReport:
    text = f"interrupted: {len(report.runs)} of {runs} runs are complete, and kept"
    return replace(_noted(report, text), cut_short=True)


def _noted(report: ShownReport, text: str) -> ShownReport:
    """The report with a note of its whole."""
    return replace(report, warnings=(*report.warnings, Note(text=text, kind=NoteKind.GENERAL)))


def _pause(seconds: float, progress: ProgressListener) -> None:
    """Wait, and say for how long."""
    end = time.monotonic() + seconds
    while (left_s := end - time.monotonic()) > 0:
        progress(Progress(done=0.0, text="waiting for the next run", eta_s=left_s))
        time.sleep(min(1.0, left_s))


def measured_once(
    prepared: Prepared,
    world: World,
    following: Following = UNFOLLOWED,
    stop: StopRule | None = None,
    weights: str = "",
) -> ShownReport:
    """One run of a prepared plan, with its figures; `weights` is a folder with those of a base.

    A plan of several cells is measured cell by cell, unless a `stop` is given, which is asked of the whole. The budget
    began with the command, and stands still while another run is waited for.
    """
    plan = prepared.plan
    bound_s = _bound_of(plan, gate=stop is not None)
    spent_before_s = world.spent_s
    pool = WorkerPool(plan, world.launch, world.now)  # cells share its processes, where these know nothing of labels

    def visit(cell: Plan, of_cell: Following) -> ShownReport:
        spent_s = budget.elapsed_s if cell is plan else 0.0  # of the budget of a cell nothing is
        return measure_cell(
            cell,
            prepared,
            world,
            of_cell,
            stop=stop,
            weights=weights,
            pool=pool if cell.arms == (OWN,) else None,
            spent_s=spent_s,
            bound_s=bound_s - budget.elapsed_s + spent_s,
        )

    timed = "latency" in plan.metrics  # bytes are the same beside anyone
    with closing(pool), world.lock(following.progress.tell) if timed else nullcontext("") as beside:
        budget = Schedule(world.now, plan.protocol, spent_s=spent_before_s, bound_s=bound_s)
        before = following.resumed()  # what another run has left that was waited for
        if before or (stop is None and plan.is_sweep):
            from ffnbench.api.sweeping import Sweep

            report = Sweep(prepared, world, following, visit, before, budget).measure()
        else:
            report = visit(plan, following)
    return ended(report, plan, beside)


def measure_cell(plan: Plan, prepared: Prepared, world: World, following: Following, **how: Any) -> ShownReport:
    """One run of a plan, or of a cell of it. What it finds is kept as it comes; `how` is what `run` takes."""
    costs = prepared.costs_of(plan)
    following.journal(new_report(plan, costs))
    done = run(plan, world, progress=following.progress, journal=following.journal, costs=costs, **how)
    return replace(new_report(done.plan, prepared.costs_of(done.plan)), **raw_of(done))


def ended(report: ShownReport, plan: Plan, beside: str) -> ShownReport:
    """What a plan was measured to be, with its figures; `beside` is what is to be said of another run."""
    timed = "latency" in plan.metrics
    if timed and report.limit == "budget" and not (report.interrupted or table_of(report).complete_workers):
        report = replace(report, stopped=f"the budget of {plan.protocol.budget_s:g} s was over before all was measured")
    seen = (Note(text=beside, kind=NoteKind.SEEN),) if beside else ()
    return with_figures(replace(report, warnings=(*seen, *report.warnings)))


def _bound_of(plan: Plan, *, gate: bool) -> float:
    """The budget that was typed, or is that of a gate, in seconds; else infinite: what nobody typed gives way to the
    least that can answer.
    """
    bound = gate or (plan.protocol.bound and plan.protocol.precision is not None)
    return (plan.protocol.budget_s if bound else None) or math.inf
