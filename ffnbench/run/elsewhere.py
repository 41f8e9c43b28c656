"""Another machine, on which a command of the user's starts processes: `ssh host`, `srun -N1`, `docker exec -i box`.

Nothing of ffnbench is there: a process is sent the sources of its worker first, in one line (worker/arrival.py), and is
asked as any other then. Nothing of this machine is asked or signalled in its place.
"""

from __future__ import annotations

import base64
import io
import json
import re
import shlex
import threading
import time
import zipfile
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

from ffnbench.errors import FfnbenchError, Unfinished
from ffnbench.plan import OWN, Arm
from ffnbench.run.session import LEAVE_S, START_TIMEOUT_S, Session, WorkerLost
from ffnbench.worker.channel import Message

PACKAGE = Path(__file__).parents[1]
NOT_SENT = {"__pycache__", "api", "cli", "docs", "exam.py", "gate", "python", "report"}  # a worker knows none of them
CODE = "exec(input())"  # the same to every shell, once it is quoted; what it reads is the line that is sent
INTERPRETER = re.compile(r"(.*/)?python[0-9.]*")
FOR_EXAMPLE = 'it is a command that runs the words after it there, for example --launch "ssh host"'
NEEDS_TORCH = 'an interpreter with torch may end the command: --launch "ssh host /opt/venv/bin/python"'


@cache
def sources() -> str:
    """The line that makes a worker of any Python, with all that it needs beside torch."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(PACKAGE.rglob("*")):
            path = file.relative_to(PACKAGE)
            if file.is_file() and not NOT_SENT & set(path.parts):
                archive.write(file, Path("ffnbench", path))
    arrival = base64.b64encode((PACKAGE / "worker" / "arrival.py").read_bytes()).decode()
    begun = f"import base64, runpy; exec(base64.b64decode('{arrival}').decode())"
    return f"{begun}; runpy.run_path(arrive('{base64.b64encode(packed.getvalue()).decode()}'), run_name='__main__')\n"


def words_of(launch: str) -> list[str]:
    """The words of a command, with the interpreter that it starts as the last one; raises FfnbenchError."""
    try:
        words = shlex.split(launch)
    except ValueError as problem:
        raise FfnbenchError(f"--launch {launch!r} is no command: {problem}", FOR_EXAMPLE) from problem
    if not words:
        raise FfnbenchError("--launch is empty", FOR_EXAMPLE)
    return words if INTERPRETER.fullmatch(words[-1]) else [*words, "python3"]


def running(words: list[str], code: str) -> list[str]:
    """The command that runs code there. What ssh is given it joins with spaces, and a shell there takes it apart."""
    return [*words, "-u", "-c", shlex.quote(code) if any(Path(word).name == "ssh" for word in words) else code]


class LaunchedSession(Session):
    """A process elsewhere, and the one here that started it, which alone has a number that may be signalled."""

    here = False

    def __init__(self, words: list[str]) -> None:
        works = f"does `{shlex.join(words)} -m torch.utils.collect_env` work?"
        self._hints = (works, f"{works} {NEEDS_TORCH}")
        self._start(running(words, CODE), FOR_EXAMPLE)
        self._sending = threading.Thread(target=self._send, daemon=True)  # a command may not read at all
        self._sending.start()

    def _send(self) -> None:
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):  # how it ended is told when it is asked
            self._process.stdin.write(sources())
            self._process.stdin.flush()

    def _hello(self) -> Message:
        """The first line that is one: shells and modules print when they begin."""
        end, printed = time.monotonic() + START_TIMEOUT_S, ""
        while True:
            try:
                line = self._line(max(0.0, end - time.monotonic()))
            except WorkerLost as lost:
                raise WorkerLost(lost.kind, f"{lost}{f'; it printed {printed[:200]!r}' if printed else ''}") from lost
            with suppress(ValueError, TypeError, RecursionError):
                hello = dict(json.loads(line))
                if hello.keys() & {"torch", "error"}:
                    hello.get("torch", {})["git"] = None, None  # the code of the folder here does not run there
                    return hello
            printed = line.strip() or printed

    def _end(self) -> tuple[str, str]:
        """Commands tell of a signal there as shells do; one of their own is no signal of the worker's."""
        with suppress(TimeoutExpired):
            code = self._process.wait(LEAVE_S)
            if code < 0:
                return "crash", f"the command that started it was killed (signal {-code})"
            return self._cause_of(128 - code if 128 < code < 193 else code)
        return "crash", "it speaks no more"

    def close(self) -> None:
        """Its worker ends with its stdin; then what started it does, or is ended."""
        if not self._sending.is_alive() and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
            with suppress(TimeoutExpired):
                self._process.wait(LEAVE_S)
        super().close()


class Elsewhere:
    """A machine that a command leads to: what starts processes there, and what they say of it."""

    def __init__(self, launch: str) -> None:
        self._words = words_of(launch)
        self._spare: LaunchedSession | None = None

    def launch(self, arm: Arm = OWN) -> LaunchedSession:
        """A process there; the first is the one that was asked about the machine."""
        if arm != OWN:
            raise FfnbenchError(f"{arm} needs a process of its own here, and --launch starts all elsewhere",
                                "leave out --launch, or @python, @source and @env")  # fmt: skip
        spare, self._spare = self._spare, None
        return spare if spare is not None and not spare.ended else LaunchedSession(self._words)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What the first process says of the machine; raises FfnbenchError where none can be had."""
        self._spare = LaunchedSession(self._words)
        try:
            return self._spare.greeting()
        except Unfinished as problem:
            raise FfnbenchError(problem.message, problem.hint) from problem

    def close(self) -> None:
        """End what nobody took."""
        if self._spare is not None:
            self._spare.close()
