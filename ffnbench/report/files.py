"""The files of an answer: those that can't be written are refused before anything is
measured, and each is written whole or not at all. The format follows from the suffix.
"""

from __future__ import annotations

import errno
import math
import os
import re
import secrets
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ffnbench.common.errors import FfnbenchError, Unfinished
from ffnbench.common.names import hint_for
from ffnbench.common.streams import say
from ffnbench.record.result import Report
from ffnbench.report.store import read_report, report_text

EVERY_S = 5.0  # the least time from one writing of a run to the next
# the time from one writing to the next, in times of what it takes: so a large result
# costs at most 2 % of its run
TIMES_WRITING = 50


def output_paths(
    typed: Iterable[str],
    stem: str,
    suffixes: Sequence[str],
    inputs: Sequence[Path] = (),
) -> list[Path]:
    """The files that were typed: for a folder (one that exists, or whose path ends with
    a slash) one of each format, whose names begin with `stem`.

    Raises FfnbenchError for a suffix that is none of these, for a path that can't be
    written, and for one of the `inputs`, which the command reads.
    """
    paths = []
    for text in typed:
        try:
            path = Path(text).expanduser()
            is_folder = text.endswith("/") or path.is_dir()
        # a RuntimeError: `~name` of a user who is not known
        except (OSError, ValueError, RuntimeError) as problem:
            raise _unwritable(Path(text), problem) from problem
        if is_folder:
            files = [path / f"{stem}{suffix}" for suffix in suffixes]
        elif path.suffix.lower() in suffixes:
            files = [path]
        else:
            formats = f"formats: {', '.join(suffixes)}; a folder is written with a slash at its end"
            what = f"unknown suffix {path.suffix!r}" if path.suffix else "no suffix"
            hint = hint_for(path.suffix, suffixes, formats)
            raise FfnbenchError(f"{what} in {text!r}", hint)
        for file in files:
            refuse_unwritable(file, inputs, makes_folder=is_folder)
        paths += files
    return paths


def refuse_unwritable(
    path: Path, inputs: Iterable[Path] = (), *, makes_folder: bool = False
) -> None:
    """Raise FfnbenchError for a path that can't be written, or that is one of the
    `inputs` of the same command. No file is made there.
    """
    try:
        target = path.resolve()
        if any(target.exists() and target.samefile(source) for source in inputs):
            raise FfnbenchError(
                f"{str(path)!r} is read by this command and would be overwritten",
                "write elsewhere",
            )
        folder = target.parent
        while makes_folder and not folder.exists():
            folder = folder.parent
        if not folder.is_dir():
            raise FfnbenchError(
                f"cannot write {str(path)!r}: no folder {str(path.parent)!r}",
                f"mkdir -p {shlex.quote(str(path.parent))}",
            )
        if target.exists() and not target.is_file():
            raise FfnbenchError(
                f"{str(path)!r} is no file", "name a file, or a folder/"
            )
        if target.exists() and not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        tempfile.TemporaryFile(dir=folder).close()
    except (OSError, RuntimeError, ValueError) as problem:
        raise _unwritable(path, problem) from problem


def _unwritable(path: Path, problem: Exception) -> FfnbenchError:
    why = getattr(problem, "strerror", None) or str(problem)
    return FfnbenchError(
        f"cannot write {str(path)!r}: {why}", "choose a place that you may write to"
    )


def inputs_of(*values: object) -> list[Path]:
    """The files whose paths were typed: as a value, or as part of a variant, of a list
    or of a key. Of a folder it is the config.json in it.
    """
    texts = [
        text
        for value in values
        for text in (value if isinstance(value, tuple) else [value])
        if isinstance(text, str)
    ]
    parts = {part for text in texts for part in (text, *re.split(r"[,=@:]", text))}
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


def write(path: Path, content: bytes | str) -> None:
    """Write a file in one step, and its folder where there is none. Raises Unfinished
    where that is not possible.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, content.encode() if isinstance(content, str) else content)
    except OSError as problem:
        why = problem.strerror or str(problem)
        raise Unfinished(
            f"cannot write {str(path)!r}: {why}", "is the disk full?"
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
    """
    target = path.resolve()
    temporary = target.with_name(f".ffnbench-{secrets.token_hex(8)}")
    try:
        with temporary.open("xb") as file:
            if target.exists():
                shutil.copymode(target, temporary)
            file.write(content)
        temporary.replace(target)
    except BaseException:  # so also when it is interrupted
        temporary.unlink(missing_ok=True)
        raise


class RunFile:
    """The .json of `-o` while its run is measured: a whole result, marked as
    interrupted, that is written again and again. With `resumes` the run goes on with
    what the file has.

    `text_of` makes its text of the report so far: that of a check has its findings.
    """

    text_of: Callable[[Report], str] = staticmethod(report_text)

    def __init__(self, path: Path, *, resumes: bool) -> None:
        self.path, self.resumes = path, resumes
        self._due = -math.inf

    def earlier(self) -> Report | None:
        """The run that is gone on with; None where there is none."""
        if not self.resumes or not self.path.is_file():
            return None
        return read_report(self.path)

    def keep(self, report_of: Callable[[], Report]) -> None:
        """Write what is measured so far, where it is time for that and there is a
        sample. A file that can't be written now is written at the end.
        """
        began = time.monotonic()
        if began < self._due:
            return
        report = report_of()
        if not report.samples:
            return
        try:
            write(self.path, self.text_of(report))
        except Unfinished as problem:
            say(f"note: {problem.message}; it is written at the end")
            self._due = math.inf
            return
        ended = time.monotonic()
        self._due = ended + max(EVERY_S, TIMES_WRITING * (ended - began))
