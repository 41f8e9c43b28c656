"""The parent's end of a process that measures: start it, have it do jobs, notice when
it hangs or dies. No torch here.

A process that can be forked is a starter: its child has torch loaded and a heap of its
own, and does the jobs in its place for a block of rounds. One that can't be forked does
them itself. Where a plan has several arms (`ab`), one process of each is asked in
Lockstep.
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
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from ffnbench.common import jsonable
from ffnbench.common.choices import WORKER_VARIABLE
from ffnbench.common.errors import FfnbenchError, Unfinished
from ffnbench.plan.plan import CONTROL, THIS_INTERPRETER, Arm, Plan
from ffnbench.record.messages import (
    Failed,
    Greeting,
    MessageLine,
    decode_answer,
    end_group,
)
from ffnbench.record.result import FailureKind, Side

BOOT = Path(__file__).parents[1] / "worker" / "boot.py"
START_TIMEOUT_S = 300.0
COUNT_TIMEOUT_S = 300.0  # of what is asked outside a run
LEAVE_S = 10.0  # so long a forked worker may take to end
PRINTED_BY_TORCH = ("USDT:",)  # what torch's profiler prints by itself
NONE = "none"  # the value of a fact that one arm has and another has not


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


class Worker:
    """A running process of an arm. `ask` has it do one job and waits for the answer;
    `close` always works.
    """

    def __init__(self, arm: Arm = THIS_INTERPRETER) -> None:
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._number = 0  # of the last job
        self._hung = False
        # the process id of the forked child that does the jobs, and the number of the
        # job that forked it
        self._child: int | None = None
        self._fork_number = 0
        self._greeting: Greeting | None = None
        command = [interpreter_of(arm), "-u", str(BOOT)]
        variables = variables_of(arm) | {WORKER_VARIABLE: "1"}
        folder = folder_of(arm)
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the session
        self._process = _start_process(command, self._log, variables, folder)
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

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

    def ask(self, job: str, timeout_s: float, /, **arguments: object) -> Any:
        """Have a job done. Returns its answer, of the type in record/messages.py:
        ANSWERS, or a Failed; raises WorkerLost where none comes, or one of another
        type.
        """
        self.greeting()
        self._number += 1
        data = jsonable.encode(arguments)
        self._write({"number": self._number, "job": job, "arguments": data})
        line = self._answer(job, timeout_s)
        try:
            return decode_answer(line, job)
        except ValueError:
            raise _no_answer(json.dumps(line)) from None

    def _write(self, line: MessageLine) -> None:
        assert self._process.stdin is not None
        # where it has died, waiting for its answer finds out how
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(line) + "\n")
            self._process.stdin.flush()

    def _answer(self, job: str, timeout_s: float) -> MessageLine:
        """Read until the answer to the last job comes. Raises WorkerLost where the
        child ends instead, unless it was asked to leave.
        """
        while True:
            line = self._receive(timeout_s)
            number = line.get("number")
            if "ended" in line and number == self._fork_number:
                self._child = None
                if job == "leave":
                    return {"answer": None}
                raise WorkerLost(*self._cause_of(line["ended"]))
            if number == self._number:
                return line
            # a late answer to an earlier job is passed over; anything else was written
            # by code of the user's
            if not isinstance(number, int) or not number < self._number:
                raise _no_answer(json.dumps(line))

    def _receive(self, timeout_s: float) -> MessageLine:
        """The next line that it writes; raises WorkerLost where none comes in time."""
        try:
            line = self._lines.get(timeout=min(timeout_s, threading.TIMEOUT_MAX))
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

    def fork(self, timeout_s: float) -> bool:
        """Fork this process: from now on its child does the jobs, until it leaves.
        False where it can't be forked, and has to do them itself.
        """
        child = self.ask("fork", timeout_s)
        if not isinstance(child, int):
            return False
        self._child, self._fork_number = child, self._number
        return True

    def leave(self) -> None:
        """End the child, so that this process can be forked again; end both where one
        does not answer.
        """
        if self._child is not None and not self.ended:
            with suppress(WorkerLost):
                self.ask("leave", LEAVE_S)
        if self._child is not None:
            self.close()

    @property
    def ended(self) -> bool:
        """Whether it hangs or has ended, and is of no use any more."""
        return self._hung or self._process.poll() is not None

    def pause(self) -> None:
        """Stop the process that does the jobs, until it is resumed."""
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._send(signal.SIGCONT)

    def _send(self, sign: signal.Signals) -> None:
        # where it has ended, asking it finds out how
        with suppress(ProcessLookupError):
            os.kill(self._child or self._process.pid, sign)

    def close(self) -> None:
        """End the worker, its child, and all that they started, now."""
        if self._child is not None:
            end_group(self._child)
            self._child = None
        # as long as it was not waited for, no other process can have its id
        if self._process.returncode is None:
            end_group(self._process.pid)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()


Launch = Callable[..., Worker]  # of an arm; without an argument of THIS_INTERPRETER


class Lockstep:
    """One worker of each arm, asked as one. Where one is lost all are given up, because
    their samples are compared within rounds that they made at the same time.
    """

    def __init__(self, plan: Plan, launch: Launch) -> None:
        self._plan = plan
        self._workers: dict[Arm, Worker] = {}
        try:
            for arm in plan.arms:
                self._workers[arm] = launch(arm)
        except BaseException:
            self.close()
            raise

    def greeting(self, timeout_s: float = START_TIMEOUT_S) -> Greeting:
        """The greeting of the reference's worker, with the number of GPUs that all
        workers see, and with in what the arms differ.
        """
        greetings = {
            arm: worker.greeting(timeout_s) for arm, worker in self._workers.items()
        }
        return replace(
            greetings[self._plan.arms[0]],
            gpus=min(greeting.gpus for greeting in greetings.values()),
            sides=tuple(sides_of(self._plan, greetings)),
        )

    def ask(self, job: str, timeout_s: float, /, **arguments: Any) -> Any:
        """Have a job done by the worker of its case; one of a plan by all, each with
        its own cases; any other by the worker of the reference.
        """
        if "plan" not in arguments:
            arm = self._plan.arms[0]
            if arguments.get("label"):
                arm = self._plan.case(arguments["label"]).arm
            return self._ask(arm, job, timeout_s, arguments)
        answers = []
        for arm in self._workers:
            plan: Plan = arguments["plan"]
            cases = tuple(case for case in plan.cases if case.arm == arm)
            own = arguments | {"plan": replace(plan, cases=cases)}
            answers.append(self._ask(arm, job, timeout_s, own))
        failed = [answer for answer in answers if isinstance(answer, Failed)]
        return failed[0] if failed else None

    def _ask(
        self, arm: Arm, job: str, timeout_s: float, arguments: dict[str, Any]
    ) -> Any:
        """Ask one worker while the others are stopped, whose OpenMP threads would spin
        for some milliseconds after a product, on the CPUs that this one needs.
        """
        worker = self._workers[arm]
        worker.resume()
        try:
            return worker.ask(job, timeout_s, **arguments)
        finally:
            worker.pause()

    def fork(self, timeout_s: float) -> bool:
        """Fork all; False where one can't be forked."""
        for worker in self._workers.values():
            worker.resume()
            if not worker.fork(timeout_s):
                self.leave()
                return False
        return True

    def leave(self) -> None:
        """End the children of all."""
        for worker in self._workers.values():
            worker.resume()
            worker.leave()

    @property
    def ended(self) -> bool:
        """Whether one of them has ended."""
        return any(worker.ended for worker in self._workers.values())

    def close(self) -> None:
        """End every one."""
        for worker in self._workers.values():
            worker.close()


