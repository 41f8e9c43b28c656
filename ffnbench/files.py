"""Reading what a user names: a file or a pipe, to a size that is said, so that nothing fills memory."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import BinaryIO

from ffnbench.errors import FfnbenchError
from ffnbench.units import IEC, quantity

MOST_BYTES = 1 << 28


def content_of(path: str | Path, hint: str = "is the path right?") -> bytes:
    """Its content; raises FfnbenchError, with that hint, for what can't be read or is larger."""
    try:
        with open(path, "rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise OSError(0, f"it has more than {quantity(MOST_BYTES, IEC)}")
    except (OSError, ValueError) as problem:  # a NUL in a name
        why = getattr(problem, "strerror", None) or str(problem)
        raise FfnbenchError(f"cannot read {str(path)!r}: {why}", hint) from problem
    return content


def locked(file: BinaryIO) -> bool:
    """Whether no other process holds this file: this one does, until it is closed. True where there are no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without them
        pass
    return True
