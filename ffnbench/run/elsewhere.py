"""Another machine, on which a command of the user's starts a program: `ssh host`, `srun -N1`, `docker exec -i box`.

Nothing of ffnbench is there. The command is run once: what it starts is sent the sources of a worker, in one line, and
starts and ends workers there as it is told (worker/arrival.py), so that all are on one machine. Nothing of this machine
is asked or signalled in its place.
"""

from __future__ import annotations

import base64
import io
import json
import os
import queue
import re
import shlex
import signal
import tempfile
import threading
import zipfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from subprocess import TimeoutExpired
from typing import IO, Any

from ffnbench.errors import FfnbenchError, Unfinished
from ffnbench.plan import OWN, Arm
from ffnbench.run.session import LEAVE_S, START_TIMEOUT_S, Session, last_line, speaking
from ffnbench.worker.arrival import SPEAKS

PACKAGE = Path(__file__).parents[1]
NOT_SENT = {"__pycache__", "api", "cli", "docs", "exam.py", "gate", "python", "report"}  # a worker knows none of them
CODE = "exec(input())"  # the same to every shell, once it is quoted; what it reads is the line that is sent
INTERPRETER = re.compile(r"(.*/)?python[0-9.]*")
FOR_EXAMPLE = 'it is a command that runs the words after it there, for example --launch "ssh host"'
NEEDS_TORCH = 'an interpreter with torch may end the command: --launch "ssh host /opt/venv/bin/python"'
ONE_MACHINE = "name one: ssh to its own name, or srun -w NODE"
HURRY_S = 1.0  # for a command that has reached nobody yet


