"""A machine with one simulated GPU, by what CUDA documents and nothing else: the
examiner of all that times a device.

Streams are in order: a kernel starts once its launch has arrived and the one before has
ended. The host runs ahead of them, until 1,024 launches are in the queue: then it waits
for room. An event is stamped when its stream reaches it, in steps
(cudaEventElapsedTime: half a microsecond). An illegal access is an error of every later
call of its process. Reading the host's clock takes time like all that the host does.

Each field of World is an adversity that a test may turn up. Tensors are on the CPU and
hold real numbers. Modules of this file launch kernels of given lengths, so what a
device takes for them is known.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest
import torch
from fake_machine import FakeLaunch, FakeWorker
from torch import Tensor, nn

from ffnbench.common import jsonable
from ffnbench.device import accelerator, nvml
from ffnbench.plan.plan import Plan
from ffnbench.record.messages import Failed, decode_answer, encode_answer
from ffnbench.worker.jobs import Jobs, answer_to

US = 1e-6
AT_ONCE = {
    "warmup_s": 0.004,
    "min_sample_s": 0.004,
}  # nothing here has to get warm, and nothing scatters
ILLEGAL = "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be asynchronously reported"
CURRENT, SIDE = "current", "side"  # streams


@dataclass
class World:
    """The machine: what everything costs, in seconds. `host_s` is its clock."""

    launch_s: float = 6 * US
    event_s: float = 2 * US  # of the host
    mark_s: float = 0.3 * US  # of the stream
    read_s: float = 0.05 * US  # to read the host's clock
    wait_s: float = 8 * US  # to wait for a device that has nothing to do
    latency_s: float = 3 * US  # from a launch to its arrival
    gap_s: float = 0.1 * US  # between two kernels of a queue
    flush_s: float = 60 * US
    spin: float = 1.04  # a spin takes this times what it was asked for
    depth: int = 1024
    tick_s: float = 0.5 * US  # of events
    memory_bytes: int = 80 << 30
    stall_s: float = 0.0  # for which the host stands still, once in so many launches
    stall_every: int = 97
    host_s: float = 1000.0


@dataclass(frozen=True)
class Kernel:
    """What a launch runs, in seconds."""

    seconds: float
    illegal: bool = False


@dataclass
class Context:
    """One process's use of the device: an Accelerator."""

    world: World
    name: str = "cuda:0"
    device: torch.device = field(default_factory=partial(torch.device, "cpu"))
    stream: str = CURRENT  # the current one
    broken_s: float | None = None
    issued: int = 0  # launches by the host
    _done_s: dict[str, float] = field(
        default_factory=dict
    )  # when each stream has done all
    _queue: deque[float] = field(default_factory=deque)

    # of the host

    def make_current(self) -> None:
        self.world.host_s += 0.2 * US

    def now(self) -> float:
        self.world.host_s += self.world.read_s
        return self.world.host_s

    def python(self, seconds: float) -> None:
        """The host works by itself."""
        self.world.host_s += seconds

    def synchronize(self) -> None:
        self.world.host_s = (
            max(self.world.host_s, *self._done_s.values(), 0.0) + self.world.wait_s
        )
        self._check()

    def _check(self) -> None:
        if self.broken_s is not None and self.world.host_s >= self.broken_s:
            raise torch.AcceleratorError(ILLEGAL)

    # of a stream

    def done_s(self, stream: str) -> float:
        return self._done_s.get(stream, 0.0)

    def launch(self, kernel: Kernel, stream: str = "") -> None:
        """Put a kernel into the queue of a stream, by itself the current one."""
        self._check()
        stream = stream or self.stream
        self.world.host_s += self.world.launch_s
        self.issued += 1
        if self.issued % self.world.stall_every == 0:
            self.world.host_s += self.world.stall_s
        start = max(self._arrival(), self.done_s(stream) + self.world.gap_s)
        self._done_s[stream] = start + kernel.seconds
        if kernel.illegal and self.broken_s is None:
            self.broken_s = self._done_s[stream]
        self._queue.append(self._done_s[stream])

    def let_wait(self, stream: str, other: str) -> None:
        """What comes into a stream from now on waits for all that is in another one
        now: wait_stream.
        """
        self._done_s[stream] = max(self.done_s(stream), self.done_s(other))

    def _arrival(self) -> float:
        """When what the host launches now gets to the device; it waits while the queue
        is full.
        """
        while self._queue and self._queue[0] <= self.world.host_s:
            self._queue.popleft()
        if len(self._queue) >= self.world.depth:
            self.world.host_s = self._queue.popleft()
        return self.world.host_s + self.world.latency_s

    def event(self) -> Mark:
        return Mark(self)

    def spin(self, seconds: float) -> None:
        self.launch(Kernel(seconds * self.world.spin))

    def flush(self) -> None:
        self.launch(Kernel(self.world.flush_s))

    # of random numbers and memory

    def rng_state(self) -> Tensor:
        return torch.get_rng_state()

    def free_bytes(self) -> int:
        return self.world.memory_bytes


