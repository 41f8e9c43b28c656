"""Reading what a user names: a plain file or a pipe, to a size that is said, so that nothing hangs or fills memory."""

from __future__ import annotations

import os
import select
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from ffnbench.errors import FfnbenchError
from ffnbench.units import IEC, quantity

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

MOST_BYTES = 1 << 28
WRITER_S = 1.0  # so long a pipe is waited for that nobody has opened for writing
KINDS = {stat.S_IFDIR: "a folder", stat.S_IFCHR: "a device", stat.S_IFBLK: "a disk", stat.S_IFSOCK: "a socket"}


def content_of(path: str | Path, hint: str = "is the path right?") -> bytes:
    """Its content; raises FfnbenchError, with that hint, for what can't be read, is no file or pipe, or is larger."""
    try:
        about = os.stat(path)
        kind = stat.S_IFMT(about.st_mode)
        if kind not in (stat.S_IFREG, stat.S_IFIFO):
            raise OSError(0, f"it is {KINDS.get(kind, 'no file')}")
        with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
            content = _begun(file.fileno()) if kind == stat.S_IFIFO else b""
            content += file.read(MOST_BYTES + 1) if about.st_size <= MOST_BYTES else b""
        if max(about.st_size, len(content)) > MOST_BYTES:
            raise OSError(0, f"it has more than {quantity(MOST_BYTES, IEC)}")
    except (OSError, ValueError) as problem:  # a NUL in a name
        why = getattr(problem, "strerror", None) or str(problem)
        raise FfnbenchError(f"cannot read {str(path)!r}: {why}", hint) from problem
    return content


def locked(file: BinaryIO) -> bool:
    """Whether no other process holds this file: this one does, until it is closed. True where there are no locks."""
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without them
        pass
    return True


def _begun(pipe: int) -> bytes:
    """What has come of a pipe when it is known that somebody writes to it; raises OSError where nobody does."""
    first = b""
    if not select.select([pipe], [], [], WRITER_S)[0]:
        with suppress(BlockingIOError):  # somebody has opened it
            first = os.read(pipe, 1)
            if not first:
                raise OSError(0, "it is a pipe that nobody writes to")
    os.set_blocking(pipe, True)
    return first
