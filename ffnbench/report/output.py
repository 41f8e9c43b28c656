"""The one way in which a command ends: its files are opened first, its answer is shown, its files written.

What is measured meanwhile tells a sink how far it is. The null sink is for Python: nothing is shown, nothing written.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from ffnbench.errors import EXIT_INTERRUPTED, EXIT_REGRESSED, FfnbenchError, Unfinished, complain
from ffnbench.names import hint_for
from ffnbench.plan import Plan
from ffnbench.report.arrangement import Arrangement
from ffnbench.report.files.journal import Found, Journal, NoSamples, journal_of, refuse_running
from ffnbench.report.files.outputs import Outputs, append, inputs_of, refuse_unwritable, save
from ffnbench.report.flags import CheckOutput, Shown, Updating, Written
from ffnbench.report.formats import CHECK_FORMATS, CHECK_SUFFIXES, FORMATS, SUFFIXES, View, Write, bytes_of, is_roofline
from ffnbench.report.progress import ProgressBar
from ffnbench.report.terminal import Terminal, show
from ffnbench.report.views import refuse_unknown_columns
from ffnbench.result import Progress, Report
from ffnbench.streams import hush, visible

Listener = Callable[[Progress], None]
Finder = Callable[[Found], None]
STDOUT_OF_CI = 100  # columns
SHORT_FORMATS = {"md": "markdown"}
NO_UPDATE = Updating()
CHECKPOINTS = "[0-9a-f]" * 16 + ".*"  # named by a hash


class NullSink:
    """Nothing is shown and nothing written: for Python. `waits` is whether a run waits for another one to end, `tells`
    whether anybody reads what is told.
    """

    waits = False
    tells = False
    checkpoints: Path | None = None  # where a run keeps what it can go on from
    left = 0  # runs that come after this one
    after_s = 0.0  # seconds that these take
    began = 0.0  # when the command did, by time.monotonic; 0 where nobody knows

    def show(self, view: Callable[[], View]) -> None:
        """Nothing."""

    def known(self, what: Plan | Report) -> None:
        """What is asked is known, and nothing is measured or written yet: a plan, or the baseline of a check."""

    def said(self) -> tuple[str, ...]:
        """What a reader should know of how a plan was asked for."""
        return ()

    def tell(self, text: str) -> None:
        """Nothing."""

    def within(self, number: int, of: int, what: str) -> NullSink:
        """The sink of one of several runs: it tells of them all how far they are."""
        return OneOfSeveral(self, number, of, what)

    def before(self) -> Report | None:
        """What there is of a run that is gone on with; None where it begins anew."""
        return None

    @contextmanager
    def progress(self) -> Iterator[Listener]:
        """Nobody listens."""
        yield lambda _: None

    def journal(self, start: Report) -> Finder:
        """Nothing is kept."""
        return lambda _: None


class OneOfSeveral(NullSink):
    """Progress of one run as that of all of them; one journal holds them all."""

    def __init__(self, whole: NullSink, number: int, of: int, what: str) -> None:
        self._whole, self._number, self._of, self._what = whole, number, of, what
        self.began = time.monotonic()
        self.checkpoints, self.left = whole.checkpoints, of - number
        self.waits, self.tells = whole.waits, whole.tells

    def tell(self, text: str) -> None:
        """As the whole does."""
        self._whole.tell(text)

    def journal(self, start: Report) -> Finder:
        """That of the whole."""
        return self._whole.journal(start)

    @contextmanager
    def progress(self) -> Iterator[Listener]:
        """With the run's number before the text."""
        number, of = self._number, self._of
        with self._whole.progress() as listener:
            yield lambda event: listener(
                replace(
                    event,
                    done=(number - 1 + event.done) / of,
                    text=f"{self._what} {number}/{of}: {event.text}",
                    eta_s=None if event.eta_s is None else event.eta_s + self.after_s,
                )
            )


