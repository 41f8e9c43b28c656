"""A plan of `train` -> a report: train each run in a process of its own, then time the
last cell.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace

from ffnbench.api.measuring import (
    finished_report,
    measure_cell,
    measure_run,
    tell_duration,
)
from ffnbench.api.preparing import Prepared, new_report, refuse_at_once
from ffnbench.api.sweeping import Sweep
from ffnbench.common.errors import termination_as_interruption
from ffnbench.common.units import counted
from ffnbench.device.environment import environment_of_run
from ffnbench.extras.train.plan import (
    CHOOSING,
    HELD_OUT,
    LOSS,
    Train,
    TrainCase,
    trained_by,
)
from ffnbench.following import UNFOLLOWED, Following, ProgressListener
from ffnbench.messages import Begin, Failed, Greeting
from ffnbench.plan import Plan
from ffnbench.report.progress import duration
from ffnbench.report.shown_report import ShownReport
from ffnbench.result import Environment, FailureKind, Progress, Run, Sample, raw_of
from ffnbench.run.budget import Budget
from ffnbench.run.record import RunRecord
from ffnbench.run.resources import RunDevices
from ffnbench.run.worker_pool import Worker, WorkerPool
from ffnbench.run.worker_process import WorkerLost
from ffnbench.run.world import World

CHUNK_S = 2.0  # seconds of training that a worker is asked for at a time
BUDGET_USED_UP = "the budget is used up: --resume continues the file of -o"
TIMEOUT_STEPS = 400  # an answer is waited for as long as so many steps take
# the share of a budget that is kept for the timed cell, and its bounds in seconds
TIMED_SHARE, LEAST_TIMED_S, MOST_TIMED_S = 0.2, 12.0, 60.0
# with so many seconds a timed cell makes the fewest workers and rounds
LEAST_CELL_S = 1.0


def train_case(
    plan: Plan,
    pool: WorkerPool,
    following: Following,
    deadline: float,
    now: Callable[[], float],
) -> Run:
    """Train the one case of a plan, until it is done or `now` gives the deadline. A
    case that diverges, fails or whose process is lost is a failure of the result.
    """
    start = now()
    record = RunRecord(plan, following.journal)
    environment = worker = None
    interrupted, stopped = False, ""
    try:
        with termination_as_interruption():
            greeting = pool.greeting()
            _, worker = pool.next(1)
            environment = _begin(worker, greeting, record)
            stopped = _make_all_steps(worker, record, following.progress, deadline, now)
    except KeyboardInterrupt:
        interrupted = True
    except WorkerLost as lost:
        record.fail(plan.reference, lost.kind, str(lost))
    finally:
        if worker is not None:
            worker.close()
    return Run(
        plan=record.plan,
        samples=tuple(record.samples),
        failures=tuple(record.failures),
        warnings=tuple(record.notes),
        environment=environment,
        interrupted=interrupted,
        stopped=stopped,
        wall_s=now() - start,
    )


def _begin(worker: Worker, greeting: Greeting, record: RunRecord) -> Environment:
    """Find the device, give the plan to journal and worker, and return the
    environment.
    """
    timeout_s = record.plan.protocol.timeout_s
    record.plan, gpu, _ = RunDevices().find(record.plan, greeting, worker, timeout_s)
    environment = environment_of_run(greeting, gpu)
    record.journal(environment)
    record.journal(record.plan)
    worker.ask(Begin(plan=record.plan), timeout_s)
    return environment


def _make_all_steps(
    worker: Worker,
    record: RunRecord,
    progress: ProgressListener,
    deadline: float,
    now: Callable[[], float],
) -> str:
    """Have a worker make all steps, and record the losses or the failure.

    Gives "", or why training ended early where the deadline came first.
    """
    [case] = record.plan.cases
    assert isinstance(case, TrainCase)
    training, timeout_s = case.recipe, record.plan.protocol.timeout_s
    name = f"{record.plan.name_of(case.label)}, seed {training.seed}"
    while (left_s := deadline - now()) > 0:
        trained = worker.ask(
            Train(label=case.label, seconds=min(CHUNK_S, left_s)), timeout_s
        )
        if isinstance(trained, Failed):
            record.fail(case.label, trained.kind, trained.message)
            return ""
        step, step_s = trained.step, trained.step_s
        if trained.diverged is not None:
            where = f"step {trained.diverged} (seed {training.seed}, rate {training.rate:g})"
            record.fail(
                case.label,
                FailureKind.DIVERGED,
                f"diverged at {where}: try a smaller --lr",
            )
            return ""
        if trained.held_out is not None and trained.choosing is not None:
            for number, (steps, loss) in enumerate(trained.curve):
                record.add(_sample(case, HELD_OUT, number, loss, steps))
            record.add(_sample(case, LOSS, 0, trained.held_out, step))
            record.add(_sample(case, CHOOSING, 0, trained.choosing, step))
            return ""
        timeout_s = max(timeout_s, TIMEOUT_STEPS * step_s)
        text = f"{name}  step {step}/{training.steps}"
        if trained.loss is not None:
            text += f", loss {trained.loss:.3f}"
        progress(
            Progress(
                done=step / training.steps,
                text=text,
                eta_s=step_s * (training.steps - step),
            )
        )
    return BUDGET_USED_UP


def _sample(
    case: TrainCase, metric: str, number: int, loss: float, steps: int
) -> Sample:
    return Sample(
        case=case.label,
        metric=metric,
        worker=0,
        round=number,
        order=0,
        value=loss,
        calls=steps,
    )


@dataclass(slots=True)
class Cells:
    """Trains or times the cells of a plan, one by one. The budget begins when this is
    made; its deadlines are times of the world's clock.
    """

    prepared: Prepared
    world: World
    pool: WorkerPool
    deadline: float = math.inf
    training_deadline: float = math.inf
    first_run: bool = True

    def __post_init__(self) -> None:
        budget_s = self.prepared.plan.protocol.budget_s
        if budget_s is None:
            return
        self.deadline = self.training_deadline = self.world.now() + budget_s
        if not all(trained_by(case) for case in self.prepared.plan.cases):
            timed_s = max(TIMED_SHARE * budget_s, LEAST_TIMED_S)
            self.training_deadline -= min(timed_s, MOST_TIMED_S, budget_s / 2)

    def measure_one(self, cell: Plan, following: Following) -> ShownReport:
        """Train the case of a cell, or time its cases."""
        if not trained_by(cell.cases[0]):
            return self._time(cell, following)
        start = new_report(cell, self.prepared.costs_of(cell))
        following.journal(start)
        if self.world.now() >= self.training_deadline:
            return replace(start, stopped=BUDGET_USED_UP)
        progress = OfAllRuns(following.progress, tells_time=self.first_run)
        self.first_run = False
        run = train_case(
            cell,
            self.pool,
            replace(following, progress=progress),
            self.training_deadline,
            self.world.now,
        )
        return replace(start, **raw_of(run))

    def _time(self, cell: Plan, following: Following) -> ShownReport:
        """Time the cases of a cell, with its share of what is left of the budget."""
        bound_s = math.inf
        if self.deadline < math.inf:
            cells_left = following.progress.left + 1
            left_s = self.deadline - self.world.now()
            bound_s = max(LEAST_CELL_S, left_s / cells_left)
            cell = replace(cell, protocol=replace(cell.protocol, budget_s=bound_s))
        return measure_cell(
            cell, self.prepared, self.world, following, pool=self.pool, bound_s=bound_s
        )


@dataclass(slots=True)
class OfAllRuns(ProgressListener):
    """Shows the progress of a run with the time that is left for all runs: those after
    it are taken to be as long as this one. The first event tells that time, if
    `tells_time`.
    """

    of_run: ProgressListener
    tells_time: bool

    def __call__(self, event: Progress) -> None:
        left_of_run_s = event.eta_s or 0.0
        run_s = left_of_run_s / max(1e-9, 1 - event.done)
        left_s = left_of_run_s + self.of_run.left * run_s
        if self.tells_time:
            self.tells_time = False
            self.of_run.tell(
                f"{counted(self.of_run.left + 1, 'run')} will take about {duration(left_s)}"
            )
        self.of_run(replace(event, eta_s=left_s))


@dataclass(slots=True)
class RunsAndTimes(Sweep):
    """The cells of a plan of `train`. Where the time for training is over, the timed
    cell is still measured.
    """

    def ends(self, report: ShownReport, cell: Plan) -> bool:
        """Whether no other cell is measured after this report of one: it was
        interrupted, or the timed cell was stopped.
        """
        is_timed = not trained_by(cell.cases[0])
        return report.interrupted or (bool(report.stopped) and is_timed)


def measure_training(
    prepared: Prepared, world: World, following: Following = UNFOLLOWED
) -> ShownReport:
    """Train and time what was prepared: a whole plan, or one cell of it. The notes on
    text and seeds are told before. Raises FfnbenchError where memory does not hold it.
    """
    plan = prepared.plan
    refuse_at_once(plan, world)
    tell_duration(plan, world, following.progress)
    if not any(trained_by(case) for case in plan.cases):
        return measure_run(prepared, world, following)  # a job that times one cell
    for note in plan.notes:
        if not note.label:
            following.progress.tell(f"note: {note.text}")
    pool = WorkerPool(plan, world.launch, world.now)
    cells = Cells(prepared, world, pool)
    spent_s = world.spent_s
    with closing(pool), world.lock(following.progress.tell) as other_run:
        budget = Budget(world.now, plan.protocol, spent_s=spent_s)
        before = following.resumed()
        if before or plan.is_sweep:
            sweep = RunsAndTimes(
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
