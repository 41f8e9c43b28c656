"""Reads files and pipes up to a limit, so that none fills the memory. Also the folder
for what outlasts a command, and locks.
"""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path
from typing import BinaryIO

from ffnbench.common.errors import FfnbenchError
from ffnbench.common.units import IEC, quantity

MOST_FILE_BYTES = 1 << 28


def content_of(path: str | Path, hint: str = "is the path right?") -> bytes:
    """Read all of a file; raises FfnbenchError, with this hint, where it can't be read
    or has more than MOST_FILE_BYTES.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(MOST_FILE_BYTES + 1)
        if len(content) > MOST_FILE_BYTES:
            raise OSError(0, f"it has more than {quantity(MOST_FILE_BYTES, IEC)}")
    except (OSError, ValueError) as problem:  # a NUL in a name
        why = getattr(problem, "strerror", None) or str(problem)
        raise FfnbenchError(f"cannot read {str(path)!r}: {why}", hint) from problem
    return content


def try_lock(file: BinaryIO) -> bool:
    """Lock a file for this process, until it is closed; gives False where another
    process has locked it, and True on a file system without locks.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without them
        pass
    return True


def own_folder() -> Path:
    """The folder for what outlasts a command, which is made where there is none:
    `ffnbench` in $XDG_STATE_HOME or ~/.local/state. A path that is not absolute is
    ignored, as the XDG Base Directory Specification says.

    Raises OSError or RuntimeError where it can't be made, or others may write to it.
    """
    states = Path(os.environ.get("XDG_STATE_HOME", ""))
    if not states.is_absolute():
        states = Path("~/.local/state").expanduser()
    folder = states / "ffnbench"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not is_own(folder.resolve()):
        raise PermissionError(f"others may write to {str(folder)!r}")
    return folder


def is_own(folder: Path) -> bool:
    """Whether it is a folder, and no link, that belongs to this user and that nobody
    else may write to.
    """
    status = folder.lstat()
    others_may_write = status.st_mode & 0o022
    return (
        stat.S_ISDIR(status.st_mode)
        and status.st_uid == os.getuid()
        and not others_may_write
    )
