"""Everything that a run needs of the machine, as one value; a test or a simulation
passes another one.

Another run of this user holds a lock while it measures, which ends with its process,
however that ends. It does not see runs of other users or in other containers; these
show in the time that threads wait for a CPU (device/waiting.py).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from ffnbench.common.files import own_folder, try_lock
from ffnbench.device.environment import environment_of_run, why_no_gpu
from ffnbench.plan.plan import THIS_INTERPRETER, Arm
from ffnbench.record.messages import DeviceFacts, Greeting
from ffnbench.record.result import Environment
from ffnbench.run.prober import Prober

if TYPE_CHECKING:
    from ffnbench.run.worker import Launch, Worker

Tell = Callable[[str], None]  # shows a line to the user

LOCK_POLL_S = 0.5
PAUSE_S = 60.0  # between two runs of a baseline: what moves between runs is slow


@contextmanager
def machine_lock(tell: Tell) -> Iterator[None]:
    """Hold the lock while something is measured. Another run that holds it is waited
    for, and `tell` says so. Where there can be no lock, a run is made without.
    """
    with ExitStack() as held:
        with suppress(OSError, RuntimeError):  # no such folder, or no home
            _wait_for(held.enter_context(_lock_file()), tell)
        yield


def _lock_file() -> BinaryIO:
    # machines may share a home, so the name of this one is in it
    path = own_folder() / f"measuring-{os.uname().nodename}"
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    return os.fdopen(handle, "r+b", buffering=0)


def _wait_for(file: BinaryIO, tell: Tell) -> None:
    """Lock a file until it is closed, and write into it which process has locked it."""
    if not try_lock(file):
        number = file.read(20).decode("ascii", "replace").strip()
        owner = f" (process {number})" if number.isdigit() else ""
        tell(f"waiting: another run of ffnbench{owner} measures on this machine")
        while not try_lock(file):
            time.sleep(LOCK_POLL_S)
    file.seek(0)
    file.truncate()
    file.write(str(os.getpid()).encode())


def start_worker(arm: Arm = THIS_INTERPRETER) -> Worker:
    """Start a process of an arm."""
    from ffnbench.run.worker import Worker

    return Worker(arm)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What starts a worker, what learns something of code without measuring it, the
    clock and the lock.

    `began` is when the command began, by `now`: a budget counts from there, or from the
    start of the run where it is None. `lock` is held while something is measured.
    Between two runs of a baseline `pause_s` seconds pass. The defaults see no missing
    GPU, and serve tests; `this_machine` is the real one.
    """

    launch: Launch = start_worker
    prober: Callable[[float], Prober] = Prober
    now: Callable[[], float] = time.monotonic
    began: float | None = None
    pause_s: float = 0.0
    lock: Callable[[Tell], AbstractContextManager[None]] = machine_lock
    describe: Callable[[Greeting, DeviceFacts | None], Environment] = environment_of_run
    # why there is no GPU, where that is known without torch
    no_gpu: Callable[[], str] = lambda: ""

    @property
    def spent_s(self) -> float:
        """Seconds since the command began."""
        return 0.0 if self.began is None else self.now() - self.began


def this_machine() -> World:
    """The machine that this process runs on, for a command that begins now."""
    return World(began=time.monotonic(), pause_s=PAUSE_S, no_gpu=why_no_gpu)
