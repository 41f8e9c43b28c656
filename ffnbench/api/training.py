"""Runs that are trained, one after another: how long they will take, and where they are kept."""

from __future__ import annotations

import hashlib
import math
import time
from dataclasses import dataclass, field

from ffnbench import jsonable
from ffnbench.plan import Plan
from ffnbench.report.output import NullSink
from ffnbench.report.progress import duration
from ffnbench.request import TrainRequest
from ffnbench.result import Progress, Run
from ffnbench.run.log import Finder
from ffnbench.run.training import train
from ffnbench.run.worker_pool import WorkerPool
from ffnbench.units import counted


@dataclass(slots=True)
class Lessons:
    """The runs of a plan. Its budget begins now."""

    plan: Plan
    until: float = field(init=False)
    told: bool = False

    def __post_init__(self) -> None:
        asked = self.plan.request
        budget_s = asked.budget if isinstance(asked, TrainRequest) else None
        self.until = math.inf if budget_s is None else time.monotonic() + budget_s

    def __call__(self, plan: Plan, pool: WorkerPool, sink: NullSink, on_found: Finder) -> Run:
        """Train the one case of a cell; it goes on from its checkpoint, if there is one."""
        name = hashlib.sha256(jsonable.text_of(jsonable.encode(plan.cases[0])).encode()).hexdigest()[:16]
        kept = sink.checkpoints and sink.checkpoints / f"{name}.pt"

        with sink.progress() as listener:

            def tell(event: Progress) -> None:
                """A run is as long as this one: then the time left is that of all."""
                left_s = (event.eta_s or 0.0) * (1 + sink.left / max(1e-9, 1 - event.done))
                if not self.told:
                    self.told = True
                    sink.tell(f"{counted(sink.left + 1, 'run')} will take about {duration(left_s)}")
                listener(Progress(done=event.done, text=event.text, eta_s=left_s))

            return train(plan, pool, on_progress=tell, on_found=on_found, checkpoint=kept or None, until=self.until)
