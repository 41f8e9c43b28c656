"""How a command ends: its answer is written into files and shown. Whether the files can
be written is checked before anything is measured.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ffnbench.choices import SUFFIXES
from ffnbench.common.errors import EXIT_REGRESSED, FfnbenchError, Unfinished, complain
from ffnbench.common.names import hint_for
from ffnbench.common.streams import hush, say
from ffnbench.following import Following
from ffnbench.report.formats import (
    STDOUT_FORMATS,
    View,
    Write,
    file_content,
    is_run,
)
from ffnbench.report.progress import TerminalProgress
from ffnbench.report.terminal import Terminal, show
from ffnbench.result import Report

if TYPE_CHECKING:
    from ffnbench.report.arrangement import Arrangement
    from ffnbench.report.files.journal import Journal
    from ffnbench.report.files.outputs import Outputs

CI_WIDTH = 100  # letters in a line of a log of GitHub
FORMAT_ALIASES = {"md": "markdown"}


class Destination:
    """Where an answer goes: stdout and files. As a context manager it removes at its
    end the folders that it has made and that stayed empty.

    `stem` names the files in a folder, `inputs` are files that the command reads, and
    `why_runs_stay` is the reason where no saved run may be overwritten, else empty.
    `code` is the exit code. The first arguments are flags of a command; `on` says where
    groups are measured as jobs.
    """

    def __init__(
        self,
        stem: str,
        *,
        format: str = "table",
        verbose: bool = False,
        columns: str | None = None,
        sort: str | None = None,
        out: Sequence[str] = (),
        quiet: bool = False,
        resume: bool = False,
        on: str | None = None,
        suffixes: Sequence[str] = SUFFIXES,
        formats: Sequence[str] = STDOUT_FORMATS,
        inputs: Iterable[Path] = (),
        why_runs_stay: str = "",
    ) -> None:
        self._format = FORMAT_ALIASES.get(format, format)
        self._verbose = verbose
        refuse_unknown("format", self._format, formats)
        self._arrangement: Arrangement | None = None
        if sort or columns:
            from ffnbench.report.arrangement import Arrangement

            self._arrangement = Arrangement(sort=sort or "", columns=columns or "")
        self._outputs: Outputs | None = None
        if out:
            from ffnbench.report.files.outputs import Outputs

            self._outputs = Outputs(
                out, stem, suffixes, inputs, why_runs_stay=why_runs_stay
            )
        self.progress = TerminalProgress(quiet=quiet)
        self.resumes, self.on = resume, on
        self.updates = False
        first = self._first_file
        if self.resumes and first is None:
            raise FfnbenchError(
                "--resume continues the file of -o, and none is given",
                "add -o sweep.json",
            )
        self._journal: Journal | None = None
        if first is not None:
            from ffnbench.report.files.journal import Journal

            self._journal = Journal(first, takes_over=self.resumes)
        self._is_unsaved = True  # what was measured stands in no file yet
        self.code = 0

    @property
    def following(self) -> Following:
        """What follows the run: the progress, the journal if there is one, and the
        reader of an earlier run.
        """
        following = Following(progress=self.progress, resumed=self._earlier_run)
        if self._journal is None:
            return following
        return replace(following, journal=self._journal.add)

    @property
    def _paths(self) -> Sequence[Path]:
        """The files that are written."""
        return () if self._outputs is None else self._outputs.paths

    @property
    def _first_file(self) -> Path | None:
        """The first of the files beside which a journal can stand; None where there is
        none.
        """
        return None if self._outputs is None else self._outputs.first

    @property
    def saved(self) -> Path | None:
        """The first file that will hold the whole run."""
        for path in self._paths:
            if is_run(path):
                return path
        return None

    def __enter__(self) -> Destination:
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.close()
        if self._journal is not None and self._journal.close(keep=self._is_unsaved):
            say(
                f"what was measured is in {self._journal.path}: ffnbench report shows it"
            )
        if self._outputs is not None:
            self._outputs.close()

    def expect(self, report: Report) -> None:
        """Raise FfnbenchError for a column that the tables of such a report lack. It
        need not be measured yet.
        """
        if self._arrangement is not None:
            from ffnbench.report.shown_report import refuse_unknown_columns

            refuse_unknown_columns(report, self._arrangement)

    def _earlier_run(self) -> Report | None:
        """The run that --resume goes on with, from its journal or its file, whichever
        was written last; None where there is neither.
        """
        first = self._first_file
        if not self.resumes or first is None:
            return None
        from ffnbench.report.files.journal import NoSamples, journal_of, refuse_running
        from ffnbench.report.files.store import read_report

        journal = journal_of(first)
        saved = filter(is_run, self._paths)
        paths = [path for path in (journal, *saved) if path.is_file()]
        if not paths:
            return None
        if journal in paths:
            with journal.open("rb") as file:
                refuse_running(file)
        try:
            return read_report(max(paths, key=lambda path: path.stat().st_mtime))
        except NoSamples:
            return None

    def show(self, shown: View) -> None:
        """Write the files and show the answer, each of them even if the other fails.

        Raises the problem of the view and those of writing as one error. Where a check
        found a regression they are only printed, so that its exit code stays.
        """
        self.progress.close()
        if self._arrangement is not None:
            shown = shown.arranged(self._arrangement)
        self.code = shown.code
        problems = [shown.problem] if shown.problem else []
        unwritten = _attempt(lambda: self._write_files(shown))
        rescued = None if self._outputs is None else self._outputs.rescued
        self._is_unsaved = bool(unwritten) and rescued is None
        problems += unwritten
        problems += _attempt(lambda: self._print(shown))
        if self.code == EXIT_REGRESSED:
            for problem in problems:
                complain(problem.message, problem.hint, problem.exit_code)
        elif problems:
            raise _joined(problems)

    def write(
        self, files: Mapping[str, Write], rescue: Callable[[], str] | None = None
    ) -> list[Path]:
        """Write the files that were asked for and return their paths. `files` are the
        writers, and `rescue` gives the text to save if a file can't be written.
        """
        if self._outputs is None:
            return []
        return self._outputs.write(
            partial(file_content, files),
            (lambda: rescue().encode()) if rescue else None,
        )

    def _write_files(self, shown: View) -> None:
        if self._outputs is None:
            return
        try:
            self.write(shown.files, shown.rescue)
        finally:
            if self._outputs.written:
                say("wrote " + ", ".join(map(str, self._outputs.written)))

    def _print(self, view: View) -> None:
        if self._format == "table":
            show(view.table, Terminal(), verbose=self._verbose)
        elif self._format == "github":
            # a label at the beginning of a line could give GitHub's runner a command
            token = secrets.token_hex(16)
            sys.stdout.write(f"::stop-commands::{token}\n")
            show(view.table, Terminal(width=CI_WIDTH, no_color=True))
            sys.stdout.write(f"::{token}::\n" + view.stdout["github"]())
            if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
                from ffnbench.report.files.outputs import append

                append(Path(summary), view.stdout["markdown"]())
        else:
            sys.stdout.write(view.stdout[self._format]())


def _joined(problems: Sequence[FfnbenchError]) -> FfnbenchError:
    """The first problem, with the messages and hints of all: its exit code is that of
    the command.
    """
    first = problems[0]
    first.message = "; ".join(problem.message for problem in problems)
    first.hint = "; ".join(problem.hint for problem in problems if problem.hint)
    return first


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
        return [
            Unfinished(
                f"cannot write to stdout: {problem.strerror or problem}",
                "is the disk full?",
            )
        ]
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
