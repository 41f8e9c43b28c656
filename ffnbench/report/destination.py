"""How a command ends: its answer is written into files and shown. Whether the files can
be written is checked before anything is measured.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ffnbench.common.choices import SUFFIX_OF, SUFFIXES
from ffnbench.common.errors import EXIT_REGRESSED, FfnbenchError, Unfinished, complain
from ffnbench.common.names import hint_for
from ffnbench.common.streams import hush, say
from ffnbench.record.progress import Progress
from ffnbench.report.answer import Drawing, Shows, Write, file_content
from ffnbench.report.progress import TerminalProgress, progress_of
from ffnbench.report.table import Table
from ffnbench.report.terminal import Terminal, show

if TYPE_CHECKING:
    from ffnbench.report.files import RunFile

STDOUT_FORMATS = ("table", *SUFFIX_OF)
FORMAT_ALIASES = {"md": "markdown"}


class Destination:
    """Where an answer goes: stdout and files. As a context manager it ends the progress
    that is shown.

    `stem` names the files in a folder, `inputs` are files that the command reads.
    `code` is the exit code, 0 where a saved answer is shown again (`shows_again`).
    `file` holds the run while it is measured, None where none was asked for. The first
    arguments are flags of a command; `on` says where groups are measured as jobs.
    """

    updates = False  # whether the run will replace a baseline

    def __init__(
        self,
        stem: str,
        *,
        format: str = "table",
        verbose: bool = False,
        out: Sequence[str] = (),
        quiet: bool = False,
        resume: bool = False,
        on: str | None = None,
        suffixes: Sequence[str] = SUFFIXES,
        formats: Sequence[str] = STDOUT_FORMATS,
        inputs: Iterable[Path] = (),
        shows_again: bool = False,
    ) -> None:
        self._format = FORMAT_ALIASES.get(format, format)
        self._verbose = verbose
        refuse_unknown("format", self._format, formats)
        self._paths: list[Path] = []
        self.file: RunFile | None = None
        if out:
            from ffnbench.report.files import RunFile, output_paths

            self._paths = output_paths(out, stem, suffixes, list(inputs))
            runs = [path for path in self._paths if path.suffix.lower() == ".json"]
            self.file = RunFile(runs[0], resumes=resume) if runs else None
        if resume and self.file is None:
            raise FfnbenchError(
                "--resume continues the .json of -o, and none is given",
                "add -o sweep.json",
            )
        self._shown_progress = TerminalProgress(quiet=quiet)
        self.on = on
        self._shows_again = shows_again
        self.code = 0

    @property
    def progress(self) -> Progress:
        """What is told of a run."""
        return progress_of(self._shown_progress)

    def __enter__(self) -> Destination:
        return self

    def __exit__(self, *_: object) -> None:
        self._shown_progress.close()

    def show(self, answer: Shows) -> None:
        """Write the files and show the answer, each of them even if the other fails.

        Raises the problem of the answer and those of writing as one error. Where a
        check found a regression they are only printed, so that its exit code stays.
        """
        self._shown_progress.close()
        table = answer.shown_table()
        problem = None
        if not self._shows_again:
            self.code, problem = answer.outcome()
        problems = [problem] if problem else []
        if self._paths:
            problems += self._write(answer.files(table))
        problems += _attempt(lambda: self._print(answer, table))
        if self.code == EXIT_REGRESSED:
            for problem in problems:
                complain(problem.message, problem.hint, problem.exit_code)
        else:
            _raise(problems)

    def draw(self, drawing: Drawing) -> None:
        """Write the files of a picture."""
        _raise(self._write(drawing.files))

    def _write(self, writers: Mapping[str, Write]) -> list[FfnbenchError]:
        """Write the files that were asked for; gives the problems of those that could
        not be written.
        """
        from ffnbench.report.files import write

        written, problems = [], []
        for path in self._paths:
            try:
                write(path, file_content(writers, path))
                written.append(str(path))
            except FfnbenchError as problem:
                problems.append(problem)
        if written:
            say("wrote " + ", ".join(written))
        return problems

    def _print(self, answer: Shows, table: Table) -> None:
        if self._format == "table":
            show(table, Terminal(), verbose=self._verbose)
        else:
            suffix = SUFFIX_OF[self._format]
            sys.stdout.write(str(answer.files(table)[suffix]()))


def _raise(problems: Sequence[FfnbenchError]) -> None:
    """Raise the first of the problems, if any, with the messages and hints of all: its
    exit code is that of the command.
    """
    if problems:
        first = problems[0]
        first.message = "; ".join(problem.message for problem in problems)
        hints = dict.fromkeys(problem.hint for problem in problems if problem.hint)
        first.hint = "; ".join(hints)
        raise first


def _attempt(step: Callable[[], None]) -> list[FfnbenchError]:
    """Do this, and return the error that it raised, if any. A reader of stdout that has
    gone away is no error.
    """
    try:
        step()
        sys.stdout.flush()
    except FfnbenchError as problem:
        return [problem]
    except BrokenPipeError:
        hush()
    except OSError as problem:
        # the text left in the buffer would end Python with an exit code of its own
        hush()
        why = problem.strerror or problem
        return [Unfinished(f"cannot write to stdout: {why}", "is the disk full?")]
    return []


def refuse_unknown(name: str, value: str, choices: Sequence[str]) -> None:
    """Raise FfnbenchError, with did-you-mean, for a value that is none of `choices`;
    `name` says what it is a value of.
    """
    if value not in choices:
        raise FfnbenchError(
            f"unknown {name} {value!r}",
            hint_for(value, choices, "one of: " + ", ".join(choices)),
        )
