"""Drives every command with mutated words, files and workers, and checks what is promised of all of them.

    python tests/fuzz.py --n 2000 --seed 7              on a machine that is not real
    python tests/fuzz.py --seed 7 --only 41             one input again, and all that it says

The promises: an exit code that means what it says; no traceback; nothing that a terminal obeys; one `error:` and one
`hint:`, both short; no file but those that were asked for, whole, and none at all where the code is 2; strict JSON, CSV
with as many cells in each row, XML that parses; no hang. Exit code 1 if one is broken. With real workers and signals:
tests/test_faults.py.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import re
import shlex
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
import xml.etree.ElementTree as xml
from collections import Counter
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from fuzz_inputs import LINES, MODULE, FuzzLaunch, Input, Maker, installed  # noqa: E402

from ffnbench import cli  # noqa: E402
from ffnbench.common.errors import FfnbenchError  # noqa: E402
from ffnbench.report.files.store import load  # noqa: E402

LIMIT_S = 100
LONGEST_LINE = 520
# C0 but for the end of a line, C1, half surrogates, marks of direction, separators of lines, what is no character
OBEYED = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff]"
)
WARNING = re.compile(r"^\S*:\d+: \w*Warning: ", re.M)
MAGIC = {".png": (b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"), ".pdf": (b"%PDF-", b"%%EOF")}
HELP = {"-h", "--help", "--version"}
Files = dict[Path, bytes | None]  # content, None of a folder


class Hang(BaseException):
    """An input took too long."""


@dataclass(frozen=True)
class Done:
    """What became of an input."""

    code: Any
    out: bytes
    err: bytes
    problem: str = ""  # what is broken beyond what the streams show


class Place:
    """Folders of a run, all below one that is thrown away: where commands run, and what TMPDIR and HOME name."""

    def __init__(self, root: Path) -> None:
        self.root, self.work, self.temporary, self.home = root, root / "w", root / "tmp", root / "home"

    def lay_out(self, given: Input) -> Files:
        """The files of an input in a fresh folder; what is there then."""
        for folder in (self.work, self.temporary):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        for name, content in given.files.items():
            path = self.work / name
            (path if content is None else path.parent).mkdir(parents=True, exist_ok=True)
            if content is not None:
                path.write_bytes(content)
        return self.files()

    def files(self) -> Files:
        """All that there is; but for what torch makes for its compiler as soon as it is loaded."""
        found = [path for top in (self.work, self.temporary) for path in top.rglob("*")]
        ours = [path for path in found if "torchinductor_" not in str(path)]
        return {path: path.read_bytes() if path.is_file() else None for path in ours}

    def environment(self, given: Input) -> dict[str, str]:
        """All variables that a command sees."""
        return {
            "PATH": os.environ["PATH"], "HOME": str(self.home), "TMPDIR": str(self.temporary), "LANG": "C.UTF-8",
            "PYTHONPATH": str(ROOT), **given.env,
        }  # fmt: skip

    def asked_for(self, given: Input) -> set[Path]:
        """The paths that an input names as outputs."""
        texts = given.values("-o", "--out")
        if {"--append", "--update"} & set(given.argv):
            texts += [word for word in given.argv[1:] if word in given.files]
        if given.argv[0] == "plot-activations" and not given.values("-o", "--out"):
            texts.append("activations.png")
        if "github" in " ".join(given.argv) and "GITHUB_STEP_SUMMARY" in given.env:
            texts.append(given.env["GITHUB_STEP_SUMMARY"])
        at_home = [text.replace("~", str(self.home), text == "~" or text.startswith("~/")) for text in texts]
        return {Path(os.path.abspath(self.work / text)) for text in at_home if "\0" not in text}


def driven(given: Input, place: Place, seed: str) -> Done:
    """What the command line does in this process, on a machine of dice."""

    def late(*_: object) -> None:
        raise Hang("".join(traceback.format_stack(limit=12)))

    code, problem = None, ""
    raw = io.BytesIO(), io.BytesIO()
    out, err = (io.TextIOWrapper(one, encoding=given.encoding, newline="\n") for one in raw)
    signal.signal(signal.SIGALRM, late)
    with (
        chdir(place.work), patch.dict(os.environ, place.environment(given), clear=True),
        patch.object(sys, "argv", ["ffnbench", *given.argv]), patch.object(sys, "stdout", out),
        patch.object(sys, "stderr", err), installed(FuzzLaunch(seed, **given.machine)), warnings.catch_warnings(),
    ):  # fmt: skip
        warnings.simplefilter("always")
        try:
            signal.alarm(LIMIT_S)
            cli.main()
        except SystemExit as end:
            code = end.code or 0
        except Hang as hang:
            problem = f"it hangs\n{hang}"
        except BaseException:
            problem = f"an exception gets out\n{traceback.format_exc()}"
        finally:
            signal.alarm(0)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    return Done(code, *(one.getvalue() for one in raw), problem)


# the promises


def broken(given: Input, done: Done, before: Files, place: Place) -> list[str]:
    """Which promises an input broke."""
    if done.problem:
        return [done.problem]
    try:
        out, err = done.out.decode(given.encoding), done.err.decode(given.encoding)
    except UnicodeDecodeError:
        return [f"a stream is no {given.encoding}"]
    found = [*_of_code(given, done.code, out), *_of_errors(done.code, err), *_of_files(given, done, before, place)]
    for name, text in (("stdout", out), ("stderr", err)):
        if sign := OBEYED.search(text):
            found.append(f"{name} holds {sign[0]!r} in {text[max(0, sign.start() - 40) : sign.end() + 40]!r}")
    form = (given.values("--format", "-f") or [""])[-1]
    if done.code == 0 and form in ("json", "csv") and not HELP & set(given.argv):
        found += [f"stdout: {why}" for why in _of_content(f".{form}", out.encode())]
    return found


def _of_code(given: Input, code: Any, out: str) -> list[str]:
    """The codes that there are, and what they need."""
    decides = given.argv[0] in ("check", "ab")
    if code == 1:
        return [] if decides and "REGRESSED" in re.sub(r"\s", "", out) else ["exit code 1 without a regression"]
    if code == 4:
        return [] if decides and "fail" in " ".join(given.argv) else ["exit code 4 was not asked for"]
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
    if (code == 2 and len(errors) != 1) or (code == 0 and errors) or (code != 1 and max(len(errors), len(hints)) > 1):
        found.append(f"exit code {code} with {len(errors)} errors and {len(hints)} hints")
    if long := [line for line in errors + hints if len(line) > LONGEST_LINE]:
        found.append(f"a line of {max(map(len, long))} characters")
    return found


def _of_files(given: Input, done: Done, before: Files, place: Place) -> list[str]:
    """Only what was asked for is written, and whole."""
    found, asked, after = [], place.asked_for(given), place.files()
    for path in sorted(before.keys() | after.keys()):
        if (path in before) == (path in after) and before.get(path) == after.get(path):
            continue
        told, content = path.relative_to(place.root), after.get(path)
        if done.code == 2:
            found.append(f"exit code 2, and {told} has changed")
        elif path not in after:
            found.append(f"{told} is gone")
        elif path.is_relative_to(place.temporary):
            if not (done.code == 3 and path.name.encode() in done.err):
                found.append(f"{told} is left behind")
        elif content is None:
            if not any(one.is_relative_to(path) for one in asked):
                found.append(f"the folder {told} was not asked for")
        elif not {path, path.parent} & asked or path.name.startswith(".ffnbench-"):
            found.append(f"{told} was not asked for")
        elif path.name != "summary.md":
            reading = (*_of_content(path.suffix.lower(), content), *_of_reading(path, content))
            found += [f"{told}: {why}" for why in reading]
    if done.code == 0 and not HELP & set(given.argv):
        found += [f"{path} was not written" for path in asked if not path.exists() and path.name != "summary.md"]
    return found


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


def _of_reading(path: Path, content: bytes) -> list[str]:
    """A report that was saved is one that can be read."""
    try:
        if content.startswith(b'{\n "plan"'):
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


def maker_in(place: Place) -> Maker:
    """With every command's flags as its help tells them, and files that commands write, to be read by others."""

    def answered(*argv: str) -> bytes:
        given = Input([*argv], files={"mine.py": MODULE.encode()})
        place.lay_out(given)
        done = driven(given, place, "saved")
        assert done.code == 0, (argv, done)
        return done.out

    small = ("--d-model", "64", "--threads", "1")
    wanted = {
        "base": ("compare", "relu,gelu,swiglu", *small, "--precision", "0.5", "--metrics", "latency"),
        "several": ("compare", "relu,swiglu", *small, "--workers", "4", "--runs", "3", "--pause", "0"),
        "memory": ("compare", "swiglu@moe=4x2,relu", *small, "--metrics", "memory"),
        "block": ("block", *small, "--heads", "2", "--seq-len", "16,32", "--workers", "3", "--rounds", "6"),
        "time": ("activations", "--time", "--activations", "relu,gelu,silu", "--elements", "64", "--workers", "4"),
        "counts": ("cost", "relu,swiglu", "--d-model", "64"),
    }  # fmt: skip
    saved = {}
    for name, argv in wanted.items():
        answered(*argv, "-o", "x.json")
        saved[name] = (place.work / "x.json").read_bytes()
    saved |= {"again": saved["base"], "ci": (ROOT / "results" / "ci" / "baseline.json").read_bytes()}
    flags = {name: re.findall(r"(?<![\w-])--?[a-z][a-z-]*", answered(name, "--help").decode()) for name in LINES}
    return Maker({name: sorted({*found} - HELP) for name, found in flags.items()}, saved)


