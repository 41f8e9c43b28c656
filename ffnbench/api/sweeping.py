"""A plan of several cells -> one report: each cell is a run of its own, and those that
are not decided have another.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ffnbench.api.preparing import Prepared, new_report
from ffnbench.api.saved_runs import as_shown
from ffnbench.common.errors import FfnbenchError, termination_as_interruption
from ffnbench.following import Following
from ffnbench.plan import Plan, Protocol
from ffnbench.planning.effort import LEAST_BUDGET_S
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

ANEW = "give -o another file, or leave --resume out"


@dataclass(slots=True)
class Sweep:
    """What is known of the cells of a plan so far. `before` is what --resume goes on
    with, `budget` that of all cells.

    `analyses` counts after how many looks at a cell it may be decided.
    """

    prepared: Prepared
    world: World
    following: Following
    measure_cell: MeasureCell | None
    before: Report | None
    budget: Budget = field(default_factory=lambda: Budget(time.monotonic, Protocol()))
    parts: list[ShownReport] = field(default_factory=list)
    analyses: int = 1

    def measure_cells(self) -> ShownReport:
        """Every cell that is not known yet; then the undecided ones once more, for as
        long as is left.
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
                was_complete = self._visit_cells(self._that_fit(missing), first_visit_s)
                if was_complete and protocol.budget_s is not None:
                    self._measure_undecided(
                        cells, protocol.budget_s, more_analyses=0 if missing else 1
                    )
        except KeyboardInterrupt:
            if not self.parts:
                raise
            self.parts[-1] = replace(self.parts[-1], interrupted=True)
        return self.report

    @property
    def report(self) -> ShownReport:
        """All that is known of the cells, without figures."""
        plan = self.prepared.plan
        report = join_runs(
            self.parts,
            replace(plan, protocol=replace(plan.protocol, looks=self.analyses)),
        )
        return replace(report, costs=self.prepared.costs_of(report.plan))

    def begin(self, cells: Sequence[Plan]) -> set[str]:
        """Begin the journal with what was measured before; gives the labels of its
        cases.

        Raises FfnbenchError where that was another plan.
        """
        plan, before = self.prepared.plan, self.before
        start = new_report(plan, self.prepared.costs)
        if before is not None:
            if not is_part(before, plan):
                raise FfnbenchError(
                    "--resume: the file was measured for another plan", ANEW
                )
            complete = complete_cells(before, cells)
            if complete.plan.cases:
                start = as_shown(complete)
                self.parts.append(start)
        self.following.journal(start)
        return {case.label for part in self.parts for case in part.plan.cases}

    def _visit_cells(self, cells: Sequence[Plan], seconds: float) -> bool:
        """Measure these cells one after another, for so long each, or as long as is
        left; whether all were.
        """
        assert self.measure_cell is not None
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
        """Whether no other cell is measured after this report of one."""
        return report.interrupted or bool(report.stopped)

    def _that_fit(self, cells: Sequence[Plan]) -> list[Plan]:
        """The cells without the rows that memory does not hold, which failed before
        anything is measured. What a GPU has is not known yet.
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
        """What time is left goes to the cells that are not decided, which may be after
        so many analyses more.
        """
        spent_s = sum(part.wall_s or 0.0 for part in self.parts)
        left_s = max(0.0, min(self.budget.left_s, budget_s - spent_s))
        most_cells = int(left_s / LEAST_BUDGET_S)
        unclear = undecided(with_figures(self.report), cells)[:most_cells]
        if unclear:
            self.analyses += more_analyses
            self._visit_cells(unclear, left_s / len(unclear))

    def _keep(self, entry: object) -> None:
        """Give the journal what a cell has found. Raises FfnbenchError on another
        machine than that of the file.
        """
        before = self.before.environment if self.before else None
        if (
            before is not None
            and isinstance(entry, Environment)
            and entry.fingerprint != before.fingerprint
        ):
            raise FfnbenchError(
                f"--resume: the file was measured on another machine ({before.cpu}, torch {before.torch})",
                ANEW,
            )
        self.following.journal(entry)