class OutputSink(NullSink):
    """A context manager: folders that were made and stayed empty do not stay behind. `code` is the exit code."""

    def __init__(
        self,
        output: Shown | Written,
        stem: str,
        *,
        suffixes: Sequence[str] = SUFFIXES,
        formats: Sequence[str] = FORMATS,
        inputs: Iterable[Path] = (),
        counts_only: bool = False,
    ) -> None:
        self.began = time.monotonic()
        asked = getattr(output, "format", "table")
        self._format: str = SHORT_FORMATS.get(asked, asked)
        self._verbose: bool = getattr(output, "verbose", False)
        self.tells = not getattr(output, "quiet", False)
        self.waits = getattr(output, "wait", False)
        self._how = Arrangement(sort=getattr(output, "sort", ""), columns=getattr(output, "columns", ""))
        self._said: tuple[str, ...] = getattr(output, "said", ())
        one_of("format", self._format, formats)
        self._counts_only = counts_only
        self._outputs = Outputs(getattr(output, "out", ()), stem, suffixes, inputs, keep=counts_only)
        self.resumes: bool = getattr(output, "resume", False)
        if self.resumes and self._outputs.first is None:
            raise FfnbenchError("--resume goes on with the file of -o, and none is named", "add -o sweep.json")
        self.journals = True  # whether a journal is kept: what measures may keep what it has found by itself
        self._when_written: list[Callable[[], None]] = []
        self.checkpoints = self._outputs.first and journal_of(self._outputs.first).with_suffix(".checkpoints")
        self._journal: Journal | None = None
        self._begun = False
        self._lost = True  # what was measured, as long as it stands in no file
        self.code = 0

    @property
    def saved(self) -> Path | None:
        """The first file that will hold the whole run."""
        return next((path for path in self._outputs.paths if path.suffix == ".json"), None)

    def when_written(self, step: Callable[[], None]) -> None:
        """Have this done at the end, where all files could be written."""
        self._when_written.append(step)

    def __enter__(self) -> OutputSink:
        return self

    def __exit__(self, *_: object) -> None:
        if self._journal is not None and self._journal.close(keep=self._lost):
            say(f"what was measured is in {self._journal.path}: ffnbench report shows it")
        for step in self._when_written if not self._lost else ():
            step()
        self._outputs.close()

    def known(self, what: Plan | Report) -> None:
        """Raises FfnbenchError where a file could hold nothing."""
        if any(map(is_roofline, self._outputs.paths)):
            from ffnbench.report.notes import has_ceilings, no_ceilings

            if self._counts_only or not has_ceilings(what):
                raise no_ceilings()

    def said(self) -> tuple[str, ...]:
        """Which defaults a file has set."""
        return self._said

    def tell(self, text: str) -> None:
        """One line on stderr before anything is measured."""
        if self.tells:
            say(text)

    def before(self) -> Report | None:
        """What a run that --resume goes on with has left: its journal or its file, the one written last; None where
        there is neither.
        """
        if not self.resumes:
            return None
        from ffnbench.report.files.store import load

        saved = [path for path in self._outputs.paths if path.suffix == ".json"]
        places = (journal_of(self._outputs.first), *saved) if self._outputs.first else saved
        found = [path for path in places if path.is_file()]
        if places[:1] == found[:1]:
            with places[0].open("rb") as first:
                refuse_running(first)
        with suppress(NoSamples):
            return load(max(found, key=lambda path: path.stat().st_mtime)) if found else None
        return None

    def journal(self, start: Report) -> Finder:
        """A run begins: gives what keeps its samples beside the first output as they come, if there is one."""
        if self._how and not self._begun:
            refuse_unknown_columns(start, self._how)
        self._begun = True
        if self._journal is None:
            if (beside := self._outputs.first) is None or not self.journals:
                return lambda _: None
            self._journal = Journal(beside, lambda text: say(f"note: {text}"), over=self.resumes)
            if self._journal.path is None:  # another run's stands there, and its checkpoints
                self.checkpoints = None
            elif self.checkpoints and not self.resumes:
                _forget(self.checkpoints)
        self._journal.add(start)
        return self._journal.add

    @contextmanager
    def progress(self) -> Iterator[Listener]:
        """A listener that draws a bar, or writes a line a worker where there is no terminal."""
        with ProgressBar(quiet=not self.tells) as bar:
            yield bar

    def show(self, view: Callable[[], View]) -> None:
        """Write the files and show the answer, whatever becomes of either; raises what the answer ends with.

        A code that says what was found stays: what went wrong beside it is then only told.
        """
        shown = view()
        if self._how and shown.arranged:
            shown = shown.arranged(self._how)
        self.code, problems = shown.code, [shown.problem] if shown.problem else []
        unwritten = self._attempt(lambda: _wrote(self.write(shown.files, shown.rescue)))
        self._lost = bool(unwritten) and self._outputs.rescued is None
        problems += unwritten
        problems += self._attempt(lambda: self._print(shown))
        if self.code == EXIT_REGRESSED:
            for problem in problems:
                complain(problem.message, problem.hint, problem.exit_code)
        elif problems:
            raise problems[0]

    def _attempt(self, step: Callable[[], None]) -> list[FfnbenchError]:
        """What a step failed with; a reader of stdout that has gone away is no failure."""
        try:
            step()
            sys.stdout.flush()
        except FfnbenchError as problem:
            return [problem]
        except BrokenPipeError:
            hush()
        except OSError as problem:
            hush()  # what is left in its buffer would end the process with a code of Python's own
            return [Unfinished(f"cannot write to stdout: {problem.strerror or problem}", "is the disk full?")]
        return []

    def write(self, files: Mapping[str, Write], rescue: Callable[[], str] | None = None) -> list[Path]:
        """Write the files that were asked for; gives their paths."""
        return self._outputs.write(partial(bytes_of, files), (lambda: rescue().encode()) if rescue else None)

    def _print(self, view: View) -> None:
        if self._format == "table":
            show(view.table, Terminal(), verbose=self._verbose)
        elif self._format == "github":
            token = secrets.token_hex(16)  # a label at the beginning of a line could give GitHub's runner a command
            sys.stdout.write(f"::stop-commands::{token}\n")
            show(view.table, Terminal(width=STDOUT_OF_CI, no_color=True))
            sys.stdout.write(f"::{token}::\n" + view.stdout["github"]())
            if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
                append(Path(summary), view.stdout["markdown"]())
        else:
            sys.stdout.write(view.stdout[self._format]())


