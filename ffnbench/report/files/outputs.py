"""The files of an answer: checked before anything is measured, and written either
completely or not at all.

The format follows from the suffix; a folder gets a file of each format.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import shlex
import stat
import tempfile
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from ffnbench.common.errors import FfnbenchError, Unfinished
from ffnbench.common.files import content_of
from ffnbench.common.names import hint_for

TEMPORARY_PREFIX = ".ffnbench-"  # how the name of a file begins while it is written


def refuse_wrong_date() -> None:
    """Raise FfnbenchError where SOURCE_DATE_EPOCH, which pictures take their date from,
    is no number of seconds of a date.
    """
    text = os.environ.get("SOURCE_DATE_EPOCH") or "0"
    try:
        datetime.fromtimestamp(int(text), UTC)
    except (ValueError, OverflowError, OSError):
        raise FfnbenchError(
            f"SOURCE_DATE_EPOCH is {text!r}, which is no date in seconds",
            "unset it, or give the seconds since 1970",
        ) from None


def is_run(path: Path) -> bool:
    """Whether a file is to hold the whole run, from which it can be read again."""
    return path.suffix.lower() == ".json"


class Outputs:
    """The files of a command. Those that can't be written are refused at once, before
    anything is measured, with FfnbenchError.

    `typed` are the paths that the user typed, and `stem` names the files in a folder.
    `inputs` are files that the command reads: none of them is overwritten. Where
    `why_runs_stay` gives a reason, no file with samples is overwritten either.
    `written` are the files that were written.

    As a context manager it removes the folders that it made and that stayed empty.
    """

    def __init__(
        self,
        typed: Sequence[str],
        stem: str,
        suffixes: Sequence[str],
        inputs: Iterable[Path] = (),
        why_runs_stay: str = "",
    ) -> None:
        self._suffixes = tuple(suffixes)
        self._folders: list[Path] = []
        self.written: list[Path] = []
        refuse_wrong_date()
        try:
            self.paths = tuple(
                path for text in typed for path in self._expand(text, stem)
            )
            inputs_read = list(inputs)
            for path in self.paths:
                refuse_unwritable(path, inputs_read)
                if why_runs_stay:
                    _refuse_measured(path, why_runs_stay)
        except BaseException:  # so also when it is interrupted
            self.close()
            raise

    def __enter__(self) -> Outputs:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the folders that were made and stayed empty."""
        for folder in self._folders:
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()

    def write(self, render: Callable[[Path], bytes]) -> list[Path]:
        """Write every file, each in one step, and return their paths; `render` gives
        the bytes for a path.

        A file that can't be written does not stop the others: all problems are raised
        as one Unfinished at the end.
        """
        problems, hints = [], []
        for path in self.paths:
            try:
                replace_file(path, render(path))
                self.written.append(path)
            # a FfnbenchError: a picture may have no room for all of its texts
            except (OSError, FfnbenchError) as problem:
                problems.append(f"cannot write {str(path)!r}: {_why(problem)}")
                hints.append(
                    getattr(problem, "hint", "")
                    or "is the disk full, or the folder gone?"
                )
        if not problems:
            return self.written
        if not any(map(is_run, self.written)):
            hints.append("the answer is shown on stdout")
        raise Unfinished("; ".join(problems), "; ".join(dict.fromkeys(hints)))

    def _expand(self, text: str, stem: str) -> list[Path]:
        """The path of the file, or for a folder (one that exists, or whose path ends
        with a slash) the paths of one file of each format.
        """
        try:
            path = Path(text).expanduser()
            if text.endswith(("/", os.sep)) or path.is_dir():
                self._folders += [
                    folder for folder in (path, *path.parents) if not folder.exists()
                ]
                path.mkdir(parents=True, exist_ok=True)
                return [path / f"{stem}{suffix}" for suffix in self._suffixes]
        # a RuntimeError: `~name` of a user who is not known
        except (OSError, ValueError, RuntimeError) as problem:
            raise _unwritable(Path(text), problem) from problem
        if path.suffix.lower() not in self._suffixes:
            formats = f"formats: {', '.join(self._suffixes)}; a folder is written with a slash at its end"
            message = f"unknown suffix {path.suffix!r}" if path.suffix else "no suffix"
            raise FfnbenchError(
                f"{message} in {text!r}", hint_for(path.suffix, self._suffixes, formats)
            )
        return [path]


