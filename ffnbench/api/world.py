"""The world outside that commands use: what starts a worker, what looks at code. A test puts another in its place."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ffnbench.device.environment import usable_cpus, usable_memory, why_no_gpu
from ffnbench.errors import FfnbenchError
from ffnbench.run.elsewhere import Elsewhere
from ffnbench.run.neighbours import Watch, machine_lock, others_now
from ffnbench.run.prober import Prober
from ffnbench.run.session import Session, WorkerLost, lost_over_device
from ffnbench.run.worker_pool import Launch, Worker
from ffnbench.targets import NO_FILE, NOT_THERE

COUNT_TIMEOUT_S = 300.0
THERE = "; --launch looks for it there, in the folder where its command starts programs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The world outside: what starts a worker, and what looks at code without measuring it."""

    launch: Launch = Session
    judge: Launch | None = None  # of the process that judges outputs; None where there are none, as in a simulation
    prober: Callable[[float], Prober] = Prober
    no_gpu: Callable[[], str] = lambda: ""  # why there is none, where that is known without torch
    others: Callable[[int], float | None] = lambda threads: None  # CPUs that others use now, where that disturbs
    cpus: Callable[[], int] = usable_cpus
    memory: Callable[[], int | None] = usable_memory
    watch: Callable[[], Watch] = Watch
    lock: Callable[[bool, Callable[[str], None]], AbstractContextManager[str]] = machine_lock


MACHINE = Machine(judge=Session, no_gpu=why_no_gpu, others=others_now)  # the one seam: a test puts one of its own here


@contextmanager
def at(launch: str | None) -> Iterator[None]:
    """The world where this command starts processes, for the while; none is the one that is there. Who else works there
    only the threads that wait can tell. Raises FfnbenchError for what is no command.
    """
    global MACHINE
    if launch is None:
        yield
        return
    here, there = MACHINE, Elsewhere(launch)
    start = there.launch  # one object: what judges is forked from what measures
    MACHINE = Machine(
        launch=start,
        judge=start,
        prober=lambda timeout_s: Prober(timeout_s, launch=start),
        no_gpu=lambda: str(there.facts["no_driver"]),
        cpus=lambda: int(there.facts["usable_cpus"]),
        memory=lambda: there.facts["usable_bytes"],
        watch=lambda: Watch(Path(os.devnull)),
        lock=lambda wait, tell: nullcontext(""),
    )
    try:
        yield
    except FfnbenchError as problem:
        problem.hint += THERE if problem.hint in (NO_FILE, NOT_THERE) else ""
        raise
    finally:
        MACHINE = here
        there.close()


def device_facts(worker: Worker, device: str) -> dict[str, Any]:
    """What a worker says of a device; nothing of the CPU, nor of one that can't be used."""
    if device == "cpu":
        return {}
    try:
        answer = worker.ask({"do": "device", "device": device}, COUNT_TIMEOUT_S)
    except WorkerLost as lost:
        raise lost_over_device(lost) from lost
    return {} if "failure" in answer else answer
