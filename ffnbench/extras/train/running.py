"""One run of training, from the parent: a process of its own, which is asked to train for some seconds at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ffnbench.common import jsonable
from ffnbench.common.errors import termination_as_interruption
from ffnbench.device.environment import describe
from ffnbench.extras.train.decoder import TrainCase
from ffnbench.extras.train.messages import Train
from ffnbench.extras.train.metrics import CHOOSING, HELD_OUT, LOSS
from ffnbench.following import Following, ProgressListener
from ffnbench.messages import Begin, Failed, Greeting
from ffnbench.plan import Plan
from ffnbench.result import Environment, FailureKind, Progress, Run, Sample
from ffnbench.run.record import RunRecord
from ffnbench.run.resources import Devices
from ffnbench.run.session import WorkerLost
from ffnbench.run.worker_pool import Worker, WorkerPool

CHUNK_S = 2.0  # of training, between two answers
OVER = "the budget is over: --resume goes on with what -o FILE has kept"
STEPS_BETWEEN = 400  # a step that hangs is waited for as long as so many steps


def train(
    plan: Plan,
    pool: WorkerPool,
    following: Following,
    until: float,
    now: Callable[[], float],
) -> Run:
    """Train the one case of a plan. What it does not finish before `until` stands in a checkpoint; a case that
    diverges, fails or whose process is lost is a row of the result.
    """
    start, record, checkpoint = now(), RunRecord(plan, following.journal), checkpoint_of(plan, following.folder)
    environment, worker, interrupted, stopped = None, None, False, ""
    try:
        with termination_as_interruption():
            greeting = pool.greeting()
            _, worker = pool.next(1)
            environment = _begin(worker, greeting, record)
            stopped = _steps(worker, record, following.progress, checkpoint, until, now)
    except KeyboardInterrupt:
        interrupted = True
    except WorkerLost as lost:
        record.fail(plan.reference, lost.kind, str(lost))
    finally:
        if worker is not None:
            worker.close()
    diverged = any(failure.kind is FailureKind.DIVERGED for failure in record.failures)
    if checkpoint is not None and (record.samples or diverged):
        checkpoint.unlink(missing_ok=True)
        with suppress(OSError):  # others are there, or the folder was never made
            checkpoint.parent.rmdir()
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


def checkpoint_of(plan: Plan, folder: Path | None) -> Path | None:
    """Where the one case of a plan is kept, by all that it is; None where there is no folder."""
    if folder is None:
        return None
    text = jsonable.text_of(jsonable.encode(plan.cases[0]))
    return folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.pt"


def _begin(worker: Worker, greeting: Greeting, record: RunRecord) -> Environment:
    """Where it is trained, as every run says it; the worker has the plan then."""
    timeout_s = record.plan.protocol.timeout_s
    record.plan, gpu, _ = Devices().find(record.plan, greeting, worker, timeout_s)
    environment = describe(greeting, gpu)
    record.journal(environment)
    record.journal(record.plan)
    worker.ask(Begin(plan=record.plan), timeout_s)
    return environment


def _steps(
    worker: Worker,
    record: RunRecord,
    progress: ProgressListener,
    checkpoint: Path | None,
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
        request = Train(label=case.label, seconds=min(CHUNK_S, left_s), checkpoint=str(checkpoint or ""))
        trained = worker.ask(request, timeout_s)
        if isinstance(trained, Failed):
            record.fail(case.label, trained.kind, trained.message)
            return ""
        step, step_s = trained.step, trained.step_s
        if trained.diverged is not None:
            where = f"step {trained.diverged} (seed {training.seed}, rate {training.rate:g})"
            record.fail(case.label, FailureKind.DIVERGED, f"diverged at {where}: try a smaller --lr")
            return ""
        if trained.held_out is not None and trained.choosing is not None:
            for number, (steps, loss) in enumerate(trained.curve):
                record.add(_sample(case, HELD_OUT, number, loss, steps))
            record.add(_sample(case, LOSS, 0, trained.held_out, step))
            record.add(_sample(case, CHOOSING, 0, trained.choosing, step))
            return ""
        if trained.not_saved:
            record.note("", trained.not_saved)
        timeout_s = max(timeout_s, STEPS_BETWEEN * step_s)
        text = f"{name}  step {step}/{training.steps}"
        if trained.loss is not None:
            text += f", loss {trained.loss:.3f}"
        progress(Progress(done=step / training.steps, text=text, eta_s=step_s * (training.steps - step)))
    return OVER


def _sample(case: TrainCase, metric: str, number: int, loss: float, steps: int) -> Sample:
    return Sample(case=case.label, metric=metric, worker=0, round=number, order=0, value=loss, calls=steps)
