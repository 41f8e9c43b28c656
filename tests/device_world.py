"""A machine with one simulated GPU, by what CUDA documents and nothing else: the
examiner of all that times a device.

Streams are in order: a kernel starts once its launch has arrived and the one before has
ended. The host runs ahead of them, until 1,024 launches are in the queue: then it waits
for room. An event is stamped when its stream reaches it, in steps
(cudaEventElapsedTime: half a microsecond). Reading the host's clock takes time like all
that the host does.

Each field of World is an adversity that a test may turn up. Tensors are on the CPU and
hold real numbers. Modules of this file launch kernels of given lengths, so what a
device takes for them is known.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

US = 1e-6
PYTHON_S = 8 * US  # of the host for a call
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
    stall_s: float = 0.0  # for which the host stands still, once in so many launches
    stall_every: int = 97
    host_s: float = 1000.0


@dataclass
class Context:
    """One process's use of the device: an Accelerator."""

    world: World
    name: str = "cuda:0"
    device: torch.device = field(default_factory=partial(torch.device, "cpu"))
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

    # of a stream

    def done_s(self, stream: str) -> float:
        return self._done_s.get(stream, 0.0)

    def launch(self, seconds: float, stream: str = CURRENT) -> None:
        """Put a kernel that takes so long into the queue of a stream."""
        self.world.host_s += self.world.launch_s
        self.issued += 1
        if self.issued % self.world.stall_every == 0:
            self.world.host_s += self.world.stall_s
        start = max(self._arrival(), self.done_s(stream) + self.world.gap_s)
        self._done_s[stream] = start + seconds
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
        self.launch(seconds * self.world.spin)

    def flush(self) -> None:
        self.launch(self.world.flush_s)


@dataclass
class Mark:
    """An event."""

    context: Context
    stamp: float | None = None

    def record(self) -> None:
        context = self.context
        context.world.host_s += context.world.event_s
        self.stamp = max(context._arrival(), context.done_s(CURRENT))
        context._done_s[CURRENT] = self.stamp + context.world.mark_s
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
    """`kernels` launches of `us` microseconds each, after 8 of the host's own work.

    `waits`: it asks for a number, as .item() does. `stream`: "joined" launches on a
    side stream that waits for the current one, which waits for it; "loose" does
    neither.
    """

    def __init__(
        self, context: Context, *, us: float, kernels: int = 2, stream: str = "", waits: bool = False
    ) -> None:  # fmt: skip
        super().__init__()
        self.weight = nn.Parameter(torch.full((8,), 2.0))
        self.context, self.kernels, self.seconds = context, kernels, us * US
        self.stream, self.waits, self.calls = stream, waits, 0

    def forward(self, x: Tensor) -> Tensor:
        return _Launching.apply(x, self.weight, self)

    def issue(self, times: int) -> None:
        """What one call, or its backward, launches."""
        context = self.context
        self.calls += 1
        context.python(PYTHON_S)
        if self.stream == "joined":
            context.let_wait(SIDE, CURRENT)
        for _ in range(times * self.kernels):
            context.launch(self.seconds, SIDE if self.stream else CURRENT)
        if self.stream == "joined":
            context.let_wait(CURRENT, SIDE)
        if self.waits:
            context.synchronize()


def device_s(world: World, *, kernels: int, us: float) -> float:
    """Seconds that the device takes for a forward call of such a module."""
    return kernels * (us * US + world.gap_s)


def host_s(world: World, *, kernels: int) -> float:
    """Seconds that issuing it takes the host."""
    return PYTHON_S + kernels * world.launch_s
