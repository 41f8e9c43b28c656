"""The world outside that a run needs, as one value: a test or a simulation hands down another one."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from ffnbench.device.environment import describe, usable_memory, why_no_gpu
from ffnbench.messages import DeviceFacts, Greeting
from ffnbench.plan import OWN, Arm
from ffnbench.result import Environment
from ffnbench.run.prober import Prober

if TYPE_CHECKING:
    from ffnbench.run.neighbours import Watch
    from ffnbench.run.worker_pool import Launch, Starter

Tell = Callable[[str], None]


def start_worker(arm: Arm = OWN) -> Starter:
    """A process of an arm."""
    from ffnbench.run.session import Session

    return Session(arm)


def lock_machine(tell: Tell, wait: bool = False) -> AbstractContextManager[str]:
    """Hold the lock of this machine, where no other run of this user has it."""
    from ffnbench.run.neighbours import machine_lock

    return machine_lock(tell, wait)


def watch_others() -> Watch:
    """A look at what other processes use, from now on."""
    from ffnbench.run.neighbours import Watch

    return Watch()


def others_now(threads: int) -> float | None:
    """CPUs that others use at this moment; None where that leaves enough for so many threads, or is not known."""
    from ffnbench.run.neighbours import others_now

    return others_now(threads)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What starts a worker, what looks at code without measuring it, the clock, the lock, and what else runs here.

    `began` is when the command began, by `now`: budgets count from there, and from the start of a run where it is None.
    `lock` is held while something is measured: it gives what a reader should know of another run. The defaults know of
    no GPU that is missing and of no neighbours: they serve tests; `this_machine` is the real one.
    """

    launch: Launch = start_worker
    prober: Callable[[float], Prober] = Prober
    now: Callable[[], float] = time.monotonic
    began: float | None = None
    lock: Callable[[Tell], AbstractContextManager[str]] = lock_machine
    describe: Callable[[Greeting, DeviceFacts | None], Environment] = describe
    watch: Callable[[], Watch] = watch_others
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
    lock = partial(lock_machine, wait=wait)
    return World(began=time.monotonic(), lock=lock, no_gpu=why_no_gpu, others=others_now)
