"""One run of training, from the parent: a process of its own, which is asked to train for some seconds at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ffnbench.common import jsonable
from ffnbench.common.errors import termination_as_interruption
from ffnbench.device.environment import describe
from ffnbench.extras.train.decoder import TrainCase
from ffnbench.extras.train.kind import TRAIN
from ffnbench.extras.train.metrics import CHOOSING, HELD_OUT, LOSS
from ffnbench.following import Following, ProgressListener
from ffnbench.plan import Plan
from ffnbench.result import Environment, FailureKind, Progress, Run, Sample
from ffnbench.run.log import Found
from ffnbench.run.session import WorkerLost
from ffnbench.run.what_fits import Devices
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
    start, found, checkpoint = now(), Found(plan, following.journal), checkpoint_of(plan, following.folder)
    environment, worker, interrupted, stopped = None, None, False, ""
    try:
        with termination_as_interruption():
            facts = pool.greeting()
            _, worker = pool.next(1)
            environment = _begin(worker, facts, found)
            stopped = _steps(worker, found, following.progress, checkpoint, until, now)
    except KeyboardInterrupt:
        interrupted = True
    except WorkerLost as lost:
        found.fail(plan.reference, lost.kind, str(lost))
    finally:
        if worker is not None:
            worker.close()
    diverged = any(failure.kind is FailureKind.DIVERGED for failure in found.failures)
    if checkpoint is not None and (found.samples or diverged):
        checkpoint.unlink(missing_ok=True)
        with suppress(OSError):  # others are there, or the folder was never made
            checkpoint.parent.rmdir()
    return Run(
        plan=found.plan,
        samples=tuple(found.samples),
        failures=tuple(found.failures),
        warnings=tuple(found.notes),
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


def _begin(worker: Worker, facts: dict[str, Any], found: Found) -> Environment:
    """Where it is trained, as every run says it; the worker has the plan then."""
    timeout_s = found.plan.protocol.timeout_s
    found.plan, told, _ = Devices().find(found.plan, facts, lambda request: worker.ask(request, timeout_s))
    environment = describe(told)
    found.on_found(environment)
    found.on_found(found.plan)
    worker.ask({"do": "plan", "plan": jsonable.encode(found.plan)}, timeout_s)
    return environment


def _steps(
    worker: Worker,
    found: Found,
    progress: ProgressListener,
    checkpoint: Path | None,
    until: float,
    now: Callable[[], float],
) -> str:
    """All steps; why they ended early, where the time was over."""
    [case] = found.plan.cases
    assert isinstance(case, TrainCase)
    assert case.training is not None
    training, timeout_s = case.training, found.plan.protocol.timeout_s
    name = f"{found.plan.name_of(case.label)}, seed {training.seed}"
    while (left_s := until - now()) > 0:
        request = {"do": TRAIN, "label": case.label, "seconds": min(CHUNK_S, left_s)}
        answer = worker.ask(request | {"checkpoint": str(checkpoint or "")}, timeout_s)
        if "failure" in answer:
            found.fail(case.label, answer["failure"], answer["message"])
            return ""
        step, step_s = answer["step"], answer["step_s"]
        if answer["diverged"] is not None:
            where = f"step {answer['diverged']} (seed {training.seed}, rate {training.rate:g})"
            found.fail(case.label, FailureKind.DIVERGED.value, f"diverged at {where}: try a smaller --lr")
            return ""
        if "held_out" in answer:
            for number, (steps, loss) in enumerate(answer["curve"]):
                found.add(_sample(case, HELD_OUT, number, loss, steps))
            found.add(_sample(case, LOSS, 0, answer["held_out"], step))
            found.add(_sample(case, CHOOSING, 0, answer["choosing"], step))
            return ""
        if answer["not_saved"]:
            found.note("", answer["not_saved"])
        timeout_s = max(timeout_s, STEPS_BETWEEN * step_s)
        text = f"{name}  step {step}/{training.steps}"
        if answer["loss"] is not None:
            text += f", loss {answer['loss']:.3f}"
        progress(Progress(done=step / training.steps, text=text, eta_s=step_s * (training.steps - step)))
    return OVER


def _sample(case: TrainCase, metric: str, number: int, loss: float, steps: int) -> Sample:
    return Sample(case=case.label, metric=metric, worker=0, round=number, order=0, value=loss, calls=steps)
