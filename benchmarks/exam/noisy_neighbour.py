"""A neighbour that takes CPU time: what shared machines have, on purpose. `with Neighbour(world, seed): ...`

Its processes are pinned to no CPU, and those of one neighbour work and rest in step. Standard library only.
"""

from __future__ import annotations

import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from exam.worlds import LiveWorld, turns
from ffnbench.device.environment import usable_cpus

HERE = Path(__file__).resolve().parents[1]  # where `exam` is found

LOOK_S = 0.05  # so often a working process looks whether its parent is still there


class Neighbour:
    """Runs while the context lasts; ends with it, and with this process."""

    def __init__(self, world: LiveWorld, seed: int) -> None:
        self._world, self._seed = world, seed
        self.processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Neighbour:
        wanted = usable_cpus() if self._world.processes is None else self._world.processes
        told = (self._seed, self._world.mean_s or "", time.time())
        command = [sys.executable, "-m", __spec__.name, *map(str, told)]
        for _ in range(wanted):
            self.processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, cwd=HERE))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()


def play(turns: Iterable[tuple[bool, float]], start: float) -> None:
    """Spin and rest by turns until the parent is gone."""
    until = start
    for works, seconds in turns:
        until += seconds
        while (left := until - time.time()) > 0:
            if _parent_gone(0 if works else left):
                return
            _spin(min(left, LOOK_S) if works else 0.0)


def _parent_gone(wait_s: float) -> bool:
    """Whether stdin has come to its end, at the latest after so many seconds."""
    return bool(select.select([0], [], [], wait_s)[0])


def _spin(seconds: float) -> None:
    until = time.time() + seconds
    while time.time() < until:
        pass


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    seed, mean_s, start = sys.argv[1:]
    play(turns(int(seed), float(mean_s) if mean_s else None), float(start))
