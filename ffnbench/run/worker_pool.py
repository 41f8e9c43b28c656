"""Where the workers of a run come from: forked by turns from a few starters, or each an interpreter of its own.

A fork has torch loaded and a heap of its own, and comes a hundred times as cheap as an interpreter. What it shares with
its siblings is the address layout of its starter: so there are several, visited by turns (stats/interval.py reckons
with what differs between them).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ffnbench.device.environment import usable_cpus
from ffnbench.errors import Unfinished
from ffnbench.ffn.spec import ImportedSpec
from ffnbench.plan import Backend, Plan
from ffnbench.run.arms import Launch, Starter, Worker, WorkerGroup, start_for
from ffnbench.run.session import WorkerLost
from ffnbench.stats.stopping import SERVES_S, STARTERS

RESTARTS = 3


@dataclass(slots=True)
class WorkerPool:
    """Gives one worker after another. `needed` is how many are wanted where each takes an interpreter of its own."""

    plan: Plan
    launch: Launch
    now: Callable[[], float] = time.monotonic
    forks: bool = True  # until a starter says that it can't
    started: int = 0
    _ready: deque[tuple[int, Starter]] = field(default_factory=deque)  # numbered
    _since: float = 0.0  # when the starters that are there began to serve
    _preloaded: set[int] = field(default_factory=set)
    _preloads: bool = True  # until that costs a starter

    def start(self, count: int = STARTERS) -> None:
        """Start so many processes; they are not waited for."""
        for _ in range(count):
            self._ready.append((self.started, start_for(self.plan, self.launch)))
            self.started += 1

    def greeting(self) -> dict[str, Any]:
        """What the first one says. Waits until all have started, for none measures beside one that starts; one that
        dies on the way is replaced a few times.
        """
        losses, self._since = 0, self._since or self.now()
        for _ in range(len(self._ready)):
            while True:
                number, starter = self._ready.popleft()
                self._ready.append((number, starter))
                try:
                    starter.greeting()
                    break
                except WorkerLost as lost:
                    losses += 1
                    self._ready.pop()
                    starter.close()
                    if losses == RESTARTS:
                        raise Unfinished(
                            f"a worker could not start: {lost}", "try `python -c 'import torch'`"
                        ) from lost
                    self._ready.appendleft((self.started, start_for(self.plan, self.launch)))
                    self.started += 1
        return self._ready[0][1].greeting()

    def _preload(self, starter: Starter) -> None:
        """What its children need is imported once; WorkerLost where that hangs or kills it."""
        cases = self.plan.cases
        targets = sorted({case.ffn.target for case in cases if isinstance(case.ffn, ImportedSpec)})
        compiles = any(case.workload.backend == Backend.COMPILE.value for case in cases)
        if targets or compiles:
            starter.ask({"do": "preload", "targets": targets, "compiles": compiles}, self.plan.protocol.timeout_s)

    def next(self, needed: int) -> tuple[int, Worker]:
        """The next worker, with the number of the starter that it is of. `needed` is how many will be wanted: where
        each takes an interpreter of its own, as many are started at a time as there are CPUs. Raises Unfinished where
        one starter after another is lost.
        """
        for left in reversed(range(RESTARTS)):
            self._sweep()
            if not self._ready:
                at_once = max(1, usable_cpus() // len(self.plan.arms))
                alone = max(1, needed if needed == at_once + 1 else min(needed, at_once))
                self.start(STARTERS if self.forks else alone)
                self._since = self.now()
            self.greeting()
            number, starter = self._ready.popleft()
            try:
                worker = self._fork_of(number, starter) if self.forks else None
            except WorkerLost as lost:
                starter.close()
                if not left:
                    raise Unfinished(
                        f"workers can't be forked: {lost}", "`ffnbench env` tells what else runs"
                    ) from lost
                continue
            if worker is None:
                return number, starter
            self._ready.append((number, starter))
            return number, worker
        raise AssertionError("not reached")

    def _fork_of(self, number: int, starter: Starter) -> Worker | None:
        """A fork; None where it can't be, and this process is the worker. After an import that has cost a starter each
        child imports for itself, and finds out.
        """
        if self._preloads and number not in self._preloaded:
            self._preloaded.add(number)
            self._preloads = False
            self._preload(starter)
            self._preloads = True
        worker = starter.fork(self.plan.protocol.timeout_s)
        self.forks = worker is not None
        return worker

    def aside(self, plan: Plan) -> Worker | None:
        """A fork for what is not timed, of the arms of this plan, while no other of its starter lives; None where that
        can't be had.
        """
        if not self.forks or not self._ready:
            return None
        starter = self._ready[0][1]
        part = starter.part(plan) if isinstance(starter, WorkerGroup) else starter
        try:
            return part.fork(self.plan.protocol.timeout_s)
        except WorkerLost:
            starter.close()
            return None

    def _sweep(self) -> None:
        """Let go of starters that have ended with a child, or have served long enough."""
        late = self.forks and self._since and self.now() - self._since > SERVES_S
        for one in [one for one in self._ready if late or one[1].ended]:
            self._ready.remove(one)
            one[1].close()

    def close(self) -> None:
        """End every process."""
        while self._ready:
            self._ready.popleft()[1].close()
