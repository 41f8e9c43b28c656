"""Measures what was prepared, and gives a report: each run of the plan, each of its
cells, one worker after another.

Runs, cells and the jobs of a cluster are parts: what was measured before an
interruption is kept, and all are joined to one report.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ffnbench.api.preparing import Prepared, new_report, refuse_at_once
from ffnbench.common.errors import FfnbenchError, termination_as_interruption
from ffnbench.common.units import counted
from ffnbench.plan.plan import THIS_INTERPRETER, Note, NoteKind, Plan
from ffnbench.plan.protocol import LEAST_BUDGET_S
from ffnbench.record.messages import DeviceFacts, Greeting
from ffnbench.record.progress import SILENT, Progress
from ffnbench.record.result import Environment, Report, Run, Step, raw_of
from ffnbench.report.progress import wait_text
from ffnbench.report.shown_report import ShownReport
from ffnbench.run.budget import Budget
from ffnbench.run.runner import run_workers
from ffnbench.run.starters import Starters
from ffnbench.run.world import World, output_lock
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
    from ffnbench.report.files.run_file import RunFile

WITHOUT_CLEAN = "a row had no undisturbed round"
CUT_SHORT = "interrupted:"  # how the note on runs begins that are fewer than asked for
Keep = Callable[[Callable[[], ShownReport]], None]  # is given what makes a report
Parts = Generator[ShownReport, None, None]

NOT_RESUMED_HINT = "give -o another file, or leave --resume out"


def keep_nothing(report_of: Callable[[], ShownReport]) -> None:
    """Where no file is written before the end."""


def no_run() -> Report | None:
    """Where no run is gone on with."""
    return None


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
    weights_folder: str = "",
) -> ShownReport:
    """Measure what was prepared, as often as its protocol says. What is measured so far
    is kept in the file. `stop` and `weights_folder` are those of measure_run.

    Raises FfnbenchError where this machine has not the device or the memory for it, or
    where the budget is too short for any answer.
    """
    plan = prepared.plan
    refuse_at_once(plan, world)
    refuse_short(plan, as_one=stop is not None)
    runs = plan.protocol.runs
    budget_s = None
    if plan.protocol.precision is not None and plan.protocol.budget_s is not None:
        budget_s = runs * plan.protocol.budget_s + (runs - 1) * world.pause_s
    tell_duration(plan, world, progress, budget_s)
    keep: Keep = keep_nothing
    earlier: Callable[[], Report | None] = no_run
    locked: AbstractContextManager[None] = nullcontext()
    if file is not None:
        keep, earlier = file.keep, file.earlier
        if file.resumes:
            locked = output_lock(file.path)
    with locked:
        if runs > 1:
            return measure_runs(prepared, world, progress, keep, earlier())
        return measure_run(
            prepared,
            world,
            progress,
            keep=keep,
            earlier=earlier,
            stop=stop,
            weights_folder=weights_folder,
        )


def refuse_short(plan: Plan, *, as_one: bool = False) -> None:
    """Raise FfnbenchError for a budget that is too short on every machine: warm-up and
    samples have a least length, and so has a cell, unless all are measured `as_one`.
    """
    protocol = plan.protocol
    cells = len(plan.groups) if plan.is_sweep and not as_one else 1
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
    plan: Plan, world: World, progress: Progress, budget_s: float | None = None
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


def measure_runs(
    prepared: Prepared,
    world: World,
    progress: Progress = SILENT,
    keep: Keep = keep_nothing,
    before: Report | None = None,
) -> ShownReport:
    """Make as many runs as the protocol asks for, those of the file `before` among
    them; gives one report of all.

    A run does not count where a row has no clean round or every row failed. It is made
    up for, at most half as many times as runs were asked for, unless the first one
    failed. The first run stands in the report until another one counts. A later one
    that is interrupted is not kept.
    """
    protocol = prepared.plan.protocol
    runs, most = protocol.runs, protocol.runs + (protocol.runs + 1) // 2
    complete, begun = _runs_of_file(before, prepared.plan)
    tries = [*complete]
    if before is not None and before.environment is not None:
        world = _same_machine(world, before.environment)

    def measured() -> Parts:
        why = ""  # the last run does not count
        while len(complete) < runs and len(tries) < most:
            number, what = len(complete) + 1, "run"
            if why:
                again = f"{len(tries) + 1} of {most}"
                how = "was busy" if why == WITHOUT_CLEAN else "failed"
                progress.tell(f"run {number} {how}: again ({again})")
                what = f"try {again}, run"
            of_run = progress.part(number, runs, what)
            if tries:
                _pause(world.pause_s, of_run, keep_complete)
            run = measure_run(
                prepared,
                world.from_now,
                of_run,
                keep=keep_with_others,
                earlier=lambda: begun.pop() if begun else None,
            )
            why = _why_not_counted(run)
            if not why:
                complete.append(run)
            yield run
            if tries[0].failed_wholly:
                return

    def keep_complete() -> None:
        if complete:
            keep(lambda: replace(_as_repeats(complete), cut_short=True))

    def keep_with_others(run_of: Callable[[], ShownReport]) -> None:
        keep(
            lambda: replace(
                _as_repeats([*complete, run_of()]), cut_short=bool(complete)
            )
        )

    interrupted = gather(measured(), tries)
    last = tries[-1]
    if len(tries) == 1 and (last.interrupted or last.stopped or last.failed_wholly):
        return last
    report = _as_repeats(complete or tries[:1])
    if len(complete) > 1:
        report = with_figures(report)
    number = len(complete)
    if interrupted or last.stopped:
        text = f"{CUT_SHORT} {number} of {runs} runs are complete, and kept"
        if not complete:
            text = f"{CUT_SHORT} none of {runs} runs is complete; the first is kept, in which {WITHOUT_CLEAN}"
        return replace(_with_note(report, text), cut_short=True)
    if number == runs:
        return report
    reasons = dict.fromkeys(filter(None, map(_why_not_counted, tries)))
    why = ", or ".join(reasons)
    text = f"{number} of {runs} runs could be kept: in the others {why}"
    if not complete:
        text = f"none of {runs} runs is complete, and the first is kept: in each {why}"
    return _with_note(report, text)


def _runs_of_file(
    before: Report | None, plan: Plan
) -> tuple[list[ShownReport], list[Report]]:
    """The runs of a file that count; and the one that was interrupted, if there is
    one.

    Raises FfnbenchError where they are of another plan.
    """
    complete: list[ShownReport] = []
    begun: list[Report] = []
    if before is None:
        return complete, begun
    from ffnbench.api.saved_runs import as_shown

    notes = [n for n in before.warnings if not n.text.startswith(CUT_SHORT)]
    first, *later = before.runs
    for run in (replace(first, warnings=tuple(notes)), *later):
        _refuse_other_plan(run, plan)
        shown = as_shown(with_figures(run))
        if not _why_not_counted(shown):
            complete.append(shown)
        elif run.interrupted:
            begun = [run]
    return complete, begun


def _refuse_other_plan(before: Report, plan: Plan) -> None:
    """Raise FfnbenchError where a run of a file was measured for another plan."""
    if not is_part(before, plan):
        raise FfnbenchError(
            "--resume: the file was measured for another plan", NOT_RESUMED_HINT
        )


def _as_repeats(runs: Sequence[ShownReport]) -> ShownReport:
    """The first run, with the others as its repeats."""
    report, *later = runs
    for run in later:
        report = report.with_repeat(run)
    return report


def _why_not_counted(report: ShownReport) -> str:
    """Why a run does not count as one of those that were asked for; "" where it
    does.
    """
    if report.interrupted or report.stopped:
        return "it did not end by itself"
    if report.failed_wholly:
        return "every row failed"
    if labels_without_clean(rounds_of(report)):
        return WITHOUT_CLEAN
    return ""


def _with_note(report: ShownReport, text: str) -> ShownReport:
    """The report with a note that is about all of its rows."""
    return replace(
        report, warnings=(*report.warnings, Note(text=text, kind=NoteKind.GENERAL))
    )


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
    earlier: Callable[[], Report | None] = no_run,
    stop: StopRule | None = None,
    weights_folder: str = "",
) -> ShownReport:
    """Make one run of a prepared plan; gives its report, with figures.

    A plan of several cells is measured cell by cell. Where a `stop` rule is given,
    which decides about all of them, it is measured as one. The budget began with the
    command, and stands still while another run is waited for. `keep` is given what is
    measured so far, and `earlier` reads the run that is gone on with. `weights_folder`
    has tensors that every case takes over: those of the base of an `ab`.
    """
    plan = prepared.plan
    if plan.layer is not None:
        from ffnbench.models.published import read_layer_weights

        read_layer_weights(plan.model, plan.layer)
    bound_s = _bound_of(plan, always=stop is not None)
    spent_s = world.spent_s
    locked: AbstractContextManager[None] = nullcontext()
    if "latency" in plan.metrics:  # bytes are the same beside anyone
        locked = world.lock(progress.tell)
    with (
        closing(Starters(plan, world.launch, world.now)) as pool,
        locked,
    ):
        budget = Budget(world.now, plan.protocol, spent_s=spent_s, bound_s=bound_s)
        cells = CellsOfRun(
            prepared=prepared,
            progress=progress,
            keep=keep,
            # read under the lock: the run that was waited for may have written it
            before=earlier(),
            world=world,
            budget=budget,
            pool=pool,
            stop=stop,
            weights_folder=weights_folder,
        )
        report = cells.measure()
    return finished_report(report, plan)


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
        """The cells that are not measured yet; takes over what was measured before.

        Raises FfnbenchError where that was another plan.
        """
        plan, before = self.prepared.plan, self.before
        if before is not None:
            _refuse_other_plan(before, plan)
            from ffnbench.api.saved_runs import as_shown

            complete = complete_cells(before, self.plans)
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
        costs = {cost.case: cost for cost in self.prepared.costs}
        costs |= {cost.case: cost for cost in report.costs}
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
    weights_folder: str = ""

    def measure(self) -> ShownReport:
        """Measure every cell that is not known yet; then the undecided ones once more,
        as long as time is left. Gives the report of all, without figures.
        """
        plan, before = self.prepared.plan, self.before
        if before is None and (self.stop is not None or not plan.is_sweep):
            return self.measure_cell(plan, self.progress, self.keep)
        if before is not None and before.environment is not None:
            self.world = _same_machine(self.world, before.environment)
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
        protocol = self.prepared.plan.protocol
        budget_s = protocol.budget_s
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
            yield self.measure_cell(cell, of_cell, self._keep_with_others)

    def _keep_with_others(self, cell_of: Callable[[], ShownReport]) -> None:
        """Keep what is measured of a cell, with the cells before it."""
        self.keep(lambda: self.joined(cell_of()))

    def measure_cell(self, cell: Plan, progress: Progress, keep: Keep) -> ShownReport:
        """Measure one cell; gives its report, without figures.

        The cell's own budget begins now, unless it is the whole plan.
        """

        def report_of(run: Run) -> ShownReport:
            report = new_report(run.plan, self.prepared.costs_of(run.plan))
            return replace(report, **raw_of(run))

        spent_s = 0.0
        if cell is self.prepared.plan:
            spent_s = self.budget.elapsed_s
        run = run_workers(
            cell,
            self.world,
            progress=progress.show,
            keep=lambda run_of: keep(lambda: report_of(run_of())),
            stop=self.stop,
            weights=self.weights_folder,
            # with other arms each cell needs workers of its own: they know only its
            # labels
            pool=self.pool if cell.arms == (THIS_INTERPRETER,) else None,
            spent_s=spent_s,
            # the bound of the whole run, counted from where the cell's budget began
            bound_s=self.budget.bound_s - self.budget.elapsed_s + spent_s,
        )
        return report_of(run)


def _same_machine(world: World, before: Environment) -> World:
    """This world, in which another machine than that of the file raises FfnbenchError
    before anything is measured.
    """

    def describe(greeting: Greeting, gpu: DeviceFacts | None) -> Environment:
        here = world.describe(greeting, gpu)
        if here.fingerprint != before.fingerprint:
            raise FfnbenchError(
                f"--resume: the file was measured on another machine ({before.cpu}, torch {before.torch})",
                NOT_RESUMED_HINT,
            )
        return here

    return replace(world, describe=describe)


def finished_report(report: ShownReport, plan: Plan) -> ShownReport:
    """The report with its figures, and that the budget stopped it where it did."""
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
