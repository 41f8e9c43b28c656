"""Measures what was prepared, and gives a report: each run of the plan, each of its
cells, one worker after another.

Runs, cells and the jobs of a cluster are parts: what was measured before an
interruption is kept, and all are joined to one report.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ffnbench.api.preparing import Prepared, new_report, refuse_at_once
from ffnbench.common.errors import FfnbenchError, termination_as_interruption
from ffnbench.common.units import IEC, counted, quantity
from ffnbench.device.environment import usable_memory
from ffnbench.plan.plan import THIS_INTERPRETER, Plan
from ffnbench.plan.protocol import LEAST_BUDGET_S
from ffnbench.record.messages import DeviceFacts, Greeting
from ffnbench.record.progress import SILENT, Progress
from ffnbench.record.result import Environment, Report, Run, Step, fields_of
from ffnbench.report.progress import duration
from ffnbench.report.shown_report import ShownReport
from ffnbench.run.budget import Budget
from ffnbench.run.resources import memory_needed, with_fitting_layers
from ffnbench.run.runner import run_workers
from ffnbench.run.starters import Starters
from ffnbench.run.world import World
from ffnbench.stats.cells import (
    ANALYSES,
    FIRST_VISITS_SHARE,
    cells_of_plan,
    complete_cells,
    is_part,
    join_runs,
    undecided,
)
from ffnbench.stats.figures import with_figures
from ffnbench.stats.rounds import complete_workers, labels_without_clean, rounds_of
from ffnbench.stats.stopping import StopRule

if TYPE_CHECKING:
    from ffnbench.report.files import RunFile

NOT_RESUMED_HINT = "give -o another file, or leave --resume out"
Keep = Callable[[Callable[[], ShownReport]], None]  # is given what makes a report
Parts = Generator[ShownReport, None, None]


def keep_nothing(report_of: Callable[[], ShownReport]) -> None:
    """Where no file is written before the end."""


def gather(reports: Parts, parts: list[ShownReport]) -> bool:
    """Have these parts measured, and append their reports to `parts`, until one of them
    did not end by itself. Gives whether there was an interruption.

    Raises KeyboardInterrupt where nothing is measured yet.
    """
    try:
        with termination_as_interruption(), closing(reports):
            for report in reports:
                parts.append(report)
                if report.interrupted or report.stopped:
                    return report.interrupted
    except KeyboardInterrupt:
        if not parts:
            raise
        return True
    return False


def measure_plan(
    prepared: Prepared,
    world: World,
    progress: Progress = SILENT,
    file: RunFile | None = None,
    *,
    stop: StopRule | None = None,
) -> ShownReport:
    """Measure what was prepared, as often as its protocol says. What is measured so far
    is kept in the file. `stop` is that of measure_run.

    Raises FfnbenchError where this machine has not the device or the memory for it, or
    where the budget is too short for any answer.
    """
    plan = prepared.plan
    refuse_at_once(plan, world)
    refuse_short(plan, as_one=stop is not None)
    tell_expense(plan, world, progress)
    # the budget stands still while another run is waited for
    spent_s = world.spent_s
    locked: AbstractContextManager[None] = nullcontext()
    if "latency" in plan.metrics:  # bytes are the same beside anyone
        locked = world.lock(progress.tell)
    with locked:
        # read under the lock: the run that was waited for may have written it
        before = None if file is None else file.earlier()
        keep = keep_nothing if file is None else file.keep
        if before is not None:
            refuse_other_plan(before, plan)
            world = on_same_machine(world, before)
        began = world.now() - spent_s
        if plan.protocol.runs > 1:
            return measure_runs(prepared, world, progress, keep, before, began)
        return measure_run(
            prepared,
            world,
            progress,
            keep=keep,
            before=before,
            stop=stop,
            began=began,
        )


def refuse_short(plan: Plan, *, as_one: bool = False) -> None:
    """Raise FfnbenchError for a budget that is too short on every machine: warm-up and
    samples have a least length, and so has a cell, unless all are measured `as_one`.
    """
    protocol = plan.protocol
    if protocol.precision is None or protocol.budget_s is None:
        return
    cells = len(plan.groups) if plan.is_sweep and not as_one else 1
    least_case_s = (
        protocol.warmup_s
        + protocol.workers * (protocol.rounds + 1) * protocol.min_sample_s
    )
    least_s = max(cells * LEAST_BUDGET_S, len(plan.cases) * least_case_s)
    if protocol.budget_s < least_s:
        what = f"{counted(len(plan.cases), 'row')} in {counted(cells, 'group')}"
        whole_s = math.ceil(least_s)
        raise FfnbenchError(
            f"measuring {what} takes {whole_s:,} s at least", f"--budget {whole_s}s"
        )


def tell_expense(plan: Plan, world: World, progress: Progress) -> None:
    """Tell, before anything is measured, the memory that stacks take, and how long it
    takes, where that is known: at most the budget that the user gave, or about the
    default one, which gives way to the fewest workers.
    """
    protocol = plan.protocol
    if not progress.tells or "latency" not in plan.metrics:
        return
    if plan.layers is not None:
        cells = cells_of_plan(plan.with_device("cpu"))
        largest = max(cells, key=lambda cell: memory_needed(cell.cases))
        available = usable_memory() if world.no_gpu() else None
        cell, notes = with_fitting_layers(largest, available)
        blocks = counted(cell.layers or 0, "block")
        size = f"stacks of {blocks} take {quantity(memory_needed(cell.cases), IEC)} of memory"
        progress.tell("; ".join([*notes, size]))
    if protocol.precision is None or protocol.budget_s is None:
        return
    groups = len(plan.groups)
    what = f"measuring {groups:,} groups" if groups > 1 else "measuring"
    all_s = protocol.runs * (protocol.budget_s + world.pause_s) - world.pause_s
    limit = "at most" if protocol.bound else "about"
    progress.tell(f"{what} takes {limit} {duration(all_s)}")


def refuse_other_plan(before: Report, plan: Plan) -> None:
    """Raise FfnbenchError where a run of a file was measured for another plan."""
    for run in before.runs:
        if not is_part(run, plan):
            raise FfnbenchError(
                "--resume: the file was measured for another plan", NOT_RESUMED_HINT
            )


def on_same_machine(world: World, before: Report) -> World:
    """This world, in which another machine than that of the file raises FfnbenchError
    before anything is measured.
    """
    measured_on = before.environment
    if measured_on is None:
        return world

    def describe(greeting: Greeting, gpu: DeviceFacts | None) -> Environment:
        here = world.describe(greeting, gpu)
        if here.fingerprint != measured_on.fingerprint:
            raise FfnbenchError(
                f"--resume: the file was measured on another machine ({measured_on.cpu}, torch {measured_on.torch})",
                NOT_RESUMED_HINT,
            )
        return here

    return replace(world, describe=describe)


def measure_runs(
    prepared: Prepared,
    world: World,
    progress: Progress,
    keep: Keep,
    before: Report | None,
    began: float,
) -> ShownReport:
    """Make as many runs as the protocol asks for, those of the file `before` among
    them; gives one report of all.

    A run that did not end by itself, or in which every row failed or one has no clean
    round, is not kept, unless it is the only one: --resume makes up for it.
    """
    from ffnbench.api.saved_runs import as_shown

    asked = prepared.plan.protocol.runs
    whole = [as_shown(run) for run in before.runs if _counts(run)] if before else []
    begun = [run for run in before.runs if run.interrupted] if before else []
    tries = [*whole]

    def report_of(*now: ShownReport, cut_short: bool = False) -> ShownReport:
        """The first run, with the others as its repeats."""
        first, *later = *whole, *now
        for run in later:
            first = first.with_repeat(run)
        return replace(first, cut_short=cut_short)

    def keep_with(*runs_of: Callable[[], ShownReport]) -> None:
        keep(
            lambda: report_of(*(run_of() for run_of in runs_of), cut_short=bool(whole))
        )

    def measured() -> Parts:
        for number in range(len(whole) + 1, asked + 1):
            of_run = progress.part(number, asked, "run")
            if tries:
                _pause(world.pause_s, of_run, keep_with if whole else lambda: None)
            run = measure_run(
                prepared,
                world,
                of_run,
                keep=keep_with,
                before=begun.pop() if begun else None,
                began=world.now() if tries else began,
            )
            if _counts(run):
                whole.append(run)
            yield run
            if run.failed_wholly:
                return

    interrupted = gather(measured(), tries)
    if not whole:
        return replace(tries[0], cut_short=interrupted)
    ended = not (interrupted or tries[-1].stopped)
    return with_figures(report_of(cut_short=not ended))


def _counts(run: Report) -> bool:
    """Whether a run is one of those that were asked for."""
    ended = not (run.interrupted or run.stopped or run.failed_wholly)
    return ended and not labels_without_clean(rounds_of(run))


def _pause(seconds: float, progress: Progress, keep: Callable[[], None]) -> None:
    """Wait, and show for how long; `keep` writes what is complete."""
    end = time.monotonic() + seconds
    keep()
    while (left_s := end - time.monotonic()) > 0:
        progress.show(Step(done=0.0, text="waiting for the next run", eta_s=left_s))
        time.sleep(min(1.0, left_s))
        keep()


def measure_run(
    prepared: Prepared,
    world: World,
    progress: Progress = SILENT,
    *,
    keep: Keep = keep_nothing,
    before: Report | None = None,
    stop: StopRule | None = None,
    began: float | None = None,
) -> ShownReport:
    """Make one run of a prepared plan; gives its report, with figures.

    A plan of several cells is measured cell by cell. Where a `stop` rule is given,
    which decides about all of them, it is measured as one. `began` is when the
    budget began, None for now. `keep` is given what is measured so far, and `before` is
    the run that is gone on with.
    """
    plan, protocol = prepared.plan, prepared.plan.protocol
    if plan.layer is not None:
        from ffnbench.models.published import read_layer_weights

        read_layer_weights(plan.model, plan.layer)
    # a default budget may be exceeded by the fewest workers and rounds that give an
    # answer; one that was typed may not
    budget = Budget(world.now, protocol, world.now() if began is None else began)
    if stop is not None or (protocol.bound and protocol.precision is not None):
        budget.ends = budget.began + (protocol.budget_s or math.inf)
    with closing(Starters(plan, world.launch, world.now)) as pool:
        cells = CellsOfRun(
            prepared=prepared,
            progress=progress,
            keep=keep,
            before=before,
            world=world,
            budget=budget,
            pool=pool,
            stop=stop,
        )
        report = cells.measure()
    is_over = "latency" in plan.metrics and report.limit == "budget"
    if is_over and not (report.interrupted or complete_workers(report)):
        text = f"the budget of {protocol.budget_s:g} s was over before all was measured"
        report = replace(report, stopped=text)
    return with_figures(report)


@dataclass(slots=True, kw_only=True)
class Cells:
    """The cells of a plan, and a report in `parts` of each that is measured.

    `keep` is given everything as it comes. `before` is the report that --resume goes on
    with. `looks` is how many interim analyses a cell may have: after each of them it
    may be decided.
    """

    prepared: Prepared
    progress: Progress = SILENT
    keep: Keep = keep_nothing
    before: Report | None = None
    parts: list[ShownReport] = field(default_factory=list)
    looks: int = 1

    @property
    def plans(self) -> Sequence[Plan]:
        """A plan for each cell."""
        return cells_of_plan(self.prepared.plan)

    def missing(self) -> list[Plan]:
        """The cells that are not measured yet; takes over what was measured before."""
        if self.before is not None:
            from ffnbench.api.saved_runs import as_shown

            complete = complete_cells(self.before, self.plans)
            if complete.plan.cases:
                self.parts.append(as_shown(complete))
        known = {case.label for part in self.parts for case in part.plan.cases}
        return [cell for cell in self.plans if cell.reference not in known]

    def joined(self, *more: ShownReport) -> ShownReport:
        """One report of all parts and of `more`, without figures."""
        plan = self.prepared.plan
        protocol = replace(plan.protocol, looks=self.looks)
        parts = [*self.parts, *more]
        report = join_runs(parts, replace(plan, protocol=protocol))
        costs = {cost.case: cost for cost in (*self.prepared.costs, *report.costs)}
        cases = [case.label for case in report.plan.cases]
        return replace(report, costs=tuple(costs[label] for label in cases))

    def measured(self, reports: Parts) -> ShownReport:
        """Have these parts measured; gives the report of all, without figures."""
        interrupted = gather(reports, self.parts)
        report = self.joined()
        return replace(report, interrupted=interrupted or report.interrupted)


@dataclass(slots=True, kw_only=True)
class CellsOfRun(Cells):
    """The cells of a run, measured here one after another. They share its budget and
    its workers. The plan itself may be the only cell.
    """

    world: World
    budget: Budget
    pool: Starters | None = None
    stop: StopRule | None = None

    def measure(self) -> ShownReport:
        """Measure every cell that is not known yet; then the undecided ones once more,
        as long as time is left. Gives the report of all, without figures.
        """
        plan, before = self.prepared.plan, self.before
        if before is None and (self.stop is not None or not plan.is_sweep):
            return self.measure_cell(plan, self.progress, self.keep)
        missing = self.missing()
        if plan.protocol.precision is not None:
            self.looks = ANALYSES if missing else 1
            if before is not None:
                self.looks = max(self.looks, before.plan.protocol.looks)
        return self.measured(self._visits(missing))

    def _visits(self, missing: Sequence[Plan]) -> Parts:
        """Measure these cells, each for its share of the budget; then the cells that
        are not decided, in the time that is left. That may decide them.
        """
        budget_s = self.prepared.plan.protocol.budget_s
        if budget_s is None:
            yield from self._visit(missing, 0.0)
            return
        yield from self._visit(missing, FIRST_VISITS_SHARE * budget_s / len(self.plans))
        spent_s = sum(part.wall_s or 0.0 for part in self.parts)
        left_s = max(0.0, min(self.budget.left_s, budget_s - spent_s))
        most_cells = int(left_s / LEAST_BUDGET_S)
        if not most_cells:
            return
        unclear = undecided(with_figures(self.joined()), self.plans)[:most_cells]
        if unclear:
            self.looks += 0 if missing else 1
            yield from self._visit(unclear, left_s / len(unclear))

    def _visit(self, cells: Sequence[Plan], seconds: float) -> Parts:
        """Measure these cells one after another, each for so many seconds, or for its
        share of what is left.
        """
        for number, cell in enumerate(cells, start=1):
            later_s = 0.0
            if cell.protocol.budget_s is not None:
                if self.parts and self.budget.is_past_bound:
                    return
                left_s = self.budget.left_s
                share_s = left_s / (len(cells) - number + 1)
                budget_s = max(1.0, min(max(LEAST_BUDGET_S, seconds), share_s))
                later_s = max(0.0, left_s - budget_s)
                cell = replace(cell, protocol=replace(cell.protocol, budget_s=budget_s))
            of_cell = self.progress.part(number, len(cells), "group", later_s)
            yield self.measure_cell(
                cell, of_cell, lambda cell_of: self.keep(lambda: self.joined(cell_of()))
            )

    def measure_cell(self, cell: Plan, progress: Progress, keep: Keep) -> ShownReport:
        """Measure one cell; gives its report, without figures.

        The cell's own budget begins now, unless it is the whole plan.
        """

        def report_of(run: Run) -> ShownReport:
            report = new_report(run.plan, self.prepared.costs_of(run.plan))
            return replace(report, **fields_of(Run, run))

        budget = self.budget
        if cell is not self.prepared.plan:
            now = self.world.now
            budget = Budget(now, cell.protocol, began=now(), ends=budget.ends)
        run = run_workers(
            cell,
            self.world,
            progress=progress.show,
            keep=lambda run_of: keep(lambda: report_of(run_of())),
            stop=self.stop,
            # with other arms each cell needs workers of its own: they know only its
            # labels
            pool=self.pool if cell.arms == (THIS_INTERPRETER,) else None,
            budget=budget,
        )
        return report_of(run)
