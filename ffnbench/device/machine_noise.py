"""What else ran on this machine while a run measured, and whether its clock held. Linux; elsewhere it sees nothing.

It tells who was busy and why seconds are what they are; which rounds count is not decided here.
"""

from __future__ import annotations

import os
import re
import resource
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ffnbench.device.environment import physical_cpus, usable_cpus
from ffnbench.result import Around

THROTTLED = 0.93
SHORTEST_S, SHORTEST_STOLEN_S = 2.0, 0.5  # the kernel counts in hundredths
LOOK_S, BUSY_CPUS = 0.3, 0.25  # for a look before a run; more than a quiet machine's own services use
GLANCES, GLANCE_S = 4, 0.01  # without anybody else at work in them there is nothing to look at


@dataclass(frozen=True, slots=True)
class _Moment:
    """CPU seconds since boot, of the whole machine and of this process with the children that have ended."""

    at: float
    busy: float
    stolen: float
    own: float


def others_now(threads: int, sleep: Callable[[float], None] = time.sleep) -> float | None:
    """CPUs that others use at this moment; None where that leaves enough for so many threads, or is not known."""
    if not any(_someone_works(sleep) for _ in range(GLANCES)):
        return None
    watch = Watch()
    sleep(LOOK_S)
    others, cpus = watch.others(), os.cpu_count() or 1
    return others if others is not None and others > max(0, cpus - threads) + BUSY_CPUS else None


def _someone_works(sleep: Callable[[float], None]) -> bool:
    """Whether the kernel runs more than this process at this moment, or does not say."""
    sleep(GLANCE_S)
    try:
        return int(Path("/proc/loadavg").read_text(encoding="ascii").split()[3].partition("/")[0]) > 1
    except (OSError, ValueError, IndexError):
        return True


def _stolen(start: _Moment | None, end: _Moment | None) -> float | None:
    """Share of the CPUs' time that the hypervisor gave away between two moments; ticks are too coarse for less."""
    if not start or not end or end.at - start.at < SHORTEST_STOLEN_S:
        return None
    return (end.stolen - start.stolen) / (end.at - start.at) / (os.cpu_count() or 1)


class Watch:
    """Made at the start of a run; `worker_begins` and `worker_done` while it works, the rest when all have ended."""

    def __init__(self, read: Callable[[str], str] = lambda path: Path(path).read_text(encoding="ascii")) -> None:
        self._read = read
        self._start = self._worker = self._moment()
        self._load = os.getloadavg()[0]
        self._clocks: list[float] = []
        self._stolen: list[float | None] = []

    def worker_begins(self) -> None:
        """From now on what is stolen is stolen from this worker."""
        self._worker = self._moment()

    def worker_done(self) -> None:
        """Read the clock, while a worker has just been busy, and what was stolen from it."""
        if (mhz := self._clock()) is not None:
            self._clocks.append(mhz)
        self._stolen.append(_stolen(self._worker, self._moment()))

    def around(self) -> Around:
        """What others did during the run; unknown is None."""
        end = self._moment()
        long = self._start is not None and end is not None and end.at - self._start.at > SHORTEST_S
        others = self._others_until(end) if long else None
        return Around(others_cpus=others, load=self._load, stolen=tuple(self._stolen))

    def others(self) -> float | None:
        """CPUs that others have used since the start, however short that was; None where it is not known."""
        return self._others_until(self._moment())

    def _others_until(self, end: _Moment | None) -> float | None:
        if not self._start or not end or end.at <= self._start.at:
            return None
        used = end.busy - self._start.busy - (end.own - self._start.own)
        return max(0.0, used / (end.at - self._start.at))

    def notes(self, threads: int) -> list[str]:
        """What a reader of the run should know; `threads` is the most that a case used."""
        found = []
        if len(self._clocks) > 1 and self._clocks[-1] < THROTTLED * self._clocks[0]:
            found.append(
                f"the CPU's clock fell from {self._clocks[0]:.0f} to {self._clocks[-1]:.0f} MHz during the run: "
                "it throttles; let it cool, or fix the clock (`ffnbench env`)"
            )
        real = min(usable_cpus(), physical_cpus())
        if threads > real:
            found.append(f"{threads} threads on {real} real CPU{'s' if real > 1 else ''}: --threads {real} is steadier")
        return found

    def _moment(self) -> _Moment | None:
        try:
            ticks = [int(n) for n in self._read("/proc/stat").splitlines()[0].split()[1:]]
            hertz = os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError, IndexError):
            return None
        ticks += [0] * (8 - len(ticks))
        user, nice, system, _, _, irq, softirq, stolen = ticks[:8]
        usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        own = sum(u.ru_utime + u.ru_stime for u in usage)
        return _Moment(time.monotonic(), (user + nice + system + irq + softirq) / hertz, stolen / hertz, own)

    def _clock(self) -> float | None:
        """MHz of the fastest CPU: the one that was working."""
        with suppress(OSError):
            told = re.findall(r"cpu MHz\s*: ([\d.]+)", self._read("/proc/cpuinfo"))
            return max(map(float, told), default=None)
        return None
