"""The one way in which a command ends: its files are opened first, its answer is shown, its files and exports written.

What is measured meanwhile tells an Ending how far it is. `Silent` is for Python: nothing is shown, nothing written.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from ffnbench.errors import EXIT_INTERRUPTED, FfnbenchError
from ffnbench.names import hint_for
from ffnbench.report.exports import EXPORTS
from ffnbench.report.findings import CHECK_FORMATS, CHECK_SUFFIXES
from ffnbench.report.formats import FORMATS, SUFFIXES, View, Write
from ffnbench.report.progress import ProgressBar
from ffnbench.report.store import Outputs, locked, save
from ffnbench.report.text import show
from ffnbench.request import LIMITS, OUTPUT, flag
from ffnbench.result import Progress

Listener = Callable[[Progress], None]
STDOUT_OF_CI = 100  # columns


@dataclass(frozen=True, kw_only=True)
class Shown:
    """The flags of what stands on stdout."""

    format: str = flag("table", "On stdout: {formats}.", OUTPUT, "NAME", short="-f")
    wide: bool = flag(False, "Show every column, in blocks that fit.", OUTPUT)


@dataclass(frozen=True, kw_only=True)
class Written:
    """The flag of files."""

    out: tuple[str, ...] = flag(
        (), "Write a file ({suffixes}), or all of them into a folder/. Repeatable.", OUTPUT, "PATH", short="-o"
    )


@dataclass(frozen=True, kw_only=True)
class Kept(Written, Shown):
    """How an answer is shown and written where nothing is measured."""


@dataclass(frozen=True, kw_only=True)
class Quiet:
    """The flag of progress."""

    quiet: bool = flag(False, "No progress on stderr.", OUTPUT, short="-q")


@dataclass(frozen=True, kw_only=True)
class Output(Quiet, Kept):
    """How an answer is shown and written, and whether progress is told."""


@dataclass(frozen=True, kw_only=True)
class CheckOutput(Output):
    """How a check is shown and written, and what follows from it."""

    export: tuple[str, ...] = flag(
        (), "bencher, github-action-benchmark or go-bench. Repeatable.", OUTPUT, "NAME[=PATH]"
    )
    on_unclear: str = flag("pass", "What follows where the run can't tell.", LIMITS, "pass|fail")


@dataclass(frozen=True, kw_only=True)
class Updating:
    """What a check does to its baseline."""

    update: bool = flag(False, "Accept what was found: it becomes the baseline.", LIMITS)
    append: bool = flag(False, "Add this run to the baseline's, unless it is busy or REGRESSED.", LIMITS)


class Silent:
    """Nothing is shown and nothing written: for Python."""

    def show(self, view: Callable[[], View]) -> None:
        """Nothing."""

    def tell(self, text: str) -> None:
        """Nothing."""

    def within(self, number: int, runs: int) -> Silent:
        """The ending of one of several runs: it tells of them all how far they are."""
        return self

    @contextmanager
    def progress(self) -> Iterator[Listener]:
        """Nobody listens."""
        yield lambda _: None


class OneOfSeveral(Silent):
    """Progress of one run as that of all of them."""

    def __init__(self, whole: Silent, number: int, runs: int) -> None:
        self._whole, self._number, self._runs = whole, number, runs

    @contextmanager
    def progress(self) -> Iterator[Listener]:
        """With the run's number before the text."""
        with self._whole.progress() as listener:
            yield lambda event: listener(
                replace(
                    event,
                    done=(self._number - 1 + event.done) / self._runs,
                    text=f"run {self._number}/{self._runs}: {event.text}",
                )
            )


