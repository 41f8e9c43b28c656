"""A plan of several cells -> one report: each cell is a run of its own, and those that are not decided have another."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ffnbench.api.preparing import Prepared, new_report
from ffnbench.api.saved import as_shown
from ffnbench.common.errors import FfnbenchError, termination_as_interruption
from ffnbench.following import Following
from ffnbench.plan import Plan, Protocol
from ffnbench.planning.effort import LEAST_BUDGET_S
from ffnbench.report.shown_report import ShownReport
from ffnbench.result import Environment, Report
from ffnbench.run.resources import too_large
from ffnbench.run.schedule import Schedule
from ffnbench.run.world import World
from ffnbench.stats.cells import (
    ANALYSES,
    FIRST_VISITS,
    cells_of,
    complete_cells,
    is_part,
    joined,
    undecided,
)
from ffnbench.stats.figures import with_figures

Visit = Callable[[Plan, Following], ShownReport]  # one run of a cell

ANEW = "give -o another file, or leave --resume out"


@dataclass(slots=True)
class Sweep:
    """What is known of the cells of a plan so far. `before` is what --resume goes on with."""

    prepared: Prepared
    world: World
    following: Following
    visit: Visit | None
    before: Report | None
    whole: Schedule = field(default_factory=lambda: Schedule(time.monotonic, Protocol()))  # of the budget of all
    parts: list[ShownReport] = field(default_factory=list)
    looks: int = 1

    def measure(self) -> ShownReport:
        """Every cell that is not known yet; then the undecided ones once more, for as long as is left."""
        plan = self.prepared.plan
        cells = cells_of(plan)
        known = self.known(cells)
        left = [cell for cell in cells if cell.reference not in known]
        again = not left
        if plan.protocol.precision is not None:
            self.looks = max(1 if again else ANALYSES, self.before.plan.protocol.looks if self.before else 1)
        try:
            with termination_as_interruption():
                done = self._visit(self._that_fit(left), FIRST_VISITS * (plan.protocol.budget_s or 0.0) / len(cells))
                if done and plan.protocol.budget_s is not None:
                    self._again(cells, plan.protocol.budget_s, looks=again)
        except KeyboardInterrupt:
            if not self.parts:
                raise
            self.parts[-1] = replace(self.parts[-1], interrupted=True)
        return self.found

    @property
    def found(self) -> ShownReport:
        """All of it, without figures."""
        plan = self.prepared.plan
        found = joined(self.parts, replace(plan, protocol=replace(plan.protocol, looks=self.looks)))
        return replace(found, costs=self.prepared.costs_of(found.plan))

    def known(self, cells: Sequence[Plan]) -> set[str]:
        """The cases that were measured before. Raises FfnbenchError where that was another plan. The journal begins
        with them.
        """
        plan, before = self.prepared.plan, self.before
        if before is not None and not is_part(before, plan):
            raise FfnbenchError(
                "--resume: what stands there was measured for another plan",
                ANEW,
            )
        start = new_report(plan, self.prepared.costs)
        if before is not None and (known := complete_cells(before, cells)).plan.cases:
            self.parts.append(start := as_shown(known))
        self.following.journal(start)
        return {case.label for part in self.parts for case in part.plan.cases}

    def _visit(self, cells: Sequence[Plan], seconds: float) -> bool:
        """Measure these cells one after another, for so long each, or as long as is left; whether all were."""
        for number, cell in enumerate(cells, start=1):
            budget_s, later_s = cell.protocol.budget_s, 0.0
            if budget_s is not None:
                left_s = self.whole.left_s
                if self.whole.over:
                    return False
                budget_s = max(1.0, min(max(LEAST_BUDGET_S, seconds), left_s / (len(cells) - number + 1)))
                later_s = max(0.0, left_s - budget_s)
            planned = replace(cell, protocol=replace(cell.protocol, budget_s=budget_s))
            assert self.visit is not None
            of_cell = self.following.part(number, len(cells), "group", later_s)
            found = self.visit(planned, replace(of_cell, journal=self._keep))
            self.parts.append(found)
            if self.ends(found, cell):
                return False
            if not found.stopped:
                self.following.journal(found)
        return True

    def ends(self, found: ShownReport, cell: Plan) -> bool:
        """Whether no other cell is measured after what was found of this one."""
        return found.interrupted or bool(found.stopped)

    def _that_fit(self, cells: Sequence[Plan]) -> list[Plan]:
        """The cells without the rows that memory does not hold, which failed before anything is measured. What a GPU
        has is not known yet.
        """
        on_cpu = self.world.no_gpu() != ""
        kept = []
        for cell in cells:
            failed = too_large(cell.with_device("cpu") if on_cpu else cell, self.world.memory())
            if failed:
                self.parts.append(replace(new_report(cell, self.prepared.costs_of(cell)), failures=tuple(failed)))
                self.following.journal(self.parts[-1])
            out = {one.case for one in failed}
            if cases := tuple(case for case in cell.cases if case.label not in out):
                kept.append(replace(cell, cases=cases))
        return kept

    def _again(self, cells: Sequence[Plan], budget_s: float, *, looks: int) -> None:
        """What time is left goes to the cells that are not decided, which may be so many looks more."""
        left = max(0.0, min(self.whole.left_s, budget_s - sum(part.wall_s or 0.0 for part in self.parts)))
        unclear = undecided(with_figures(self.found), cells)[: int(left / LEAST_BUDGET_S)]
        if unclear:
            self.looks += looks
            self._visit(unclear, left / len(unclear))

    def _keep(self, found: object) -> None:
        """Keep what a cell has found. Raises FfnbenchError on another machine than that of the file."""
        there = self.before.environment if self.before else None
        if there is not None and isinstance(found, Environment) and found.fingerprint != there.fingerprint:
            raise FfnbenchError(
                f"--resume: what stands there was measured on another machine ({there.cpu}, torch {there.torch})",
                ANEW,
            )
        self.following.journal(found)