def told(number: int, seed: str, given: Input, done: Done, why: list[str]) -> str:
    """An input with all that makes it again, and what it said."""
    lines = [f"{'BROKEN: ' * bool(why)}`python tests/fuzz.py --seed {seed} --only {number}`"]
    lines += [f"  promise: {one}" for one in why]
    lines.append(f"  typed: ffnbench {shlex.join(ascii(word)[1:-1][:300] for word in given.argv)}")
    lines.append(f"  code {done.code}, {given.encoding}, {given.env}, {given.machine}")
    tail = done.err.decode("utf-8", "replace").splitlines()[-14:]
    return "\n".join([*lines, *(f"  | {ascii(line)[1:-1][:600]}" for line in tail)])


def main() -> int:
    """Make, drive and judge as many inputs as were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=200, help="inputs")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--only", type=int, help="this input alone, and all that it says")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no further input after so many of the CPU")
    flags = parser.parse_args()
    start, codes, meant, answered, failed = time.monotonic(), Counter[Any](), 0, 0, 0
    place = Place(Path(tempfile.mkdtemp(prefix="fuzz-")).resolve())
    place.home.mkdir()
    tempfile.tempdir = str(place.temporary)
    try:
        maker = maker_in(place)
        for number in range(flags.n) if flags.only is None else [flags.only]:
            if time.process_time() > flags.seconds:
                break
            given = maker.make(Random(f"{flags.seed}/{number}"))
            if not all(path.is_relative_to(place.root) for path in place.asked_for(given)):
                continue  # nothing is written elsewhere
            before = place.lay_out(given)
            done = driven(given, place, f"{flags.seed}/{number}")
            why = broken(given, done, before, place)
            codes[done.code] += 1
            meant, answered = meant + given.meant, answered + (given.meant and done.code in (0, 1))
            failed += bool(why)
            if why or flags.only is not None:
                print(told(number, flags.seed, given, done, why), flush=True)
            if flags.only is not None:
                print(done.out.decode(given.encoding, "replace"))
    finally:
        os.chdir("/")
        shutil.rmtree(place.root, ignore_errors=True)
    shown = ", ".join(f"{code}: {n}" for code, n in sorted(codes.items(), key=str))
    print(f"{codes.total()} inputs in {time.monotonic() - start:.0f} s, {failed} broken promises; exit codes {shown}")
    print(f"{answered} of {meant} that were meant to be answered were")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
