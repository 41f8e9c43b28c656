"""A journal beside an output: all that a run has measured so far, in case it is killed.

It is made when the first run of a command begins and removed when its files are
written. `ffnbench report` reads one that is left. Its first line says that it is a
journal. Each other line is an entry: a `Report` without samples begins a run, and what
that run finds follows it.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, get_args

from ffnbench.common import jsonable
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.files import try_lock
from ffnbench.common.streams import say
from ffnbench.plan import Note, NoteKind, Plan
from ffnbench.result import Environment, Failure, Inputs, Report, Sample
from ffnbench.stats.cells import join_runs
from ffnbench.stats.figures import with_figures

JOURNAL_HEADER = {"ffnbench journal": 1}
Entry = Report | Plan | Environment | Sample | Failure | Note | Inputs
JOURNAL_ENTRIES: dict[str, type] = {kind.__name__: kind for kind in get_args(Entry)}
ENDED = "recovered from a run that was killed: what it had measured by then"


class NoSamples(FfnbenchError):
    """A journal of a run that was killed before it had a sample."""


class Journal:
    """The journal of an output, a file of mode 600. It is made with its first entry;
    where that is not possible, a note says so and the run has none.

    A journal that is there already is never written to. With `takes_over` it is
    replaced as soon as this one has an entry. `path` is None until the file is made.
    """

    def __init__(self, output: Path, *, takes_over: bool = False) -> None:
        self.path: Path | None = None
        self._output, self._takes_over = output, takes_over
        self._opened = False
        self._file: BinaryIO | None = None
        self._has_samples = False
        self._to_replace: Path | None = None  # the journal that this one takes over
        self._locked = ExitStack()  # files that no other process may go on with

    def _open(self) -> None:
        """Make the file and write its first line. Raises FfnbenchError where another
        process writes to the journal that this one takes over.
        """
        self._opened = True
        path = journal_of(self._output)
        try:
            # is_file, for opening a pipe would wait for its writer
            if self._takes_over and path.is_file():
                self._lock(path.open("rb"))
                self._to_replace, path = path, path.with_name(f"{path.name}.new")
                path.unlink(missing_ok=True)
            # exclusively: a file that is there is of another run; no link is followed
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
            self._lock(self._file)
            self._write(JOURNAL_HEADER)

    def _lock(self, file: BinaryIO) -> None:
        """Lock a file until this journal is closed, or this process ends."""
        self._locked.enter_context(file)
        try:
            refuse_running(file)
        except FfnbenchError:
            self._locked.close()
            raise

    def add(self, entry: Entry) -> None:
        """Write a line with this entry."""
        if not self._opened:
            self._open()
        if isinstance(entry, Sample) or (isinstance(entry, Report) and entry.samples):
            self._has_samples = True
        [name] = [
            name for name, kind in JOURNAL_ENTRIES.items() if isinstance(entry, kind)
        ]
        self._write({name: jsonable.encode(entry)})
        if self._file is None or self.path is None or self._to_replace is None:
            return
        os.replace(self.path, self._to_replace)
        self.path, self._to_replace = self._to_replace, None

    def _write(self, line: dict[str, Any]) -> None:
        if self._file is None:
            return
        unwritten = memoryview(jsonable.json_text(line).encode() + b"\n")
        try:
            # a disk that gets full takes a part of the line, and refuses the rest
            while unwritten:
                unwritten = unwritten[self._file.write(unwritten) :]
        except OSError as problem:  # a full disk is no reason to lose the run itself
            say(f"note: the journal {str(self.path)!r} ends here: {problem.strerror}")
            self._file = None

    def close(self, *, keep: bool) -> bool:
        """Close the journal, and remove it unless it is to `keep` and has samples.
        Returns whether its file is left.
        """
        stays = keep and self._has_samples and self._to_replace is None
        if self.path is not None and not stays:
            self.path.unlink(missing_ok=True)
        self._locked.close()
        return stays and self.path is not None


def refuse_running(journal: BinaryIO) -> None:
    """Raise FfnbenchError for a journal that another process writes to."""
    if not try_lock(journal):
        problem = f"--resume: {journal.name} is of a run that goes on now"
        raise FfnbenchError(problem, "wait until it ends, or give -o another file")


def journal_of(output: Path) -> Path:
    """Where the journal of an output stands."""
    return output.with_name(f"{output.name}.journal")


def is_journal(content: bytes) -> bool:
    """Whether a file's content is that of a journal."""
    return content.startswith(json.dumps(JOURNAL_HEADER)[:-2].encode())


def read_journal(content: bytes, path: str) -> Report:
    """The report of a journal, as of a run that was interrupted. A last line that was
    not written to its end is left out.

    Raises FfnbenchError for any other line that can't be read, and where there is no
    sample. Later runs of the same cases become repeats.
    """
    complete, _, _ = content.rpartition(b"\n")
    head, *lines = complete.split(b"\n")
    if jsonable.parse(head) != JOURNAL_HEADER:
        raise ValueError("its first line is not that of a journal of this version")
    runs: list[list[Any]] = []
    for number, line in enumerate(lines, start=2):
        try:
            entry = _read_entry(line)
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
    joined = _joined_sweeps(map(_run_of_entries, runs))
    with_results = [run for run in joined if run.samples or run.failures]
    if not any(run.samples for run in with_results):
        raise NoSamples(
            f"{path!r} is the journal of a run that ended before it had a sample",
            "remove it",
        )
    first, *later = with_results
    for run in later:
        first = first.with_repeat(run)
    report = with_figures(first)
    return replace(
        report, warnings=(*report.warnings, Note(text=ENDED, kind=NoteKind.GENERAL))
    )


def _joined_sweeps(runs: Iterable[Report]) -> Iterator[Report]:
    """The runs of the whole plan, each sweep joined to one.

    A sweep begins with a report of all its cells, and has a run for each cell. When a
    cell is done, its whole report follows the entries that it was made of; so only the
    last run can be one that is not done. A cell can have two runs, which are joined.
    """
    sweeps: list[list[Report]] = [[]]
    for run in runs:
        if run.plan.is_sweep:
            sweeps.append([])
        sweeps[-1].append(run)
    for sweep in sweeps:
        done = [run for run in sweep if not run.interrupted]
        unfinished = [run for run in sweep[-1:] if run.interrupted]
        if done:
            yield join_runs([*done, *unfinished])
        else:
            yield from sweep


def _run_of_entries(entries: list[Any]) -> Report:
    """The run that begins with the report `entries[0]`. Of plan and environment, and of
    the inputs of a case, the last entry holds.
    """
    start: Report = entries[0]
    if start.samples or start.failures:  # of a cell that was done
        return start

    def every(kind: type) -> tuple[Any, ...]:
        return tuple(entry for entry in entries if isinstance(entry, kind))

    inputs_of = {inputs.case: inputs for inputs in every(Inputs)}
    return replace(
        start,
        plan=[start.plan, *every(Plan)][-1],
        environment=[start.environment, *every(Environment)][-1],
        samples=every(Sample),
        failures=every(Failure),
        inputs=tuple(inputs_of.values()),
        warnings=(*start.warnings, *every(Note)),
        interrupted=True,
    )


def _read_entry(line: bytes) -> Any:
    data = jsonable.parse(line)
    if (
        not isinstance(data, dict)
        or len(data) != 1
        or next(iter(data)) not in JOURNAL_ENTRIES
    ):
        raise ValueError(f"expected one of {', '.join(JOURNAL_ENTRIES)}")
    [(name, value)] = data.items()
    return jsonable.decode(JOURNAL_ENTRIES[name], value)
