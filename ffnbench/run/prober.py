"""Learns something of code without measuring it, in a worker that is used for nothing
else and started only if needed.

A Prober is the probe of `plan_compare`: a mistake in user code that can be found
without measuring becomes one clear error here. Curves of activations come from here as
well, because the parent has no torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ffnbench.common.choices import Backend
from ffnbench.common.errors import FfnbenchError, Unfinished, Unsupported
from ffnbench.ffn.activations import OwnActivation
from ffnbench.ffn.cost import Cost
from ffnbench.ffn.spec import ActivationSpec, ImportedSpec
from ffnbench.plan.plan import THIS_INTERPRETER, Arm, Case, Probe, Workload
from ffnbench.record.messages import Failed, Traced
from ffnbench.record.result import ActivationCurve, Agreement, FailureKind

if TYPE_CHECKING:
    from ffnbench.run.worker import Worker

BY_ITSELF = "does it import by itself, in a plain `python`?"


class Prober(Probe):
    """The probe that runs code, in one worker of one arm. The first question starts it,
    every answer is remembered, and as a context manager it ends the worker.
    """

    def __init__(
        self,
        timeout_s: float = 300.0,
        arm: Arm = THIS_INTERPRETER,
        launch: Callable[[Arm], Worker] | None = None,
    ) -> None:
        self._timeout_s, self._launch = timeout_s, launch
        self._arm = arm
        self._others: dict[Arm, Prober] = {}
        self._worker: Worker | None = None
        self._answers: dict[Any, Any] = {}  # by job and arguments

    def __enter__(self) -> Prober:
        return self

    def __exit__(self, *raised: object) -> None:
        for prober in self._others.values():
            prober.__exit__(*raised)
        if self._worker is not None:
            self._worker.close()

    def within(self, arm: Arm) -> Prober:
        """The prober of an arm, which ends with this one; this one itself where the arm
        has nothing of its own.
        """
        if arm in (THIS_INTERPRETER, self._arm):
            return self
        return self._others.setdefault(arm, Prober(self._timeout_s, arm, self._launch))

    def start(self) -> Worker:
        """The worker, which is started if there is none yet, and not waited for."""
        if self._worker is None:
            from ffnbench.run.worker import Worker

            launch = self._launch or Worker
            self._worker = launch(self._arm)
        return self._worker

    def refuse_without_torch(self) -> None:
        """Raise FfnbenchError where the worker can't start."""
        try:
            self.start().greeting()
        except Unfinished as problem:
            if self._arm == THIS_INTERPRETER:
                raise
            hint = f"does `{self._arm.python or 'python'} -c 'import torch'` work?"
            raise FfnbenchError(self._with_arm(problem.message), hint) from problem

    def count(self, spec: ImportedSpec, workload: Workload) -> Cost:
        """The parameters and FLOPs of a user's module; raises FfnbenchError where it
        can't serve as an FFN.
        """
        # what its parameters and FLOPs depend on; some kernels run on one device alone
        eager = Workload(
            batch=workload.batch,
            seq_len=workload.seq_len,
            dtype=workload.dtype,
            device=workload.device,
            mode=workload.mode,
            threads=workload.threads,
        )
        if workload.backend is Backend.EAGER:  # a runtime quantises the form
            eager = replace(eager, weights=workload.weights, group=workload.group)
        cost: Cost = self._ask(spec.target, "count", spec=spec, workload=eager)
        return cost

    def describe(self, target: str) -> OwnActivation | None:
        """The activation that a target is; None where it is a class or factory of a
        module.
        """
        own: OwnActivation | None = self._ask(target, "describe", target=target)
        return own

    def curve(
        self, spec: ActivationSpec, low: float, high: float, points: int
    ) -> ActivationCurve:
        """f and f' at `points` equidistant x of [low, high]; raises FfnbenchError where
        f is not finite.
        """
        traced: Traced = self._ask(
            spec.activation, "trace", spec=spec, low=low, high=high, points=points
        )
        if not traced.finite:
            raise FfnbenchError(
                f"{spec.activation} is not finite on [{low:g}, {high:g}]",
                "choose a smaller --range",
            )
        slope = tuple(math.nan if value is None else value for value in traced.slope)
        return ActivationCurve(x=traced.x, y=traced.y, slope=slope)

    def origin(self, target: str) -> Path:
        """The file from which the arm imports a target's module."""
        return Path(self._ask(target, "locate", target=target))

    def save_output(self, case: Case, seed: int, folder: str) -> None:
        """Have a case write its weights, an input and its output into a folder."""
        self._ask(case.variant, "save_output", case=case, seed=seed, folder=folder)

    def compare_output(self, case: Case, seed: int, folder: str) -> Agreement:
        """How far the output of a case is from the one that the base wrote there."""
        agreement: Agreement = self._ask(
            case.variant, "compare_output", case=case, seed=seed, folder=folder
        )
        return agreement

    def _ask(self, about: str, job: str, **arguments: Any) -> Any:
        """The answer of the worker to a job about a target, or the one that it gave to
        the same before. Raises FfnbenchError, which names the target, where there is
        none.
        """
        key = (job, *arguments.values())
        if key in self._answers:
            return self._answers[key]
        from ffnbench.run.worker import WorkerLost

        self.refuse_without_torch()
        try:
            answer = self.start().ask(job, self._timeout_s, **arguments)
        except WorkerLost as lost:
            self.start().close()
            self._worker = None  # the next question starts another one
            hint = BY_ITSELF
            if lost.kind is FailureKind.TIMEOUT:
                hint = "`compare --budget 15m` gives it longer"
            raise Unsupported(self._with_arm(f"{about}: {lost}"), hint) from lost
        if isinstance(answer, Failed):
            raise self._error_of(answer, about)
        self._answers[key] = answer
        return answer

    def _error_of(self, failed: Failed, target: str) -> FfnbenchError:
        """The error to raise where a worker failed to do what was asked of a target."""
        message = failed.message
        module, attr = target.partition(":")[0], target.rpartition(":")[2]
        if module not in message and attr not in message:
            message = f"{target}: {message}"
        message = self._with_arm(message)
        hint = failed.hint or BY_ITSELF
        # an error without a hint comes from the user's code: what was typed is right
        if failed.hint is None or failed.kind is FailureKind.UNSUPPORTED:
            return Unsupported(message, hint)
        return FfnbenchError(message, hint)

    def _with_arm(self, message: str) -> str:
        """The message, with the arm that it is about where that is not this one."""
        return message if self._arm == THIS_INTERPRETER else f"{self._arm}: {message}"