class CheckSink(OutputSink):
    """The end of a check: what becomes of the baseline as well (`updating`).

    An exit code that a row which can't be told asks for is given only where `--on-unclear fail` is.
    """

    def __init__(
        self, output: CheckOutput, baseline: str = "", current: str | None = None, updating: Updating = NO_UPDATE
    ) -> None:
        one_of("--on-unclear", output.on_unclear, ("pass", "fail"))
        self._unclear_fails = output.on_unclear == "fail"
        inputs = inputs_of(*(text for text in (baseline, current) if text))
        self._baseline, self._updating = baseline, updating
        if updating.update or updating.append:
            refuse_unwritable(Path(baseline))
        super().__init__(output, "check", suffixes=CHECK_SUFFIXES, formats=CHECK_FORMATS, inputs=inputs)

    def show(self, view: Callable[[], View]) -> None:
        """Then the new baseline, or the old one with a further run."""
        shown = view()
        super().show(lambda: shown)
        if self._unclear_fails and shown.code_if_unclear_fails is not None:
            self.code = shown.code_if_unclear_fails
        if self._updating.update and shown.baseline is not None:
            save(Path(self._baseline), shown.baseline())
            say(f"wrote {self._baseline}")
            self.code = shown.code if shown.code == EXIT_INTERRUPTED else 0
        if self._updating.append and shown.longer is not None:
            found = shown.longer()
            if found.text:
                save(Path(self._baseline), found.text)
            say(found.said)


def _forget(checkpoints: Path) -> None:
    """Delete the checkpoints of an earlier run; a folder that holds anything else is the user's, and stays."""
    files = list(checkpoints.glob(CHECKPOINTS))
    with suppress(OSError):
        for file in files:
            file.unlink()
        if files:
            checkpoints.rmdir()


def say(text: str) -> None:
    """One line on stderr."""
    with suppress(OSError):  # nobody reads stderr
        print(visible(text), file=sys.stderr, flush=True)


def _wrote(paths: Sequence[Path]) -> None:
    if paths:
        say("wrote " + ", ".join(map(str, paths)))


def one_of(name: str, value: str, known: Sequence[str]) -> None:
    """Raise FfnbenchError, with did-you-mean, for a value that is none of the known ones."""
    if value not in known:
        raise FfnbenchError(f"unknown {name} {value!r}", hint_for(value, known, "one of: " + ", ".join(known)))
