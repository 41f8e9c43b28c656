"""The exam on this machine as it is: the same comparison again and again through the real runner, beside the truth."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from ffnbench.device.environment import usable_cpus
from ffnbench.errors import FfnbenchError, Interrupted, Unfinished
from ffnbench.ffn.spec import require_positive
from ffnbench.plan import Plan
from ffnbench.request import SelftestRequest
from ffnbench.result import Progress, Run
from ffnbench.run.runner import run
from ffnbench.selftest.rates import Told, comparison_plan, told_by

Listener = Callable[[Progress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exam:
    """What is measured, and how often."""

    plan: Plan
    repeats: int

    @property
    def wait_s(self) -> float:
        """How long that takes at most."""
        return self.repeats * (self.plan.protocol.budget_s or 0.0)


def exam(request: SelftestRequest) -> Exam:
    """What is to be done; raises FfnbenchError for every mistake."""
    if not 0 <= request.seed < 2**31:
        raise FfnbenchError(f"--seed {request.seed} is out of range", "a seed is between 0 and 2^31 - 1")
    threads = usable_cpus() if request.threads is None else request.threads
    given = {"d_model": request.d_model, "threads": threads, "repeats": request.repeats}
    width, threads, repeats = (require_positive(name, value) for name, value in given.items())
    plan = comparison_plan(d_model=width, threads=threads, budget=request.budget, seed=request.seed)
    return Exam(plan=plan, repeats=repeats)


def measure(asked: Exam, listener: Listener, now: Callable[[], float] = time.monotonic) -> list[Told]:
    """Every run, each with a seed of its own.

    Interrupted, or where one can't be finished, it gives what was measured by then; raises where that is nothing.
    """
    told: list[Told] = []
    start, seed = now(), asked.plan.protocol.seed
    try:
        for number in range(asked.repeats):
            done, spent = number / asked.repeats, now() - start
            whole = spent / done if done else asked.wait_s
            text = f"run {number + 1} of {asked.repeats}"
            listener(Progress(done=done, text=text, eta_s=max(0.0, whole - spent)))
            plan = replace(asked.plan, protocol=replace(asked.plan.protocol, seed=seed + number))
            told += told_by(finished(run(plan)), plan, number)
    except KeyboardInterrupt:
        if not told:
            raise Interrupted("interrupted before a first run was whole") from None
    except Unfinished:
        if not told:
            raise
    return told


def finished(done: Run) -> Run:
    """A run that nothing went wrong in."""
    if done.interrupted:
        raise KeyboardInterrupt
    if done.failures or done.stopped:
        raise Unfinished("a case of the selftest failed", done.failures[0].message if done.failures else done.stopped)
    return done
