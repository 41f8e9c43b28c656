"""A run of a case that is trained, from the parent: a process of its own, asked for some seconds more at a time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ffnbench.common.errors import termination_as_interruption
from ffnbench.device.environment import describe
from ffnbench.extras.train.decoder import trained_by
from ffnbench.extras.train.messages import Train
from ffnbench.extras.train.metrics import CHOOSING, LOSS
from ffnbench.messages import Begin, Failed, Greeting
from ffnbench.plan import Case, Plan
from ffnbench.result import Environment, FailureKind, Progress, Run, Sample
from ffnbench.run.log import Finder, Found
from ffnbench.run.session import WorkerLost
from ffnbench.run.what_fits import Devices
from ffnbench.run.worker_pool import Worker, WorkerPool

CHUNK_S = 2.0  # of training, between two looks
OVER = "the budget is over: --resume goes on with what -o FILE has kept"
STEPS_BETWEEN = 400  # a step that hangs is waited for as long as so many steps


def train(
    plan: Plan,
    pool: WorkerPool,
    *,
    on_progress: Callable[[Progress], None],
    on_found: Finder,
    checkpoint: Path | None,
    until: float = math.inf,
    now: Callable[[], float] = time.monotonic,
) -> Run:
    """Train the one case of a plan. What it does not finish before `until` stands in the checkpoint; a case that
    diverges, fails or whose process is lost is a row of the result.
    """
    [case], found, start = plan.cases, Found(plan, on_found), now()
    environment, worker, interrupted, stopped = None, None, False, ""
    try:
        with termination_as_interruption():
            greeting = pool.greeting()
            _, worker = pool.next(1)
            environment, case = _begin(worker, greeting, found, plan)
            stopped = _steps(worker, case, found, on_progress, str(checkpoint or ""), until, now)
    except KeyboardInterrupt:
        interrupted = True
    except WorkerLost as lost:
        found.fail(case.label, lost.kind, str(lost))
    finally:
        if worker is not None:
            worker.close()
    ended = any(one.metric == LOSS for one in found.samples) or any(
        one.kind is FailureKind.DIVERGED for one in found.failures
    )
    if checkpoint and ended:
        checkpoint.unlink(missing_ok=True)
        with suppress(OSError):  # those of others are there, or nothing
            checkpoint.parent.rmdir()
    return Run(
        plan=found.plan, samples=tuple(found.samples), failures=tuple(found.failures), warnings=tuple(found.notes),
        environment=environment, interrupted=interrupted, stopped=stopped, wall_s=now() - start,
    )  # fmt: skip


def _begin(worker: Worker, greeting: Greeting, found: Found, plan: Plan) -> tuple[Environment, Case]:
    """Where it is trained, as every run says it, and the case on its device."""
    timeout_s = plan.protocol.timeout_s
    found.plan, gpu, _ = Devices().find(plan, greeting, worker, timeout_s)
    environment = describe(greeting, gpu)
    for one in (environment, found.plan):
        found.on_found(one)
    worker.ask(Begin(plan=found.plan), timeout_s)
    return environment, found.plan.cases[0]


def _steps(
    worker: Worker, case: Case, found: Found, tell: Callable[[Progress], None], checkpoint: str, until: float,
    now: Callable[[], float],
) -> str:  # fmt: skip
    """All steps; why they ended early, where the time was over."""
    training = trained_by(case)
    assert training is not None
    timeout_s = found.plan.protocol.timeout_s
    while (left_s := until - now()) > 0:
        trained = worker.ask(Train(label=case.label, seconds=min(CHUNK_S, left_s), checkpoint=checkpoint), timeout_s)
        if isinstance(trained, Failed):
            found.fail(case.label, trained.kind, trained.message)
            return ""
        for metric, steps, loss in trained.curve:
            found.add(_sample(case, metric, len(found.samples), loss, steps))
        if trained.saved:
            found.note("", trained.saved)
        if trained.diverged is not None:
            which = f"seed {training.seed}, rate {training.rate:g}"
            text = f"diverged at step {trained.diverged} ({which}): try a smaller --lr"
            found.fail(case.label, FailureKind.DIVERGED, text)
            return ""
        if trained.loss is not None and trained.choosing is not None:
            found.add(_sample(case, LOSS, 0, trained.loss, training.steps))
            found.add(_sample(case, CHOOSING, 0, trained.choosing, training.steps))
            return ""
        step = trained.step
        step_s = trained.seconds / max(1, step)
        left = step_s * (training.steps - step)
        timeout_s = max(timeout_s, STEPS_BETWEEN * step_s)
        loss_text = f", loss {trained.curve[-1][-1]:.3f}" if trained.curve else ""
        name = f"{found.plan.name_of(case.label)}, seed {training.seed}"
        tell(Progress(done=step / training.steps, text=f"{name}  step {step}/{training.steps}{loss_text}", eta_s=left))
    return OVER


def _sample(case: Case, metric: str, place: int, value: float, steps: int) -> Sample:
    return Sample(case=case.label, metric=metric, worker=0, round=place, order=0, value=value, calls=steps)
