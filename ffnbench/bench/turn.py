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
def turn(wait: bool, tell: Callable[[str], None], sleep: Callable[[float], None] = time.sleep) -> Iterator[str]:
    """Hold the turn while something is measured; gives what a reader should know: nothing where no other run has it.

    With `wait` it is waited for, and `tell` is told so. Where there can be no lock there are no turns.
    """
    file = _place()
    if file is None:
        yield ""
        return
    with file:
        free = _take(file)
        who = "" if free else _holder(file)
        if not free and wait:
            tell(f"waiting: another run of ffnbench{who} measures on this machine")
            while not free:
                sleep(POLL_S)
                free = _take(file)
        elif not free:
            tell(f"note: another run of ffnbench{who} measures on this machine now; --wait waits for it")
        if free:
            file.seek(0)
            file.truncate()
            file.write(str(os.getpid()).encode())
            file.flush()
        yield "" if free else BESIDE.format(who=who)


def _place() -> BinaryIO | None:
    """The file that is locked, in a folder of this user's own; None where there can be none."""
    if fcntl is None:
        return None
    folder = Path(tempfile.gettempdir(), f"ffnbench-{os.getuid()}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            return None  # somebody else's
        handle = os.open(folder / "measuring", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError:
        return None
    return os.fdopen(handle, "r+b", buffering=0)


def _take(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _holder(file: BinaryIO) -> str:
    """Which process has it."""
    file.seek(0)
    number = file.read(20).decode("ascii", "replace").strip()
    return f" (process {number})" if number.isdigit() else ""
