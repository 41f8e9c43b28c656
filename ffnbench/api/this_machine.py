"""What `env` shows: this machine."""

from __future__ import annotations

from ffnbench.device.environment import (
    auto_device,
    environment_of_run,
    noise_advice,
)
from ffnbench.record.messages import DeviceFacts, Greeting
from ffnbench.report.listing import (
    device_records,
    environment_rows,
    table_of_facts,
    workers_record,
)
from ffnbench.report.table import Table
from ffnbench.run.resources import (
    TRY_CUDA,
    device_facts,
    gpu_names,
    why_not_seen,
)
from ffnbench.run.world import World


def environment(world: World) -> Table:
    """Say where numbers would be measured."""
    worker = world.launch()
    try:
        greeting = worker.greeting()
        gpu = device_facts(worker, auto_device(greeting))
        records = environment_rows(environment_of_run(greeting, gpu))
    finally:
        worker.close()
    records += device_records(_devices(greeting, world), gpu or DeviceFacts())
    records.append(workers_record(greeting.forks))
    return table_of_facts(records, [f"noise: {text}" for text in noise_advice()])


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
