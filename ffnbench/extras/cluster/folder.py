"""The folder FILE.json.jobs, in which the jobs of a run stand, in submitit's own files.

Those files are pickles, and could run anything: a folder is taken up only where this user's own run has made it.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ffnbench.common.errors import FfnbenchError
from ffnbench.common.files import is_own, locked, own_folder


@contextmanager
def held(folder: Path, *, resumes: bool) -> Iterator[None]:
    """Make the folder, or take up that of an earlier run; nobody else goes on with its jobs meanwhile. One without any
    job does not stay behind. Raises FfnbenchError for a folder that is not to be taken up.
    """
    if not os.path.lexists(folder):
        _make(folder)
    elif not _is_of_this_user(folder):
        raise FfnbenchError(
            f"{str(folder)!r} is where jobs would stand, and no run of yours has made it",
            "move it away, or give -o another file; what others have made is not taken up",
        )
    elif not resumes:
        hint = f"add --resume: it takes them up; or forget them: rm -r {shlex.quote(str(folder))}"
        raise FfnbenchError(f"{str(folder)!r} holds jobs of a run that has not ended", hint)
    with (folder / "lock").open("wb") as file:
        if not locked(file):
            raise FfnbenchError(f"--resume: a run goes on with {str(folder)!r} now", "wait until it ends")
        try:
            yield
        finally:
            if not any(path.is_dir() for path in folder.glob("*")):
                shutil.rmtree(folder, ignore_errors=True)


def _token_of(folder: Path) -> Path:
    """Where this user's own folder keeps the token of a folder of jobs: the name of a file that stands in it."""
    return own_folder() / f"jobs-{hashlib.sha256(os.fsencode(folder)).hexdigest()}"


def _make(folder: Path) -> None:
    """Make the folder, with a token that nobody else knows; raises FfnbenchError where that can't be."""
    token = secrets.token_hex(16)
    try:
        _token_of(folder).write_text(token, encoding="ascii")
        folder.mkdir(mode=0o700)
        (folder / token).touch()
    except (OSError, RuntimeError) as problem:
        hint = "XDG_STATE_HOME names a folder of your own, in which ffnbench keeps whose jobs they are"
        raise FfnbenchError(f"cannot make {str(folder)!r}: {problem}", hint) from problem


def _is_of_this_user(folder: Path) -> bool:
    """Whether a run of this user's has made it. Nothing in it is read for that."""
    try:
        token = _token_of(folder).read_text(encoding="ascii")
        return is_own(folder) and (folder / token).is_file()
    except (OSError, RuntimeError):
        return False
