"""A machine whose processes take their time by a clock of its own, from a hundredth of
a second to forever: no test waits for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fake_machine import FakeLaunch, FakeWorker, run
from simulated import ENVIRONMENT

from ffnbench.common.errors import Unfinished
from ffnbench.plan.plan import Plan
from ffnbench.record.messages import Greeting
from ffnbench.record.result import FailureKind, Run
from ffnbench.run.budget import Budget
from ffnbench.run.worker import WorkerLost

# seconds on a quiet machine, as they were seen for d_model 768 on two CPUs
START_S, CHECK_S, OPEN_S, SAMPLE_S, AGAIN_S = 1.5, 0.8, 0.1, 0.06, 0.08
QUIET, DISTURBED = 0.003, 0.7


class Machine(FakeLaunch):
    """Processes that take `slower` times as long as on a quiet machine, by a clock that
    they turn themselves; a request that lasts longer than it may is lost. `stuck` says
    which ones never end.
    """

    def __init__(
        self,
        slower: float = 1.0,
        stuck: Callable[[str, float], bool] = lambda *_: False,
    ) -> None:
        super().__init__(
            lambda label, worker, number: (
                SAMPLE_S * slower / 3 * (1 + 1e-4 * (len(self.ended) % 7))
            )
        )
        self.slower, self.stuck, self.clock_s = slower, stuck, 0.0
        self.waited = QUIET if slower < 2 else DISTURBED
        self.ended: list[
            tuple[str, float]
        ] = []  # what was asked, and when that was over

    def __call__(self, arm: object = None) -> Starter:
        return Starter(self, 0)

    def now(self) -> float:
        return self.clock_s

    def began(self) -> None:
        """Called when a worker begins."""

    def lasts(self, what: str, seconds: float, timeout_s: float) -> bool:
        """Whether there was time for it."""
        seconds *= self.slower
        late = seconds > timeout_s or self.stuck(what, self.clock_s)
        self.clock_s += timeout_s if late else seconds
        self.ended.append((what, self.clock_s))
        return not late

    def run(self, plan: Plan, **how: Any) -> Run:
        """The budget is a bound where nothing else is said."""
        ends = self.clock_s + (plan.protocol.budget_s or math.inf)
        budget = Budget(self.now, plan.protocol, self.clock_s, ends)
        how = {"budget": budget, **how}
        return run(
            plan, launch=self, now=self.now, describe=lambda *_: ENVIRONMENT, **how
        )


class Starter(FakeWorker):
    """A process that can be forked; a fork knows nothing of the others."""

    launch: Machine
    started = False

    def greeting(self, timeout_s: float = 300.0) -> Greeting:
        if not self.started and not self.launch.lasts("start", START_S / 2, timeout_s):
            self.ended = True
            raise Unfinished(
                f"a worker could not start: no answer within {timeout_s:g} s"
            )
        self.started = True
        return super().greeting()

    def fork(self, timeout_s: float) -> bool:
        self.rounds = {}
        self.launch.began()
        return True

    def ask(self, job: str, timeout_s: float, /, **arguments: Any) -> Any:
        seconds = {"sample": SAMPLE_S, "check": AGAIN_S}.get(job, 0.001)
        if job == "open":
            seconds = OPEN_S if arguments["checked"] else CHECK_S
        if not self.launch.lasts(job, seconds, timeout_s):
            raise WorkerLost(FailureKind.TIMEOUT, f"no answer within {timeout_s:g} s")
        if job == "check":
            return {"error": 1e-7}
        return super().ask(job, timeout_s, **arguments)


def latest(budget: float) -> float:
    """What the promise allows."""
    return budget + max(0.1 * budget, 3.0)
