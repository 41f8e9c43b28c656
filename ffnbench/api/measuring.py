"""Measures what was prepared, and gives a report: of one run, or of several runs of the
whole plan.
"""

from __future__ import annotations

import math
import os
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from ffnbench.api.preparing import Prepared, new_report, refuse_at_once
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.units import counted
from ffnbench.following import UNFOLLOWED, Following, ProgressListener
from ffnbench.plan import THIS_INTERPRETER, Note, NoteKind, Plan
from ffnbench.planning.protocol import LEAST_BUDGET_S
from ffnbench.report.progress import wait_text
from ffnbench.report.shown_report import ShownReport
from ffnbench.result import raw_of
from ffnbench.run.budget import Budget
from ffnbench.run.runner import run_workers
from ffnbench.run.starters import Starters
from ffnbench.run.world import World
from ffnbench.stats.figures import with_figures
from ffnbench.stats.rounds import complete_workers
from ffnbench.stats.stopping import StopRule


def measure_plan(
    prepared: Prepared, world: World, following: Following = UNFOLLOWED
) -> ShownReport:
    """Measure what was prepared, as often as its protocol says.

    Raises FfnbenchError where this machine has not the device or the memory for it, or
    where the budget is too short for any answer.
    """
    plan = prepared.plan
    refuse_at_once(plan, world)
    refuse_short(plan)
    runs, pause_s = plan.protocol.runs, plan.protocol.pause_s
    budget_s = None
    if plan.protocol.precision is not None and plan.protocol.budget_s is not None:
        budget_s = runs * plan.protocol.budget_s + (runs - 1) * pause_s
    tell_duration(plan, world, following.progress, budget_s)
    if runs == 1:
        return measure_run(prepared, world, following)
    if following.resumed():
        raise FfnbenchError(
            "--runs and --resume can't be given together",
            "leave one of the two out",
        )
    from ffnbench.api.several_runs import measure_several_runs

    return measure_several_runs(prepared, world, following, measure_run)


def refuse_short(plan: Plan) -> None:
    """Raise FfnbenchError for a budget that is too short on every machine: warm-up and
    samples have a least length.
    """
    protocol = plan.protocol
    cells = len(plan.groups) if plan.is_sweep else 1
    least_case_s = (
        protocol.warmup_s
        + protocol.workers * (protocol.rounds + 1) * protocol.min_sample_s
    )
    least_s = math.ceil(max(cells * LEAST_BUDGET_S, len(plan.cases) * least_case_s))
    is_adaptive = protocol.precision is not None
    if is_adaptive and protocol.budget_s is not None and protocol.budget_s < least_s:
        what = f"{counted(len(plan.cases), 'row')} in {counted(cells, 'group')}"
        raise FfnbenchError(
            f"measuring {what} takes {least_s:,} s at least", f"--budget {least_s}s"
        )


def tell_duration(
    plan: Plan, world: World, progress: ProgressListener, budget_s: float | None = None
) -> None:
    """Tell in one line, before anything is measured, how long it takes at most, where
    that is known, and whether others use this machine now.
    """
    if not progress.tells or "latency" not in plan.metrics:
        return
    others = world.others(max(case.workload.threads for case in plan.cases))
    text = wait_text(
        budget_s, groups=len(plan.groups), others=others, cpus=os.cpu_count() or 1
    )
    if text:
        progress.tell(text)


