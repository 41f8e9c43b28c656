"""How a command ends: its files are looked at first, its answer is shown, its files are
written.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ffnbench.common.errors import EXIT_REGRESSED, FfnbenchError, Unfinished, complain
from ffnbench.common.names import hint_for
from ffnbench.common.streams import hush, say
from ffnbench.following import Following
from ffnbench.metrics import CEILINGS
from ffnbench.report.formats import (
    STDOUT_FORMATS,
    SUFFIXES,
    View,
    Write,
    bytes_of,
    is_roofline,
)
from ffnbench.report.progress import TerminalProgress
from ffnbench.report.terminal import Terminal, show
from ffnbench.request import Output
from ffnbench.result import Report

if TYPE_CHECKING:
    from ffnbench.report.arrangement import Arrangement
    from ffnbench.report.files.journal import Journal
    from ffnbench.report.files.outputs import Outputs

STDOUT_OF_CI = 100  # columns
SHORT_FORMATS = {"md": "markdown"}


class Destination:
    """Where an answer goes: stdout and files. A context manager: folders that were made
    and stayed empty do not stay behind. `code` is the exit code, `defaults` what a
    reader should know of defaults that a file has set.
    """

    def __init__(
        self,
        output: Output,
        stem: str,
        *,
        suffixes: Sequence[str] = SUFFIXES,
        formats: Sequence[str] = STDOUT_FORMATS,
        inputs: Iterable[Path] = (),
        counts_only: bool = False,
        keep_runs: str = "",
    ) -> None:
        self._format = SHORT_FORMATS.get(output.format, output.format)
        self._verbose = output.verbose
        one_of("format", self._format, formats)
        self._counts_only = counts_only
        self._arrangement: Arrangement | None = None
        if output.sort or output.columns:
            from ffnbench.report.arrangement import Arrangement

            self._arrangement = Arrangement(sort=output.sort, columns=output.columns)
        self._outputs: Outputs | None = None
        if output.out:
            from ffnbench.report.files.outputs import Outputs

            self._outputs = Outputs(
                output.out,
                stem,
                suffixes,
                inputs,
                keep="this command only counts" if counts_only else keep_runs,
            )
        self.defaults = output.defaults
        self.progress = TerminalProgress(quiet=output.quiet)
        self.resumes = output.resume
        first = self._first_file
        if self.resumes and first is None:
            raise FfnbenchError(
                "--resume continues the file of -o, and none is given",
                "add -o sweep.json",
            )
        self._journal: Journal | None = None
        if first is not None:
            from ffnbench.report.files.journal import Journal

            self._journal = Journal(first, over=self.resumes)
        self._when_written: list[Callable[[], None]] = []
        self._lost = True  # what was measured, as long as it stands in no file
        self.code = 0

    @property
    def following(self) -> Following:
        """How what is measured is followed."""
        if self._journal is None:
            return Following(progress=self.progress, resumed=self._earlier)
        return Following(
            progress=self.progress, journal=self._journal.add, resumed=self._earlier
        )

    @property
    def _paths(self) -> Sequence[Path]:
        """The files that are written."""
        return () if self._outputs is None else self._outputs.paths

    @property
    def _first_file(self) -> Path | None:
        """The first of them beside which a journal can stand; None where there is
        none.
        """
        return None if self._outputs is None else self._outputs.first

    @property
    def saved(self) -> Path | None:
        """The first file that will hold the whole run."""
        for path in self._paths:
            if path.suffix == ".json":
                return path
        return None

    def when_written(self, step: Callable[[], None]) -> None:
        """Have this done at the end, where all files could be written."""
        self._when_written.append(step)

    def __enter__(self) -> Destination:
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.close()
        if self._journal is not None and self._journal.close(keep=self._lost):
            say(
                f"what was measured is in {self._journal.path}: ffnbench report shows it"
            )
        if not self._lost:
            for step in self._when_written:
                step()
        if self._outputs is not None:
            self._outputs.close()

    def expect(self, report: Report) -> None:
        """Raise FfnbenchError where a file could hold nothing of such a report, or a
        column is in none of its tables; nothing of it need be measured yet.
        """
        if any(map(is_roofline, self._paths)):
            from ffnbench.report.notes import no_ceilings

            if report.environment is None:
                has_ceilings = CEILINGS in report.plan.metrics
            else:
                has_ceilings = bool(report.roofs)
            if self._counts_only or not has_ceilings:
                raise no_ceilings()
        if self._arrangement is not None:
            from ffnbench.report.shown_report import refuse_unknown_columns

            refuse_unknown_columns(report, self._arrangement)

    def _earlier(self) -> Report | None:
        """What a run that --resume goes on with has left: its journal or its file, the
        one written last; None where there is neither.
        """
        first = self._first_file
        if not self.resumes or first is None:
            return None
        from ffnbench.report.files.journal import NoSamples, journal_of, refuse_running
        from ffnbench.report.files.store import read_report

        journal = journal_of(first)
        saved = [path for path in self._paths if path.suffix == ".json"]
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
        """Write the files and show the answer, whatever becomes of either; raises what
        the answer ends with.

        A code that says what was found stays: what went wrong beside it is then only
        told.
        """
        self.progress.close()
        if self._arrangement is not None:
            shown = shown.arranged(self._arrangement)
        self.code = shown.code
        problems = [shown.problem] if shown.problem else []
        unwritten = _attempt(lambda: self._write_files(shown))
        rescued = None if self._outputs is None else self._outputs.rescued
        self._lost = bool(unwritten) and rescued is None
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
        """Write the files that were asked for; gives their paths."""
        if self._outputs is None:
            return []
        return self._outputs.write(
            partial(bytes_of, files), (lambda: rescue().encode()) if rescue else None
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
            show(view.table, Terminal(width=STDOUT_OF_CI, no_color=True))
            sys.stdout.write(f"::{token}::\n" + view.stdout["github"]())
            if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
                from ffnbench.report.files.outputs import append

                append(Path(summary), view.stdout["markdown"]())
        else:
            sys.stdout.write(view.stdout[self._format]())


def _joined(problems: Sequence[FfnbenchError]) -> FfnbenchError:
    """All of them as the first one: what the answer ends with, and which file could not
    be written.
    """
    first = problems[0]
    first.message = "; ".join(problem.message for problem in problems)
    first.hint = "; ".join(problem.hint for problem in problems if problem.hint)
    return first


def _attempt(step: Callable[[], None]) -> list[FfnbenchError]:
    """What a step failed with; a reader of stdout that has gone away is no failure."""
    try:
        step()
        sys.stdout.flush()
    except FfnbenchError as problem:
        return [problem]
    except BrokenPipeError:
        hush()
    except OSError as problem:
        # what is left in its buffer would end the process with a code of Python's own
        hush()
        return [
            Unfinished(
                f"cannot write to stdout: {problem.strerror or problem}",
                "is the disk full?",
            )
        ]
    return []


def one_of(name: str, value: str, choices: Sequence[str]) -> None:
    """Raise FfnbenchError, with did-you-mean, for a value that is none of the known
    ones.
    """
    if value not in choices:
        raise FfnbenchError(
            f"unknown {name} {value!r}",
            hint_for(value, choices, "one of: " + ", ".join(choices)),
        )
