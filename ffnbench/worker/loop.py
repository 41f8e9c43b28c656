"""A process that does what it is asked, one JSON line at a time. boot.py starts it.

It measures only on request, so that the parent can stop early, show progress and time
out a case that hangs. Whatever user code does (prints, raises, calls sys.exit) becomes
an answer; only a killed process is silent.

Asked to Split it is a starter: its child has torch loaded and answers in its place,
over the same two pipes, until it is asked to Leave or dies. The starter sleeps
meanwhile, and then says how the child has ended.

Its allocator is told to keep the memory that is freed, before anything is allocated. By
itself glibc may give freed memory back to the kernel after each call and take it again
in the next, a page fault for each page; whether it does so depends on where a process's
blocks happen to lie. So some processes pay for a thousand faults a call and most for
none (docs/methodology.md). Both ways are conditions of a run: KEEPS and SYSTEM.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ffnbench.common.targets import one_line
from ffnbench.messages import (
    Begin,
    Channel,
    Done,
    Failed,
    Forked,
    Leave,
    MessageLine,
    Open,
    Split,
    TakeSample,
    WorkerRequest,
    answer_line,
    decode_request,
    end_group,
)
from ffnbench.result import FailureKind

if TYPE_CHECKING:
    from ffnbench.worker.jobs import Jobs

ALLOCATOR = "FFNBENCH_ALLOCATOR"  # in the environment of a process that measures
KEEPS, SYSTEM = "keeps", "system"
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # glibc's malloc.h
NEVER_TRIM, NO_MMAP = -1, 0


def keep_freed_memory() -> str:
    """Have this process keep what it frees, unless its environment says SYSTEM; gives
    what it does, KEEPS or SYSTEM.

    glibc alone: musl, macOS and Windows have no such switch, and an allocator that was
    preloaded is left alone. That nothing is mapped by itself (M_MMAP_MAX 0) holds for
    blocks of any size; M_MMAP_THRESHOLD ends at 32 MiB in glibc before 2.35.
    """
    if (
        sys.platform != "linux"
        or os.environ.get(ALLOCATOR) == SYSTEM
        or "malloc" in os.environ.get("LD_PRELOAD", "")
    ):
        return SYSTEM
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None or not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"):
        return SYSTEM
    if mallopt(M_MMAP_MAX, NO_MMAP) and mallopt(M_TRIM_THRESHOLD, NEVER_TRIM):
        return KEEPS
    return SYSTEM


PR_SET_PDEATHSIG = 1
# numpy's OpenBLAS starts its threads as it is loaded, and a process that has several
# can't be forked
ONE_THREAD = ("OPENBLAS_NUM_THREADS", "1")


def main() -> None:
    """Claim the channel, load torch, answer until the parent closes it."""
    channel = Channel.claim()
    _die_with_parent()
    allocator = keep_freed_memory()
    os.environ.setdefault(*ONE_THREAD)
    # among the many objects that torch makes while it loads there is no garbage: a
    # tenth of the time
    gc.disable()
    try:
        import torch

        from ffnbench.device.environment import about_machine, about_torch
        from ffnbench.worker.jobs import answer_to
    except ImportError as problem:
        channel.send({"error": f"{type(problem).__name__}: {problem}"})
        return
    gc.freeze()
    gc.enable()
    greeting = (
        _in_a_child(about_torch)
        | about_machine()
        | {"allocator": allocator, "forks": can_fork()}
    )
    channel.send({"greeting": greeting})
    # looking takes small operations, whose threads wait for each other; a case sets its
    # own
    torch.set_num_threads(1)
    jobs: Jobs | None = None
    while (line := channel.receive()) is not None:
        request, number = decode_request(line), line["number"]
        if isinstance(request, Leave):
            os._exit(0)
        if isinstance(request, Split):
            channel.send(_fork_worker() | {"number": number})
        elif isinstance(request, Begin):
            jobs = _jobs_of(request)
            channel.send(answer_line(Done()) | {"number": number})
        else:
            answer = answer_to(request, jobs)
            _send_answer(channel, answer, number)
            if isinstance(answer, Failed):
                _clean_up(answer, request, jobs)


def _in_a_child(ask: Callable[[], MessageLine]) -> MessageLine:
    """What a function says in a child: an accelerator once looked for can't be used by
    a process forked later.
    """
    if not can_fork():
        return ask()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        with os.fdopen(writing, "w", encoding="utf-8") as pipe:
            json.dump(ask(), pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    if not text:
        return ask()
    facts: MessageLine = json.loads(text)
    return facts


def can_fork() -> bool:
    """Whether this process can be forked: where the system can, and it has one thread.
    A lock that another thread holds would never be freed in the child.
    """
    try:
        return sys.platform == "linux" and len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return False


def _fork_worker() -> MessageLine:
    """Fork. In the child it comes back at once; in the starter when the child has
    ended, saying how.
    """
    if not can_fork():
        return answer_line(Forked())
    child = os.fork()
    if not child:
        _die_with_parent()
        os.setpgid(0, 0)
        return answer_line(Forked(process=os.getpid()))
    _, status = os.waitpid(child, 0)
    end_group(child)  # what code of the user's has started in it
    return {"ended": os.waitstatus_to_exitcode(status)}


def _jobs_of(request: Begin) -> Jobs:
    """The jobs of a plan. On a CPU no allocation may go beyond the memory that there
    is.
    """
    from ffnbench.device.environment import usable_memory
    from ffnbench.worker.jobs import Jobs

    memory = request.memory_bytes or usable_memory()
    if all(case.workload.device == "cpu" for case in request.plan.cases):
        _limit_memory(memory)
    return Jobs(request.plan, memory, request.block)


def _send_answer(channel: Channel, answer: object, number: int) -> None:
    """Send it; an answer that JSON can't hold is a failure of the job, not the end of
    the worker.
    """
    try:
        channel.send(answer_line(answer) | {"number": number})
    except (TypeError, ValueError) as problem:
        failed = Failed(
            kind=FailureKind.CRASH,
            message=f"its answer can't be told: {one_line(problem)}",
        )
        channel.send(answer_line(failed) | {"number": number})


def _clean_up(failed: Failed, request: WorkerRequest[Any], jobs: Jobs | None) -> None:
    """After a failure: end this process where it is of no use any more; where memory
    was too little, let go of what the failed case holds and of what the device's
    allocator keeps.
    """
    if failed.ends:
        # what would be torn down stands on a device that answers nothing but its error
        os._exit(1)
    if failed.kind is FailureKind.OOM:
        if jobs is not None and isinstance(request, Open | TakeSample):
            jobs.forget(request.label)  # the parent does not ask for it again
        gc.collect()
        torch = sys.modules["torch"]
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _die_with_parent() -> None:
    """Linux: no worker outlives a parent that was killed. Ctrl-C is the parent's to
    handle.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        try:
            with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
                # if the kernel must kill somebody, this process and not the parent
                file.write("1000")
        except OSError:
            pass


def _limit_memory(usable: int | None) -> None:
    """Linux: an allocation beyond what the machine has fails here, as an error, instead
    of waking the OOM killer.
    """
    if sys.platform != "linux" or usable is None:
        return
    with open("/proc/self/statm", encoding="ascii") as file:
        data_pages = int(file.read().split()[5])
    limit = data_pages * os.sysconf("SC_PAGE_SIZE") + usable
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


if __name__ == "__main__":
    main()
