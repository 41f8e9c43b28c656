"""One run at a time on a machine: whether another run of this user measures now, and waiting until it has ended.

The one that measures holds a lock, which ends with its process, however that ends. Runs of other users, and in other
containers, are not seen here; the time that threads wait for a CPU tells of them (waiting.py).
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

POLL_S = 0.5
BESIDE = "another run of ffnbench{who} measured on this machine when this one began: each disturbs the other"


@contextmanager
def machine_lock(wait: bool, tell: Callable[[str], None], sleep: Callable[[float], None] = time.sleep) -> Iterator[str]:
    """Hold the turn while something is measured; gives what a reader should know: nothing where no other run has it.

    With `wait` it is waited for, and `tell` is told so. Where there can be no lock there are no turns.
    """
    place = Path(tempfile.gettempdir(), f"ffnbench-measuring-{os.getuid()}") if fcntl else None
    try:
        mine, who = _take(place) if place else (None, None)
        if who is not None and wait:
            tell(f"waiting: another run of ffnbench{who} measures on this machine")
            while mine is None and who is not None:
                sleep(POLL_S)
                mine, who = _take(place) if place else (None, None)
        elif who is not None:
            tell(f"note: another run of ffnbench{who} measures on this machine now; --wait waits for it")
    except OSError:  # no such folder, or a file of somebody else's
        mine, who = None, None
    try:
        yield "" if who is None else BESIDE.format(who=who)
    finally:
        if mine is not None and place is not None:
            place.unlink(missing_ok=True)  # first, so that nobody takes a file that is about to go
            mine.close()


def _take(place: Path) -> tuple[BinaryIO | None, str | None]:
    """The file, locked for this process; else what is known of the process that has it."""
    while True:
        handle = os.open(place, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        file = os.fdopen(handle, "r+b", buffering=0)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            number = file.read(20).decode("ascii", "replace").strip()
            file.close()
            return None, f" (process {number})" if number.isdigit() else ""
        if place.exists() and os.path.samestat(os.fstat(handle), place.stat()):
            file.truncate()
            file.write(str(os.getpid()).encode())
            return file, None
        file.close()  # it went between opening and locking
