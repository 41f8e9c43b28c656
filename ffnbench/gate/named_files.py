"""Which code this user has named on a command line, by its path: a small file in his own state folder.

A file that can't be read, or that others may write, names nothing; one that can't be written stays as it is.
"""

from __future__ import annotations

import fcntl
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

MOST, MOST_BYTES, LONGEST = 500, 1 << 22, 8000  # lines, the newest are kept; bytes of the file and of a line


def named_path() -> Path:
    """Where the file is (XDG Base Directory Specification: a relative folder counts as none)."""
    given, home = os.environ.get("XDG_STATE_HOME", ""), os.path.expanduser("~")
    usual = "Library/Application Support" if sys.platform == "darwin" else ".local/state"
    folder = Path(given) if os.path.isabs(given) else Path(home if os.path.isabs(home) else os.devnull, usual)
    return folder / "ffnbench" / "named"


def known() -> list[str]:
    """Its lines, each `PATH:ATTR` of something that was named, or `PATH:` of a package that it is in."""
    try:
        with _opened(os.O_RDONLY, fcntl.LOCK_SH) as file:
            return file.read().splitlines()
    except (OSError, ValueError):
        return []


def remember(lines: Iterable[str]) -> None:
    """Add lines that are not there yet."""
    found = [line for line in lines if len(os.fsencode(line)) <= LONGEST and len(line.splitlines()) == 1]
    if {*found} <= {*known()}:
        return
    try:
        named_path().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _opened(os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX) as file:
            kept = list(dict.fromkeys([*file.read().splitlines(), *found]))[-MOST:]
            file.seek(0)
            file.truncate()
            file.writelines(f"{line}\n" for line in kept)
    except (OSError, ValueError):
        return


@contextmanager
def _opened(flags: int, lock: int) -> Iterator[TextIO]:
    """The file, locked; raises OSError for one that others may have written, and for what is no file."""
    number = os.open(named_path(), flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    with os.fdopen(number, "r+" if flags & os.O_RDWR else "r", encoding="utf-8", errors="surrogateescape") as file:
        about = os.fstat(number)
        mine = about.st_uid == os.geteuid() and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if not mine or not stat.S_ISREG(about.st_mode) or about.st_size > MOST_BYTES:
            raise OSError("no file of this user's alone")
        fcntl.flock(number, lock)
        yield file
