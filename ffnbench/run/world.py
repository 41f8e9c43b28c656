"""The world outside that a run needs, as one value: a test or a simulation hands down another one."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial

from ffnbench.device.environment import describe, usable_memory, why_no_gpu
from ffnbench.messages import DescribeDevice, DeviceFacts, Failed, Greeting
from ffnbench.result import Environment
from ffnbench.run.neighbours import Watch, machine_lock, others_now
from ffnbench.run.prober import Prober
from ffnbench.run.session import Session, WorkerLost, lost_over_device
from ffnbench.run.worker_pool import Launch, Worker

COUNT_TIMEOUT_S = 300.0
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What starts a worker, what looks at code without measuring it, the clock, the lock, and what else runs here.

    `began` is when the command began, by `now`: budgets count from there, and from the start of a run where it is None.
    `lock` is held while something is measured: it gives what a reader should know of another run. The defaults know of
    no GPU that is missing and of no neighbours: they serve tests; `this_machine` is the real one.
    """

    launch: Launch = Session
    prober: Callable[[float], Prober] = Prober
    now: Callable[[], float] = time.monotonic
    began: float | None = None
    lock: Callable[[Tell], AbstractContextManager[str]] = machine_lock
    describe: Callable[[Greeting, DeviceFacts | None], Environment] = describe
    watch: Callable[[], Watch] = Watch
    no_gpu: Callable[[], str] = lambda: ""  # why there is none, where that is known without torch
    others: Callable[[int], float | None] = lambda threads: None  # CPUs that others use now, where that disturbs
    memory: Callable[[], int | None] = usable_memory

    @property
    def from_now(self) -> World:
        """This world, for a run whose budget begins now."""
        return replace(self, began=self.now())

    @property
    def spent_s(self) -> float:
        """Seconds since the command began."""
        return 0.0 if self.began is None else self.now() - self.began


def this_machine(*, wait: bool = False) -> World:
    """The machine that this process runs on, for a command that begins now; `wait` waits for another run to end."""
    lock = partial(machine_lock, wait=wait)
    return World(began=time.monotonic(), lock=lock, no_gpu=why_no_gpu, others=others_now)


def device_facts(worker: Worker, device: str) -> DeviceFacts | None:
    """What a worker says of a GPU; None of the CPU, and of one that can't be used."""
    if device == "cpu":
        return None
    try:
        answer = worker.ask(DescribeDevice(device=device), COUNT_TIMEOUT_S)
    except WorkerLost as lost:
        raise lost_over_device(lost) from lost
    return None if isinstance(answer, Failed) else answer