class Ending(Silent):
    """A context manager: files that were opened and never written do not stay behind. `code` is the exit code."""

    def __init__(
        self,
        output: Output | Shown | Written,
        stem: str,
        *,
        suffixes: Sequence[str] = SUFFIXES,
        formats: Sequence[str] = FORMATS,
    ) -> None:
        self._format: str = getattr(output, "format", "table")
        self._wide: bool = getattr(output, "wide", False)
        self._quiet: bool = getattr(output, "quiet", False)
        one_of("format", self._format, formats)
        self._outputs = Outputs(getattr(output, "out", ()), stem, suffixes)
        self.code = 0

    def __enter__(self) -> Ending:
        return self

    def __exit__(self, *_: object) -> None:
        self._outputs.close()

    def within(self, number: int, runs: int) -> Silent:
        """The ending of one of several runs."""
        return OneOfSeveral(self, number, runs)

    def tell(self, text: str) -> None:
        """One line on stderr before anything is measured."""
        if not self._quiet:
            print(text, file=sys.stderr, flush=True)

    @contextmanager
    def progress(self) -> Iterator[Listener]:
        """A listener that draws a bar, or writes a line a worker where there is no terminal."""
        with ProgressBar(quiet=self._quiet) as bar:
            yield bar

    def show(self, view: Callable[[], View]) -> None:
        """Show the answer and write the files, whatever becomes of stdout; raises what the answer ends with."""
        shown = view()
        try:
            self._print(shown)
            sys.stdout.flush()
        finally:  # a stdout that is closed or full must not cost the files
            paths = [*self.write(shown.files, shown.rescue), *self._export(shown)]
            if paths:
                print("wrote " + ", ".join(map(str, paths)), file=sys.stderr)
        self.code = shown.code
        if shown.problem is not None:
            raise shown.problem

    def write(self, files: Mapping[str, Write], rescue: Callable[[], str] | None = None) -> list[Path]:
        """Write the files that were asked for; gives their paths."""

        def written(suffix: str) -> bytes:
            found = files[suffix]()
            return found.encode() if isinstance(found, str) else found

        return self._outputs.write(written, (lambda: rescue().encode()) if rescue else None)

    def _export(self, view: View) -> list[Path]:
        return []

    def _print(self, view: View) -> None:
        if self._format == "table":
            show(view.table, Console(), wide=self._wide)
        elif self._format == "github":
            show(view.table, Console(width=STDOUT_OF_CI, no_color=True))
            sys.stdout.write(view.stdout["github"]())
            if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
                with open(summary, "a", encoding="utf-8") as file:
                    file.write(view.stdout["markdown"]())
        else:
            sys.stdout.write(view.stdout[self._format]())


class CheckEnding(Ending):
    """The end of a check: exports for other tools as well, and what becomes of the baseline (`updating`).

    An exit code that a row which can't be told asks for is given only where `--on-unclear fail` is.
    """

    def __init__(self, output: CheckOutput, baseline: str = "", updating: Updating = Updating()) -> None:
        one_of("--on-unclear", output.on_unclear, ("pass", "fail"))
        self._unclear_fails = output.on_unclear == "fail"
        self._exports = tuple(_parse_export(text) for text in output.export)
        self._baseline, self._updating = baseline, updating
        self._held = ExitStack()
        super().__init__(output, "check", suffixes=CHECK_SUFFIXES, formats=CHECK_FORMATS)

    def __enter__(self) -> CheckEnding:
        """Nobody else may write the baseline between reading it and writing it anew."""
        if self._updating.update or self._updating.append:
            try:
                self._held.enter_context(locked(Path(self._baseline)))
            except BaseException:
                self.__exit__()
                raise
        return self

    def __exit__(self, *problem: object) -> None:
        self._held.close()
        super().__exit__(*problem)

    def show(self, view: Callable[[], View]) -> None:
        """As any ending, with its exports; then the new baseline, or the old one with a further run."""
        shown = view()
        super().show(lambda: shown)
        if self._unclear_fails and shown.code_if_unclear_fails is not None:
            self.code = shown.code_if_unclear_fails
        if self._updating.update and shown.baseline is not None:
            save(Path(self._baseline), shown.baseline())
            print(f"wrote {self._baseline}", file=sys.stderr)
            self.code = shown.code if shown.code == EXIT_INTERRUPTED else 0
        if self._updating.append and shown.longer is not None:
            found = shown.longer()
            if found.text:
                save(Path(self._baseline), found.text)
            print(found.said, file=sys.stderr)

    def _export(self, view: View) -> list[Path]:
        for name, path in self._exports:
            save(Path(path), view.exports[name]())
        return [Path(path) for _, path in self._exports]


def one_of(name: str, value: str, known: Sequence[str]) -> None:
    """Raise FfnbenchError, with did-you-mean, for a value that is none of the known ones."""
    if value not in known:
        raise FfnbenchError(f"unknown {name} {value!r}", hint_for(value, known, "one of: " + ", ".join(known)))


def _parse_export(text: str) -> tuple[str, str]:
    """`bencher` (to bencher.json) or `bencher=path`."""
    name, _, path = text.partition("=")
    one_of("export", name, tuple(EXPORTS))
    path = path or f"{name}.{'txt' if name == 'go-bench' else 'json'}"
    if not Path(path).parent.is_dir():
        raise FfnbenchError(f"cannot write {path!r}: no such folder", f"mkdir -p {Path(path).parent}")
    return name, path
