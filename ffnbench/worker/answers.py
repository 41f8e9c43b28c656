"""Whose work a request is: what a worker is asked, and the function that does it. Needs torch."""

from __future__ import annotations

from typing import Any

from ffnbench import messages
from ffnbench.features import handler
from ffnbench.messages import OfCase, WorkerRequest
from ffnbench.worker import probe_jobs
from ffnbench.worker.jobs import Jobs


def answer_to(request: WorkerRequest[Any], jobs: Jobs | None = None) -> Any:
    """Do what is asked; any exception becomes a Failed (failures.py)."""
    label = request.label if isinstance(request, OfCase) else ""
    try:
        answer = _done(request, jobs)
        if jobs is not None and label:
            jobs.drain(label)  # what the device finds wrong later is this case's, and not the next one's
        return answer
    except BaseException as problem:  # user code may raise anything, SystemExit included
        from ffnbench.worker.failures import failed

        compiled = jobs is not None and jobs.has_compiled(label)
        return failed(problem, compiled=compiled, measures=jobs is not None)


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
