"""Everything that a run needs of the machine, as one value; a test or a simulation
passes another one.

Who else works on this machine is a part of it: another run of this user, which holds a
lock while it measures, and other processes. A lock ends with its process, however that
ends. It does not see runs of other users or in other containers; these show in the time
that threads wait for a CPU (device/waiting.py). Which rounds count is not decided here.
"""

from __future__ import annotations

import hashlib
import os
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ffnbench.common.errors import FfnbenchError
from ffnbench.common.files import own_folder, try_lock
from ffnbench.device.environment import environment_of_run, why_no_gpu
from ffnbench.plan.plan import THIS_INTERPRETER, Arm
from ffnbench.record.messages import DeviceFacts, Greeting
from ffnbench.record.result import BackgroundLoad, Environment
from ffnbench.run.prober import Prober

if TYPE_CHECKING:
    from ffnbench.run.worker import Launch, Worker

Tell = Callable[[str], None]  # shows a line to the user

LOCK_POLL_S = 0.5
PAUSE_S = 60.0  # between two runs of a baseline: what moves between runs is slow
# of a run whose load is told: the kernel counts CPU time in hundredths of a second
SHORTEST_S = 2.0
# the look at other processes before a run, and what services of a quiet machine use
LOOK_S, BUSY_CPUS = 0.3, 0.25
# before that look: where none of these glances sees a process at work, it is left out
GLANCES, GLANCE_S = 4, 0.01


@contextmanager
def machine_lock(tell: Tell) -> Iterator[None]:
    """Hold the lock while something is measured. Another run that holds it is waited
    for, and `tell` says so. Where there can be no lock, a run is made without.
    """
    mine = None
    try:
        # machines may share a home, so the name of this one is in it
        path = own_folder() / f"measuring-{os.uname().nodename}"
        mine, owner = _lock_or_owner(path)
        if owner is not None:
            tell(f"waiting: another run of ffnbench{owner} measures on this machine")
            while owner is not None:
                time.sleep(LOCK_POLL_S)
                mine, owner = _lock_or_owner(path)
    except (OSError, RuntimeError):  # no such folder, or no home
        pass
    try:
        yield
    finally:
        if mine is not None:
            _release(mine, path)


@contextmanager
def output_lock(output: Path) -> Iterator[None]:
    """Hold the lock of a file that is gone on with. Raises FfnbenchError where another
    run goes on with it.
    """
    mine = None
    with suppress(OSError, RuntimeError):
        name = hashlib.sha256(os.fsencode(output.resolve())).hexdigest()
        path = own_folder() / f"writing-{name[:16]}"
        mine, owner = _lock_or_owner(path)
        if owner is not None:
            raise FfnbenchError(
                f"another run of ffnbench{owner} goes on with {str(output)!r}",
                "wait until it has ended, or give -o another file",
            )
    try:
        yield
    finally:
        if mine is not None:
            _release(mine, path)


def _release(mine: BinaryIO, path: Path) -> None:
    """Release a lock; trouble with that must not cost the answer."""
    with suppress(OSError):
        # before it is released: nobody may lock a file that is about to go
        path.unlink()
    mine.close()


def _lock_or_owner(path: Path) -> tuple[BinaryIO | None, str | None]:
    """The locked file and None; or None and what to say of the process that holds the
    lock: ` (process 12)`, empty where its number is not known.
    """
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        file = os.fdopen(handle, "r+b", buffering=0)
        if not try_lock(file):
            number = file.read(20).decode("ascii", "replace").strip()
            file.close()
            return None, f" (process {number})" if number.isdigit() else ""
        if path.exists() and os.path.samestat(os.fstat(handle), path.stat()):
            file.truncate()
            file.write(str(os.getpid()).encode())
            return file, None
        file.close()  # its owner deleted it after it was opened here


def others_now(threads: int) -> float | None:
    """How many CPUs other processes use now; None where they leave enough for so many
    threads, or where it is not known.
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
    """Whether another process than this one runs at this moment; True where the kernel
    does not say.
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
    """Sees the CPU time of other processes. It is made when a run begins, and asked
    when all its workers have ended.
    """

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self._stat = stat
        self._start = self._used()

    def around(self) -> BackgroundLoad:
        """The load by other processes during the run."""
        return BackgroundLoad(others_cpus=self.others(SHORTEST_S))

    def others(self, shortest_s: float = 0.0) -> float | None:
        """How many CPUs others have used since the start, on average; None where it is
        not known, and where the start is no longer than `shortest_s` ago.
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
        """The time now, and the CPU seconds since boot of all processes but this one
        and its children that have ended; None where they are not known.
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


def start_worker(arm: Arm = THIS_INTERPRETER) -> Worker:
    """Start a process of an arm."""
    from ffnbench.run.worker import Worker

    return Worker(arm)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What starts a worker, what learns something of code without measuring it, the
    clock, the lock, and what else runs here.

    `began` is when the command began, by `now`: a budget counts from there, or from the
    start of the run where it is None. `lock` is held while something is measured.
    Between two runs of a baseline `pause_s` seconds pass. The defaults see no missing
    GPU and no other processes, and serve tests; `this_machine` is the real one.
    """

    launch: Launch = start_worker
    prober: Callable[[float], Prober] = Prober
    now: Callable[[], float] = time.monotonic
    began: float | None = None
    pause_s: float = 0.0
    lock: Callable[[Tell], AbstractContextManager[None]] = machine_lock
    describe: Callable[[Greeting, DeviceFacts | None], Environment] = environment_of_run
    watch: Callable[[], Watch] = Watch
    # why there is no GPU, where that is known without torch
    no_gpu: Callable[[], str] = lambda: ""
    # how many CPUs others use now, where that disturbs a run of so many threads
    others: Callable[[int], float | None] = lambda threads: None

    @property
    def from_now(self) -> World:
        """This world, for a run whose budget begins now."""
        return replace(self, began=self.now())

    @property
    def spent_s(self) -> float:
        """Seconds since the command began."""
        return 0.0 if self.began is None else self.now() - self.began


def this_machine() -> World:
    """The machine that this process runs on, for a command that begins now."""
    return World(
        began=time.monotonic(), pause_s=PAUSE_S, no_gpu=why_no_gpu, others=others_now
    )
