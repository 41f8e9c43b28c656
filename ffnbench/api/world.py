"""The world outside that commands use: what starts a worker, what looks at code. A test puts another in its place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ffnbench.device.environment import usable_memory, why_no_gpu
from ffnbench.run.neighbours import others_now
from ffnbench.run.prober import Prober
from ffnbench.run.session import Session, WorkerLost, lost_over_device
from ffnbench.run.worker_pool import Launch, Worker

COUNT_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The world outside: what starts a worker, and what looks at code without measuring it."""

    launch: Launch = Session
    prober: Callable[[float], Prober] = Prober
    no_gpu: Callable[[], str] = lambda: ""  # why there is none, where that is known without torch
    others: Callable[[int], float | None] = lambda threads: None  # CPUs that others use now, where that disturbs
    memory: Callable[[], int | None] = usable_memory


MACHINE = Machine(no_gpu=why_no_gpu, others=others_now)  # the one seam: a test puts one of its own here


def device_facts(worker: Worker, device: str) -> dict[str, Any]:
    """What a worker says of a device; nothing of the CPU, nor of one that can't be used."""
    if device == "cpu":
        return {}
    try:
        answer = worker.ask({"do": "device", "device": device}, COUNT_TIMEOUT_S)
    except WorkerLost as lost:
        raise lost_over_device(lost) from lost
    return {} if "failure" in answer else answer
