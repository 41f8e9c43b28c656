"""What a fault is made of: a folder of its own, real commands in it, a promise, and what was held against it.

Nothing here is imported from ffnbench: what is promised is written down a second time, by hand.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import itertools
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MARK = "FFNBENCH_FAULT"  # in the environment of every process of a fault: so those that outlive it are found
SMALL = ("--d-model", "32", "--seq-len", "16", "--threads", "1")
TWO = (*SMALL, "--variants", "relu,gelu")
FEW = ("--workers", "3", "--rounds", "2")
QUICK = (*TWO, *FEW)
QUICK_SAMPLES = 2 * 3 * 2
ENDLESS = ("--workers", "3", "--rounds", "5000")
LONG = (*TWO, *ENDLESS)
COST = ("cost", "--variants", "relu,gelu", "--d-model", "32")
LOOSE = ("--tolerance", "latency=80%")  # the noise of a busy machine is not what is looked at here
# what a terminal obeys or hides, as bytes that are no UTF-8 too; a line break is none of it
OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\udc80-\udcff]")
OWN_LEFTOVERS = (".ffnbench-*", "*.journal", "ffnbench-*")  # beside an output, and in the folder for temporary files
PATIENCE_S = 90.0
GONE_S = 2.0  # then no process of a fault may live any more
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1
LIBC = ctypes.CDLL(None)


class Skip(Exception):
    """A fault that can't be provoked here, with the reason."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One row of the table: `codes` are the exit codes that the promise allows, `provoke` does it for real.

    `leaves` where something of ours may stay behind: a rescued result, or what a killed process had open.
    """

    name: str
    promise: str
    codes: tuple[int, ...]
    leaves: bool
    provoke: Callable[[Scene], None]


FAULTS: list[Fault] = []
Provoke = Callable[["Scene"], None]


def fault(name: str, promise: str, *codes: int, leaves: bool = False) -> Callable[[Provoke], Provoke]:
    """Register a function as a row of the table."""

    def register(function: Provoke) -> Provoke:
        FAULTS.append(Fault(name=name, promise=promise, codes=codes, leaves=leaves, provoke=function))
        return function

    return register


@dataclass(frozen=True, slots=True)
class Done:
    """A command that has ended, and all that it said; bytes that are no UTF-8 are half surrogates."""

    code: int
    out: str
    err: str
    seconds: float

    @property
    def said(self) -> str:
        """Both streams."""
        return self.out + self.err

    @property
    def flat(self) -> str:
        """Both streams, with lines that were broken put together again."""
        return " ".join(self.said.split())


@dataclass(slots=True)
class Running:
    """A command that was started; what it says goes to files, so that nothing can be blocked by a pipe."""

    scene: Scene
    process: subprocess.Popen[bytes]
    out: Path
    err: Path
    began: float = field(default_factory=time.monotonic)

    def until(self, text: str, seconds: float = PATIENCE_S) -> bool:
        """Wait until it has said this; gives whether it has."""
        end = time.monotonic() + seconds
        while text.encode() not in self.out.read_bytes() + self.err.read_bytes():
            if time.monotonic() > end or self.process.poll() is not None:
                self.scene.broken.append(f"it never said {text!r}")
                return False
            time.sleep(0.02)
        return True

    def measuring(self) -> None:
        """Wait until it is in the middle of its rounds."""
        self.until("worker 1/")
        time.sleep(1.0)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to this process alone, if it is still there."""
        if self.process.poll() is None:
            self.process.send_signal(number)

    def end(self, seconds: float = PATIENCE_S) -> Done:
        """Wait for its end: one that hangs is broken, one with a traceback too."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            self.scene.broken.append(f"it hung for {seconds:g} s")
        if self.out == self.err:
            time.sleep(0.2)  # until all that stood in the terminal is read
        out, err = (path.read_bytes().decode("utf-8", "surrogateescape") for path in (self.out, self.err))
        done = Done(self.process.returncode, out, err if self.err != self.out else "", time.monotonic() - self.began)
        self.scene.codes.append(done.code)
        if "Traceback (most recent call last)" in done.said or "this is a bug in ffnbench" in done.said:
            self.scene.broken.append(f"a traceback: {done.said[-200:]!r}")
        return done


class Scene:
    """The folder of one fault, the commands that run in it, and what is not as promised."""

    def __init__(self, base: Path, shared: Shared) -> None:
        self.base, self._shared = base, shared
        self.folder, self.temporary, self.home, self._logs = (base / n for n in ("work", "tmp", "home", "logs"))
        for folder in (self.folder, self.temporary, self.home, self._logs):
            folder.mkdir(parents=True)
        self.codes: list[int] = []
        self.broken: list[str] = []
        self._numbers = itertools.count(1)
        self.environment = {
            "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "COLUMNS": "100", "TMPDIR": str(self.temporary),
            "HOME": str(self.home), "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1", MARK: str(base),
        }  # fmt: skip

    # Commands

    def start(self, *arguments: object, **how: Any) -> Running:
        """Start `ffnbench ARGUMENTS`."""
        return self.spawn([sys.executable, "-m", "ffnbench", *map(str, arguments)], **how)

    def spawn(
        self,
        command: list[str],
        *,
        folder: Path | None = None,
        env: Mapping[str, str | None] | None = None,
        before: Callable[[], None] | None = None,
    ) -> Running:
        """Start any command; a variable that is None is not there, `before` runs in the child before it."""
        number = next(self._numbers)
        out, err = (self._logs / f"{number}.{name}" for name in ("out", "err"))
        environment = {name: value for name, value in {**self.environment, **(env or {})}.items() if value is not None}

        def prepare() -> None:
            for one in (signal.SIGINT, signal.SIGHUP):  # heard even where the script itself runs in the background
                signal.signal(one, signal.SIG_DFL)
            if before is not None:
                before()

        out.touch()
        err.touch()
        with out.open("ab") as stdout, err.open("ab") as stderr:
            process = subprocess.Popen(
                command, cwd=folder or self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=stdout,
                stderr=stderr, preexec_fn=prepare, start_new_session=True,
            )  # fmt: skip
        return Running(self, process, out, err)

    def run(self, *arguments: object, seconds: float = PATIENCE_S, **how: Any) -> Done:
        """`ffnbench ARGUMENTS`, to its end."""
        return self.start(*arguments, **how).end(seconds)

    def shell(self, command: str, seconds: float = PATIENCE_S, **how: Any) -> Done:
        """A line of bash, `ffnbench` being the one of this tree."""
        line = re.sub(r"\bffnbench (?=[a-z])", f"{shlex.quote(sys.executable)} -m ffnbench ", command)
        return self.spawn(["bash", "-c", line], **how).end(seconds)

    def terminal(self, *arguments: object, env: Mapping[str, str] | None = None) -> tuple[Running, int]:
        """`ffnbench ARGUMENTS` in a terminal of its own, and the other end of that: what is written to it is typed."""
        outer, inner = pty.openpty()
        out = self._logs / f"{next(self._numbers)}.tty"
        out.touch()

        def control() -> None:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        process = subprocess.Popen(
            [sys.executable, "-m", "ffnbench", *map(str, arguments)], cwd=self.folder, stdin=inner, stdout=inner,
            stderr=inner, env={**self.environment, "TERM": "xterm-256color", **(env or {})}, preexec_fn=control,
            start_new_session=True,
        )  # fmt: skip
        os.close(inner)

        def read() -> None:
            with out.open("ab", buffering=0) as file, suppress(OSError):
                while data := os.read(outer, 65536):
                    file.write(data)

        threading.Thread(target=read, daemon=True).start()
        return Running(self, process, out, out), outer

    # What was promised

    def expect(self, holds: object, otherwise: str) -> None:
        """Note what is not as promised."""
        if not holds:
            self.broken.append(otherwise)

    def ends(self, done: Done, *codes: int) -> Done:
        """Hold one of several commands against its own code."""
        self.expect(done.code in codes, f"exit {done.code} where {' or '.join(map(str, codes))} is promised")
        return done

    def says(self, done: Done, *texts: str) -> None:
        """Hold a command's words against what it has to say."""
        for text in texts:
            self.expect(text in done.flat, f"it does not say {text!r}")

    def one_error(self, done: Done) -> None:
        """An error is one line, and one hint; nothing else stands on stderr but progress."""
        errors = [line for line in done.err.splitlines() if line.startswith("error:")]
        self.expect(len(errors) == 1, f"{len(errors)} error lines")
        self.expect(all(len(line) < 1000 for line in done.err.splitlines()), "an error of more than 1,000 characters")

    def plain(self, done: Done) -> None:
        """Nothing that it said is obeyed by a terminal."""
        found = OBEYED.search(done.said)
        self.expect(found is None, f"it shows {found[0]!r} as it is" if found else "")

    def whole(self, path: str | Path, samples: int | None = None) -> dict[str, Any]:
        """A saved run, read with the standard library; not whole is broken, and gives nothing."""
        file = self.folder / path
        name = file.name[-40:]
        try:
            data: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"), parse_constant=_no_number)
        except FileNotFoundError:
            self.broken.append(f"{name} is not there")
            return {}
        except ValueError as problem:
            self.broken.append(f"{name} is not whole ({problem})"[:100])
            return {}
        times = [s for s in data.get("samples", ()) if s["metric"] == "latency"]
        self.expect(all(s["value"] > 0 for s in times), f"{name} has a latency that is not positive")
        self.expect(data.get("plan", {}).get("cases"), f"{name} has no cases")
        if samples is not None:
            self.expect(len(times) == samples, f"{name} has {len(times)} samples, not {samples}")
        return data

    def same(self, path: str | Path, content: bytes) -> None:
        """A file has the bytes that it had."""
        file = self.folder / path
        found = file.read_bytes() if file.exists() else None
        self.expect(found == content, f"{file.name} is {'gone' if found is None else 'another'}")

    def nobody(self, seconds: float = GONE_S) -> None:
        """No process of this fault lives any more; one that does is ended, by its number."""
        end = time.monotonic() + seconds
        while (left := self.living()) and time.monotonic() < end:
            time.sleep(0.05)
        for number, command in left.items():
            self.broken.append(f"still alive after {seconds:g} s: {command[-60:]}")
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)

    def nothing_left(self) -> None:
        """Nothing of ours stays beside the outputs, or among the temporary files."""
        left = [p.name for place in (self.folder, self.temporary) for each in OWN_LEFTOVERS for p in place.rglob(each)]
        self.expect(not left, f"left behind: {', '.join(sorted(left)[:3])}")

    # Processes

    def living(self) -> dict[int, str]:
        """The processes of this fault, with their command lines."""
        found, wanted = {}, f"{MARK}={self.base}".encode()
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    words = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                    found[int(folder.name)] = words.decode("utf-8", "replace").strip()
            except OSError:
                continue
        return found

    def workers(self) -> list[int]:
        """The workers that live now: they are forked by processes of the same name."""
        boots = {number for number, command in self.living().items() if "boot.py" in command}
        return [number for number in boots if _parent(number) in boots]

    # Files

    def write(self, name: str | Path, content: str | bytes | dict[str, Any]) -> Path:
        """A file in the folder; its path."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(content) if isinstance(content, dict) else content
        path.write_bytes(text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text)
        return path

    def measured(self, **slower: float) -> dict[str, Any]:
        """A run that was measured here once, as a quiet machine would have made it; a case may be `slower`."""
        return steady(self._shared.run, slower)

    def pair(self) -> tuple[str, ...]:
        """A baseline, and a run in which gelu is three times as slow: the check that finds it."""
        self.write("base.json", self.measured())
        self.write("slow.json", self.measured(gelu=3.0))
        return ("check", "base.json", "slow.json", *LOOSE)


class Shared:
    """What several faults need, and one of them makes."""

    def __init__(self, base: Path) -> None:
        self._base = base

    @cached_property
    def run(self) -> dict[str, Any]:
        """A measured run of two cases, three workers, eight rounds."""
        scene = Scene(self._base, self)
        done = scene.run("compare", *TWO, "--workers", "3", "--rounds", "8", "-q", "-o", "run.json")
        found = scene.whole("run.json", 48)
        if done.code or scene.broken:
            raise SystemExit(f"no fault can be provoked: compare itself ends {done.code}\n{done.said}{scene.broken}")
        return found


def steady(run: dict[str, Any], slower: Mapping[str, float]) -> dict[str, Any]:
    """The run with each case at its own median, within two permille, and with no thread that waited."""
    data: dict[str, Any] = json.loads(json.dumps(run))
    times: dict[str, list[float]] = {}
    for sample in data["samples"]:
        if sample["metric"] == "latency":
            times.setdefault(sample["case"], []).append(sample["value"])
    labels = sorted(times)
    for sample in data["samples"]:
        if sample["metric"] == "latency":
            case = sample["case"]
            middle = sorted(times[case])[len(times[case]) // 2]
            step = (7 * sample["worker"] + (3 + labels.index(case)) * sample["round"]) % 5 - 2
            sample |= {"value": middle * slower.get(case, 1.0) * (1 + 0.001 * step), "waited": 0.0}
    return data


def sealed(data: dict[str, Any]) -> dict[str, Any]:
    """The data with the seal that its cases and costs should have: who edits a file can do that."""
    text = json.dumps([data["plan"]["cases"], data["costs"]], sort_keys=True)
    return {**data, "seal": hashlib.sha256(text.encode()).hexdigest()[:16]}


def relabelled(value: Any, old: str, new: str) -> Any:
    """A copy in which a case has another label."""
    if isinstance(value, dict):
        named = {key: new if key in ("label", "case") and item == old else item for key, item in value.items()}
        return {key: relabelled(item, old, new) for key, item in named.items()}
    return [relabelled(item, old, new) for item in value] if isinstance(value, list) else value


def ordinary() -> None:
    """In a child: what root may do to files that are read-only is given up, and does not come back."""
    if os.geteuid() == 0 and LIBC.prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0):
        raise OSError("no capability can be given up")


def can_be_ordinary() -> None:
    """Raise Skip where root can't give up its rights."""
    try:
        subprocess.run(["true"], preexec_fn=ordinary, check=True)
    except subprocess.SubprocessError:
        raise Skip("root") from None


def wait_until(holds: Callable[[], object], seconds: float) -> bool:
    """Wait for something that another process does."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def _parent(number: int) -> int:
    try:
        return int(Path(f"/proc/{number}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no JSON")