AnyWorker = Worker | Lockstep


def sides_of(plan: Plan, greetings: dict[Arm, Greeting]) -> list[Side]:
    """The cases of each arm but the control's, and the facts about it that are not the
    same for all arms.
    """
    facts = {
        arm: _facts(arm, greeting)
        for arm, greeting in greetings.items()
        if arm.name != CONTROL
    }
    names = dict.fromkeys(name for of_arm in facts.values() for name in of_arm)
    # a variable that an arm does not set is that of this process
    table = {
        name: [
            of_arm.get(name, os.environ.get(name, NONE)) for of_arm in facts.values()
        ]
        for name in names
    }
    differing = {name: row for name, row in table.items() if len(set(row)) > 1}
    sides = []
    for number, arm in enumerate(facts):
        cases = tuple(case.label for case in plan.cases if case.arm == arm)
        own = tuple((name, row[number]) for name, row in differing.items())
        name = arm.name or ", ".join(cases)
        sides.append(Side(name=name, cases=cases, differing=own))
    return sides


def _facts(arm: Arm, greeting: Greeting) -> dict[str, str]:
    """What is known of an arm and of its worker, by the words for it."""
    facts = {"interpreter": arm.python or "ffnbench's own"}
    if arm.source and not arm.name:  # a name says it better
        facts["source"] = arm.source
    facts |= dict(arm.env)
    of_worker = {
        "python": greeting.python,
        "torch": greeting.torch,
        "torch commit": greeting.torch_commit,
        "default threads": greeting.torch_threads,
        "BLAS": greeting.blas,
        "CPU capability": greeting.cpu_capability,
        "CUDA": greeting.cuda,
        "HIP": greeting.hip,
        "GPUs": ", ".join(greeting.gpu_names),
    }
    facts |= {name: str(value) for name, value in of_worker.items() if value}
    return facts


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
        hint = "--base-python is the interpreter of another environment, for example .venv-old/bin/python"
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
