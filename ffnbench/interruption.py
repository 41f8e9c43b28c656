"""A polite kill (SIGTERM) of a command: it unwinds as Ctrl-C does, so that workers end and no file is half made."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def termination_as_interruption() -> Iterator[None]:
    """Raise KeyboardInterrupt at the first SIGTERM; further ones must not disturb the cleaning up."""

    def interrupt(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # signals belong to the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
