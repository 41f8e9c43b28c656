"""Files: looked at before anything is measured, written whole or not at all, read back with a check.

The format follows from the suffix; a folder gets every format.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import shlex
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from ffnbench import jsonable
from ffnbench.errors import FfnbenchError, Unfinished
from ffnbench.files import content_of
from ffnbench.metrics import LATENCY
from ffnbench.names import hint_for
from ffnbench.plan import METHOD, Kind, NoteKind
from ffnbench.report.coherent import refuse_incoherent
from ffnbench.report.journal import is_journal, read_journal
from ffnbench.result import SCHEMA, Report

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

BESIDE = ".ffnbench-"  # how a file begins while it is written
LONGEST = 200  # characters of a path in an error
KINDS = {  # of notes by how they begin, in files from before notes had a kind
    r"ge(g)?lu is the exact erf form": NoteKind.NAME,
    r"the FFN of ": NoteKind.MODEL,
    r"the CPU's clock fell|another run of ffnbench|\d+ threads on \d+ real CPU": NoteKind.SEEN,
    r"one call is only|a sample lasts less than": NoteKind.SHORT,
    r"busy: ": NoteKind.BUSY,
    r"its workers disagree on the seconds": NoteKind.NOISE,
    r"the hypervisor gave|the clock of|the first round of a worker|within a worker everything": NoteKind.MOVES,
    r"[\d,]+ of [\d,]+ samples are left out|\d+ other process|this machine can't be trusted": NoteKind.NOISE,
}
NAMELESS = 2  # the method of files whose protocol names none; method 1 is known by the lack of a seal


def report_text(report: Report) -> str:
    """Strict JSON with one line for each element of each list, so that two runs can be compared by diff."""
    data = jsonable.encode(report) | {"seal": seal(report)}
    parts = []
    for key, value in data.items():
        if isinstance(value, list) and value:
            items = ",\n  ".join(jsonable.text_of(item) for item in value)
            parts.append(f" {json.dumps(key)}: [\n  {items}\n ]")
        else:
            parts.append(f" {json.dumps(key)}: {jsonable.text_of(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def seal(report: Report) -> str:
    """A digest of the cases and their costs: what was asked, and what it came to."""
    return _digest(jsonable.encode(report.plan.cases), jsonable.encode(report.costs))


def _digest(cases: Any, costs: Any) -> str:
    return hashlib.sha256(json.dumps([cases, costs], sort_keys=True).encode()).hexdigest()[:16]


class Outputs:
    """The files of a command: looked at first, so that what can't be written is told before anything is measured.

    `inputs` are files that the command reads: none of them is written over. `keep` is for a command that counts only:
    a file with samples is then no output either. A context manager: folders that stay empty do not stay behind.
    """

    def __init__(
        self, texts: Sequence[str], stem: str, suffixes: Sequence[str], inputs: Iterable[Path] = (), keep: bool = False
    ) -> None:
        self._suffixes = tuple(suffixes)
        self._paths: list[Path] = []
        self._folders: list[Path] = []
        self.rescued: Path | None = None  # where a result is that could not be written
        try:
            for text in texts:
                self._paths += self._checked(text, stem)
            read = list(inputs)
            for path in self._paths:
                refuse_unwritable(path, read)
                if keep:
                    _refuse_measured(path)
        except BaseException:  # an interruption too
            self.close()
            raise

    def __enter__(self) -> Outputs:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def paths(self) -> tuple[Path, ...]:
        """All files that are to be written."""
        return tuple(self._paths)

    @property
    def first(self) -> Path | None:
        """The first output that is, or will be, a file: a journal can stand beside it."""
        return next((path for path in self._paths if path.is_file() or not path.exists()), None)

    def close(self) -> None:
        """Take away folders that were made and stayed empty."""
        for folder in self._folders:
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()

    def write(self, render: Callable[[Path], bytes], rescue: Callable[[], bytes] | None = None) -> list[Path]:
        """Write every file, each in one step; `render` gives the bytes for a path.

        One that can't be written does not stop the others; what went wrong is raised as Unfinished at the end, and
        `rescue` gives what is then saved in the folder for temporary files, so that no measurement is lost.
        """
        problems, hints, written = [], [], []
        for path in self._paths:
            try:
                replace_file(path, render(path))
                written.append(path)
            except (OSError, FfnbenchError) as problem:  # a picture may have no room for all of its texts
                why = getattr(problem, "strerror", None) or getattr(problem, "message", problem)
                problems.append(f"cannot write {str(path)!r}: {why}")
                hints.append(getattr(problem, "hint", "") or "is the disk full, or the folder gone?")
        if problems:
            saved = self.rescued = _rescue(rescue() if rescue else b"")
            where = f"the whole result is in {saved}" if saved else "the answer is shown on stdout"
            raise Unfinished("; ".join(problems), "; ".join([*dict.fromkeys(hints), where]))
        return written

    def _checked(self, text: str, stem: str) -> list[Path]:
        try:
            return self._expand(text, stem)
        except (OSError, ValueError) as problem:
            why = getattr(problem, "strerror", None) or str(problem)
            can_not = f"cannot write {shown_path(Path(text))}: {why}"
            raise FfnbenchError(can_not, "choose a place that you may write to") from problem

    def _expand(self, text: str, stem: str) -> list[Path]:
        """A file, or for a folder (existing, or written with a slash at its end) one file of each format."""
        try:
            path = Path(text).expanduser()
        except RuntimeError as problem:
            raise FfnbenchError(f"cannot write {text!r}: {problem}", "write the folder out") from problem
        if text.endswith(("/", os.sep)) or path.is_dir():
            self._make_folder(path, text)
            return [path / f"{stem}{suffix}" for suffix in self._suffixes]
        if path.suffix.lower() not in self._suffixes:
            known = ", ".join(self._suffixes)
            found = f"unknown suffix {path.suffix!r}" if path.suffix else "no suffix"
            hint = hint_for(
                path.suffix, self._suffixes, f"formats: {known}; a folder is written with a slash at its end"
            )
            raise FfnbenchError(f"{found} in -o {text!r}", hint)
        return [path]

    def _make_folder(self, path: Path, text: str) -> None:
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise FfnbenchError(
                f"cannot make the folder {text!r}: {problem.strerror}", "choose a folder that you may write to"
            ) from problem
        self._folders += missing


def inputs_of(*values: object) -> list[Path]:
    """The files that are named in what was typed: by itself, or as part of a variant, a list, a key."""
    texts = [text for value in values for text in (value if isinstance(value, tuple) else (value,))]
    parts = {part for text in texts if isinstance(text, str) for part in (text, *re.split(r"[,=@:]", text))}
    found = []
    for part in sorted(parts - {""}):
        path = Path(part)
        found += [each for each in (path, path / "config.json") if _is_file(each)]
    return found


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name too long, a NUL
        return False


def refuse_unwritable(path: Path, inputs: Iterable[Path] = ()) -> None:
    """Raise FfnbenchError for a path that can't be written, or that the same command reads. Nothing is made there."""
    try:
        if any(path.exists() and path.samefile(one) for one in inputs):
            raise FfnbenchError(
                f"{shown_path(path)} is read by this command and would be overwritten", "write elsewhere"
            )
        target = path.resolve()
        folder = str(target.parent if path.is_symlink() else path.parent)
        if not target.parent.is_dir():
            raise FfnbenchError(
                f"cannot write {shown_path(path)}: no folder {folder!r}", f"mkdir -p {shlex.quote(folder)}"
            )
        if target.exists():
            _refuse_special(path, target.stat().st_mode)
            if not os.access(target, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        if target.is_file() or not target.exists():
            handle, name = tempfile.mkstemp(prefix=BESIDE, dir=target.parent)  # a file is written beside and renamed
            os.close(handle)
            os.unlink(name)
    except (OSError, RuntimeError, ValueError) as problem:
        why = getattr(problem, "strerror", None) or str(problem)
        raise FfnbenchError(
            f"cannot write {shown_path(path)}: {why}", "choose a place that you may write to"
        ) from problem


def shown_path(path: Path) -> str:
    """A path in an error: no longer than a line."""
    text = repr(str(path))
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]}...{text[-LONGEST // 3 :]}"


def _refuse_special(path: Path, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise FfnbenchError(
            f"{str(path)!r} is a folder", "write a folder with a slash at its end, or name a file in it"
        )
    if stat.S_ISSOCK(mode) or stat.S_ISBLK(mode):
        raise FfnbenchError(f"{str(path)!r} is a {'socket' if stat.S_ISSOCK(mode) else 'disk'}", "write to a file")


def _refuse_measured(path: Path) -> None:
    """What was measured is worth more than what is counted."""
    if path.suffix.lower() != ".json" or not _is_file(path):
        return
    try:
        data = json.loads(content_of(path))
    except (ValueError, FfnbenchError, RecursionError):
        return
    if isinstance(data, dict) and data.get("samples"):
        raise FfnbenchError(
            f"{str(path)!r} holds what was measured, and this command only counts", "write elsewhere, or give --force"
        )


@contextmanager
def locked(path: Path) -> Iterator[Callable[[], bool]]:
    """Hold a file for oneself while it is read, and written anew later; raises FfnbenchError while another one does.

    Gives what tells whether it is still the same file. The lock is advisory and of the file itself, so nothing is left
    behind; where the system has none nothing is locked.
    """
    try:
        if not path.is_file():
            raise FfnbenchError(f"{shown_path(path)} is no file that runs can be added to", "is the path right?")
        file = _locked(path)
    except OSError as problem:
        raise FfnbenchError(f"cannot read {shown_path(path)}: {problem.strerror}", "is the path right?") from problem
    with file:

        def same() -> bool:
            return path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat())

        yield same


def _locked(path: Path) -> BinaryIO:
    while True:
        file = path.open("rb")
        if fcntl is None:
            return file
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as problem:
            file.close()
            raise FfnbenchError(
                f"{str(path)!r} is locked: another check adds a run to it now", "wait for that one, then try again"
            ) from problem
        if os.path.samestat(os.fstat(file.fileno()), path.stat()):
            return file
        file.close()  # it was written anew between opening and locking


def save(path: Path, text: str, rescue: bool = False) -> None:
    """Write one file in one step; raises Unfinished where it can't be written, and may save the text elsewhere."""
    try:
        replace_file(path, text.encode())
    except OSError as problem:
        saved = _rescue(text.encode()) if rescue else None
        where = f"is the disk full? it is in {saved}" if saved else "is the disk full?"
        raise Unfinished(f"cannot write {shown_path(path)}: {problem.strerror}", where) from problem


def append(path: Path, text: str) -> None:
    """Add to a file that others write to as well; raises Unfinished where that can't be done."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as problem:
        raise Unfinished(
            f"cannot write {shown_path(path)}: {problem.strerror}", "the answer is shown above"
        ) from problem


def replace_file(path: Path, content: bytes) -> None:
    """Write beside and rename: a reader, a full disk or a kill never meets half a file. Mode and link stay.

    The file beside has a name that nobody can foresee, and is made exclusively. What is no file (a device, a pipe) is
    written to as it is; a pipe that nobody reads is an OSError.
    """
    target = path.resolve()
    mode = target.stat().st_mode if target.exists() else None
    if mode is not None and not stat.S_ISREG(mode):
        with os.fdopen(os.open(target, os.O_WRONLY | os.O_NONBLOCK), "wb") as file:
            os.set_blocking(file.fileno(), True)
            file.write(content)
        return
    handle, name = tempfile.mkstemp(prefix=BESIDE, dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, stat.S_IMODE(mode) if mode is not None else 0o666 & ~_umask())
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    """What a new file may not be; it can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _rescue(content: bytes) -> Path | None:
    """Save what could not be written where it was meant to; None where that fails as well."""
    if not content:
        return None
    try:
        handle, name = tempfile.mkstemp(prefix="ffnbench-", suffix=".json")
    except OSError:
        return None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
    except OSError:
        Path(name).unlink(missing_ok=True)
        return None
    return Path(name)


def load(path: str | Path) -> Report:
    """A saved JSON report; raises FfnbenchError for what is not one, or is of another schema or a newer method.

    The seal is checked over the cases and costs as they stand in the file, before these are brought to today's schema;
    a report whose file was edited has no seal.
    """
    try:
        content = content_of(path)
        if is_journal(content):
            return _checked(read_journal(content, str(path)))
        data = jsonable.parse(content)
        schema = data.get("schema") if isinstance(data, dict) else None
        if isinstance(data, dict) and "findings" in data:
            raise FfnbenchError(
                f"{str(path)!r} holds what a check found, and no run by itself",
                "its run stands in it as `now`",
            )
        if schema not in (1, SCHEMA):
            raise FfnbenchError(
                f"{str(path)!r} has schema {schema}, this ffnbench reads schema {SCHEMA}",
                "measure again with this version",
            )
        whole = data.get("seal") == _digest(data["plan"]["cases"], data["costs"])
        data = with_kinds(without_placements(with_method(from_schema_1(data) if schema == 1 else data)))
        _refuse_newer(path, data["plan"]["protocol"]["method"])
        for repeat in data.get("repeats") or ():
            if isinstance(repeat, dict) and isinstance(repeat.get("protocol"), dict):
                _refuse_newer(path, repeat["protocol"].get("method"))
        report = jsonable.decode(Report, data)
        return _checked(replace(report, seal=seal(report) if whole else ""))
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise FfnbenchError(
            f"{str(path)!r} is not a whole ffnbench report: {problem}",
            'take that run out of "repeats"' if "repeats[" in str(problem) else "was it cut off? measure again",
        ) from problem


def _checked(report: Report) -> Report:
    """The report; raises ValueError where its parts do not belong together, or a latency can't be one."""
    refuse_incoherent(report)
    for number, run in enumerate(report.runs, start=1):
        if any(not (s.value > 0 and math.isfinite(s.value)) for s in run.samples if s.metric == LATENCY):
            raise ValueError(
                f"a latency of run {number} is not positive" if number > 1 else "a latency is not positive"
            )
    return report


def with_method(data: Any) -> Any:
    """The data of a file with the method in the protocol: it stood beside the plan once, and nowhere before that."""
    beside = data.get("method", NAMELESS)
    protocol = {"method": beside} | data["plan"]["protocol"]
    return {name: item for name, item in data.items() if name != "method"} | {
        "plan": data["plan"] | {"protocol": protocol}
    }


def with_kinds(data: Any) -> Any:
    """The data of a file, each of its notes with a kind."""
    for notes in (data["plan"].get("notes"), data.get("warnings")):
        for note in notes if isinstance(notes, list) else ():
            if isinstance(note, dict) and "kind" not in note:
                kinds = (kind.value for start, kind in KINDS.items() if re.match(start, str(note.get("text"))))
                note["kind"] = next(kinds, NoteKind.GENERAL.value)
    return data


def without_placements(data: Any) -> Any:
    """Until method 5 a worker moved its tensors now and then, and said so; until 6 a check measured suspects again."""
    for run in filter(_is_data, (data, *(data.get("repeats") or ()))):
        run.pop("placed_once", None)
        if _is_data(plan := run.get("plan")) and _is_data(protocol := plan.get("protocol")):
            protocol.pop("reversed", None)
        for sample in filter(_is_data, run.get("samples") or ()):
            sample.pop("placement", None)
    return data


def _is_data(value: Any) -> bool:
    return isinstance(value, dict)


def _refuse_newer(path: str | Path, method: Any) -> None:
    """A ratio of a later method means what this ffnbench can't know."""
    if isinstance(method, int) and method > METHOD:
        raise FfnbenchError(
            f"{str(path)!r} was measured by method {method}, this ffnbench knows methods up to {METHOD}",
            "update ffnbench to read it",
        )


def from_schema_1(data: Any) -> Any:
    """A file of schema 1 as one of today's: widths had their origin as a sentence, and a plan had no kind."""
    plan = data["plan"]
    block = any("heads" in case["ffn"] for case in plan["cases"])
    cases = [case | {"sizing": _sizing(case["sizing"], block)} for case in plan["cases"]]
    kind = Kind.BLOCK if block else Kind.COMPARE
    method = NAMELESS if data.get("seal") else 1  # the first method made files without a seal
    sides = [{"differing" if name == "facts" else name: value for name, value in side.items()}
             for side in data.get("sides", [])]  # fmt: skip
    new = {"schema": SCHEMA, "method": method, "sides": sides, "plan": plan | {"cases": cases, "kind": kind.value}}
    return data | new


def _sizing(text: str, block: bool) -> dict[str, Any]:
    """The origin of a width, from schema 1's words for it."""
    if text == "given":
        return {"how": "given"}
    if text == "given, and not read by the module":
        return {"how": "unread"}
    for how, before in (("matched", "matched on "), ("rule", "rule ")):
        if text.startswith(before):
            return {"how": how, "what": text.removeprefix(before)}
    if found := re.fullmatch(r"(\S+) \* d_model(?:, up to a multiple of (\d+))?", text):
        multiple = int(found[2]) if found[2] else None
        return {"how": "ratio", "ratio": float(found[1]), "multiple_of": multiple}
    if block:
        return {"how": "model", "what": text}
    raise ValueError(f"nobody knows where a width comes from that is {text!r}")
