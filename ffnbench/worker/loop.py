"""The loop of a worker: it reads a job, does it, and answers, one JSON line at a time.
boot.py starts it.

A worker measures only when it is asked, so that the parent can stop early, show
progress and time out a case that hangs. Whatever user code does (prints, raises, calls
sys.exit) becomes an answer; only a killed process is silent.

A process that is asked to `fork` becomes a starter: its child has torch loaded and
answers in its place, over the same two pipes, until it is asked to `leave` or dies. The
starter sleeps meanwhile, and then says how the child has ended.

Before anything is allocated, the allocator is told to keep freed memory. By itself
glibc may give it back to the kernel after each call and take it again in the next,
which costs a page fault for each page; whether it does so depends on where the blocks
of a process happen to lie. So some processes pay for a thousand faults in a call, and
most for none (docs/methodology.md). Both are conditions of a run: KEEPS and SYSTEM.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from ffnbench.common.targets import one_line
from ffnbench.record.messages import Failed, MessageLine, encode_answer, end_group
from ffnbench.record.result import FailureKind

if TYPE_CHECKING:
    from ffnbench.worker.jobs import Jobs

ALLOCATOR = "FFNBENCH_ALLOCATOR"  # in the environment of a process that measures
KEEPS, SYSTEM = "keeps", "system"
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # glibc's malloc.h
NEVER_TRIM, NO_MMAP = -1, 0
PR_SET_PDEATHSIG = 1  # Linux's sys/prctl.h
# numpy's OpenBLAS starts its threads as it is loaded, and a process that has several
# can't be forked
ONE_THREAD = ("OPENBLAS_NUM_THREADS", "1")


def claimed_pipes() -> tuple[TextIO, TextIO]:
    """Take over stdin and stdout of this process, so that no code that runs later reads
    or writes them. Returns the two ends that the parent is spoken with.
    """
    incoming, outgoing = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - lives as long as the process
    return os.fdopen(incoming, encoding="utf-8"), os.fdopen(
        outgoing, "w", encoding="utf-8"
    )


def send(pipe: TextIO, line: MessageLine) -> None:
    """Send one line without waiting for more."""
    pipe.write(json.dumps(line, allow_nan=False) + "\n")
    pipe.flush()


def keep_freed_memory() -> str:
    """Make this process keep the memory that it frees, unless its environment says
    SYSTEM. Return what it does from now on, KEEPS or SYSTEM.

    Only glibc can: musl, macOS and Windows have no such switch, and an allocator that
    was preloaded is left as it is. No block is mapped by itself (M_MMAP_MAX 0), since
    M_MMAP_THRESHOLD has no effect on blocks above 32 MiB in glibc before 2.35.
    """
    if (
        sys.platform != "linux"
        or os.environ.get(ALLOCATOR) == SYSTEM
        or "malloc" in os.environ.get("LD_PRELOAD", "")
    ):
        return SYSTEM
    libc = ctypes.CDLL(None)
    if not (hasattr(libc, "mallopt") and hasattr(libc, "gnu_get_libc_version")):
        return SYSTEM
    if libc.mallopt(M_MMAP_MAX, NO_MMAP) and libc.mallopt(M_TRIM_THRESHOLD, NEVER_TRIM):
        return KEEPS
    return SYSTEM


def main() -> None:
    """Claim the pipes, load torch, greet the parent, and do its jobs until it closes
    them.
    """
    incoming, outgoing = claimed_pipes()
    _die_with_parent()
    allocator = keep_freed_memory()
    os.environ.setdefault(*ONE_THREAD)
    # torch makes many objects while it loads, and no garbage: to look for some would
    # take a tenth of the time
    gc.disable()
    try:
        import torch

        from ffnbench.device.environment import about_machine, about_torch
        from ffnbench.worker.jobs import answer_to, begin, decoded_arguments
    except ImportError as problem:
        send(outgoing, {"error": f"{type(problem).__name__}: {problem}"})
        return
    gc.freeze()
    gc.enable()
    greeting = (
        _call_in_child(about_torch)
        | about_machine()
        | {"allocator": allocator, "forks": can_fork()}
    )
    send(outgoing, {"greeting": greeting})
    # probing runs small operations, in which several threads only wait for each other;
    # a case sets its own number of threads
    torch.set_num_threads(1)
    jobs: Jobs | None = None
    for text in incoming:
        line = json.loads(text)
        job, arguments, number = line["job"], line["arguments"], line["number"]
        if job == "leave":
            os._exit(0)
        if job == "fork":
            send(outgoing, _fork_worker() | {"number": number})
        elif job == "begin":
            jobs = begin(**decoded_arguments(begin, arguments))
            send(outgoing, encode_answer(None) | {"number": number})
        else:
            answer = answer_to(job, arguments, jobs)
            send_answer(outgoing, answer, number)
            if isinstance(answer, Failed):
                _clean_up(answer, job, arguments, jobs)


def _call_in_child(function: Callable[[], MessageLine]) -> MessageLine:
    """Call a function in a forked child, and return what it returned there. A process
    that has looked for accelerators itself could not be forked into one that uses them.

    It is called in this process where that can't be forked, or where the child died.
    """
    if not can_fork():
        return function()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        with os.fdopen(writing, "w", encoding="utf-8") as pipe:
            json.dump(function(), pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    if not text:
        return function()
    facts: MessageLine = json.loads(text)
    return facts


def can_fork() -> bool:
    """Whether this process can be forked: on Linux, while it has one thread. A lock
    that another thread holds would never be released in the child.
    """
    try:
        return sys.platform == "linux" and len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return False


def _fork_worker() -> MessageLine:
    """Fork this process, and return what it has to send: in the child at once, the
    answer with its process id; in the starter when the child has ended, how it ended.
    The answer is None where this process can't be forked.
    """
    if not can_fork():
        return encode_answer(None)
    child = os.fork()
    if not child:
        _die_with_parent()
        os.setpgid(0, 0)
        return encode_answer(os.getpid())
    _, status = os.waitpid(child, 0)
    end_group(child)  # what code of the user's has started in it
    return {"ended": os.waitstatus_to_exitcode(status)}


def send_answer(pipe: TextIO, answer: object, number: int) -> None:
    """Send an answer. One that JSON can't hold becomes a failure of the job, and does
    not end the worker.
    """
    try:
        send(pipe, encode_answer(answer) | {"number": number})
    except (TypeError, ValueError) as problem:
        failed = Failed(
            kind=FailureKind.CRASH,
            message=f"its answer can't be told: {one_line(problem)}",
        )
        send(pipe, encode_answer(failed) | {"number": number})


def _clean_up(
    failed: Failed, job: str, arguments: MessageLine, jobs: Jobs | None
) -> None:
    """Clean up after a failed job: end this process where it is of no use any
    more; where memory was full, release what the failed case holds and what the
    device's allocator keeps.
    """
    if failed.ends_process:
        # without clean-up, which would call a device that only repeats its error
        os._exit(1)
    if failed.kind is FailureKind.OOM:
        if jobs is not None and job in ("open", "sample"):
            jobs.forget(arguments["label"])  # the parent drops the case too
        gc.collect()
        torch = sys.modules["torch"]
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _die_with_parent() -> None:
    """Leave Ctrl-C to the parent. On Linux, have the kernel kill this process when its
    parent has been killed, and kill it before the parent when memory runs out.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        try:
            with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
                file.write("1000")  # the first to be killed
        except OSError:
            pass


if __name__ == "__main__":
    main()
