"""Asks about code without measuring it, in a worker that is used for nothing else and
started only if needed.

Handed to `plan_compare` as its probe; every mistake in user code that can be found
without measuring comes out here as one clear error. Facts and curves of activations
come from here too: the parent has no torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ffnbench.choices import Backend, Cache, CompileMode, MatmulPrecision, Time
from ffnbench.common.errors import FfnbenchError, Unfinished, Unsupported
from ffnbench.ffn.activations import OwnActivation
from ffnbench.ffn.cost import Cost
from ffnbench.ffn.spec import ActivationSpec, ImportedSpec
from ffnbench.messages import (
    A,
    CompareOutput,
    Count,
    Describe,
    Failed,
    Locate,
    SaveOutput,
    Trace,
    WorkerRequest,
)
from ffnbench.plan import THIS_INTERPRETER, Arm, Case, Probe, Workload
from ffnbench.result import ActivationCurve, Agreement, FailureKind

if TYPE_CHECKING:
    from ffnbench.run.worker_process import WorkerProcess

EAGERLY: dict[str, Any] = {
    "backend": Backend.EAGER,
    "compile": CompileMode.DEFAULT,
    "freeze": False,
    "time": Time.WALL,
    "cache": Cache.HOT,
    "matmul_precision": MatmulPrecision.HIGHEST,
    "reduced_reductions": True,
}
BY_ITSELF = "does it import by itself, in a plain `python`?"


class Prober(Probe):
    """A context manager; its first question starts the worker, of one arm, and every
    answer is remembered.
    """

    def __init__(
        self,
        timeout_s: float = 300.0,
        arm: Arm = THIS_INTERPRETER,
        launch: Callable[[Arm], WorkerProcess] | None = None,
    ) -> None:
        self._timeout_s, self._launch = timeout_s, launch
        self._arm = arm
        self._others: dict[Arm, Prober] = {}
        self._worker: WorkerProcess | None = None
        self._answers: dict[WorkerRequest[Any], Any] = {}

    def __enter__(self) -> Prober:
        return self

    def __exit__(self, *raised: object) -> None:
        for prober in self._others.values():
            prober.__exit__(*raised)
        if self._worker is not None:
            self._worker.close()

    def within(self, arm: Arm) -> Prober:
        """The prober of another arm, which ends with this one; one with nothing of its
        own is where this one is.
        """
        if arm in (THIS_INTERPRETER, self._arm):
            return self
        return self._others.setdefault(arm, Prober(self._timeout_s, arm, self._launch))

    def refuse_without_torch(self) -> None:
        """Raise FfnbenchError where the worker can't start."""
        try:
            self.start().greeting()
        except Unfinished as problem:
            if self._arm == THIS_INTERPRETER:
                raise
            hint = f"does `{self._arm.python or 'python'} -c 'import torch'` work?"
            raise FfnbenchError(self._said(problem.message), hint) from problem

    def count(self, spec: ImportedSpec, workload: Workload) -> Cost:
        """Parameters and FLOPs of a user's module; raises FfnbenchError where it can't
        serve as an FFN.
        """
        # what a module has and does is the same however it is run; the device stays,
        # for some kernels run on one alone
        eagerly = replace(workload, **EAGERLY)
        return self._ask(spec.target, Count(spec=spec, workload=eagerly))

    def describe(self, target: str) -> OwnActivation | None:
        """What a function declares as an activation; None for a module's class or
        factory.
        """
        return self._ask(target, Describe(target=target)).activation

    def curve(
        self, spec: ActivationSpec, low: float, high: float, points: int
    ) -> ActivationCurve:
        """f and f' at `points` equidistant x of [low, high]; raises FfnbenchError where
        f is not finite.
        """
        traced = self._ask(
            spec.activation, Trace(spec=spec, low=low, high=high, points=points)
        )
        if not traced.finite:
            raise FfnbenchError(
                f"{spec.activation} is not finite on [{low:g}, {high:g}]",
                "choose a smaller --range",
            )
        slope = tuple(math.nan if value is None else value for value in traced.slope)
        return ActivationCurve(x=traced.x, y=traced.y, slope=slope)

    def origin(self, target: str) -> Path:
        """The file that a target's module is read from there."""
        return Path(self._ask(target, Locate(target=target)).file)

    def keep(self, case: Case, seed: int, folder: str) -> None:
        """Have the base write its weights, an input and its output into a folder."""
        self._ask(case.variant, SaveOutput(case=case, seed=seed, folder=folder))

    def hold(self, case: Case, seed: int, folder: str) -> Agreement:
        """Have the head held against what the base wrote there."""
        return self._ask(
            case.variant, CompareOutput(case=case, seed=seed, folder=folder)
        )

    def _ask(self, target: str, request: WorkerRequest[A]) -> A:
        if request in self._answers:
            earlier: A = self._answers[request]
            return earlier
        from ffnbench.run.worker_process import WorkerLost

        self.refuse_without_torch()
        try:
            answer = self.start().ask(request, self._timeout_s)
        except WorkerLost as lost:
            self.start().close()
            self._worker = None  # another one answers what is asked next
            hint = BY_ITSELF
            if lost.kind is FailureKind.TIMEOUT:
                hint = "give it longer with --timeout"
            raise Unsupported(self._said(f"{target}: {lost}"), hint) from lost
        if isinstance(answer, Failed):
            raise self._error_of(answer, target)
        self._answers[request] = answer
        return answer

    def _error_of(self, failed: Failed, target: str) -> FfnbenchError:
        """What to raise for a target that could not be looked at."""
        message = failed.message
        if (
            target.partition(":")[0] not in message
            and target.rpartition(":")[2] not in message
        ):
            message = f"{target}: {message}"
        # what has no hint was raised by the code itself, and is no mistake in what was
        # typed
        message, hint = self._said(message), failed.hint or BY_ITSELF
        if failed.hint is None or failed.kind is FailureKind.UNSUPPORTED:
            return Unsupported(message, hint)
        return FfnbenchError(message, hint)

    def start(self) -> WorkerProcess:
        """The worker, started if it is not there yet; it is not waited for."""
        if self._worker is None:
            from ffnbench.run.worker_process import WorkerProcess

            launch = self._launch or WorkerProcess
            self._worker = launch(self._arm)
        return self._worker

    def _said(self, message: str) -> str:
        """The message, with the arm that it is about where there are several."""
        return message if self._arm == THIS_INTERPRETER else f"{self._arm}: {message}"
