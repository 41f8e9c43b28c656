"""The commands about this machine: what it is, what it can do, which backends can run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ffnbench.common import jsonable
from ffnbench.common.errors import Unfinished
from ffnbench.device.ceilings import roofs_of_machine
from ffnbench.device.environment import advice, auto_device, caches, describe, usable_cpus, usable_memory
from ffnbench.device.nvml import advice as device_advice
from ffnbench.ffn.spec import DTYPES
from ffnbench.following import ProgressListener
from ffnbench.report.formats import View
from ffnbench.report.frame import Row
from ffnbench.report.listing import (
    DISTURBED,
    backends_view,
    device_records,
    environment_records,
    machine_records,
    records_view,
    timer_records,
    workers_record,
)
from ffnbench.result import Ceiling, Roof
from ffnbench.run.session import WorkerLost
from ffnbench.run.what_fits import TRY_CUDA, listed, room_for_ceilings, why_not_seen
from ffnbench.run.worker_pool import Worker
from ffnbench.run.world import COUNT_TIMEOUT_S, World, device_facts
from ffnbench.stats.rounds import CPUS_TAKEN

CEILINGS_S = 4.5  # of looking for those of the machine; with what comes before and after it five


def environment(
    world: World,
    progress: ProgressListener,
    *,
    timer: bool = False,
    ceilings: bool = False,
    settings: Iterable[tuple[str, str]] = (),
) -> View:
    """Where numbers would be made, with what the harness itself costs and what the machine can do where that is asked
    for. `settings` are further facts, with their values.
    """
    worker = world.launch()
    try:
        told = worker.greeting()
        of_device = device_facts(worker, auto_device(told))
        overhead = timer_records(worker.ask({"do": "timer"}, COUNT_TIMEOUT_S)) if timer else []
        found = describe(told | of_device)
        reached, disturbing = _ceilings_here(worker, world, progress) if ceilings else ([], [])
    finally:
        worker.close()
    set_ = [{"fact": name, "value": value} for name, value in settings]
    devices = device_records(_devices(told, world), of_device)
    set_.append(workers_record(told.get("forks", False)))
    records = [*environment_records(found), *devices, *set_, *overhead, *reached]
    noisy = [*disturbing, *advice(), *(device_advice(of_device) if of_device else [])]
    return records_view(records, [f"noise: {text}" for text in noisy])


def _devices(told: dict[str, Any], world: World) -> str:
    """The accelerators that a worker sees, or why it sees none; "" where there is nothing to tell."""
    if told["gpus"]:
        return listed(told)
    if why := why_not_seen(told):
        return f"cpu only: {why}; {TRY_CUDA}"
    return f"cpu only: {reason}" if (reason := world.no_gpu()) else ""


def backends(world: World) -> View:
    """What there is to run a forward by, and which of it can run here, on the device that `auto` would choose."""
    worker = world.launch()
    try:
        device = auto_device(worker.greeting())
        found = worker.ask({"do": "backends", "device": device}, COUNT_TIMEOUT_S)
    except WorkerLost as lost:
        raise Unfinished(f"could not find out what can run: {lost}", "`ffnbench env` shows the machine") from lost
    finally:
        worker.close()
    return backends_view(found["backends"], device, found.get("bfloat16", {}))


def _ceilings_here(worker: Worker, world: World, progress: ProgressListener) -> tuple[list[Row], list[str]]:
    """What this machine can do: the fastest roofs of each path; and what disturbed them."""
    asked = roofs_of_machine(usable_cpus(), DTYPES.names(), caches(), room_for_ceilings((), usable_memory()))
    request = {"do": "ceilings", "roofs": [jsonable.encode(roof) for roof in asked], "seconds": CEILINGS_S}
    with world.lock(lambda text: progress.tell(text.partition(";")[0])) as beside:  # here there is no --wait
        answer = worker.ask(request, COUNT_TIMEOUT_S)
    if "failure" in answer:
        raise Unfinished(f"the ceilings could not be measured: {answer['message']}", "`ffnbench env` shows the machine")
    found = [Ceiling(roof=jsonable.decode(Roof, one["roof"]), seconds=one["seconds"]) for one in answer["found"]]
    disturbed = {one["roof"]["name"] for one in answer["found"] if one["disturbed"]}
    told = f"{DISTURBED}: {CPUS_TAKEN} at every look; a quiet machine can do more" if disturbed else ""
    return machine_records(found, disturbed), list(filter(None, (beside, told)))
