"""A journal beside an output: what a run has measured so far, a line each, for the case
that it is killed.

It is made when the first run of a command begins and removed when its files are
written. `ffnbench report` reads one that is left. The first line says what it is; a
`Report` without samples begins a run, and what is found follows it.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, get_args

from ffnbench.common import jsonable
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.files import try_lock
from ffnbench.common.streams import say
from ffnbench.plan import Note, NoteKind, Plan, added_kind
from ffnbench.result import Environment, Failure, Inputs, Report, Roof, Sample
from ffnbench.stats.cells import join_runs
from ffnbench.stats.figures import with_figures

JOURNAL_HEADER = {"ffnbench journal": 1}
Found = Report | Plan | Environment | Sample | Failure | Note | Roof | Inputs
JOURNAL_ENTRIES: dict[str, type] = {kind.__name__: kind for kind in get_args(Found)}
ENDED = "recovered from a run that was killed: what it had measured by then"


class NoSamples(FfnbenchError):
    """A journal of a run that was killed before it had a sample."""


class Journal:
    """The journal of an output, mode 600, which is made with its first line. One that
    can't be is given up with a note.

    One that is there already is never written to: its place is taken, with `over`, once
    the first line stands. `path` is its own, once it has one.
    """

    def __init__(self, output: Path, *, over: bool = False) -> None:
        self.path: Path | None = None
        self._output, self._takes_over = output, over
        self._opened = False
        self._file: BinaryIO | None = None
        self._samples = False
        self._over: Path | None = None
        self._held = ExitStack()  # files that nobody else goes on with meanwhile

    def _open(self) -> None:
        """Raises FfnbenchError where another process writes to the journal that is gone
        on with.
        """
        self._opened = True
        path, over = journal_of(self._output), self._takes_over
        try:  # exclusively: what is there is another's, and a link is not followed
            if over and path.is_file():  # a pipe would be waited for
                self._hold(path.open("rb"))
                self._over, path = path, path.with_name(f"{path.name}.new")
                path.unlink(missing_ok=True)
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            of_another = f"{path} is of a run that was killed, or that runs now: ffnbench report {path}"
            say(f"note: no journal is kept: {of_another}")
        except OSError as problem:
            say(
                f"note: no journal is kept beside {str(self._output)!r}: {problem.strerror}"
            )
        else:
            self.path, self._file = path, os.fdopen(handle, "wb", buffering=0)
            self._hold(self._file)
            self._write(JOURNAL_HEADER)

    def _hold(self, file: BinaryIO) -> None:
        """Until the end of this journal, or of this process."""
        self._held.enter_context(file)
        try:
            refuse_running(file)
        except FfnbenchError:
            self._held.close()
            raise

    def add(self, entry: Found) -> None:
        """One line more."""
        if not self._opened:
            self._open()
        if isinstance(entry, Sample) or (isinstance(entry, Report) and entry.samples):
            self._samples = True
        [name] = [
            name for name, kind in JOURNAL_ENTRIES.items() if isinstance(entry, kind)
        ]
        self._write({name: jsonable.encode(entry)})
        if self._over is not None and self.path is not None and self._file is not None:
            os.replace(self.path, self._over)
            self.path, self._over = self._over, None

    def _write(self, line: dict[str, Any]) -> None:
        if self._file is None:
            return
        left = memoryview(jsonable.json_text(line).encode() + b"\n")
        try:
            # what a disk has no room for is not written, and the next time refused
            while left:
                left = left[self._file.write(left) :]
        except OSError as problem:  # a full disk is no reason to lose the run itself
            say(f"note: the journal {str(self.path)!r} ends here: {problem.strerror}")
            self._file = None

    def close(self, *, keep: bool) -> bool:
        """End it, and remove it unless it is to be kept and holds samples; whether it
        is left.
        """
        left = keep and self._samples and self._over is None
        if self.path is not None and not left:
            self.path.unlink(missing_ok=True)
        self._held.close()
        return left and self.path is not None


def refuse_running(journal: BinaryIO) -> None:
    """Raise FfnbenchError for a journal that another process writes to."""
    if not try_lock(journal):
        problem = f"--resume: {journal.name} is of a run that goes on now"
        raise FfnbenchError(
            problem, "wait until it ends (--wait), or give -o another file"
        )


def journal_of(output: Path) -> Path:
    """Where the journal of an output stands."""
    return output.with_name(f"{output.name}.journal")


def is_journal(content: bytes) -> bool:
    """Whether a file's content is that of a journal."""
    return content.startswith(json.dumps(JOURNAL_HEADER)[:-2].encode())