@dataclass
class Mark:
    """An event."""

    context: Context
    stamp: float | None = None

    def record(self) -> None:
        context = self.context
        context._check()
        context.world.host_s += context.world.event_s
        self.stamp = max(context._arrival(), context.done_s(context.stream))
        context._done_s[context.stream] = self.stamp + context.world.mark_s
        context._queue.append(self.stamp + context.world.mark_s)

    def seconds_since(self, start: Mark) -> float:
        if self.stamp is None or start.stamp is None:
            raise ValueError(
                "Both events must be recorded before calculating elapsed time."
            )
        if max(self.stamp, start.stamp) > self.context.world.host_s:
            raise RuntimeError("CUDA error: device not ready")
        tick = self.context.world.tick_s
        return (round(self.stamp / tick) - round(start.stamp / tick)) * tick


# the process that is running now


_current: list[Context] = []


def current() -> Context:
    """The device as the code that runs now has it."""
    return _current[-1]


@contextmanager
def used(context: Context) -> Iterator[Context]:
    """In here this context is the process's own."""
    accelerator._MADE.clear()
    _current.append(context)
    try:
        yield context
    finally:
        _current.pop()
        accelerator._MADE.clear()


def install(patch: pytest.MonkeyPatch, world: World) -> None:
    """Put the simulated device where devices are looked for, under the name cuda."""
    patch.setattr(accelerator, "MAKE", lambda name: current())
    patch.setattr(accelerator, "_MADE", {})
    patch.setattr(nvml, "card_of", lambda device: None)


class NoWait:
    """Nobody waits for a CPU."""

    def with_share(self, call: Callable[[], Any], threads: int) -> tuple[Any, float]:
        return call(), 0.0


class Launch(FakeLaunch):
    """Starts workers on one machine: the real jobs on contexts of their own, without a
    process.
    """

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.facts = {"gpus": 1, "gpu_names": ("Simulated",), "cuda": "13.0"}
        self.device = lambda name: {
            "gpu": "Simulated",
            "gpu_memory_bytes": world.memory_bytes,
        }

    def __call__(self, arm: object = None) -> SimulatedWorker:
        self.workers.append(SimulatedWorker(self, len(self.workers)))
        return self.workers[-1]


class SimulatedWorker(FakeWorker):
    """Its answers are those of a real one, but for what it is asked of its
    interpreter.
    """

    jobs: Jobs | None = None

    def __init__(self, launch: Launch, index: int) -> None:
        super().__init__(launch, index)
        self.context = Context(launch.world)

    def answer(self, job: str, **arguments: Any) -> Any:
        self.context.world.host_s += 1e-3
        if job in ("device", "preload", "timer"):
            return super().answer(job, **arguments)
        arguments = json.loads(json.dumps(jsonable.encode(arguments)))
        with used(self.context):
            if job == "begin":
                plan = jsonable.decode(Plan, arguments["plan"])
                protocol = replace(plan.protocol, **AT_ONCE)
                self.jobs = Jobs(replace(plan, protocol=protocol))
                self.jobs.wait_meter = NoWait()
                return None
            answer = answer_to(job, arguments, self.jobs)
        self.ended = isinstance(answer, Failed) and answer.ends_process
        return decode_answer(json.loads(json.dumps(encode_answer(answer))), job)


# modules of the user's


class _Launching(torch.autograd.Function):
    """x * weight, by kernels of given lengths; its backward has twice as many."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, module: Kernels) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.module = module
        module.issue(1)
        return x * weight

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight = ctx.saved_tensors
        ctx.module.issue(2)
        return dy * weight, (dy * x).flatten(0, -2).sum(0), None


class Kernels(nn.Module):
    """`kernels` launches of `us` microseconds each, after `python_us` of the host's own
    work; the rest by name.

    `waits`: it asks for a number, as .item() does. `breaks_at`: the call from which on
    its kernel accesses what is not there. `stream`: "joined" launches on a side stream
    that waits for the current one, which waits for it; "loose" does neither.
    """

    def __init__(
        self, d_model: int, d_ff: int, kernels: int = 1, us: float = 10.0, python_us: float = 8.0,
        breaks_at: int = 0, stream: str = "", *, waits: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.weight = nn.Parameter(torch.full((d_model,), 2.0))
        self.kernels, self.seconds, self.python = kernels, us * US, python_us * US
        self.breaks_at, self.stream, self.waits = breaks_at, stream, waits
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        return _Launching.apply(x, self.weight, self)

    def issue(self, times: int) -> None:
        """What one call, or its backward, launches."""
        context = current()
        self.calls += 1
        context.python(self.python)
        illegal = bool(self.breaks_at) and self.calls >= self.breaks_at
        if self.stream == "joined":
            context.let_wait(SIDE, context.stream)
        for _ in range(times * self.kernels):
            kernel = Kernel(self.seconds, illegal)
            context.launch(kernel, SIDE if self.stream else "")
        if self.stream == "joined":
            context.let_wait(context.stream, SIDE)
        if self.waits:
            context.synchronize()


def device_s(world: World, *, kernels: int, us: float) -> float:
    """Seconds that the device takes for a forward call of such a module."""
    return kernels * (us * US + world.gap_s)


def host_s(world: World, *, kernels: int, python_us: float = 8.0) -> float:
    """Seconds that issuing it takes the host."""
    return python_us * US + kernels * world.launch_s
