"""What parent and worker say to each other: the name of a job with its arguments, and
its answer. They are plain data, and need the standard library alone: the worker may run
in another interpreter, which has torch and nothing else.

The parent sends a line of JSON, `{"number": 7, "job": "open", "arguments": {...}}`. The
worker's answer is `{"number": 7, "answer": ...}`, of the type that ANSWERS has for the
job, or `{"number": 7, "failed": {...}}`. Before the first job a worker greets with
`{"greeting": {...}}`. Where a forked child has ended, its starter says so with
`{"number": 7, "ended": -9}`.

The lines go over the worker's stdin and its original stdout. The worker moves both ends
aside before any other code runs, so that prints of user code land on stderr and its
reads of stdin find an end of file.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field
from types import NoneType
from typing import Any

from ffnbench.common import jsonable
from ffnbench.ffn.activations import OwnActivation
from ffnbench.ffn.cost import Cost
from ffnbench.record.result import Agreement, FailureKind, Side, Timer

MessageLine = dict[str, Any]  # a message as it stands in JSON
# metrics of a case by name; a value is None where it is not known
Values = dict[str, int | float | None]

SALT_BITS = 56  # random bits of a salt; torch takes it as a seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Greeting:
    """What a worker says of itself, of its torch and of its machine, before it is asked
    anything. A field is None where the worker does not know it.

    `usable_bytes` is the memory that a worker may take. `no_gpu` is what torch says
    where it was built for a GPU and sees none. `waits` is how the
    time is known that threads waited for a CPU (device/waiting.py), `allocator` is what
    the allocator does with freed memory (worker/loop.py). `sides` say in what the
    processes of a group differ.
    """

    gpus: int = 0
    gpu_names: tuple[str, ...] = ()
    no_gpu: str = ""
    torch: str | None = None
    torch_commit: str | None = None
    torch_threads: int | None = None
    cpu_capability: str | None = None
    blas: str | None = None
    cuda: str | None = None
    hip: str | None = None
    python: str | None = None
    waits: str | None = None
    allocator: str | None = None
    forks: bool = False
    cpu: str = ""
    cpus: int = 1
    usable_cpus: int = 1
    memory_bytes: int | None = None
    usable_bytes: int | None = None
    machine: str = ""
    system: str = ""
    sides: tuple[Side, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """What a worker says of a GPU. A field is None where it is not known.
    `nvml_missing` says why it can't be seen whether its clocks are held down; it is
    empty where that can be seen.
    """

    gpu: str | None = None
    gpu_memory_bytes: int | None = None
    gpu_free_bytes: int | None = None
    gpu_capability: str | None = None
    nvml_missing: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A job that could not be done. `hint` is None where the message was raised by
    code that is not ours. `ends_process` says that the worker ends after it: its device
    or its compiler can't be used any more.
    """

    kind: FailureKind
    message: str
    hint: str | None = None
    ends_process: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """How many calls make a sample, and what opening has shown. `graphs` is the number
    of graphs into which the compiler has cut the module.
    """

    calls: int
    graphs: int = 1
    values: Values = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """A sample: `value` is the mean seconds of a call.

    `waited` is the share of the time that threads waited for a CPU, `faults` are page
    faults. On an accelerator there are also the device's and the host's seconds for a
    call, and what throttles its clocks right after the sample, "" for nothing.
    """

    value: float
    waited: float | None = None
    faults: int | None = None
    device_s: float | None = None
    host_s: float | None = None
    throttled: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rated:
    """The mean seconds of all bare matrix products of a call, and of a copy of its
    bytes; `waited` is as in Sampled.
    """

    products_s: float
    copy_s: float
    waited: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """x, f(x) and f'(x) in float64. A slope is None where it is not finite. `finite` is
    whether all f(x) are finite.
    """

    x: tuple[float, ...]
    y: tuple[float, ...]
    slope: tuple[float | None, ...]
    finite: bool


# the type of the answer of every job of a worker; the jobs themselves are methods and
# functions of worker/jobs.py, those of the process itself stand in worker/loop.py
OF_PROCESS: dict[str, Any] = {"fork": int | None, "leave": NoneType, "begin": NoneType}
OF_CASE: dict[str, Any] = {
    "open": Opened,
    "sample": Sampled,
    "check": Values,
    "memory": Values,
    "sparsity": Values,
    "route": Values,
    "rate": Rated,
}
WITHOUT_PLAN: dict[str, Any] = {
    "preload": NoneType,
    "timer": Timer,
    "device": DeviceFacts,
    "describe": OwnActivation | None,
    "locate": str,
    "count": Cost,
    "trace": Traced,
    "save_output": NoneType,
    "compare_output": Agreement,
}
ANSWERS = OF_PROCESS | OF_CASE | WITHOUT_PLAN


def encode_answer(answer: object) -> MessageLine:
    """Make the line that sends an answer, without the number of its job."""
    key = "failed" if isinstance(answer, Failed) else "answer"
    return {key: jsonable.encode(answer)}


def decode_answer(line: MessageLine, job: str) -> Any:
    """Read the answer to a job from its line; raises ValueError where it has none."""
    if "failed" in line:
        return jsonable.decode(Failed, line["failed"])
    if "answer" not in line:
        raise ValueError("it has no answer")
    return jsonable.decode(ANSWERS[job], line["answer"], "answer")


def end_group(leader: int) -> None:
    """Kill a process and its process group, if there is one, so that what code of the
    user's has started ends with its worker.
    """
    for kill in (os.killpg, os.kill):
        try:
            kill(leader, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue
