"""How a command ends: its answer is written into files and shown. Whether the files can
be written is checked before anything is measured.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from ffnbench.common.choices import SUFFIXES
from ffnbench.common.errors import EXIT_REGRESSED, FfnbenchError, Unfinished, complain
from ffnbench.common.names import hint_for
from ffnbench.common.streams import hush, say
from ffnbench.record.progress import Progress
from ffnbench.record.result import Report
from ffnbench.report.answer import Shows, Write, file_content
from ffnbench.report.progress import TerminalProgress, progress_of
from ffnbench.report.table import Table
from ffnbench.report.terminal import Terminal, show

if TYPE_CHECKING:
    from ffnbench.report.files.outputs import Outputs
    from ffnbench.report.files.run_file import RunFile

STDOUT_FORMATS = ("table", "markdown", "latex", "csv", "json")
CI_WIDTH = 100  # letters in a line of a log of GitHub
FORMAT_ALIASES = {"md": "markdown"}


class Destination:
    """Where an answer goes: stdout and files. As a context manager it removes at its
    end the folders that it has made and that stayed empty.

    `stem` names the files in a folder, `inputs` are files that the command reads, and
    `why_runs_stay` is the reason where no saved run may be overwritten, else empty.
    `code` is the exit code, 0 where a saved answer is shown again (`shows_again`).
    The first arguments are flags of a command; `on` says where groups are measured as
    jobs.
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
        shows_again: bool = False,
    ) -> None:
        self._format = FORMAT_ALIASES.get(format, format)
        self._verbose = verbose
        refuse_unknown("format", self._format, formats)
        self._sort, self._columns = sort or "", columns or ""
        self._outputs: Outputs | None = None
        if out:
            from ffnbench.report.files.outputs import Outputs

            self._outputs = Outputs(
                out, stem, suffixes, inputs, why_runs_stay=why_runs_stay
            )
        self._shown_progress = TerminalProgress(quiet=quiet)
        self.on = on
        self._saved: Path | None = None  # the first file that will hold the whole run
        if self._outputs is not None and not why_runs_stay:
            from ffnbench.report.files.outputs import is_run

            self._saved = next(filter(is_run, self._outputs.paths), None)
        self._resumes = resume
        if resume and self._saved is None:
            raise FfnbenchError(
                "--resume continues the .json of -o, and none is given",
                "add -o sweep.json",
            )
        self.updates = False
        self._shows_again = shows_again
        self.code = 0

    @property
    def progress(self) -> Progress:
        """What is told of a run."""
        return progress_of(self._shown_progress)

    @cached_property
    def file(self) -> RunFile | None:
        """The file that holds the run while it is measured; None where there is none,
        or where that is a device or a pipe.
        """
        path = self._saved
        if path is None or (path.exists() and not path.is_file()):
            return None
        from ffnbench.report.files.run_file import RunFile

        return RunFile(path, resumes=self._resumes)

    def __enter__(self) -> Destination:
        return self

    def __exit__(self, *_: object) -> None:
        self._shown_progress.close()
        if self._outputs is not None:
            self._outputs.close()

    def expect(self, report: Report) -> None:
        """Raise FfnbenchError for a column that the tables of such a report lack. It
        need not be measured yet.
        """
        if self._sort or self._columns:
            from ffnbench.report.arrangement import keys_of
            from ffnbench.report.shown_report import tables_of

            keys_of(tables_of(report), self._sort, self._columns)

    def arranged(self, tables: list[Table]) -> list[Table]:
        """The tables with the columns and in the order that were asked for. Raises
        FfnbenchError for a name that no column has.
        """
        if not (self._sort or self._columns):
            return tables
        from ffnbench.report.arrangement import arranged

        return arranged(tables, self._sort, self._columns)

    def show(self, answer: Shows) -> None:
        """Write the files and show the answer, each of them even if the other fails.

        Raises the problem of the answer and those of writing as one error. Where a
        check found a regression they are only printed, so that its exit code stays.
        """
        self._shown_progress.close()
        tables = self.arranged(answer.tables())
        problem = None
        if not self._shows_again:
            self.code, problem = answer.outcome()
        problems = [problem] if problem else []
        problems += _attempt(lambda: self._write_files(answer, tables))
        problems += _attempt(lambda: self._print(answer, tables))
        if self.code == EXIT_REGRESSED:
            for problem in problems:
                complain(problem.message, problem.hint, problem.exit_code)
        elif problems:
            raise _joined(problems)

    def write(self, files: Mapping[str, Write]) -> list[Path]:
        """Write the files that were asked for, by these writers; gives their paths."""
        if self._outputs is None:
            return []
        return self._outputs.write(partial(file_content, files))

    def _write_files(self, answer: Shows, tables: Sequence[Table]) -> None:
        if self._outputs is None:
            return
        try:
            self.write(answer.files(tables))
        finally:
            if self._outputs.written:
                say("wrote " + ", ".join(map(str, self._outputs.written)))

    def _print(self, answer: Shows, tables: Sequence[Table]) -> None:
        if self._format == "table":
            show(tables, Terminal(), verbose=self._verbose)
            return
        texts = answer.texts(tables)
        if self._format == "github":
            # a label at the beginning of a line could give GitHub's runner a command
            token = secrets.token_hex(16)
            sys.stdout.write(f"::stop-commands::{token}\n")
            show(tables, Terminal(width=CI_WIDTH, no_color=True))
            sys.stdout.write(f"::{token}::\n" + texts["github"]())
            if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
                from ffnbench.report.files.outputs import append

                append(Path(summary), texts["markdown"]())
        else:
            sys.stdout.write(texts[self._format]())


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
