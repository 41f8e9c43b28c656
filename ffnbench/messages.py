"""What parent and worker say to each other: requests and their answers. They are plain
data, and need the standard library alone: the worker may run in another interpreter,
which has torch and nothing else.

The parent sends a line of JSON, `{"number": 7, "request": "Open", "fields": {...}}`.
The worker's answer is `{"number": 7, "answer": {...}}`, of the type that the request
names, or `{"number": 7, "failed": {...}}`. Before the first request a worker greets
with `{"greeting": {...}}`. Where a forked child has ended, its starter says so with
`{"number": 7, "ended": -9}`.

The lines go over the worker's stdin and its original stdout. The worker moves both ends
aside before any other code runs, so that prints of user code land on stderr and its
reads of stdin find an end of file.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from ffnbench.common import jsonable
from ffnbench.ffn.activations import OwnActivation
from ffnbench.ffn.cost import Cost
from ffnbench.ffn.spec import ActivationSpec, ImportedSpec
from ffnbench.plan import Case, Plan, Workload
from ffnbench.result import Agreement, FailureKind, Side, Timer

A = TypeVar("A")
MessageLine = dict[str, Any]  # a message as it stands in JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLevel:
    """A level of data caches. `bytes` is the size of one cache, `instances` is how many
    caches of this level the usable CPUs have.
    """

    level: int
    bytes: int
    instances: int

    def capacity(self, threads: int) -> int:
        """The bytes that fit into this level for so many threads, each on a CPU of its
        own.
        """
        return self.bytes * max(1, min(threads, self.instances))


@dataclass(frozen=True, slots=True, kw_only=True)
class Greeting:
    """What a worker says of itself, of its torch and of its machine, before it is asked
    anything. A field is None where the worker does not know it.

    `usable_bytes` is the memory that a worker may take. `no_gpu` is what torch says
    where it was built for a GPU and sees none. `variables` are the environment
    variables that torch or its libraries read. `waits` is how the time is known that
    threads waited for a CPU (device/waiting.py), `allocator` is what the allocator does
    with freed memory (worker/loop.py). `sides` say in what the processes of a group
    differ.
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
    variables: tuple[tuple[str, str], ...] = ()
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
    caches: tuple[CacheLevel, ...] = ()
    sides: tuple[Side, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """What a worker says of a GPU: what it is, how it is set, and who else uses it. A
    field is None where it is not known.

    `gpu_others` is the number of other processes that compute on it. `nvml_missing`
    says why clocks, throttling and other processes can't be seen; it is empty where
    they can.
    """

    gpu: str | None = None
    gpu_memory_bytes: int | None = None
    gpu_free_bytes: int | None = None
    gpu_capability: str | None = None
    driver: str | None = None
    gpu_uuid: str | None = None
    gpu_power_limit_w: float | None = None
    gpu_max_clock_mhz: int | None = None
    gpu_ecc: bool | None = None
    gpu_others: int | None = None
    nvml_missing: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A request that could not be done. `hint` is None where the message was raised by
    code that is not ours. `ends_process` says that the worker ends after it: its device
    or its compiler can't be used any more.
    """

    kind: FailureKind
    message: str
    hint: str | None = None
    ends_process: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The answer to a request that only has to be done."""


class WorkerRequest(Generic[A]):
    """What a worker is asked. `answer` is the type of its answer, A; where the request
    could not be done, the worker answers with Failed instead.
    """

    __slots__ = ()
    answer: ClassVar[type[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfCase(WorkerRequest[A]):
    """A request about the case of this label. In a group of workers, the process that
    measures the case answers.
    """

    label: str


# of the process itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Forked:
    """The number of the child process that answers from now on; None where this process
    can't be forked.
    """

    process: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork(WorkerRequest[Forked]):
    """Fork the process: its child answers until it is asked to leave."""

    answer = Forked


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave(WorkerRequest[Done]):
    """End this child process, so that its starter answers again."""

    answer = Done


@dataclass(frozen=True, slots=True, kw_only=True)
class Preload(WorkerRequest[Done]):
    """Import what the children of a starter will need: the user's code that `targets`
    name, and the compiler where it `compiles`.
    """

    answer = Done
    targets: tuple[str, ...] = ()
    compiles: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin(WorkerRequest[Done]):
    """Be ready to measure the cases of a plan.

    `layout_seed` is the seed of where their tensors lie in memory. Without
    `memory_bytes` the worker finds out by itself how much memory it may take.
    """

    answer = Done
    plan: Plan
    layout_seed: str = ""
    memory_bytes: int | None = None


# of a case


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """Metrics of a case by name. A value is None where it is not known."""

    values: dict[str, int | float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """How many calls make a sample, what these read, and what opening has shown.

    `inputs` is how many inputs the calls share, 0 where that is not known, and
    `input_bytes` their bytes. `graphs` is the number of graphs into which the compiler
    has cut the module.
    """

    calls: int
    inputs: int = 0
    input_bytes: int = 0
    graphs: int = 1
    values: dict[str, int | float | None] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Open(OfCase[Opened]):
    """Build, check and warm up a case.

    `calls` is the number of calls in a sample, None where the worker has to find it.
    `checked` is whether an earlier worker has checked the case. `weights_folder` is
    where a base has written the weights that the case takes over, empty for none.
    """

    answer = Opened
    calls: int | None
    checked: bool = False
    weights_folder: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """A sample: `value` is the mean seconds of a call.

    `waited` is the share of the time that threads waited for a CPU, `faults` are page
    faults. On an accelerator there are also the device's and the host's seconds for a
    call, and what NVML says right after the sample: what throttles the clocks ("" for
    nothing), the clock, and, in the first sample of a worker, how many other processes
    compute there.
    """

    value: float
    waited: float | None = None
    faults: int | None = None
    device_s: float | None = None
    host_s: float | None = None
    throttled: str | None = None
    clock_mhz: int | None = None
    others: int | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeSample(OfCase[Sampled]):
    """Time so many calls in a row, on inputs that are drawn from `salt`."""

    answer = Sampled
    calls: int
    salt: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Check(OfCase[Values]):
    """Compare a case with float64 once more, after its rounds. The answer has its
    relative errors.
    """

    answer = Values


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureMemory(OfCase[Values]):
    """Measure exact bytes: the peak of one call and, in train mode, what is saved for
    backward.
    """

    answer = Values


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureSparsity(OfCase[Values]):
    """Measure how sparse the hidden layer is."""

    answer = Values


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureRouting(OfCase[Values]):
    """Measure how the tokens are spread over the experts."""

    answer = Values


@dataclass(frozen=True, slots=True, kw_only=True)
class Rated:
    """The mean seconds of all bare matrix products of a call, and of a copy of its
    bytes; `waited` is as in Sampled.
    """

    products_s: float
    copy_s: float
    waited: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureRate(OfCase[Rated]):
    """Time the bare matrix products of a case, and a copy of its bytes."""

    answer = Rated


# of the machine


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureTimer(WorkerRequest[Timer]):
    """Measure what measuring itself costs."""

    answer = Timer


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeDevice(OfCase[DeviceFacts]):
    """Describe a GPU. `label` is a case that uses it, or empty."""

    answer = DeviceFacts
    label: str = ""
    device: str


# of code


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What a function declares as an activation; None where it is none."""

    activation: OwnActivation | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Describe(WorkerRequest[Described]):
    """Find out whether this target is an activation."""

    answer = Described
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """The path of a file."""

    file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Locate(WorkerRequest[Located]):
    """Find the file that a target's module is read from."""

    answer = Located
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Count(WorkerRequest[Cost]):
    """Count parameters and FLOPs of a module of the user's."""

    answer = Cost
    spec: ImportedSpec
    workload: Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """x, f(x) and f'(x) in float64. A slope is None where it is not finite. `finite` is
    whether all f(x) are finite.
    """

    x: tuple[float, ...]
    y: tuple[float, ...]
    slope: tuple[float | None, ...]
    finite: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace(WorkerRequest[Traced]):
    """Compute an activation at so many equidistant points of [low, high]."""

    answer = Traced
    spec: ActivationSpec
    low: float
    high: float
    points: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveOutput(WorkerRequest[Done]):
    """Write the weights of a base, an input and the output for it into a folder."""

    answer = Done
    case: Case
    seed: int
    folder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareOutput(WorkerRequest[Agreement]):
    """Compare the output of a head with that which its base has written into the
    folder.
    """

    answer = Agreement
    case: Case
    seed: int
    folder: str


REQUESTS: dict[str, type[WorkerRequest[Any]]] = {
    request_type.__name__: request_type
    for request_type in (
        Fork,
        Leave,
        Preload,
        Begin,
        Open,
        TakeSample,
        Check,
        MeasureMemory,
        MeasureSparsity,
        MeasureRouting,
        MeasureRate,
        MeasureTimer,
        DescribeDevice,
        Describe,
        Locate,
        Count,
        Trace,
        SaveOutput,
        CompareOutput,
    )
}


def encode_request(request: WorkerRequest[Any], number: int) -> MessageLine:
    """Make the line that sends a request."""
    return {
        "number": number,
        "request": type(request).__name__,
        "fields": jsonable.encode(request),
    }


def decode_request(line: MessageLine) -> WorkerRequest[Any]:
    """Read the request of a line; raises ValueError or KeyError where it has none."""
    name = line["request"]
    return jsonable.decode(REQUESTS[name], line["fields"])


def encode_answer(answer: object) -> MessageLine:
    """Make the line that sends an answer, without the number of its request."""
    key = "failed" if isinstance(answer, Failed) else "answer"
    return {key: jsonable.encode(answer)}


def decode_answer(line: MessageLine, request: WorkerRequest[A]) -> A | Failed:
    """Read the answer to a request from its line; raises ValueError where it has
    none.
    """
    if "failed" in line:
        return jsonable.decode(Failed, line["failed"])
    answer: A = jsonable.decode(request.answer, line.get("answer"))
    return answer


SALT_BITS = 56  # random bits of a salt; torch takes it as a seed
WORKER_VARIABLE = "FFNBENCH_WORKER"  # in the environment of a worker


class Channel:
    """The worker's end of the conversation."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        self._incoming = os.fdopen(incoming, "r", encoding="utf-8")
        self._outgoing = os.fdopen(outgoing, "w", encoding="utf-8")

    @classmethod
    def claim(cls) -> Channel:
        """Take over stdin and stdout of this process, so that no code that runs later
        reads or writes them.
        """
        incoming, outgoing = os.dup(0), os.dup(1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        os.close(nothing)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - lives as long as the process
        return cls(incoming, outgoing)

    def send(self, line: MessageLine) -> None:
        """Send one line without waiting for more."""
        self._outgoing.write(json.dumps(line, allow_nan=False) + "\n")
        self._outgoing.flush()

    def receive(self) -> MessageLine | None:
        """Wait for the next line, and return it; None when the parent has gone."""
        text = self._incoming.readline()
        return json.loads(text) if text else None


def end_group(leader: int) -> None:
    """Kill a process and its process group, if there is one, so that what code of the
    user's has started ends with its worker.
    """
    for kill in (os.killpg, os.kill):
        try:
            kill(leader, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue
