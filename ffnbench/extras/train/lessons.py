"""Runs that are trained, one after another: how long they will take, and where they are kept."""

from __future__ import annotations

import hashlib
import math
import time
from dataclasses import dataclass, field, replace

from ffnbench.common import jsonable
from ffnbench.common.units import counted
from ffnbench.extras.train.decoder import trained_by
from ffnbench.extras.train.running import OVER, train
from ffnbench.following import Following
from ffnbench.plan import Plan
from ffnbench.report.progress import duration
from ffnbench.result import Progress, Run
from ffnbench.run.worker_pool import WorkerPool

# of a budget is kept for the cells that are timed behind the runs, so many seconds at least and at most
TIMED, LEAST_KEPT_S, TIMED_S = 0.2, 12.0, 60.0
LEAST_TIMED_S = 1.0  # of a cell: then it makes the fewest workers and rounds that give a time


@dataclass(slots=True)
class Lessons:
    """The runs of a plan. Its budget begins now: most of it is for training, and what is timed has what is left."""

    plan: Plan
    end: float = field(init=False)
    until: float = field(init=False)
    told: bool = False

    def __post_init__(self) -> None:
        budget_s = self.plan.protocol.budget_s
        self.end = math.inf if budget_s is None else time.monotonic() + budget_s
        self.until = self.end
        if budget_s is not None and not all(trained_by(case) for case in self.plan.cases):
            kept_s = min(max(TIMED * budget_s, LEAST_KEPT_S), TIMED_S)
            self.until -= min(kept_s, budget_s / 2)

    def with_rest(self, cell: Plan, left: int) -> Plan:
        """A cell that is timed, with its share of what is left of the budget, before so many others."""
        if self.end == math.inf:
            return cell
        seconds = max(LEAST_TIMED_S, (self.end - time.monotonic()) / (left + 1))
        return replace(cell, protocol=replace(cell.protocol, budget_s=seconds))

    def __call__(self, plan: Plan, pool: WorkerPool, following: Following) -> Run:
        """Train the one case of a cell; it goes on from its checkpoint, if there is one."""
        if time.monotonic() >= self.until:
            return Run(plan=plan, stopped=OVER)
        name = hashlib.sha256(jsonable.text_of(jsonable.encode(plan.cases[0])).encode()).hexdigest()[:16]
        checkpoint = following.folder / f"{name}.pt" if following.folder else None
        progress = following.progress

        def tell(event: Progress) -> None:
            """A run is as long as this one: then the time left is that of all."""
            left_s = (event.eta_s or 0.0) * (1 + progress.left / max(1e-9, 1 - event.done))
            if not self.told:
                self.told = True
                progress.tell(f"{counted(progress.left + 1, 'run')} will take about {duration(left_s)}")
            progress(Progress(done=event.done, text=event.text, eta_s=left_s))

        return train(
            plan,
            pool,
            on_progress=tell,
            on_found=following.journal,
            checkpoint=checkpoint,
            until=self.until,
            now=time.monotonic,
        )