def measure_run(
    prepared: Prepared,
    world: World,
    following: Following = UNFOLLOWED,
    stop: StopRule | None = None,
    weights_folder: str = "",
) -> ShownReport:
    """Make one run of a prepared plan; gives its report, with figures.

    A plan of several cells is measured cell by cell. Where a `stop` rule is given,
    which decides about all of them, it is measured as one, unless a run is resumed. The
    budget began with the command, and stands still while another run is waited for.
    `weights_folder` has tensors that every case takes over: those of the base of an
    `ab`.
    """
    plan = prepared.plan
    if plan.layer is not None:
        from ffnbench.models.published import read_layer_weights

        read_layer_weights(plan.model, plan.layer)
    bound_s = _bound_of(plan, always=stop is not None)
    spent_s = world.spent_s
    locked: AbstractContextManager[str] = nullcontext("")
    if "latency" in plan.metrics:  # bytes are the same beside anyone
        locked = world.lock(following.progress.tell)
    with (
        closing(Starters(plan, world.launch, world.now)) as pool,
        locked as other_run,
    ):
        budget = Budget(world.now, plan.protocol, spent_s=spent_s, bound_s=bound_s)
        cells = CellsOfRun(
            prepared=prepared,
            world=world,
            budget=budget,
            pool=pool,
            stop=stop,
            weights_folder=weights_folder,
        )
        # read under the lock: the run that was waited for may have written it
        before = following.resumed()
        if before or (stop is None and plan.is_sweep):
            from ffnbench.api.sweeping import Sweep

            sweep = Sweep(
                prepared=prepared,
                following=following,
                before=before,
                world=world,
                measure_cell=cells.measure_one,
                budget=budget,
            )
            report = sweep.measure_cells()
        else:
            report = cells.measure_one(plan, following)
    return finished_report(report, plan, other_run)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellsOfRun:
    """What the cells of a run share: its budget and its workers. The plan itself may be
    the only cell.
    """

    prepared: Prepared
    world: World
    budget: Budget
    pool: Starters
    stop: StopRule | None
    weights_folder: str

    def measure_one(self, cell: Plan, following: Following) -> ShownReport:
        """Measure one cell; gives its report, without figures.

        The cell's own budget begins now, unless it is the whole plan.
        """
        spent_s = 0.0
        if cell is self.prepared.plan:
            spent_s = self.budget.elapsed_s
        pool = None
        # with other arms each cell needs workers of its own: they know only its labels
        if cell.arms == (THIS_INTERPRETER,):
            pool = self.pool
        # the bound of the whole run, counted from where the cell's budget began
        bound_s = self.budget.bound_s - self.budget.elapsed_s + spent_s
        return measure_cell(
            cell,
            self.prepared,
            self.world,
            following,
            stop=self.stop,
            weights=self.weights_folder,
            pool=pool,
            spent_s=spent_s,
            bound_s=bound_s,
        )


def measure_cell(
    plan: Plan, prepared: Prepared, world: World, following: Following, **how: Any
) -> ShownReport:
    """Measure a cell, or a plan that is one; gives its report, without figures.

    The journal is given every result as it comes. `how` are further arguments of
    `run_workers`.
    """
    following.journal(new_report(plan, prepared.costs_of(plan)))
    done = run_workers(
        plan,
        world,
        progress=following.progress,
        journal=following.journal,
        **how,
    )
    return replace(new_report(done.plan, prepared.costs_of(done.plan)), **raw_of(done))


def finished_report(report: ShownReport, plan: Plan, other_run: str) -> ShownReport:
    """The report with its figures, and with what stopped it where that was the budget.

    `other_run` says that another run measured at the same time; "" where none did.
    """
    is_timed = "latency" in plan.metrics
    if (
        is_timed
        and report.limit == "budget"
        and not (report.interrupted or complete_workers(report))
    ):
        report = replace(
            report,
            stopped=f"the budget of {plan.protocol.budget_s:g} s was over before all was measured",
        )
    if other_run:
        report = replace(
            report,
            warnings=(Note(text=other_run, kind=NoteKind.SEEN), *report.warnings),
        )
    return with_figures(report)


def _bound_of(plan: Plan, *, always: bool) -> float:
    """The seconds that a run may not exceed: its budget, if that was typed or it
    `always` binds. Else infinite: a default budget may be exceeded by the fewest
    workers and rounds that give an answer.
    """
    protocol = plan.protocol
    if always or (protocol.bound and protocol.precision is not None):
        return protocol.budget_s or math.inf
    return math.inf
