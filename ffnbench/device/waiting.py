"""How long this process's threads waited for a CPU: what others took from a sample,
told by the kernel.

Linux counts it to the nanosecond: the second number of /proc/self/task/*/schedstat is
the time that a thread was ready to run and had no CPU
(Documentation/scheduler/sched-stats.rst of the kernel). Elsewhere, and where a
container hides it, involuntary switches stand in for it. Threads of its own beyond the
CPUs wait for each other: that says nothing.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

TASKS = Path("/proc/self/task")
SCHEDSTAT, SWITCHES = "schedstat", "involuntary switches"
# on Linux, beside a spinner: a switch that another process takes the CPU by costs some
# 4 ms; a quiet sample has up to 50 a second that cost next to nothing
SWITCH_S, QUIET_SWITCHES_A_S = 0.004, 50.0
WORKED = 0.1  # of a sample: a thread that ran for less is none of the workload's


@dataclass(frozen=True, slots=True)
class Thread:
    """Nanoseconds that one thread has run, and has waited for a CPU."""

    ran: int
    waited: int


Threads = dict[str, Thread]
T = TypeVar("T")


def threads_of(tasks: Path = TASKS) -> Threads:
    """Every thread of this process that has had a CPU; empty where the kernel does not
    tell.
    """
    threads = {}
    try:
        names = os.listdir(tasks)
    except OSError:
        return {}
    for name in names:
        try:
            ran, waited, turns, *_ = map(
                int, (tasks / name / "schedstat").read_bytes().split()
            )
            # on a CPU: none where the kernel does not count, one at least of what reads
            # this
            if turns:
                threads[name] = Thread(ran, waited)
        except (
            OSError,
            ValueError,
        ):
            # a thread that has ended; a file that is hidden, or holds something else
            continue
    return threads


def wait_source(threads: Threads) -> str:
    """What tells. That a thread has run says nothing: just after a fork no time of it
    is counted yet.
    """
    return SCHEDSTAT if threads else SWITCHES


def waited_share(
    before: Threads, after: Threads, seconds: float, cpus: int
) -> float | None:
    """Share of the time that the thread waited which waited longest: so much longer the
    sample took.

    None where more threads worked than there are CPUs: they waited for each other.
    """
    span = seconds * 1e9
    nothing = Thread(0, 0)
    ran = {name: now.ran - before.get(name, nothing).ran for name, now in after.items()}
    waited = {
        name: now.waited - before.get(name, nothing).waited
        for name, now in after.items()
    }
    if sum(time > WORKED * span for time in ran.values()) > cpus:
        return None
    return max(0.0, max(waited.values(), default=0) / span)


def switched_share(switches: int, seconds: float) -> float:
    """Share of the seconds that a thread waited for a CPU, as far as involuntary
    switches tell it.
    """
    return max(0.0, switches - 1 - QUIET_SWITCHES_A_S * seconds) * SWITCH_S / seconds


class WaitMeter:
    """`with_share(work)` gives what the work gave, and the share of its time that this
    process's threads waited.
    """

    def __init__(self, cpus: int, tasks: Path = TASKS) -> None:
        self._cpus, self._tasks = cpus, tasks
        self.source = wait_source(threads_of(tasks))

    def with_share(self, work: Callable[[], T], threads: int) -> tuple[T, float | None]:
        """`threads` are those that the workload was given: beyond the CPUs, involuntary
        switches say nothing.
        """
        before, switches, start = self._read(), _switches(), time.perf_counter()
        value = work()
        seconds = time.perf_counter() - start
        if self.source == SCHEDSTAT:
            return value, waited_share(before, self._read(), seconds, self._cpus)
        if threads > self._cpus:
            return value, None
        return value, switched_share(_switches() - switches, seconds)

    def _read(self) -> Threads:
        return threads_of(self._tasks) if self.source == SCHEDSTAT else {}


def _switches() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
