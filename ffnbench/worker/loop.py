"""The loop of a worker: it reads a request, does it, and answers, one JSON line at a
time. boot.py starts it.

A worker measures only on request, so that the parent can stop early, show progress and
time out a case that hangs. Whatever user code does (prints, raises, calls sys.exit)
becomes an answer; only a killed process is silent.

A process that is asked to Fork becomes a starter: its child has torch loaded and
answers in its place, over the same two pipes, until it is asked to Leave or dies. The
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
    Fork,
    Forked,
    Leave,
    MessageLine,
    Open,
    TakeSample,
    WorkerRequest,
    decode_request,
    encode_answer,
    end_group,
)
from ffnbench.result import FailureKind

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
DATA_PAGES = 5  # the field of /proc/self/statm with the size of data and stack


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
    """Claim the channel, load torch, greet the parent, and answer its requests until it
    closes the channel.
    """
    channel = Channel.claim()
    _die_with_parent()
    allocator = keep_freed_memory()
    os.environ.setdefault(*ONE_THREAD)
    # torch makes many objects while it loads, and no garbage: to look for some would
    # take a tenth of the time
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
        _call_in_child(about_torch)
        | about_machine()
        | {"allocator": allocator, "forks": can_fork()}
    )
    channel.send({"greeting": greeting})
    # probing runs small operations, in which several threads only wait for each other;
    # a case sets its own number of threads
    torch.set_num_threads(1)
    jobs: Jobs | None = None
    while (line := channel.receive()) is not None:
        request, number = decode_request(line), line["number"]
        if isinstance(request, Leave):
            os._exit(0)
        if isinstance(request, Fork):
            channel.send(_fork_worker() | {"number": number})
        elif isinstance(request, Begin):
            jobs = _jobs_of(request)
            channel.send(encode_answer(Done()) | {"number": number})
        else:
            answer = answer_to(request, jobs)
            _send_answer(channel, answer, number)
            if isinstance(answer, Failed):
                _clean_up(answer, request, jobs)


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
    answer Forked; in the starter when the child has ended, how it ended.
    """
    if not can_fork():
        return encode_answer(Forked())
    child = os.fork()
    if not child:
        _die_with_parent()
        os.setpgid(0, 0)
        return encode_answer(Forked(process=os.getpid()))
    _, status = os.waitpid(child, 0)
    end_group(child)  # what code of the user's has started in it
    return {"ended": os.waitstatus_to_exitcode(status)}


def _jobs_of(request: Begin) -> Jobs:
    """The jobs of a plan. Where all cases run on the CPU, the memory that this process
    may allocate is limited to what it may use.
    """
    from ffnbench.device.environment import usable_memory
    from ffnbench.worker.jobs import Jobs

    memory = request.memory_bytes or usable_memory()
    if all(case.workload.device == "cpu" for case in request.plan.cases):
        _limit_memory(memory)
    return Jobs(request.plan, memory, request.layout_seed)


def _send_answer(channel: Channel, answer: object, number: int) -> None:
    """Send an answer. One that JSON can't hold becomes a failure of the request, not
    the end of the worker.
    """
    try:
        channel.send(encode_answer(answer) | {"number": number})
    except (TypeError, ValueError) as problem:
        failed = Failed(
            kind=FailureKind.CRASH,
            message=f"its answer can't be told: {one_line(problem)}",
        )
        channel.send(encode_answer(failed) | {"number": number})


def _clean_up(failed: Failed, request: WorkerRequest[Any], jobs: Jobs | None) -> None:
    """Clean up after a failed request: end this process where it is of no use any
    more; where memory was full, release what the failed case holds and what the
    device's allocator keeps.
    """
    if failed.ends_process:
        # without clean-up, which would call a device that only repeats its error
        os._exit(1)
    if failed.kind is FailureKind.OOM:
        if jobs is not None and isinstance(request, Open | TakeSample):
            jobs.forget(request.label)  # the parent drops the case too
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


def _limit_memory(usable: int | None) -> None:
    """On Linux, let this process allocate so many bytes beside what it has now: an
    allocation beyond that fails as an error, and does not wake the OOM killer.
    """
    if sys.platform != "linux" or usable is None:
        return
    with open("/proc/self/statm", encoding="ascii") as file:
        data_pages = int(file.read().split()[DATA_PAGES])
    limit = data_pages * os.sysconf("SC_PAGE_SIZE") + usable
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


if __name__ == "__main__":
    main()
