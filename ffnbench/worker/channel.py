"""The pipes between parent and worker: JSON lines over the worker's stdin and its original stdout (messages.py).

The worker moves both ends aside before any other code runs, so that prints of user code land on stderr and its
reads of stdin find an end of file.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from ffnbench.messages import Line

MARK = "FFNBENCH_WORKER"  # in the environment of a worker


class Channel:
    """The worker's end of the conversation."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        self._incoming = os.fdopen(incoming, "r", encoding="utf-8")
        self._outgoing = os.fdopen(outgoing, "w", encoding="utf-8")

    @classmethod
    def claim(cls) -> Channel:
        """Take stdin and stdout away from everything that runs later in this process."""
        incoming, outgoing = os.dup(0), os.dup(1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        os.close(nothing)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - lives as long as the process
        return cls(incoming, outgoing)

    def send(self, line: Line) -> None:
        """Send one line, at once."""
        self._outgoing.write(json.dumps(line, allow_nan=False) + "\n")
        self._outgoing.flush()

    def receive(self) -> Line | None:
        """Wait for the next line; None when the parent has gone."""
        text = self._incoming.readline()
        return json.loads(text) if text else None


def end_group(leader: int) -> None:
    """Kill a process and its group, if there is one: what code of the user's has started ends with its worker."""
    for kill in (os.killpg, os.kill):
        try:
            kill(leader, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue
