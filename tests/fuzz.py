"""Drives every command with mutated words, files and workers, and checks what is promised of all of them.

    python tests/fuzz.py --n 2000 --seed 7              on a machine that is not real
    python tests/fuzz.py --seed 7 --only 41 --verbose   one input again

The promises: an exit code that means what it says; no traceback; nothing that a terminal obeys; one `error:` and one
`hint:`, both short; no file but those that were asked for, whole, and none at all where the code is 2; strict JSON, CSV
with as many cells in each row, XML that parses; no hang. Exit code 1 if one is broken. With real workers and signals:
tests/faults.py.
"""

from __future__ import annotations

import argparse
import csv
import errno
import io
import json
import os
import re
import resource
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
import xml.etree.ElementTree as xml
from collections import Counter
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
sys.dont_write_bytecode = True

from fuzz_inputs import ENUMERATED, MODULE, NONSENSE, Commands, File, Input, Maker, Option  # noqa: E402
from fuzz_world import World, installed  # noqa: E402

LIMIT_S, MEMORY_BYTES = 100.0, 12 << 30
LONGEST_LINE = 520
# C0 but for the end of a line, C1, half surrogates, marks of direction, separators of lines, what is no character
OBEYED = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff]"
)
WARNING = re.compile(r"^\S*:\d+: \w*Warning: ", re.M)
MAGIC = {".png": (b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"), ".pdf": (b"%PDF-", b"%%EOF")}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Hang(BaseException):
    """An input took too long."""


@dataclass
class Done:
    """What became of an input."""

    code: Any
    out: bytes
    err: bytes
    seconds: float
    problem: str = ""  # what is broken beyond what the streams show
    strayed: tuple[str, ...] = ()  # paths that were written outside of the folder


@dataclass(frozen=True)
class Place:
    """Folders of a run, all below one that is thrown away."""

    root: Path

    @property
    def work(self) -> Path:
        """Where the commands run."""
        return self.root / "w"

    @property
    def temporary(self) -> Path:
        """What TMPDIR names."""
        return self.root / "tmp"

    @property
    def home(self) -> Path:
        """What HOME names."""
        return self.root / "home"


def commands_of() -> Commands:
    """Every command with its flags, as the command line itself tells them."""
    import typer.main

    from ffnbench.cli.app import FILES, app

    group: Any = typer.main.get_command(app)
    return {
        name: [
            Option((*one.opts, *one.secondary_opts), not one.is_flag, str(one.metavar or ""))
            for one in group.get_command(None, name).params
            if one.opts and one.opts[0].startswith("-")
        ]
        for name in FILES
    }


# what is written where


class Watch:
    """Refuses what this process would write outside of a folder, and remembers the paths."""

    def __init__(self, root: Path) -> None:
        self.root, self.on, self.strayed = str(root.resolve()) + os.sep, False, []  # type: ignore[var-annotated]
        sys.addaudithook(self)

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on or not (event == "open" or event.startswith(("os.", "shutil."))):
            return
        if event == "open":
            path, mode, flags = arguments
            if not ((isinstance(mode, str) and set(mode) & set("wax+")) or (flags or 0) & WRITES):
                return
            paths = [path]
        elif event in ("os.mkdir", "os.rmdir", "os.remove", "os.truncate", "os.chmod", "os.utime"):
            paths = [arguments[0]] if arguments[-1] in (-1, None) or event == "os.truncate" else []
        elif event in ("os.rename", "os.link", "os.symlink"):
            paths = [arguments[1]]
        else:
            return
        for path in paths:
            if isinstance(path, str | bytes | os.PathLike):
                found = os.path.abspath(os.fsdecode(path))
                if not found.startswith(self.root) and not found.startswith(("/dev/", "/proc/")):
                    self.strayed.append(found)
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def lay_out(given: Input, place: Place) -> None:
    """The files of an input in a fresh folder."""
    for folder in (place.work, place.temporary):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    place.home.mkdir(exist_ok=True)
    for name, file in given.files.items():
        path = place.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if file.kind == "folder":
            path.mkdir()
        elif file.kind == "link":
            path.symlink_to(str(file.data))
        elif file.kind == "pipe":
            os.mkfifo(path)
        elif file.kind in ("text", "script"):
            assert isinstance(file.data, bytes)
            path.write_bytes(file.data)
            if file.kind == "script":
                path.chmod(0o755)
    if "." in given.files:
        for words in ("init -q", "add mine.py", "-c user.name=n -c user.email=e@x commit -qm one", "tag v1"):
            subprocess.run(["git", *words.split()], cwd=place.work, check=True, env=environment(Input(""), place))


def snapshot(place: Place) -> dict[str, tuple[str, Any]]:
    """Every file of the working folder and of the temporary one, with its content."""
    found: dict[str, tuple[str, Any]] = {}
    for top in (place.work, place.temporary):
        for folder, folders, files in os.walk(top):
            # of git, and what torch makes for its compiler as soon as it is loaded
            folders[:] = [name for name in folders if name != ".git" and not name.startswith("torchinductor_")]
            for name in (*folders, *files):
                path = os.path.join(folder, name)
                mode = os.lstat(path).st_mode
                if stat.S_ISLNK(mode):
                    found[path] = ("link", os.readlink(path))
                elif stat.S_ISREG(mode):
                    found[path] = ("file", Path(path).read_bytes())
                else:
                    found[path] = ("folder" if stat.S_ISDIR(mode) else "other", None)
    return found


def environment(given: Input, place: Place) -> dict[str, str]:
    """All variables that a command sees."""
    return {
        "PATH": os.environ["PATH"], "HOME": str(place.home), "TMPDIR": str(place.temporary), "LANG": "C.UTF-8",
        "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", **given.env,
    }  # fmt: skip


# driving


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise Hang after so many seconds."""

    def late(*_: object) -> None:
        raise Hang("".join(traceback.format_stack(limit=12)))

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def in_process(given: Input, place: Place, name: str, watch: Watch) -> Done:
    """The command line in this process, on a machine of dice."""
    from ffnbench import cli

    code, problem, start = None, "", time.monotonic()
    raw = io.BytesIO(), io.BytesIO()
    out, err = (io.TextIOWrapper(one, encoding=given.encoding, newline="\n") for one in raw)
    watch.strayed.clear()
    with (
        chdir(place.work), patch.dict(os.environ, environment(given, place), clear=True),
        patch.object(sys, "argv", ["ffnbench", *given.argv]), patch.object(sys, "stdout", out),
        patch.object(sys, "stderr", err), installed(World(name, **given.world)), warnings.catch_warnings(),
    ):  # fmt: skip
        warnings.simplefilter("always")
        try:
            with within(LIMIT_S):
                watch.on = True
                cli.main()
        except SystemExit as end:
            code = end.code or 0
        except Hang as hang:
            problem = f"it hangs\n{hang}"
        except BaseException:
            problem = f"an exception gets out\n{traceback.format_exc()}"
        finally:
            watch.on = False
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    shown = [one.getvalue() for one in raw]
    return Done(code, *shown, time.monotonic() - start, problem, tuple(watch.strayed))


# the promises


def broken(given: Input, done: Done, before: dict[str, Any], after: dict[str, Any], place: Place) -> list[str]:
    """Which promises an input broke."""
    if done.problem:
        return [done.problem]
    try:
        out, err = done.out.decode(given.encoding), done.err.decode(given.encoding)
    except UnicodeDecodeError:
        return [f"a stream is no {given.encoding}"]
    found = [*_of_code(given, done.code, out), *_of_errors(done.code, err)]
    for name, text in (("stdout", out), ("stderr", err)):
        if sign := OBEYED.search(text):
            around = text[max(0, sign.start() - 40) : sign.end() + 40]
            found.append(f"{name} holds {sign[0]!r} in {around!r}")
    typed = _asked_for(given, place)
    folders = typed | {os.path.dirname(path) for path in typed}
    found += [f"{path} would be written" for path in done.strayed
              if not {os.path.realpath(path), os.path.dirname(os.path.realpath(path))} & folders]  # fmt: skip
    if not {"-h", "--help", "--version"} & set(given.argv):
        found += _of_stdout(given, done.code, out)
        found += _of_words(given, done.code)
    return found + _of_files(given, done, before, after, place)


def _of_code(given: Input, code: Any, out: str) -> list[str]:
    """The codes that there are, and what they need."""
    if code == 1:
        known = given.command in ("check", "ab") and "REGRESSED" in re.sub(r"\s", "", out)
        return [] if known else ["exit code 1 without a regression"]
    if code == 4:
        return [] if given.command in ("check", "ab") and "fail" in given.argv else ["exit code 4 was not asked for"]
    if code == 2 and out:
        return ["exit code 2 with something on stdout"]
    return [] if code in (0, 2, 3, 130) else [f"exit code {code!r}"]


def _of_errors(code: Any, err: str) -> list[str]:
    """One error, one hint, both short; no traceback, no warning of Python's."""
    lines = err.split("\n")
    errors, hints = ([line for line in lines if line.startswith(word)] for word in ("error: ", "hint: "))
    found = []
    if "Traceback (most recent call last):" in lines or "this is a bug" in err:
        found.append("a traceback")
    if WARNING.search(err):
        found.append("a warning of Python's")
    if code == 2 and len(errors) != 1:
        found.append(f"{len(errors)} errors")
    if code == 0 and errors:
        found.append("an error, and exit code 0")
    if code != 1 and (len(errors) > 1 or len(hints) > 1):
        found.append(f"{len(errors)} errors, {len(hints)} hints")
    if long := [line for line in errors + hints if len(line) > LONGEST_LINE]:
        found.append(f"a line of {max(map(len, long))} characters")
    return found


def _last(given: Input, *names: str) -> str | None:
    """The value of a flag that counts."""
    found = None
    for flag in given.flags:
        name, equals, joined = flag[0].partition("=")
        if name in names:
            found = joined if equals else flag[1] if len(flag) > 1 else found
    return found


def _of_stdout(given: Input, code: Any, out: str) -> list[str]:
    """What programs read."""
    form = _last(given, "--format", "-f")
    if code != 0 or form not in ("json", "csv", "markdown"):
        return []
    return [f"stdout: {why}" for why in _of_content({"markdown": ".md"}.get(form, f".{form}"), out.encode())]


def _of_words(given: Input, code: Any) -> list[str]:
    """A word that a flag does not know is a mistake."""
    for flag in given.flags:
        names = {"-f", "--format"} if flag[0] in ("-f", "--format") else {flag[0]}
        typed = [other for other in given.flags if other[0].partition("=")[0] in names]
        if flag[0] in ENUMERATED and flag[1:] == [NONSENSE] and len(typed) == 1 and code != 2:
            return [f"{flag[0]} {NONSENSE} is taken"]
    return []


def _of_files(given: Input, done: Done, before: dict[str, Any], after: dict[str, Any], place: Place) -> list[str]:
    """Only what was asked for is written, and whole."""
    found, asked = [], _asked_for(given, place)
    for path in sorted(before.keys() | after.keys()):
        if before.get(path) == after.get(path):
            continue
        told = os.path.relpath(path, place.root)
        if done.code == 2:
            found.append(f"exit code 2, and {told} has changed")
        elif ".ffnbench-" in path:
            found.append(f"{told} is left behind")
        elif path not in after:
            found.append(f"{told} is gone")
        elif path.startswith(str(place.temporary)):
            if not (done.code == 3 and os.path.basename(path).encode() in done.err):
                found.append(f"{told} is left behind")
        elif not _is_asked(path, asked, after[path][0]):
            found.append(f"{told} was not asked for")
        elif after[path][0] == "file" and not path.endswith("summary.md"):
            found += [f"{told}: {why}" for why in _of_content(Path(path).suffix.lower(), after[path][1])]
            found += _read_again(given, path, after[path][1])
        elif before.get(path, ("",))[0] == "link":
            found.append(f"the link {told} is replaced")
    if done.code == 0 and not {"-h", "--help", "--version"} & set(given.argv):
        found += [f"{path} was not written" for path in asked if not os.path.lexists(path) and "summary" not in path]
    return found


def _asked_for(given: Input, place: Place) -> set[str]:
    """The real paths that an input names as outputs."""
    names = ("-o", "--out", "--export", "--update", "--append")
    texts = []
    for flag in given.flags:
        name, equals, joined = flag[0].partition("=")
        value = joined if equals else flag[1] if len(flag) > 1 else ""
        if name not in names:
            continue
        if name in ("-o", "--out"):
            texts.append(value)
        elif name == "--export":
            kind, _, path = value.partition("=")
            texts.append(path or f"{kind}.json")
        elif name in ("--update", "--append") and given.words:
            texts.append(given.words[0])
    if given.command == "plot-activations" and not given.has("-o", "--out"):
        texts.append("activations.png")
    if "github" in given.argv and "GITHUB_STEP_SUMMARY" in given.env:
        texts.append(given.env["GITHUB_STEP_SUMMARY"])
    at_home = [text == "~" or text.startswith("~/") for text in texts]
    paths = [text.replace("~", str(place.home), home) for text, home in zip(texts, at_home, strict=True)]
    return {os.path.realpath(place.work / path) for path in paths}


def _is_asked(path: str, asked: set[str], kind: str) -> bool:
    """An output, what stands in a folder that is one, or a folder on the way to one."""
    if kind == "folder":
        return any(one == path or one.startswith(path + os.sep) for one in asked)
    return path in asked or os.path.dirname(path) in asked


def _of_content(suffix: str, content: bytes) -> list[str]:
    """What is wrong with a file of ours, by its suffix."""
    if not content:
        return ["it is empty"]
    if suffix in MAGIC:
        head, tail = MAGIC[suffix]
        return [] if content.startswith(head) and tail in content[-64:] else ["it is cut off"]
    text = content.decode()
    found = [f"it holds {sign[0]!r}"] if (sign := OBEYED.search(text)) else []
    try:
        if suffix == ".json":
            json.loads(text, parse_constant=_no_number, object_pairs_hook=_each_once)
        elif suffix == ".csv":
            rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
            if len({len(row) for row in rows}) != 1 or len(set(rows[0])) != len(rows[0]):
                found.append("its rows differ in length, or columns have one name")
        elif suffix in (".svg", ".xml"):
            xml.fromstring(text)
    except (ValueError, csv.Error, xml.ParseError) as problem:
        found.append(f"it does not parse: {problem}")
    return found


def _read_again(given: Input, path: str, content: bytes) -> list[str]:
    """A report that was saved is one that can be read."""
    from ffnbench.errors import FfnbenchError
    from ffnbench.report.files.store import load

    if not content.startswith(b'{\n "plan"'):
        return []
    try:
        load(path)
    except FfnbenchError as problem:
        return [f"what was saved can't be read: {problem.message[:300]}"]
    return []


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key stands twice")
    return dict(pairs)


# the run


def saved_files(place: Place, watch: Watch) -> dict[str, bytes]:
    """What commands write, to be read by others, and older files of this repository."""
    small = ["--d-model", "64", "--threads", "1"]
    wanted = {
        "base": ["compare", "--variants", "relu,gelu,swiglu", *small, "--precision", "0.5", "--metrics", "latency"],
        "several": ["compare", "--variants", "relu,swiglu", *small, "--workers", "4", "--runs", "3", "--pause", "0"],
        "memory": ["compare", "--variants", "swiglu@moe=4x2,relu", *small, "--metrics", "memory"],
        "control": ["compare", "--variants", "relu,swiglu", *small, "--control", "--workers", "4"],
        "own": ["compare", "--variants", "relu,mine.py:Net,mine.py:act", "--d-model", "16", "--seq-len", "4",
                "--threads", "1", "--workers", "3", "--rounds", "6", "--timeout", "5"],
        "block": ["block", *small, "--heads", "2", "--seq-len", "16,32", "--workers", "3", "--rounds", "6"],
        "time": ["activations", "--time", "--activations", "relu,gelu,silu", "--elements", "64", "--workers", "4"],
        "counts": ["cost", "--variants", "relu,swiglu", "--d-model", "64"],
    }  # fmt: skip
    found = {}
    for name, argv in wanted.items():
        given = Input(command=argv[0], words=[*argv[1:], "-o", "x.json"])
        given.files["mine.py"] = File("text", MODULE.encode())
        lay_out(given, place)
        done = in_process(given, place, "saved", watch)
        assert done.code == 0, (name, done)
        found[name] = (place.work / "x.json").read_bytes()
    found["again"] = found["base"]
    found["ci"] = (ROOT / "results/ci/baseline.json").read_bytes()
    early = json.loads(found["base"]) | {"interrupted": True, "stopped": "", "seal": ""}
    found["stopped"] = json.dumps(early).encode()
    return found


def told(number: str, seed: str, given: Input, done: Done, why: list[str]) -> str:
    """A broken promise with all that makes it again."""
    lines = [f"BROKEN: `python tests/fuzz.py --seed {seed} --only {number}`", *(f"  promise: {one}" for one in why)]
    lines.append(f"  typed: ffnbench {shlex.join(ascii(word)[1:-1][:300] for word in given.argv)}")
    lines.append(f"  code {done.code}, {done.seconds:.1f} s, {given.encoding}, {given.env}, {given.world}")
    tail = done.err.decode("utf-8", "replace").splitlines()[-14:]
    return "\n".join([*lines, *(f"  | {ascii(line)[1:-1][:600]}" for line in tail)])


def one(number: str, seed: str, maker: Maker, place: Place, watch: Watch) -> tuple[Input, Done, list[str]]:
    """One input, made, driven and judged."""
    given = maker.make(Random(f"{seed}/{number}"))
    lay_out(given, place)
    before = snapshot(place)
    done = in_process(given, place, f"{seed}/{number}", watch)
    return given, done, broken(given, done, before, snapshot(place), place)


def asked() -> argparse.Namespace:
    """The flags of this script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=200, help="inputs")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--only", help="this input alone")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no further input after so many of the CPU")
    parser.add_argument("--verbose", action="store_true", help="tell every input, and all of its output")
    return parser.parse_args()


def main() -> int:
    """Make, drive and judge as many inputs as were asked for."""
    flags = asked()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, resource.RLIM_INFINITY))
    start, codes, meant, answered, failed = time.monotonic(), Counter[Any](), 0, 0, 0
    place = Place(Path(tempfile.mkdtemp(prefix="fuzz-")).resolve())
    tempfile.tempdir = str(place.temporary)
    os.environ["HOME"] = str(place.home)
    try:
        watch = Watch(place.root)
        maker = Maker(commands_of(), saved_files(place, watch))
        for number in [flags.only] if flags.only else map(str, range(flags.n)):
            if time.process_time() > flags.seconds:
                break
            given, done, why = one(number, flags.seed, maker, place, watch)
            codes[done.code] += 1
            meant, answered = meant + given.meant, answered + (given.meant and done.code in (0, 1))
            failed += bool(why)
            if why:
                print(told(number, flags.seed, given, done, why), flush=True)
            elif flags.verbose:
                print(number, done.code, f"{done.seconds:.1f} s", ascii(shlex.join(given.argv))[:200], flush=True)
            if flags.verbose and flags.only:
                print(done.out.decode(given.encoding, "replace"), done.err.decode(given.encoding, "replace"), sep="\n")
    finally:
        os.chdir("/")
        shutil.rmtree(place.root, ignore_errors=True)
    shown = ", ".join(f"{code}: {n}" for code, n in sorted(codes.items(), key=str))
    print(f"{codes.total()} inputs in {time.monotonic() - start:.0f} s, {failed} broken promises; exit codes {shown}")
    print(f"{answered} of {meant} that were meant to be answered were")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
