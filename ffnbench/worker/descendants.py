"""The processes that a worker's user code has started: they end with it, whatever they have made of themselves.

A process group ends what stays in it. What has left it (setsid, a daemon) is found by a mark in the environment that
it was started with, which Linux shows in /proc; elsewhere only the group ends. The parent looks for them when it closes
a worker.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

MARK = "FFNBENCH_WORKER"
PROC = Path("/proc")
SWEEPS = 5  # a process may start another one while it is looked for


def end_group(leader: int) -> None:
    """Kill a process and its group, if there is one."""
    for kill in (os.killpg, os.kill):
        try:
            kill(leader, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


def end_marked(mark: str) -> None:
    """Kill every process that was started with this mark, but for this one."""
    for _ in range(SWEEPS):
        found = [process for process in marked(mark) if process != os.getpid()]
        for process in found:
            try:
                os.kill(process, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
        if not found:
            return


def marked(mark: str) -> list[int]:
    """The processes that were started with this mark and have not ended; none where the system does not tell."""
    wanted, found = f"{MARK}={mark}".encode(), []
    try:
        names = [path.name for path in PROC.iterdir() if path.name.isdigit()]
    except OSError:
        return []
    for name in names:
        try:
            environment = (PROC / name / "environ").read_bytes()  # empty for one that has ended
        except OSError:
            continue
        if wanted in environment.split(b"\0"):
            found.append(int(name))
    return found