def inputs_of(*values: object) -> list[Path]:
    """The files whose paths were typed: as a value, or as part of a variant, of a list
    or of a key. Of a folder it is the config.json in it.
    """
    parts = set()
    for value in values:
        for text in value if isinstance(value, tuple) else [value]:
            if isinstance(text, str):
                parts |= {text, *re.split(r"[,=@:]", text)}
    paths = []
    for part in sorted(parts - {""}):
        path = Path(part)
        paths += [each for each in (path, path / "config.json") if _is_file(each)]
    return paths


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # the name is too long, or has a NUL
        return False


def refuse_unwritable(path: Path, inputs: Iterable[Path] = ()) -> None:
    """Raise FfnbenchError for a path that can't be written, or that is one of the
    `inputs` of the same command. No file is made there.
    """
    try:
        if any(path.exists() and path.samefile(source) for source in inputs):
            raise FfnbenchError(
                f"{str(path)!r} is read by this command and would be overwritten",
                "write elsewhere",
            )
        target = path.resolve()
        if not target.parent.is_dir():
            folder = str(target.parent if path.is_symlink() else path.parent)
            raise FfnbenchError(
                f"cannot write {str(path)!r}: no folder {folder!r}",
                f"mkdir -p {shlex.quote(folder)}",
            )
        mode = target.stat().st_mode if target.exists() else stat.S_IFREG
        if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)):
            raise FfnbenchError(
                f"{str(path)!r} is {'a folder' if stat.S_ISDIR(mode) else 'no file'}",
                "name a file, or a folder/",
            )
        if target.exists() and not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        if stat.S_ISREG(mode):  # its folder has to take the temporary file
            tempfile.TemporaryFile(dir=target.parent).close()
    except (OSError, RuntimeError, ValueError) as problem:
        raise _unwritable(path, problem) from problem


def _unwritable(path: Path, problem: Exception) -> FfnbenchError:
    return FfnbenchError(
        f"cannot write {str(path)!r}: {_why(problem)}",
        "choose a place that you may write to",
    )


def _why(problem: Exception) -> str:
    return (
        getattr(problem, "strerror", None)
        or getattr(problem, "message", None)
        or str(problem)
    )


def _refuse_measured(path: Path, why: str) -> None:
    """Raise FfnbenchError for a saved run: its samples are worth more than the answer
    that would stand in their place.
    """
    if not is_run(path) or not _is_file(path):
        return
    try:
        data = json.loads(content_of(path))
    except (ValueError, FfnbenchError, RecursionError):
        return
    if isinstance(data, dict) and data.get("samples"):
        problem = f"{str(path)!r} holds what was measured, and {why}"
        raise FfnbenchError(problem, "write elsewhere, or move it away")


def save(path: Path, text: str) -> None:
    """Write one file in one step. Raises Unfinished where it can't be written."""
    try:
        replace_file(path, text.encode())
    except OSError as problem:
        raise Unfinished(
            f"cannot write {str(path)!r}: {problem.strerror}", "is the disk full?"
        ) from problem


def append(path: Path, text: str) -> None:
    """Add text to a file that others write to as well; raises Unfinished where that is
    not possible.
    """
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as problem:
        raise Unfinished(
            f"cannot write {str(path)!r}: {problem.strerror}", "the answer is above"
        ) from problem


def replace_file(path: Path, content: bytes) -> None:
    """Write a temporary file beside this one and rename it: there is never half a file,
    even if the disk gets full or the process is killed. Mode and link stay.

    The temporary file is made exclusively, under a name that nobody can foresee. A
    device or a pipe is written to directly; a pipe that nobody reads is an OSError.
    """
    target = path.resolve()
    mode = target.stat().st_mode if target.exists() else None
    if mode is not None and not stat.S_ISREG(mode):
        with os.fdopen(os.open(target, os.O_WRONLY | os.O_NONBLOCK), "wb") as file:
            os.set_blocking(file.fileno(), True)
            file.write(content)
        return
    temporary = target.with_name(f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}")
    handle = os.open(
        temporary,
        os.O_WRONLY | os.O_CREAT | os.O_EXCL,
        0o666 if mode is None else 0o600,
    )
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            os.chmod(temporary, stat.S_IMODE(mode))
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
