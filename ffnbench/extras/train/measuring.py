"""A plan of what is trained -> a report: each run by itself, and behind them the cells
that are timed.
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

CHUNK_S = 2.0  # of training, between two answers
OVER = "the budget is used up: --resume continues the file of -o"
STEPS_BETWEEN = 400  # a step that hangs is waited for as long as so many steps


def train_case(
    plan: Plan,
    pool: WorkerPool,
    following: Following,
    until: float,
    now: Callable[[], float],
) -> Run:
    """Train the one case of a plan, as far as it comes before `until`. A case that
    diverges, fails or whose process is lost is a row of the result.
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
            stopped = _steps(worker, record, following.progress, until, now)
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
    """Where it is trained, as every run says it; the worker has the plan then."""
    timeout_s = record.plan.protocol.timeout_s
    record.plan, gpu, _ = RunDevices().find(record.plan, greeting, worker, timeout_s)
    environment = environment_of_run(greeting, gpu)
    record.journal(environment)
    record.journal(record.plan)
    worker.ask(Begin(plan=record.plan), timeout_s)
    return environment


def _steps(
    worker: Worker,
    record: RunRecord,
    progress: ProgressListener,
    until: float,
    now: Callable[[], float],
) -> str:
    """All steps; why they ended early, where the time was over."""
    [case] = record.plan.cases
    assert isinstance(case, TrainCase)
    assert case.training is not None
    training, timeout_s = case.training, record.plan.protocol.timeout_s
    name = f"{record.plan.name_of(case.label)}, seed {training.seed}"
    while (left_s := until - now()) > 0:
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
        timeout_s = max(timeout_s, STEPS_BETWEEN * step_s)
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
    return OVER


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


# of a budget is kept for the cells that are timed behind the runs: a fifth, so many
# seconds at least and at most
TIMED, LEAST_TIMED_S, MOST_TIMED_S = 0.2, 12.0, 60.0
# of a timed cell: then it makes the fewest workers and rounds that give a time
LEAST_CELL_S = 1.0


@dataclass(slots=True)
class Cells:
    """Trains or times the cells of a plan, one by one. A budget begins when this is
    made.
    """

    prepared: Prepared
    world: World
    pool: WorkerPool
    end: float = math.inf  # of the budget, by the world's clock
    end_of_training: float = math.inf
    first_run: bool = True

    def __post_init__(self) -> None:
        budget_s = self.prepared.plan.protocol.budget_s
        if budget_s is None:
            return
        self.end = self.end_of_training = self.world.now() + budget_s
        if not all(trained_by(case) for case in self.prepared.plan.cases):
            self.end_of_training -= min(
                max(TIMED * budget_s, LEAST_TIMED_S), MOST_TIMED_S, budget_s / 2
            )

    def measure_one(self, cell: Plan, following: Following) -> ShownReport:
        """Train the case of a cell, or time its cases."""
        if not trained_by(cell.cases[0]):
            return self._time(cell, following)
        start = new_report(cell, self.prepared.costs_of(cell))
        following.journal(start)
        if self.world.now() >= self.end_of_training:
            return replace(start, stopped=OVER)
        progress = OfAllRuns(following.progress, tells_time=self.first_run)
        self.first_run = False
        run = train_case(
            cell,
            self.pool,
            replace(following, progress=progress),
            self.end_of_training,
            self.world.now,
        )
        return replace(start, **raw_of(run))

    def _time(self, cell: Plan, following: Following) -> ShownReport:
        """With its share of what is left of the budget."""
        bound_s = math.inf
        if self.end < math.inf:
            cells_left = following.progress.left + 1
            bound_s = max(LEAST_CELL_S, (self.end - self.world.now()) / cells_left)
            cell = replace(cell, protocol=replace(cell.protocol, budget_s=bound_s))
        return measure_cell(
            cell, self.prepared, self.world, following, pool=self.pool, bound_s=bound_s
        )


@dataclass(slots=True)
class OfAllRuns(ProgressListener):
    """Progress of a run, with the time left for all: those that come after it are as
    long as this one.
    """

    of_run: ProgressListener
    tells_time: bool

    def __call__(self, event: Progress) -> None:
        left_s = (event.eta_s or 0.0) * (
            1 + self.of_run.left / max(1e-9, 1 - event.done)
        )
        if self.tells_time:
            self.tells_time = False
            self.of_run.tell(
                f"{counted(self.of_run.left + 1, 'run')} will take about {duration(left_s)}"
            )
        self.of_run(replace(event, eta_s=left_s))


@dataclass(slots=True)
class RunsAndTimes(Sweep):
    """The cells of such a plan. Those that are timed still are where the time for
    training is over.
    """

    def ends(self, report: ShownReport, cell: Plan) -> bool:
        """Where it was interrupted, or what is timed was stopped."""
        return report.interrupted or (
            bool(report.stopped) and not trained_by(cell.cases[0])
        )


def measure_training(
    prepared: Prepared, world: World, following: Following = UNFOLLOWED
) -> ShownReport:
    """Train and time what was prepared, all of it or one cell; what there is to know of
    its text and seeds is told before. Raises FfnbenchError where memory does not hold
    it.
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
