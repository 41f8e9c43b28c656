"""The commands about this machine: what it is, what it can do, which backends can
run.
"""

from __future__ import annotations

from collections.abc import Iterable

from ffnbench.common.errors import Unfinished
from ffnbench.device.ceilings import roofs_of_machine
from ffnbench.device.environment import (
    auto_device,
    caches,
    environment_of_run,
    noise_advice,
    usable_cpus,
    usable_memory,
)
from ffnbench.device.nvml import clock_advice as device_advice
from ffnbench.ffn.spec import DTYPES
from ffnbench.following import ProgressListener
from ffnbench.messages import (
    DeviceFacts,
    Failed,
    Greeting,
    ListBackends,
    MeasureCeilings,
)
from ffnbench.report.environment import environment_records
from ffnbench.report.formats import View
from ffnbench.report.frame import Row
from ffnbench.report.listing import (
    DISTURBED,
    backends_view,
    device_records,
    machine_records,
    records_view,
    workers_record,
)
from ffnbench.result import Ceiling
from ffnbench.run.resources import (
    TRY_CUDA,
    device_facts,
    gpu_names,
    room_for_ceilings,
    why_not_seen,
)
from ffnbench.run.worker_pool import Worker
from ffnbench.run.worker_process import COUNT_TIMEOUT_S, WorkerLost
from ffnbench.run.world import World
from ffnbench.stats.rounds import CPUS_TAKEN

# for the search of the ceilings; starting and ending make five seconds of it
CEILINGS_S = 4.5


def environment(
    world: World,
    progress: ProgressListener,
    *,
    ceilings: bool = False,
    settings: Iterable[tuple[str, str]] = (),
) -> View:
    """Show where numbers would be measured. With `ceilings` the ceilings of the machine
    are measured and shown too. `settings` are further facts, with their values.
    """
    of_ceilings: list[Row] = []
    noise: list[str] = []
    worker = world.launch()
    try:
        greeting = worker.greeting()
        gpu = device_facts(worker, auto_device(greeting))
        records = environment_records(environment_of_run(greeting, gpu))
        if ceilings:
            of_ceilings, noise = _ceilings_here(worker, world, progress)
    finally:
        worker.close()
    records += device_records(_devices(greeting, world), gpu or DeviceFacts())
    records += [{"fact": name, "value": value} for name, value in settings]
    records += [workers_record(greeting.forks), *of_ceilings]
    noise += noise_advice()
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


def _ceilings_here(
    worker: Worker, world: World, progress: ProgressListener
) -> tuple[list[Row], list[str]]:
    """Measure the ceilings of this machine; gives a record of each, and notes on what
    disturbed them.
    """
    asked = roofs_of_machine(
        usable_cpus(), DTYPES.names(), caches(), room_for_ceilings((), usable_memory())
    )
    request = MeasureCeilings(roofs=tuple(asked), seconds=CEILINGS_S)
    # here there is no --wait
    with world.lock(lambda text: progress.tell(text.partition(";")[0])) as other_run:
        answer = worker.ask(request, COUNT_TIMEOUT_S)
    if isinstance(answer, Failed):
        raise Unfinished(
            f"the ceilings could not be measured: {answer.message}",
            "`ffnbench env` shows the machine",
        )
    ceilings = [
        Ceiling(roof=reached.roof, seconds=reached.seconds) for reached in answer.roofs
    ]
    disturbed = {reached.roof.name for reached in answer.roofs if reached.disturbed}
    noise = []
    if other_run:
        noise.append(other_run)
    if disturbed:
        noise.append(
            f"{DISTURBED}: {CPUS_TAKEN} at every look; a quiet machine can do more"
        )
    return machine_records(ceilings, disturbed), noise
