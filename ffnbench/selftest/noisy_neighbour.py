"""A neighbour that works in bursts on every CPU: what shared machines have, on purpose. `with Neighbour(seed): ...`

Bursts and pauses last 3 s on average (exponential), as jobs of a build next door do, the same on all CPUs.
Standard library only.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from types import TracebackType

from ffnbench.bench.environment import usable_cpus

MEAN_S = 3.0


class Neighbour:
    """Runs while the context lasts; ends with it, and with this process."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Neighbour:
        command = [sys.executable, "-m", __spec__.name, str(self._seed), str(time.time())]
        self._processes = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(usable_cpus())]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()


def bursts(seed: int, start: float) -> None:
    """Spin and sleep by turns until the parent is gone: then stdin's end is the sign."""
    import os
    import select

    dice, until, busy = random.Random(seed), start, False
    while not select.select([0], [], [], 0)[0]:
        until += min(dice.expovariate(1 / MEAN_S), 4 * MEAN_S)
        busy = not busy
        while busy and time.time() < until and os.getppid() > 1:
            pass
        time.sleep(max(0.0, until - time.time()))


if __name__ == "__main__":
    bursts(int(sys.argv[1]), float(sys.argv[2]))
