"""A process that does what it is asked, one JSON line at a time. boot.py starts it.

It measures only on request, so that the parent can stop early, show progress and time out a case that hangs.
Whatever user code does (prints, raises, calls sys.exit) becomes an answer; only a killed process is silent.

Asked to `fork` it is a starter: its child has torch loaded and answers in its place, over the same two pipes, until it
is asked to `leave` or dies. The starter sleeps meanwhile, and then says how the child has ended.

Its allocator is told to keep the memory that is freed, before anything is allocated. By itself glibc may give freed
memory back to the kernel after each call and take it again in the next, a page fault for each page; whether it does so
depends on where a process's blocks happen to lie. So some processes pay for a thousand faults a call and most for none
(docs/methodology.md). Both ways are conditions of a run: KEEPS and SYSTEM.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import re
import resource
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from ffnbench.common.targets import one_line
from ffnbench.features import verb
from ffnbench.worker.channel import Channel, Message, end_group

ALLOCATOR = "FFNBENCH_ALLOCATOR"  # in the environment of a process that measures
KEEPS, SYSTEM = "keeps", "system"
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # glibc's malloc.h
NEVER_TRIM, NO_MMAP = -1, 0


def keep_freed_memory() -> str:
    """Have this process keep what it frees, unless its environment says SYSTEM; gives what it does, KEEPS or SYSTEM.

    glibc alone: musl, macOS and Windows have no such switch, and an allocator that was preloaded is left alone. That
    nothing is mapped by itself (M_MMAP_MAX 0) holds for blocks of any size; M_MMAP_THRESHOLD ends at 32 MiB in glibc
    before 2.35.
    """
    if sys.platform != "linux" or os.environ.get(ALLOCATOR) == SYSTEM or "malloc" in os.environ.get("LD_PRELOAD", ""):
        return SYSTEM
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None or not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"):
        return SYSTEM
    return KEEPS if mallopt(M_MMAP_MAX, NO_MMAP) and mallopt(M_TRIM_THRESHOLD, NEVER_TRIM) else SYSTEM


PR_SET_PDEATHSIG = 1
# by the names of exceptions, for torch loads in main
OWN_KINDS = {"Mismatch": "mismatch", "Recompiled": "recompiled", "FailOnRecompileLimitHit": "recompiled"}
# numpy's OpenBLAS starts its threads as it is loaded, and a process that has several can't be forked
ONE_THREAD = ("OPENBLAS_NUM_THREADS", "1")
ENDS_A_CASE = ("open", "sample")  # where one of these fails, its case is not asked for again


def main() -> None:
    """Claim the channel, load torch, answer until the parent closes it."""
    channel = Channel.claim()
    _die_with_parent()
    allocator = keep_freed_memory()
    os.environ.setdefault(*ONE_THREAD)
    gc.disable()  # among the many objects that torch makes while it loads there is no garbage: a tenth of the time
    try:
        import torch

        from ffnbench.common import jsonable
        from ffnbench.device.environment import about_machine, about_torch, usable_memory
        from ffnbench.plan import Plan
        from ffnbench.worker.jobs import Jobs
        from ffnbench.worker.probe_jobs import job_of
    except ImportError as problem:
        channel.send({"error": f"{type(problem).__name__}: {problem}"})
        return
    gc.freeze()
    gc.enable()
    channel.send({"torch": _in_a_child(about_torch) | about_machine() | {"allocator": allocator, "forks": can_fork()}})
    torch.set_num_threads(1)  # looking takes small operations, whose threads wait for each other; a case sets its own
    jobs = None
    while (request := channel.receive()) is not None:
        asked = {"number": request.pop("number", None)}  # an answer says which request it is to
        if request["do"] == "fork":
            channel.send(_forked() | asked)
        elif request["do"] == "leave":
            os._exit(0)
        elif request["do"] == "plan":
            plan = jsonable.decode(Plan, request["plan"])
            memory = request.get("memory_bytes") or usable_memory()
            jobs = Jobs(plan, memory, request.get("block", ""))
            if all(case.workload.device == "cpu" for case in plan.cases):
                _limit_memory(memory)
            channel.send(asked)
        else:
            job = job_of(request["do"]) or getattr(jobs, request["do"], None) or partial(verb(request["do"]), jobs)
            answer = answer_to(job, request, jobs)
            _send(channel, {**answer, **asked})
            if answer.get("ends"):
                os._exit(1)  # what would be torn down stands on a device that answers nothing but its error
            if answer.get("failure") == "oom":
                _make_room(torch, jobs, request)


def _in_a_child(ask: Callable[[], Message]) -> Message:
    """What a function says in a child: an accelerator once looked for can't be used by a process forked later."""
    if not can_fork():
        return ask()
    reading, writing = os.pipe()
    if not (child := os.fork()):
        with os.fdopen(writing, "w", encoding="utf-8") as pipe:
            json.dump(ask(), pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    return json.loads(told) if told else ask()


def can_fork() -> bool:
    """Whether this process can be forked: where the system can, and it has one thread. A lock that another thread holds
    would never be freed in the child.
    """
    try:
        return sys.platform == "linux" and len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return False


def _forked() -> Message:
    """Fork. In the child it comes back at once; in the starter when the child has ended, saying how."""
    if not can_fork():
        return {"failure": "threads", "message": "this process can't be forked: it has several threads"}
    if not (child := os.fork()):
        _die_with_parent()
        os.setpgid(0, 0)
        return {"forked": os.getpid()}
    _, status = os.waitpid(child, 0)
    end_group(child)  # what code of the user's has started in it
    return {"ended": os.waitstatus_to_exitcode(status)}


def _send(channel: Channel, answer: Message) -> None:
    """Send it; an answer that JSON can't hold is a failure of the job, not the end of the worker."""
    try:
        channel.send(answer)
    except (TypeError, ValueError) as problem:
        told = {"failure": "crash", "message": f"its answer can't be told: {_one_line(problem)}"}
        channel.send({**told, "number": answer.get("number")})


def answer_to(job: Any, request: Message, jobs: Any = None) -> Message:
    """Do one job; any exception is an answer. This process ends with one that has broken its device, or torch.compile:
    what a compiler leaves behind that failed makes later rows of a process wrong.
    """
    from ffnbench.common.errors import FfnbenchError, Raised, Unsupported

    arguments = {key: value for key, value in request.items() if key != "do"}
    try:
        answer: Message = job(**arguments)
        if jobs is not None and request.get("label"):
            jobs.drain(request["label"])  # what the device finds wrong later is this case's, and not the next one's
        return answer
    except BaseException as problem:  # user code may raise anything, SystemExit included
        from ffnbench.device.accelerator import device_error

        if broken := device_error(problem):
            return {"failure": "crash", "message": broken, "ends": True}
        cause = problem.__cause__ if isinstance(problem, FfnbenchError) else problem  # one of our own has found out
        failed = cause is not None and type(cause).__name__ not in OWN_KINDS
        ends = {"ends": True} if failed and jobs is not None and jobs.has_compiled(request.get("label", "")) else {}
        if isinstance(problem, FfnbenchError):
            # where nothing is measured this kind says that no mistake was typed
            lacks = isinstance(problem, Unsupported) and (jobs is None or not isinstance(problem, Raised))
            kind = "unsupported" if lacks else "crash"
            return {"failure": kind, "message": problem.message, "hint": problem.hint, **ends}
        return {"failure": _kind(problem), "message": _one_line(problem), **ends}


def _make_room(torch: Any, jobs: Any, request: Message) -> None:
    """After memory was too little: what the failed case holds goes, and what the device's allocator keeps."""
    if jobs is not None and request["do"] in ENDS_A_CASE:
        jobs.forget(request["label"])
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _kind(problem: BaseException) -> str:
    from ffnbench.device.accelerator import is_full
    from ffnbench.worker.backends.compiling import not_compiled

    text = str(problem)
    full = is_full(problem) or "can't allocate memory" in text or "not enough memory" in text
    if full or isinstance(problem, MemoryError):
        return "oom"
    lacking = isinstance(problem, NotImplementedError) or "not implemented for" in text
    if lacking or not_compiled(problem):
        return "unsupported"
    return OWN_KINDS.get(type(problem).__name__, "crash")


def _one_line(problem: BaseException) -> str:
    from ffnbench.device.accelerator import first_line, is_full
    from ffnbench.worker.backends.compiling import not_compiled

    text = " ".join(str(problem).split())
    if asked := re.search(r"you tried to allocate (\d+) bytes", text):
        return f"it tried to allocate {int(asked[1]) / 2**30:,.2f} GiB at once"
    if is_full(problem):
        return first_line(str(problem))
    if type(problem).__name__ in ("Mismatch", "Recompiled"):
        return text
    if told := not_compiled(problem):
        return told
    return one_line(problem)


def _die_with_parent() -> None:
    """Linux: no worker outlives a parent that was killed. Ctrl-C is the parent's to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        try:
            with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
                file.write("1000")  # if the kernel must kill somebody, this process and not the parent
        except OSError:
            pass


def _limit_memory(usable: int | None) -> None:
    """Linux: an allocation beyond what the machine has fails here, as an error, instead of waking the OOM killer."""
    if sys.platform != "linux" or usable is None:
        return
    with open("/proc/self/statm", encoding="ascii") as file:
        data_pages = int(file.read().split()[5])
    limit = data_pages * os.sysconf("SC_PAGE_SIZE") + usable
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


if __name__ == "__main__":
    main()
