"""Files: opened before anything is measured, written whole or not at all, read back with a check.

The format follows from the suffix; a folder gets every format. CSV is a contract (result.py's rows): full
precision, empty where unknown.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ffnbench import jsonable
from ffnbench.errors import FfnbenchError, Unfinished
from ffnbench.names import hint_for
from ffnbench.plan import LATENCY
from ffnbench.report.table import Table
from ffnbench.report.text import markdown
from ffnbench.result import SCHEMA, Report

TableOf = Callable[[Report], Table]
Writer = Callable[[Report, TableOf], str | bytes]
T = TypeVar("T")


def csv_text(report: Report) -> str:
    """One row a case; numbers in full precision, booleans as true/false, unknown empty."""
    rows = report.rows()
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({k: str(v).lower() if isinstance(v, bool) else v for k, v in row.items()})
    return text.getvalue()


def json_text(report: Report) -> str:
    """Strict JSON with one line for each element of each list, so that two runs can be compared by diff."""
    data = jsonable.encode(report) | {"seal": seal(report)}
    parts = []
    for key, value in data.items():
        if isinstance(value, list) and value:
            items = ",\n  ".join(json.dumps(item, allow_nan=False, ensure_ascii=False) for item in value)
            parts.append(f" {json.dumps(key)}: [\n  {items}\n ]")
        else:
            parts.append(f" {json.dumps(key)}: {json.dumps(value, allow_nan=False, ensure_ascii=False)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def seal(report: Report) -> str:
    """A digest of the cases and their costs: what was asked, and what it came to."""
    text = json.dumps(jsonable.encode((report.plan.cases, report.costs)), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def markdown_text(report: Report, table_of: TableOf) -> str:
    """The table as markdown."""
    return markdown(table_of(report))


WRITERS: dict[str, Writer] = {
    ".csv": lambda report, _: csv_text(report),
    ".json": lambda report, _: json_text(report),
    ".md": markdown_text,
}
FORMATS = {"table": "", "markdown": ".md", "csv": ".csv", "json": ".json"}  # for stdout: the writer of each


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One file to be written; `new` tells whether it exists only because it was opened."""

    path: Path
    new: bool


class Outputs:
    """The files of a command. A context manager: what was opened and never written does not stay behind."""

    def __init__(self, texts: list[str], stem: str, suffixes: Sequence[str] = ()) -> None:
        self._suffixes = tuple(suffixes or WRITERS)
        self._outputs: list[Output] = []
        self._written: list[Path] = []
        try:
            for path in [p for text in texts for p in _expand(text, stem, self._suffixes)]:
                self._outputs.append(_open_first(path))
        except BaseException:  # an interruption too
            self.__exit__()
            raise

    def __enter__(self) -> Outputs:
        return self

    def __exit__(self, *_: object) -> None:
        for output in self._outputs:
            if output.new and output.path not in self._written:
                output.path.unlink(missing_ok=True)

    def write(self, render: Callable[[str], bytes], rescue: Callable[[], bytes] | None = None) -> list[Path]:
        """Write every file, each in one step; `render` gives the bytes for a suffix.

        One that can't be written does not stop the others; what went wrong is raised as Unfinished at the end, and
        `rescue` gives what is then saved in the folder for temporary files, so that no measurement is lost.
        """
        problems = []
        for output in self._outputs:
            try:
                _replace(output.path, render(output.path.suffix.lower()))
                self._written.append(output.path)
            except OSError as problem:
                problems.append(f"cannot write {str(output.path)!r}: {problem.strerror}")
        if problems:
            saved = _rescue(rescue() if rescue else b"")
            where = f"the whole result is in {saved}" if saved else "the answer was shown above"
            raise Unfinished("; ".join(problems), f"is the disk full, or the folder gone? {where}")
        return list(self._written)


def _expand(text: str, stem: str, suffixes: tuple[str, ...]) -> list[Path]:
    """A file, or for a folder (existing, or written with a slash at its end) one file of each format."""
    path = Path(text).expanduser()
    if text.endswith(("/", os.sep)) or path.is_dir():
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise FfnbenchError(
                f"cannot make the folder {text!r}: {problem.strerror}", "choose a folder that you may write to"
            ) from problem
        return [path / f"{stem}{suffix}" for suffix in suffixes]
    if path.suffix.lower() not in suffixes:
        known = ", ".join(suffixes)
        found = f"unknown suffix {path.suffix!r}" if path.suffix else "no suffix"
        hint = hint_for(path.suffix, suffixes, f"formats: {known}; a folder is written with a slash at its end")
        raise FfnbenchError(f"{found} in -o {text!r}", hint)
    return [path]


def _open_first(path: Path) -> Output:
    """Open for writing now, without harming what is there."""
    new = not path.exists()
    if not path.parent.is_dir():
        raise FfnbenchError(f"cannot write {str(path)!r}: no folder {str(path.parent)!r}", f"mkdir -p {path.parent}")
    try:
        with path.open("ab"):
            pass
    except OSError as problem:
        raise FfnbenchError(
            f"cannot write {str(path)!r}: {problem.strerror}", "choose a place that you may write to"
        ) from problem
    return Output(path=path, new=new)


def save(path: Path, text: str) -> None:
    """Write one file in one step; raises Unfinished where it can't be written."""
    try:
        _replace(path, text.encode())
    except OSError as problem:
        raise Unfinished(f"cannot write {str(path)!r}: {problem.strerror}", "is the disk full?") from problem


def _replace(path: Path, content: bytes) -> None:
    """Write beside and rename: a reader, or a full disk, never meets half a file."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(content)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def _rescue(content: bytes) -> Path | None:
    """Save what could not be written where it was meant to; None where that fails as well."""
    if not content:
        return None
    try:
        handle, name = tempfile.mkstemp(prefix="ffnbench-", suffix=".json")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
    except OSError:
        return None
    return Path(name)


def read_readings(path: str, kind: type[T], command: str) -> list[T]:
    """What a live selftest saved; raises FfnbenchError for anything else, with the command that makes one."""
    hint = f"`{command} -o FILE.json` makes one"
    try:
        found = [jsonable.decode(kind, item) for item in json.loads(Path(path).read_text(encoding="utf-8"))]
    except OSError as problem:
        raise FfnbenchError(f"cannot read {path!r}: {problem.strerror}", "is the path right?") from problem
    except (ValueError, TypeError) as problem:
        raise FfnbenchError(f"{path!r} is none that `{command}` saved: {problem}", hint) from problem
    if not found:
        raise FfnbenchError(f"{path!r} holds no readings", hint)
    return found


def load(path: str | Path) -> Report:
    """A saved JSON report; raises FfnbenchError for what is not one, or is of another schema."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        schema = data.get("schema") if isinstance(data, dict) else None
        if schema != SCHEMA:
            raise FfnbenchError(
                f"{str(path)!r} has schema {schema}, this ffnbench reads schema {SCHEMA}",
                "measure again with this version",
            )
        report = jsonable.decode(Report, data)
        if any(not (s.value > 0 and math.isfinite(s.value)) for s in report.samples if s.metric == LATENCY):
            raise ValueError("a latency is not positive")
        return report
    except OSError as problem:
        raise FfnbenchError(f"cannot read {str(path)!r}: {problem.strerror}", "is the path right?") from problem
    except ValueError as problem:
        raise FfnbenchError(
            f"{str(path)!r} is not a whole ffnbench report: {problem}", "was it cut off? measure again"
        ) from problem
