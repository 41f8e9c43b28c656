"""Finds how long the threads of this process waited for a CPU: the time that other
processes took from a sample.

Linux counts it to the nanosecond: the second number of /proc/self/task/*/schedstat is
the time that a thread was ready to run and had no CPU
(Documentation/scheduler/sched-stats.rst of the kernel). Elsewhere, and where a
container hides that file, it is estimated from involuntary context switches. Where a
workload has more threads than there are CPUs, they wait for each other, and nothing is
known of other processes.
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
# measured on Linux beside a process that spins: a switch by which another process takes
# the CPU costs about 4 ms; a quiet sample has up to 50 a second, which cost next to
# nothing
SWITCH_S, QUIET_SWITCHES_A_S = 0.004, 50.0
# a thread that ran for a smaller share of a sample does not belong to the workload
WORKED = 0.1


@dataclass(frozen=True, slots=True)
class ThreadTimes:
    """Nanoseconds that one thread has run, and that it has waited for a CPU."""

    ran: int
    waited: int


Threads = dict[str, ThreadTimes]  # by the number of the thread
T = TypeVar("T")


def threads_of(tasks: Path = TASKS) -> Threads:
    """The times of every thread of this process that has run; empty where the kernel
    does not tell them.
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
            # the thread that reads this has had a turn on a CPU: where all have none,
            # the kernel does not count
            if turns:
                threads[name] = ThreadTimes(ran, waited)
        except (OSError, ValueError):
            # the thread has ended, or the file is hidden or has another content
            continue
    return threads


def wait_source(threads: Threads) -> str:
    """How waiting is known, SCHEDSTAT or SWITCHES. Times of zero do not matter: right
    after a fork none is counted yet.
    """
    return SCHEDSTAT if threads else SWITCHES


def waited_share(
    before: Threads, after: Threads, seconds: float, cpus: int
) -> float | None:
    """The share of the seconds that one thread waited, the one that waited longest: so
    much longer the sample took.

    None where more threads worked than there are CPUs: they waited for each other.
    """
    span = seconds * 1e9
    nothing = ThreadTimes(0, 0)
    ran = {name: now.ran - before.get(name, nothing).ran for name, now in after.items()}
    waited = {
        name: now.waited - before.get(name, nothing).waited
        for name, now in after.items()
    }
    if sum(time > WORKED * span for time in ran.values()) > cpus:
        return None
    return max(0.0, max(waited.values(), default=0) / span)


def switched_share(switches: int, seconds: float) -> float:
    """An estimate of the share of the seconds that a thread waited for a CPU, from the
    number of involuntary switches beyond those of a quiet sample.
    """
    return max(0.0, switches - 1 - QUIET_SWITCHES_A_S * seconds) * SWITCH_S / seconds


class WaitMeter:
    """Measures the share of the time of some work that the threads of this process
    waited for a CPU. `source` is how that is known.
    """

    def __init__(self, cpus: int, tasks: Path = TASKS) -> None:
        self._cpus, self._tasks = cpus, tasks
        self.source = wait_source(threads_of(tasks))

    def with_share(self, work: Callable[[], T], threads: int) -> tuple[T, float | None]:
        """Do the work. Return what it returned, and the share of its time that threads
        waited, None where that is not known.

        `threads` is the number that the workload was given: if it is larger than that
        of the CPUs, involuntary switches say nothing.
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
    """Involuntary context switches of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
