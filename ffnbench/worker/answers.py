"""Whose work a request is, and how what goes wrong with it is told: any exception becomes an answer. Needs torch."""

from __future__ import annotations

import re
from typing import Any

from ffnbench import messages
from ffnbench.common.errors import FfnbenchError, Raised, Unsupported
from ffnbench.common.targets import one_line
from ffnbench.device.accelerator import device_error, first_line, is_full
from ffnbench.features import handler
from ffnbench.messages import Failed, OfCase, WorkerRequest
from ffnbench.result import FailureKind
from ffnbench.worker import probe_jobs
from ffnbench.worker.backends.compiling import Recompiled, not_compiled
from ffnbench.worker.correctness import Mismatch
from ffnbench.worker.jobs import Jobs

RECOMPILED = "FailOnRecompileLimitHit"  # of torch's compiler, which is not loaded here
ALLOCATING = re.compile(r"you tried to allocate (\d+) bytes")


def answer_to(request: WorkerRequest[Any], jobs: Jobs | None = None) -> Any:
    """Do what is asked. A failure ends this process where it has broken its device, or where torch.compile failed: what
    a compiler leaves behind then makes later rows of a process wrong.
    """
    label = request.label if isinstance(request, OfCase) else ""
    try:
        answer = _done(request, jobs)
        if jobs is not None and label:
            jobs.drain(label)  # what the device finds wrong later is this case's, and not the next one's
        return answer
    except BaseException as problem:  # user code may raise anything, SystemExit included
        if broken := device_error(problem):
            return Failed(kind=FailureKind.CRASH, message=broken, ends=True)
        compiled = jobs is not None and jobs.has_compiled(label)
        if not isinstance(problem, FfnbenchError):
            ends = compiled and not _is_expected(problem)
            return Failed(kind=_kind_of(problem), message=_message_of(problem), ends=ends)
        cause = problem.__cause__  # of one of our own errors, what has made us raise it
        ends = compiled and cause is not None and not _is_expected(cause)
        # before anything is measured, Raised says that no mistake was typed
        unsupported = isinstance(problem, Unsupported) and (jobs is None or not isinstance(problem, Raised))
        kind = FailureKind.UNSUPPORTED if unsupported else FailureKind.CRASH
        return Failed(kind=kind, message=problem.message, hint=problem.hint, ends=ends)


def _done(request: WorkerRequest[Any], jobs: Jobs | None) -> Any:
    """The answer of whoever does what is asked."""
    if jobs is not None:
        match request:
            case messages.Open():
                return jobs.open(request)
            case messages.TakeSample():
                return jobs.sample(request)
            case messages.Check():
                return jobs.check(request)
            case messages.MeasureMemory():
                return jobs.measure_memory(request)
            case messages.MeasureSparsity():
                return jobs.measure_sparsity(request)
            case messages.MeasureRouting():
                return jobs.measure_routing(request)
            case messages.ExploreRoofs():
                return jobs.explore_roofs(request)
            case messages.SampleRoof():
                return jobs.sample_roof(request)
    match request:
        case messages.Preload():
            return probe_jobs.preload(request)
        case messages.Describe():
            return probe_jobs.describe(request)
        case messages.Locate():
            return probe_jobs.locate(request)
        case messages.Count():
            return probe_jobs.count(request.spec, request.workload)
        case messages.ListBackends():
            return probe_jobs.list_backends(request)
        case messages.MeasureTimer():
            return probe_jobs.measure_timer()
        case messages.DescribeDevice():
            return probe_jobs.describe_device(request)
        case messages.Trace():
            from ffnbench.worker.functions import trace

            return trace(request)
        case messages.MeasureCeilings():
            from ffnbench.worker.ceiling_calls import measure_ceilings

            return measure_ceilings(request)
        case messages.KeepOutput():
            from ffnbench.worker.agreement import keep_output

            return keep_output(request)
        case messages.HoldOutput():
            from ffnbench.worker.agreement import hold_output

            return hold_output(request)
    _, function = handler(type(request).__name__)
    return function(jobs, request)


def _is_expected(problem: BaseException) -> bool:
    """Whether a failure leaves the compiler as it was."""
    return isinstance(problem, Mismatch | Recompiled) or type(problem).__name__ == RECOMPILED


def _kind_of(problem: BaseException) -> FailureKind:
    text = str(problem)
    full = is_full(problem) or "can't allocate memory" in text or "not enough memory" in text
    if full or isinstance(problem, MemoryError):
        return FailureKind.OOM
    if isinstance(problem, NotImplementedError) or "not implemented for" in text or not_compiled(problem):
        return FailureKind.UNSUPPORTED
    if isinstance(problem, Mismatch):
        return FailureKind.MISMATCH
    if _is_expected(problem):
        return FailureKind.RECOMPILED
    return FailureKind.CRASH


def _message_of(problem: BaseException) -> str:
    """What it says, in one line."""
    text = " ".join(str(problem).split())
    if asked := ALLOCATING.search(text):
        return f"it tried to allocate {int(asked[1]) / 2**30:,.2f} GiB at once"
    if is_full(problem):
        return first_line(str(problem))
    if isinstance(problem, Mismatch | Recompiled):
        return text
    return not_compiled(problem) or one_line(problem)
