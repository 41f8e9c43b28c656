"""The world outside that a run needs, as one value: a test or a simulation hands down
another one.

Who else works on this machine is a part of it: another run of this user, which holds a
lock while it measures, and other processes. A lock ends with its process, however that
ends. Runs of other users, and in other containers, are not seen by it; the time that
threads wait for a CPU tells of them (waiting.py). Which rounds count is not decided
here.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ffnbench.common.files import own_folder, try_lock
from ffnbench.device.environment import environment_of_run, usable_memory, why_no_gpu
from ffnbench.messages import DeviceFacts, Greeting
from ffnbench.plan import THIS_INTERPRETER, Arm
from ffnbench.result import BackgroundLoad, Environment
from ffnbench.run.prober import Prober

if TYPE_CHECKING:
    from ffnbench.run.worker_pool import Launch, Starter

LOCK_POLL_S = 0.5
OTHER_RUN_MEASURED = "another run of ffnbench{who} measured on this machine when this one began: they disturb each other"
SHORTEST_S = 2.0  # the kernel counts in hundredths
# for a look before a run; more than a quiet machine's own services use
LOOK_S, BUSY_CPUS = 0.3, 0.25
# without anybody else at work in them there is nothing to look at
GLANCES, GLANCE_S = 4, 0.01


@contextmanager
def machine_lock(tell: Callable[[str], None], wait: bool = False) -> Iterator[str]:
    """Hold the lock while something is measured; gives what a reader should know:
    nothing where no other run has it.

    With `wait` it is waited for, and `tell` is told so. Where there can be no lock a
    run is made without.
    """
    try:
        # nodes may share a home
        place = own_folder() / f"measuring-{os.uname().nodename}"
        mine, who = _lock_or_owner(place)
        if who is not None and wait:
            tell(f"waiting: another run of ffnbench{who} measures on this machine")
            while who is not None:
                time.sleep(LOCK_POLL_S)
                mine, who = _lock_or_owner(place)
        elif who is not None:
            tell(
                f"note: another run of ffnbench{who} measures on this machine now; --wait waits for it"
            )
    except (OSError, RuntimeError):  # no such folder, or no home
        mine, who = None, None
    try:
        yield "" if who is None else OTHER_RUN_MEASURED.format(who=who)
    finally:
        if mine is not None:
            with suppress(OSError):  # nothing about a lock costs an answer
                place.unlink()  # first, so that nobody takes a file that is about to go
            mine.close()


def _lock_or_owner(place: Path) -> tuple[BinaryIO | None, str | None]:
    """The file, locked for this process; else what is known of the process that has
    it.
    """
    while True:
        handle = os.open(place, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        file = os.fdopen(handle, "r+b", buffering=0)
        if not try_lock(file):
            number = file.read(20).decode("ascii", "replace").strip()
            file.close()
            return None, f" (process {number})" if number.isdigit() else ""
        if place.exists() and os.path.samestat(os.fstat(handle), place.stat()):
            file.truncate()
            file.write(str(os.getpid()).encode())
            return file, None
        file.close()  # it went between opening and locking


def others_now(threads: int) -> float | None:
    """CPUs that others use at this moment; None where that leaves enough for so many
    threads, or is not known.
    """
    if not any(_someone_works() for _ in range(GLANCES)):
        return None
    watch = Watch()
    time.sleep(LOOK_S)
    others = watch.others()
    enough = max(0, (os.cpu_count() or 1) - threads) + BUSY_CPUS
    if others is None or others <= enough:
        return None
    return others


def _someone_works() -> bool:
    """Whether the kernel runs more than this process at this moment, or does not
    say.
    """
    time.sleep(GLANCE_S)
    try:
        running, _, _ = (
            Path("/proc/loadavg").read_text(encoding="ascii").split()[3].partition("/")
        )
        return int(running) > 1
    except (OSError, ValueError, IndexError):
        return True


class Watch:
    """Made when a run begins; asked when all its workers have ended."""

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self._stat = stat
        self._start = self._used()

    def around(self) -> BackgroundLoad:
        """What others did during the run; unknown is None."""
        return BackgroundLoad(others_cpus=self.others(SHORTEST_S))

    def others(self, shortest_s: float = 0.0) -> float | None:
        """CPUs that others have used since the start; None where that is not known, or
        was less than so long ago.
        """
        end = self._used()
        if self._start is None or end is None:
            return None
        start_s, used_before_s = self._start
        end_s, used_s = end
        if end_s - start_s <= shortest_s:
            return None
        return max(0.0, (used_s - used_before_s) / (end_s - start_s))

    def _used(self) -> tuple[float, float] | None:
        """Now, and the CPU seconds since boot of all but this process and its children
        that have ended.
        """
        try:
            user, nice, system, _, _, irq, softirq = map(
                int, self._stat.read_text(encoding="ascii").split()[1:8]
            )
        except (OSError, ValueError):
            return None
        all_s = (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")
        usage = [
            resource.getrusage(who)
            for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        ]
        own_s = sum(u.ru_utime + u.ru_stime for u in usage)
        return time.monotonic(), all_s - own_s


Tell = Callable[[str], None]


def start_worker(arm: Arm = THIS_INTERPRETER) -> Starter:
    """A process of an arm."""
    from ffnbench.run.worker_process import WorkerProcess

    return WorkerProcess(arm)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What starts a worker, what looks at code without measuring it, the clock, the
    lock, and what else runs here.

    `began` is when the command began, by `now`: budgets count from there, and from the
    start of a run where it is None. `lock` is held while something is measured: it
    gives what a reader should know of another run. The defaults know of no GPU that is
    missing and of no neighbours: they serve tests; `this_machine` is the real one.
    """

    launch: Launch = start_worker
    prober: Callable[[float], Prober] = Prober
    now: Callable[[], float] = time.monotonic
    began: float | None = None
    lock: Callable[[Tell], AbstractContextManager[str]] = machine_lock
    describe: Callable[[Greeting, DeviceFacts | None], Environment] = environment_of_run
    watch: Callable[[], Watch] = Watch
    # why there is none, where that is known without torch
    no_gpu: Callable[[], str] = lambda: ""
    # CPUs that others use now, where that disturbs
    others: Callable[[int], float | None] = lambda threads: None
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
    """The machine that this process runs on, for a command that begins now; `wait`
    waits for another run to end.
    """
    lock = partial(machine_lock, wait=wait)
    return World(
        began=time.monotonic(), lock=lock, no_gpu=why_no_gpu, others=others_now
    )
