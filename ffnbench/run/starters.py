"""Where the workers of a run come from: forked by turns from a few starters, or each an
interpreter of its own.

A fork costs a hundredth of an interpreter. The forks of one starter share its address
layout, so there are several starters, which are forked by turns (stats/interval.py
reckons with what differs between them).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ffnbench.common.errors import Unfinished
from ffnbench.device.environment import auto_device
from ffnbench.plan.plan import THIS_INTERPRETER, Plan
from ffnbench.record.messages import Greeting
from ffnbench.run.resources import drawn_bytes
from ffnbench.run.worker import (
    START_TIMEOUT_S,
    AnyWorker,
    Launch,
    Lockstep,
    WorkerLost,
)
from ffnbench.stats.stopping import SERVES_S, STARTERS

RESTARTS = 3  # processes in a row that may be lost before a run ends
SERVES_STARTS = 10  # starters serve at least so many times the seconds of their start


@dataclass(slots=True)
class Starters:
    """Makes one worker after another. `wait_s` shortens the seconds for which an answer
    may be waited for.
    """

    plan: Plan
    launch: Launch
    now: Callable[[], float] = time.monotonic
    wait_s: Callable[[float], float] = float
    forks: bool = True  # until a starter says that it can't be forked
    started: int = 0
    # the starters with their numbers, the next one that is forked first
    _ready: deque[tuple[int, AnyWorker]] = field(default_factory=deque)
    _since: float = 0.0  # when these began to serve
    _start_s: float = 0.0  # the most seconds that a start took
    # by the number of a starter the plan for which it has preloaded
    _preloaded: dict[int, Plan] = field(default_factory=dict)
    _preloads: bool = True  # until a starter is lost over it
    _cpus: int = 1  # that a starter may use

    def start(self, count: int = STARTERS) -> None:
        """Start so many starters, or one where nothing is timed, without waiting for
        them.
        """
        if "latency" not in self.plan.metrics:
            count = 1
        for _ in range(count):
            if self.plan.arms == (THIS_INTERPRETER,):
                starter: AnyWorker = self.launch()
            else:
                starter = Lockstep(self.plan, self.launch)
            self._ready.append((self.started, starter))
            self.started += 1
        self._since = self.now()

    def greeting(self, needed: int = 0) -> Greeting:
        """The greeting of the next starter. Waits until all have started, because
        nothing may be measured while a process starts. Starts new ones where none is
        left that serves on.
        """
        start = self.now()
        self._close_ended()
        if not self._ready:
            count = STARTERS
            if not self.forks:  # each is one worker, and as many start at once as can
                at_once = max(1, self._cpus // len(self.plan.arms))
                count = max(1, min(needed, at_once))
            self.start(count)
        greetings = [
            starter.greeting(self.wait_s(START_TIMEOUT_S)) for _, starter in self._ready
        ]
        self._start_s = max(self._start_s, self.now() - start)
        self._cpus = greetings[0].usable_cpus
        return greetings[0]

    @contextmanager
    def worker(self, needed: int) -> Iterator[tuple[int, AnyWorker]]:
        """The number of the next starter, and a worker: the starter itself, which was
        forked if it can be. The worker ends with the context. `needed` is how many
        workers will be wanted in all. Raises Unfinished where one starter after another
        is lost.
        """
        number, worker = self._next(needed)
        try:
            yield number, worker
        finally:
            if self.forks:
                worker.leave()
                self._ready.rotate(-1)
            else:
                self._ready.popleft()
                worker.close()

    def _next(self, needed: int) -> tuple[int, AnyWorker]:
        """The next starter and its number, forked if it can be."""
        for _ in range(RESTARTS):
            self.greeting(needed)
            number, starter = self._ready[0]
            try:
                if self.forks:
                    self._preload(number, starter)
                    timeout_s = self.wait_s(self.plan.protocol.timeout_s)
                    self.forks = starter.fork(timeout_s)
                return number, starter
            except WorkerLost as lost:
                self._ready.popleft()
                starter.close()
                last = lost
        raise Unfinished(
            f"a worker can't be forked: {last}", "`ffnbench env` shows what else runs"
        )

    def _preload(self, number: int, starter: AnyWorker) -> None:
        """Before its first fork for a plan, have a starter import what the cases need,
        and draw their weights. Once a starter was lost over that, forks do it
        themselves, so that a crash is known to be that of their own case.
        """
        if not self._preloads or self._preloaded.get(number) is self.plan:
            return
        self._preloaded[number] = self.plan
        plan = self.plan.with_device(auto_device(starter.greeting()))
        timeout_s = self.wait_s(plan.protocol.timeout_s)
        draws = bool(drawn_bytes(plan.cases))
        try:
            starter.ask("preload", timeout_s, plan=plan, draws=draws)
        except WorkerLost:
            self._preloads = False
            raise

    def _close_ended(self) -> None:
        """Close the starters that have ended with a fork, or have served long enough:
        for the longer, the longer they take to start.
        """
        serves_s = max(SERVES_S, SERVES_STARTS * self._start_s)
        have_served = self.forks and self.now() - self._since > serves_s
        for _ in range(len(self._ready)):
            number, starter = self._ready.popleft()
            if have_served or starter.ended:
                starter.close()
            else:
                self._ready.append((number, starter))

    def close(self) -> None:
        """End every process."""
        while self._ready:
            self._ready.popleft()[1].close()