def read_journal(
    content: bytes, path: str, bring_up: Callable[[str, Any], None]
) -> Report:
    """The report of a journal, as of a run that was interrupted. The last line may be
    torn, and is then dropped.

    Raises FfnbenchError for any other line that does not fit, and where there is no
    sample. Later runs become repeats where they are of the same cases. `bring_up` turns
    what a line of an older file holds, told its kind, into what files have today.
    """
    complete, _, _ = content.rpartition(b"\n")
    head, *lines = complete.split(b"\n")
    if jsonable.parse(head) != JOURNAL_HEADER:
        raise ValueError("its first line is not that of a journal of this version")
    runs: list[list[Any]] = []
    for number, line in enumerate(lines, start=2):
        try:
            entry = _read_entry(line, bring_up)
            if isinstance(entry, Report):
                runs.append([])
            elif not runs:
                raise ValueError("nothing says yet what was measured")
        except ValueError as problem:
            hint = f"head -n {number - 1} {shlex.quote(path)} > whole.journal keeps what stands before it"
            raise FfnbenchError(
                f"{path!r} is not a complete journal: line {number}: {problem}", hint
            ) from problem
        runs[-1].append(entry)
    made = [
        run for run in _of_cells(map(_joined_run, runs)) if run.samples or run.failures
    ]
    if not any(run.samples for run in made):
        raise NoSamples(
            f"{path!r} is the journal of a run that ended before it had a sample",
            "remove it",
        )
    first, *later = made
    for run in later:
        first = first.with_repeat(run)
    report = with_figures(first)
    return replace(
        report, warnings=(*report.warnings, Note(text=ENDED, kind=NoteKind.GENERAL))
    )


def _of_cells(runs: Iterable[Report]) -> Iterator[Report]:
    """The runs of the whole plan. A sweep begins with a report of all its cells and has
    a run of each; one that is done stands as it is behind what it found on the way, and
    two of one cell belong together.
    """
    turns: list[list[Report]] = [[]]
    for run in runs:
        turns += [[]] * run.plan.is_sweep
        turns[-1] = [*turns[-1], run]
    for turn in turns:
        done = [run for run in turn if not run.interrupted]
        unfinished = [run for run in turn[-1:] if run.interrupted]
        # its table may be of all cells together
        if turn and added_kind(turn[0].plan.kind):
            yield join_runs([turn[0], *done, *unfinished])
            continue
        if done:
            yield join_runs([*done, *unfinished])
        else:
            yield from turn


def _joined_run(lines: list[Any]) -> Report:
    """What follows a report belongs to it; of plan and environment, and of what is told
    of a case, the last holds.
    """
    start, *rest = lines
    if start.samples or start.failures:  # done, and written as a whole
        return start  # type: ignore[no-any-return]

    def each(kind: type) -> tuple[Any, ...]:
        return tuple(entry for entry in rest if isinstance(entry, kind))

    def last(kind: type) -> tuple[Any, ...]:
        return tuple({entry.case: entry for entry in each(kind)}.values())

    report: Report = replace(
        start,
        plan=[start.plan, *each(Plan)][-1],
        environment=[start.environment, *each(Environment)][-1],
        samples=each(Sample),
        failures=each(Failure),
        roofs=each(Roof),
        inputs=last(Inputs),
        warnings=(*start.warnings, *each(Note)),
        interrupted=True,
    )
    return report


def _read_entry(line: bytes, bring_up: Callable[[str, Any], None]) -> Any:
    data = jsonable.parse(line)
    if (
        not isinstance(data, dict)
        or len(data) != 1
        or next(iter(data)) not in JOURNAL_ENTRIES
    ):
        raise ValueError(f"expected one of {', '.join(JOURNAL_ENTRIES)}")
    [(name, value)] = data.items()
    bring_up(name, value)
    return jsonable.decode(JOURNAL_ENTRIES[name], value)
