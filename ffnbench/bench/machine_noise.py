"""What else ran on this machine while a run measured, and whether its clock held. Linux; elsewhere it sees nothing.

Everything here is advice: it tells why seconds are what they are, and what would make the next run quieter.
"""

from __future__ import annotations

import os
import re
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ffnbench.bench.environment import physical_cpus, usable_cpus
from ffnbench.units import percent

OTHERS_CPUS = 0.15  # of other processes, on average
STOLEN = 0.01
THROTTLED = 0.93
SHORTEST_S = 2.0  # the kernel counts in hundredths


@dataclass(frozen=True, slots=True)
class _Moment:
    """CPU seconds since boot, of the whole machine and of this process with the children that have ended."""

    at: float
    busy: float
    stolen: float
    own: float


class Watch:
    """Made at the start of a run; `note_clock` while it works, `notes` when every worker has ended."""

    def __init__(self, read: Callable[[str], str] = lambda path: Path(path).read_text(encoding="ascii")) -> None:
        self._read = read
        self._start = self._moment()
        self._load = os.getloadavg()[0]
        self._clocks: list[float] = []

    def note_clock(self) -> None:
        """Read the clock, while a worker has just been busy."""
        if (mhz := self._clock()) is not None:
            self._clocks.append(mhz)

    def notes(self, threads: int) -> list[str]:
        """What a reader of the run should know; `threads` is the most that a case used."""
        found = []
        end = self._moment()
        if self._start and end and end.at - self._start.at > SHORTEST_S:
            found += self._busy(self._start, end)
        if len(self._clocks) > 1 and self._clocks[-1] < THROTTLED * self._clocks[0]:
            found.append(
                f"the CPU's clock fell from {self._clocks[0]:.0f} to {self._clocks[-1]:.0f} MHz during the run: "
                "it throttles; let it cool, or fix the clock (`ffnbench env`)"
            )
        real = min(usable_cpus(), physical_cpus())
        if threads > real:
            found.append(f"{threads} threads on {real} real CPU{'s' if real > 1 else ''}: --threads {real} is steadier")
        return found

    def _busy(self, start: _Moment, end: _Moment) -> list[str]:
        wall = end.at - start.at
        others = (end.busy - start.busy - (end.own - start.own)) / wall
        stolen = (end.stolen - start.stolen) / wall / (os.cpu_count() or 1)
        found = []
        if others > OTHERS_CPUS:
            found.append(
                f"other processes used {others:.1f} CPUs during the run (load at its start {self._load:.1f}): "
                "stop them for steadier seconds; ratios are paired and hold"
            )
        if stolen > STOLEN:
            found.append(
                f"the hypervisor gave {percent(stolen)} of the CPU time to other guests: "
                "the seconds are too long, the ratios hold"
            )
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
        found = []
        for cpu in range(os.cpu_count() or 1):
            try:
                found.append(int(self._read(f"/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq")) / 1000)
            except (OSError, ValueError):
                break
        if not found:
            try:
                found = [float(mhz) for mhz in re.findall(r"cpu MHz\s*: ([\d.]+)", self._read("/proc/cpuinfo"))]
            except OSError:
                return None
        return max(found, default=None)
