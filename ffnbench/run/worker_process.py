"""The parent's end of one process that measures: start it, ask it, notice when it hangs
or dies. No torch here.

A WorkerProcess that can be forked is a starter: `fork` returns a ForkedWorker, which
has torch loaded and serves for a block of rounds. One that can't be forked is the
worker itself.
"""

from __future__ import annotations

import json
import os
import queue
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from ffnbench.common import jsonable
from ffnbench.common.errors import FfnbenchError, Unfinished
from ffnbench.messages import (
    WORKER_VARIABLE,
    A,
    Done,
    Failed,
    Fork,
    Greeting,
    Leave,
    MessageLine,
    WorkerRequest,
    decode_answer,
    encode_answer,
    encode_request,
    end_group,
)
from ffnbench.plan import THIS_INTERPRETER, Arm
from ffnbench.result import FailureKind

BOOT = Path(__file__).parents[1] / "worker" / "boot.py"
START_TIMEOUT_S = 300.0
COUNT_TIMEOUT_S = 300.0  # of what is asked outside a run
LEAVE_S = 10.0  # so long a forked worker may take to end
PRINTED_BY_TORCH = ("USDT:",)  # what torch's profiler prints by itself


class WorkerLost(Exception):
    """Raised for a worker that is gone: `kind` is TIMEOUT, OOM or CRASH."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def lost_over_device(lost: WorkerLost) -> Unfinished:
    """The error to raise where a worker that was asked about its device is lost."""
    return Unfinished(
        f"a worker was lost while it looked for its device: {lost}",
        "does `nvidia-smi` work?",
    )


class WorkerProcess:
    """A running process of an arm. `ask` sends one request and waits for its answer;
    `close` always works.
    """

    def __init__(self, arm: Arm = THIS_INTERPRETER) -> None:
        self._answers: queue.Queue[str | None] = queue.Queue()
        self._asked = 0  # the number of the last request
        self._hung = False
        # the numbers of the requests whose forks are alive; the last fork answers in
        # place of this process
        self._forks: list[int] = []
        self._greeting: Greeting | None = None
        command = [interpreter_of(arm), "-u", str(BOOT)]
        variables = variables_of(arm) | {WORKER_VARIABLE: "1"}
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the session
        self._process = _start_process(command, self._log, variables, folder_of(arm))
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put(None)

    def greeting(self, timeout_s: float = START_TIMEOUT_S) -> Greeting:
        """What the worker says of its torch. The first time it is waited for; raises
        Unfinished where it does not start.
        """
        if self._greeting is None:
            try:
                line = self._receive(timeout_s)
            except WorkerLost as lost:
                raise Unfinished(
                    f"a worker could not start: {lost}",
                    "try `python -c 'import torch'`",
                ) from lost
            if "error" in line:
                raise Unfinished(
                    f"a worker could not start: {line['error']}",
                    "is torch installed for this interpreter?",
                )
            self._greeting = jsonable.decode(Greeting, line["greeting"])
        return self._greeting

    def ask(self, request: WorkerRequest[A], timeout_s: float) -> A | Failed:
        """The answer to a request; raises WorkerLost where none comes, or one of
        another type.
        """
        line = self._exchange(request, timeout_s)
        try:
            return decode_answer(line, request)
        except ValueError:
            raise _no_answer(json.dumps(line)) from None

    def _exchange(self, request: WorkerRequest[Any], timeout_s: float) -> MessageLine:
        """Write a request, and read until its answer comes. Raises WorkerLost where the
        fork that was asked ends instead, unless it was asked to leave.
        """
        self.greeting()
        self._asked += 1
        self._write(json.dumps(encode_request(request, self._asked)))
        while True:
            line = self._receive(timeout_s)
            number = line.get("number")
            if "ended" in line and number in self._forks:
                self._forks.remove(number)
                if isinstance(request, Leave):
                    return encode_answer(Done())
                raise WorkerLost(*self._cause_of(line["ended"]))
            if number == self._asked:
                return line
            # a late answer to an earlier request is passed over; anything else was
            # written by code of the user's
            if not isinstance(number, int) or not number < self._asked:
                raise _no_answer(json.dumps(line))

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        # where it has died, waiting for its answer finds out how
        with suppress(BrokenPipeError):
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def fork(self, timeout_s: float) -> ForkedWorker | None:
        """A worker that is forked from this process, which may be asked for nothing
        else until that one is closed; None where it can't be forked, and has to serve
        itself.
        """
        answer = self.ask(Fork(), timeout_s)
        if isinstance(answer, Failed) or answer.process is None:
            return None
        self._forks.append(self._asked)
        return ForkedWorker(self, answer.process)

    def pause(self) -> None:
        """Stop it until it is resumed."""
        _send_signal(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        _send_signal(self._process.pid, signal.SIGCONT)

    @property
    def ended(self) -> bool:
        """Whether it hangs or has ended, and is of no use any more."""
        return self._hung or self._process.poll() is not None

    def _receive(self, timeout_s: float) -> MessageLine:
        """The next line that it writes; raises WorkerLost where none comes in time."""
        try:
            line = self._answers.get(timeout=min(timeout_s, threading.TIMEOUT_MAX))
        except queue.Empty:
            self._hung = True
            raise WorkerLost(
                FailureKind.TIMEOUT, f"no answer within {timeout_s:g} s"
            ) from None
        if line is None:
            # it has ended by itself
            raise WorkerLost(*self._cause_of(self._process.wait()))
        try:
            return dict(json.loads(line, parse_constant=jsonable.no_number))
        except (ValueError, TypeError, RecursionError):  # it may be no interpreter
            raise _no_answer(line) from None

    def _cause_of(self, code: int) -> tuple[FailureKind, str]:
        """Why a process with this exit code ended, as WorkerLost takes it."""
        if code == -signal.SIGKILL:
            return (
                FailureKind.OOM,
                "the process was killed (signal 9), probably out of memory",
            )
        how = f"exit code {code}"
        if code < 0:
            # real-time signals have no names
            names = {sign.value: f", {sign.name}" for sign in signal.Signals}
            how = f"signal {-code}{names.get(-code, '')}"
        message = f"the process ended ({how})"
        last = self._last_output()
        if last:
            message += f"; its last output: {last}"
        return FailureKind.CRASH, message

    def _last_output(self) -> str:
        """The last line that the worker or user code in it printed; empty for none."""
        self._log.seek(0)
        lines = self._log.read().decode("utf-8", "replace").splitlines()
        for line in reversed(lines):
            if line.strip() and not line.startswith(PRINTED_BY_TORCH):
                return line.strip()
        return ""

    def close(self) -> None:
        """End the worker and all that it started, now."""
        # as long as it was not waited for, no other process can have its id
        if self._process.returncode is None:
            end_group(self._process.pid)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    continue


class ForkedWorker:
    """A worker that was forked from a starter, and is asked over the starter's pipes.
    `process` is its process id.
    """

    def __init__(self, starter: WorkerProcess, process: int) -> None:
        self._starter, self._process = starter, process
        self._gone = False  # whether it was lost or has left

    def greeting(self, timeout_s: float = START_TIMEOUT_S) -> Greeting:
        """The greeting of its starter."""
        return self._starter.greeting(timeout_s)

    def ask(self, request: WorkerRequest[A], timeout_s: float) -> A | Failed:
        """The answer to a request; raises WorkerLost where none comes."""
        try:
            return self._starter.ask(request, timeout_s)
        except WorkerLost:
            self._gone = True
            raise

    def pause(self) -> None:
        """Stop it until it is resumed."""
        if not self._gone:
            _send_signal(self._process, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        if not self._gone:
            _send_signal(self._process, signal.SIGCONT)

    def close(self) -> None:
        """End it, and where it does not answer its starter as well."""
        if not self._gone:
            self._gone = True
            try:
                self._starter.ask(Leave(), LEAVE_S)
                return
            except WorkerLost:
                pass
        elif not self._starter.ended:
            return  # the starter has seen it end, and can be forked again
        end_group(self._process)
        self._starter.close()


def _send_signal(process: int, sign: signal.Signals) -> None:
    # where it has ended, asking it finds out how
    with suppress(ProcessLookupError):
        os.kill(process, sign)


def _start_process(
    command: list[str], log: IO[bytes], variables: dict[str, str], folder: Path | None
) -> subprocess.Popen[str]:
    """A process in a session of its own, with pipes to ask it over; raises
    FfnbenchError where it can't be started.
    """
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=variables,
            cwd=folder,
            start_new_session=True,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
    except OSError as problem:
        log.close()
        raise FfnbenchError(
            f"{command[0]!r} can't be started: {problem.strerror}",
            "is it a Python interpreter?",
        ) from problem


def _no_answer(line: str) -> WorkerLost:
    return WorkerLost(
        FailureKind.CRASH, f"it printed {line.strip()[:60]!r} instead of an answer"
    )


def interpreter_of(arm: Arm) -> str:
    """The absolute path of an arm's interpreter; raises FfnbenchError where there is
    none. Links are not followed: the python of a virtual environment is one.
    """
    if not arm.python:
        return sys.executable
    path = os.path.expanduser(arm.python)
    interpreter = shutil.which(path)
    if interpreter is not None:
        return os.path.abspath(interpreter)
    inside = Path(path, "bin", "python")
    if inside.exists():
        hint = f"that is a folder; its interpreter is {inside}"
    else:
        hint = "@python= is the interpreter of another environment, for example .venv-old/bin/python"
    raise FfnbenchError(f"there is no interpreter {arm.python!r}", hint)


def folder_of(arm: Arm) -> Path | None:
    """The folder that comes first on the module path of an arm, and is its current
    folder; None where it has none of its own. Raises FfnbenchError for what is no
    folder.
    """
    if not arm.source:
        return None
    folder = Path(os.path.expanduser(arm.source)).absolute()
    if not os.path.isdir(folder):  # unlike Path.is_dir also where the name is too long
        made = f"`git worktree add {shlex.quote(arm.source)} HEAD~1` makes a checkout there, of the last commit but one"
        raise FfnbenchError(
            f"there is no folder {arm.source!r}", f"is the path right? {made}"
        )
    return folder


def variables_of(arm: Arm) -> dict[str, str]:
    """The environment variables for the process of an arm: those of this process, its
    own, and PYTHONPATH with its folder.
    """
    variables = {**os.environ, **dict(arm.env)}
    folder = folder_of(arm)
    if folder is not None:
        paths = [str(folder)]
        src = folder / "src"
        # a folder of packages, and not a package that is called src
        if src.is_dir() and not (src / "__init__.py").exists():
            paths.append(str(src))
        if variables.get("PYTHONPATH"):
            paths.append(variables["PYTHONPATH"])
        variables["PYTHONPATH"] = os.pathsep.join(paths)
    return variables
