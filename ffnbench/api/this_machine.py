"""The commands about this machine: what it is, what it can do, which backends can
run.
"""

from __future__ import annotations

from collections.abc import Iterable

from ffnbench.common.errors import Unfinished
from ffnbench.device.environment import (
    auto_device,
    environment_of_run,
    noise_advice,
)
from ffnbench.device.nvml import clock_advice as device_advice
from ffnbench.messages import DeviceFacts, Failed, Greeting, ListBackends
from ffnbench.report.environment import environment_records
from ffnbench.report.formats import View
from ffnbench.report.listing import (
    backends_view,
    device_records,
    records_view,
    workers_record,
)
from ffnbench.run.resources import (
    TRY_CUDA,
    device_facts,
    gpu_names,
    why_not_seen,
)
from ffnbench.run.worker_process import COUNT_TIMEOUT_S, WorkerLost
from ffnbench.run.world import World


def environment(world: World, settings: Iterable[tuple[str, str]] = ()) -> View:
    """Show where numbers would be measured. `settings` are further facts, with their
    values.
    """
    worker = world.launch()
    try:
        greeting = worker.greeting()
        gpu = device_facts(worker, auto_device(greeting))
        records = environment_records(environment_of_run(greeting, gpu))
    finally:
        worker.close()
    records += device_records(_devices(greeting, world), gpu or DeviceFacts())
    records += [{"fact": name, "value": value} for name, value in settings]
    records.append(workers_record(greeting.forks))
    noise = noise_advice()
    if gpu:
        noise += device_advice(gpu)
    return records_view(records, [f"noise: {text}" for text in noise])


def _devices(greeting: Greeting, world: World) -> str:
    """The names of the GPUs that a worker sees, or why it sees none; "" where neither
    is known.
    """
    if greeting.gpus:
        return gpu_names(greeting)
    why = why_not_seen(greeting)
    if why:
        return f"cpu only: {why}; {TRY_CUDA}"
    reason = world.no_gpu()
    return f"cpu only: {reason}" if reason else ""


def _unfinished(reason: str) -> Unfinished:
    """The error of `list backends` where a worker gives no answer."""
    return Unfinished(
        f"could not find out what can run: {reason}", "`ffnbench env` shows the machine"
    )


def backends(world: World) -> View:
    """Show every backend, and which of them can run here, on the device that `auto`
    would choose.
    """
    worker = world.launch()
    try:
        device = auto_device(worker.greeting())
        answer = worker.ask(ListBackends(device=device), COUNT_TIMEOUT_S)
    except WorkerLost as lost:
        raise _unfinished(str(lost)) from lost
    finally:
        worker.close()
    if isinstance(answer, Failed):
        raise _unfinished(answer.message)
    return backends_view(answer.reasons, device, answer.bfloat16)
