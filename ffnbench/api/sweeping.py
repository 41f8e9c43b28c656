"""Measures a plan of several cells, and gives one report: each cell is a run of its
own, and those that are not decided have another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ffnbench.api.preparing import Prepared, new_report
from ffnbench.api.saved_runs import as_shown
from ffnbench.common.errors import FfnbenchError, termination_as_interruption
from ffnbench.following import Following
from ffnbench.plan import Plan
from ffnbench.planning.protocol import LEAST_BUDGET_S
from ffnbench.report.shown_report import ShownReport
from ffnbench.result import Environment, Report
from ffnbench.run.budget import Budget
from ffnbench.run.resources import too_large
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

MeasureCell = Callable[[Plan, Following], ShownReport]  # one run of a cell

NOT_RESUMED_HINT = "give -o another file, or leave --resume out"


@dataclass(slots=True, kw_only=True)
class MeasuredCells:
    """What is known of the cells of a plan so far: a report of each in `parts`.

    `before` is the report that --resume continues. `analyses` is how many interim
    analyses a cell may have: after each of them it may be decided.
    """

    prepared: Prepared
    following: Following
    before: Report | None
    parts: list[ShownReport] = field(default_factory=list)
    analyses: int = 1

    @property
    def report(self) -> ShownReport:
        """One report of all parts, without figures."""
        plan = self.prepared.plan
        report = join_runs(
            self.parts,
            replace(plan, protocol=replace(plan.protocol, looks=self.analyses)),
        )
        return replace(report, costs=self.prepared.costs_of(report.plan))

    def begin(self, cells: Sequence[Plan]) -> set[str]:
        """Begin the journal with what was measured before; gives the labels of its
        cases.

        Raises FfnbenchError where another plan was measured before.
        """
        plan, before = self.prepared.plan, self.before
        start = new_report(plan, self.prepared.costs)
        if before is not None:
            if not is_part(before, plan):
                raise FfnbenchError(
                    "--resume: the file was measured for another plan", NOT_RESUMED_HINT
                )
            complete = complete_cells(before, cells)
            if complete.plan.cases:
                start = as_shown(complete)
                self.parts.append(start)
        self.following.journal(start)
        return {case.label for part in self.parts for case in part.plan.cases}


@dataclass(slots=True, kw_only=True)
class Sweep(MeasuredCells):
    """Measures the cells of a plan one after another, by `measure_cell`. `budget` is
    that of all cells.
    """

    world: World
    measure_cell: MeasureCell
    budget: Budget

    def measure_cells(self) -> ShownReport:
        """Measure every cell that is not known yet; then the undecided ones once more,
        as long as time is left. Gives the report of all, without figures.
        """
        protocol = self.prepared.plan.protocol
        cells = cells_of_plan(self.prepared.plan)
        measured_before = self.begin(cells)
        missing = [cell for cell in cells if cell.reference not in measured_before]
        if protocol.precision is not None:
            self.analyses = ANALYSES if missing else 1
            if self.before:
                self.analyses = max(self.analyses, self.before.plan.protocol.looks)
        try:
            with termination_as_interruption():
                first_visit_s = (
                    FIRST_VISITS_SHARE * (protocol.budget_s or 0.0) / len(cells)
                )
                all_visited = self._visit_cells(self._that_fit(missing), first_visit_s)
                if all_visited and protocol.budget_s is not None:
                    self._measure_undecided(
                        cells, protocol.budget_s, more_analyses=0 if missing else 1
                    )
        except KeyboardInterrupt:
            if not self.parts:
                raise
            self.parts[-1] = replace(self.parts[-1], interrupted=True)
        return self.report

    def _visit_cells(self, cells: Sequence[Plan], seconds: float) -> bool:
        """Measure these cells one after another, each for so many seconds, or for its
        share of what is left; gives whether all of them were measured.
        """
        for number, cell in enumerate(cells, start=1):
            later_s = 0.0
            if cell.protocol.budget_s is not None:
                if self.budget.is_past_bound:
                    return False
                left_s = self.budget.left_s
                share_s = left_s / (len(cells) - number + 1)
                budget_s = max(1.0, min(max(LEAST_BUDGET_S, seconds), share_s))
                later_s = max(0.0, left_s - budget_s)
                cell = replace(cell, protocol=replace(cell.protocol, budget_s=budget_s))
            of_cell = self.following.part(number, len(cells), "group", later_s)
            report = self.measure_cell(cell, replace(of_cell, journal=self._keep))
            self.parts.append(report)
            if self.ends(report, cell):
                return False
            if not report.stopped:
                self.following.journal(report)
        return True

    def ends(self, report: ShownReport, cell: Plan) -> bool:
        """Whether the sweep ends with this cell, which has this report."""
        return report.interrupted or bool(report.stopped)

    def _that_fit(self, cells: Sequence[Plan]) -> list[Plan]:
        """The cells without the rows for which memory is too small. Those rows fail
        now, before anything is measured; the memory of a GPU is not known yet.
        """
        on_cpu = self.world.no_gpu() != ""
        fitting = []
        for cell in cells:
            failures = too_large(
                cell.with_device("cpu") if on_cpu else cell, self.world.memory()
            )
            if failures:
                report = replace(
                    new_report(cell, self.prepared.costs_of(cell)),
                    failures=tuple(failures),
                )
                self.parts.append(report)
                self.following.journal(report)
            failed = {failure.case for failure in failures}
            cases = tuple(case for case in cell.cases if case.label not in failed)
            if cases:
                fitting.append(replace(cell, cases=cases))
        return fitting

    def _measure_undecided(
        self, cells: Sequence[Plan], budget_s: float, *, more_analyses: int
    ) -> None:
        """Measure the cells that are not decided once more, in the time that is left.
        That may decide them, by so many further analyses.
        """
        spent_s = sum(part.wall_s or 0.0 for part in self.parts)
        left_s = max(0.0, min(self.budget.left_s, budget_s - spent_s))
        most_cells = int(left_s / LEAST_BUDGET_S)
        unclear = undecided(with_figures(self.report), cells)[:most_cells]
        if unclear:
            self.analyses += more_analyses
            self._visit_cells(unclear, left_s / len(unclear))

    def _keep(self, entry: object) -> None:
        """Give the journal a result of a cell. Raises FfnbenchError on another machine
        than that of the file.
        """
        before = self.before.environment if self.before else None
        if (
            before is not None
            and isinstance(entry, Environment)
            and entry.fingerprint != before.fingerprint
        ):
            raise FfnbenchError(
                f"--resume: the file was measured on another machine ({before.cpu}, torch {before.torch})",
                NOT_RESUMED_HINT,
            )
        self.following.journal(entry)