@cache
def sources() -> str:
    """The line that makes any Python start workers, with all that they need beside torch."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(PACKAGE.rglob("*")):
            path = file.relative_to(PACKAGE)
            if file.is_file() and not NOT_SENT & set(path.parts):
                archive.write(file, Path("ffnbench", path))
    arrival = base64.b64encode((PACKAGE / "worker" / "arrival.py").read_bytes()).decode()
    sent = base64.b64encode(packed.getvalue()).decode()
    return f"import base64; exec(base64.b64decode('{arrival}').decode()); arrive('{sent}')\n"


def words_of(launch: str) -> list[str]:
    """The words of a command, with the interpreter that it starts as the last one; raises FfnbenchError."""
    try:
        words = shlex.split(launch)
    except ValueError as problem:
        raise FfnbenchError(f"--launch {launch!r} is no command: {problem}", FOR_EXAMPLE) from problem
    if not words:
        raise FfnbenchError("--launch is empty", FOR_EXAMPLE)
    return words if INTERPRETER.fullmatch(words[-1]) else [*words, "python3"]


class Connection:
    """The one process here. It alone has a number that may be signalled."""

    def __init__(self, words: list[str]) -> None:
        # what ssh is given it joins with spaces, and a shell there takes it apart
        code = shlex.quote(CODE) if any(Path(word).name == "ssh" for word in words) else CODE
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the connection
        self._printed, self.reached, self._over = "", False, False
        self._process = speaking([*words, "-u", "-c", code], self._log, FOR_EXAMPLE)
        self._sessions: dict[str, LaunchedSession] = {}
        self._outgoing: queue.Queue[str | None] = queue.Queue()
        self._outgoing.put(sources())
        for work in (self._write, self._listen):
            threading.Thread(target=work, daemon=True).start()

    def begin(self, session: LaunchedSession) -> str:
        """Start a worker there; gives its number."""
        number = str(len(self._sessions) + 1)
        self._sessions[number] = session
        self.send(number, "start")
        if self._over:
            session.hear("gone", "")
        return number

    def send(self, number: str, verb: str, rest: object = "") -> None:
        """One line, which is not waited for: a command may not read at all."""
        self._outgoing.put(f"{number} {verb} {rest}\n")

    def _write(self) -> None:
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):  # how it ended is told when it is asked
            for line in iter(self._outgoing.get, None):
                self._process.stdin.write(line)
                self._process.stdin.flush()
        with suppress(OSError):
            self._process.stdin.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                mark, *said = line.rstrip("\n").split(" ", 3)
                if mark == SPEAKS and len(said) == 3 and said[0] in self._sessions:
                    self.reached = True
                    self._sessions[said[0]].hear(*said[1:])
                else:  # shells and modules print when they begin
                    self._printed = line.strip() or self._printed
        self._over = True
        for session in list(self._sessions.values()):
            session.hear("gone", "")

    @property
    def ended(self) -> bool:
        """Whether it leads nowhere any more."""
        return self._over or self._process.poll() is not None

    def cause(self) -> tuple[str, str]:
        """How it has ended, or why it is of no use."""
        how = "says no more"
        with suppress(TimeoutExpired):
            how = f"ended (exit code {self._process.wait(LEAVE_S)})"
        return "crash", f"the command of --launch {how}{self.last_output()}"

    def last_output(self) -> str:
        """What it printed last, as the end of a sentence."""
        last = last_line(self._log) or self._printed
        return f"; its last output: {last[:300]}" if last else ""

    def close(self) -> None:
        """All workers end with its stdin, and it with them; else it is ended: politely, for srun may still wait."""
        self._outgoing.put(None)
        for sign in (signal.SIGTERM, signal.SIGKILL, None):
            with suppress(TimeoutExpired):
                self._process.wait(LEAVE_S if self.reached else HURRY_S)
            if self._process.returncode is None and sign:  # not waited for yet, so the number is still its own
                os.killpg(self._process.pid, sign)
        self._log.close()


class LaunchedSession(Session):
    """A worker there."""

    def __init__(self, connection: Connection, words: list[str], node: str) -> None:
        self._begin()
        self._node = node  # where those before it were
        works = f"does `{shlex.join(words)} -m torch.utils.collect_env` work?"
        self._hints = (works, f"{works} {NEEDS_TORCH}")
        self._connection, self._over = connection, threading.Event()
        self._log: IO[bytes] = io.BytesIO()
        self._code: int | None = None
        self._number = connection.begin(self)

    def hear(self, verb: str, rest: str) -> None:
        """What is said of it there."""
        if verb == "said":
            self._answers.put(rest)
        elif not self._over.is_set():
            if verb == "ended":
                self._code, printed = json.loads(rest)
                self._log.write(printed.encode())
            self._over.set()
            self._answers.put(None)

    def greeting(self, timeout_s: float = START_TIMEOUT_S) -> dict[str, Any]:
        """As a worker's; of the folder here nothing runs there, so its commit says nothing. Raises Unfinished too where
        the command has led to another machine than before.
        """
        try:
            told = super().greeting(timeout_s) | {"git": (None, None)}
        except Unfinished as problem:
            problem.message += self._connection.last_output() if self._hung else ""
            raise
        if self._node not in ("", told["node"]):
            raise Unfinished(f"--launch led to {self._node} first, and to {told['node']} now", ONE_MACHINE)
        return told

    def _write(self, line: str) -> None:
        self._connection.send(self._number, "ask", line)

    def rest(self, rests: bool, process: int | None = None) -> None:
        """Nothing is stopped there: only arms wait for each other."""

    def end(self, process: int) -> None:
        """End a fork of it there."""
        self._connection.send(self._number, "kill", process)

    @property
    def ended(self) -> bool:
        """Whether it is of no use any more."""
        return self._hung or self._over.is_set()

    def _cause(self) -> tuple[str, str]:
        return self._connection.cause() if self._code is None else self._cause_of(self._code)

    def close(self) -> None:
        """End it there, now."""
        if not self._over.is_set():
            self._connection.send(self._number, "end")
            self._over.wait(LEAVE_S)
        self._log.close()


class Elsewhere:
    """A machine that a command leads to: what starts processes there, and what they say of it."""

    def __init__(self, launch: str) -> None:
        """Raises FfnbenchError where no worker can be had."""
        self._words = words_of(launch)
        self._connection, self._node = Connection(self._words), ""
        try:
            self._spare: LaunchedSession | None = self._new()
            self.facts = self._spare.greeting()
        except BaseException as problem:
            self.close()
            if isinstance(problem, Unfinished):
                raise FfnbenchError(problem.message, problem.hint) from problem
            raise
        self._node = self.facts["node"]

    def _new(self) -> LaunchedSession:
        return LaunchedSession(self._connection, self._words, self._node)

    def launch(self, arm: Arm = OWN) -> LaunchedSession:
        """A worker there; the first is the one that was asked about the machine."""
        if arm != OWN:
            told = f"{arm} needs a process of its own here, and --launch starts all elsewhere"
            raise FfnbenchError(told, "leave out --launch, or @python, @source and @env")
        spare, self._spare = self._spare, None
        if spare is not None and not spare.ended:
            return spare
        if self._connection.ended:
            self.close()
            self._connection = Connection(self._words)
        return self._new()

    def close(self) -> None:
        """End all that there is."""
        self._connection.close()
