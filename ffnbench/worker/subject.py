"""A module with its input, ready to be called again and again. Runs inside a worker; needs torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter

import torch
from torch import Tensor, nn

from ffnbench.device.accelerator import Accelerator, DeviceTimer
from ffnbench.device.environment import accelerator_of, place_of
from ffnbench.plan import Cache, Mode, Time, Workload
from ffnbench.worker.inputs import Pool

Forward = Callable[[Tensor], Tensor]


@dataclass(slots=True)
class Subject:
    """A module and what it is called with: `x` where nothing is timed, and a pool of fresh inputs where it is.

    `grad` is the gradient that flows back where there is a backward. `by_device` asks for the device's time, `cold` for
    calls that find nothing in the cache.
    """

    module: nn.Module
    x: Tensor
    grad: Tensor
    train: bool
    backward_only: bool = False
    slowdown: float = 0.0
    run: Forward | None = None  # what a backend calls in place of the module
    accelerator: Accelerator | None = None
    by_device: bool = False
    cold: bool = False
    pads: list[Tensor] = field(default_factory=list, init=False)  # between its weights, alive as long as these
    pool: Pool = field(init=False)
    grads: Pool = field(init=False)  # fresh ones too: what flows back in one call is in no other
    timer: DeviceTimer | None = field(default=None, init=False)
    _last: Tensor | None = field(default=None, init=False)  # the input of the last call, whose gradient is still there

    def __post_init__(self) -> None:
        self.pool = Pool(self.x, train=self.train)
        self.grads = Pool(self.grad, train=False)
        if self.accelerator is not None:
            self.timer = DeviceTimer(self.accelerator)

    @property
    def forward(self) -> Forward:
        """What is timed."""
        return self.run or self.module

    def call(self, x: Tensor | None = None, grad: Tensor | None = None) -> Tensor:
        """One call as it is timed: forward, or forward and backward through a fresh graph. Gives the output."""
        run, x = self.forward, self.x if x is None else x
        if self.train:
            y = run(x)
            y.backward(self.grad if grad is None else grad)
            return y
        with torch.inference_mode():
            return run(x)

    def timed(self, x: Tensor, grad: Tensor) -> Callable[[], Tensor]:
        """What to time: the whole call, or for backward alone the second half, its graph built here."""
        call: Callable[[], Tensor] = partial(self.call, x, grad)
        if self.backward_only:
            call = partial(self._backward, self.forward(x), grad)
        return self.slowed(call) if self.slowdown else call

    def _backward(self, y: Tensor, grad: Tensor) -> Tensor:
        y.backward(grad)
        return y

    def issues(self, inputs: Sequence[Tensor], grads: Sequence[Tensor]) -> list[Callable[[], Tensor]]:
        """Calls of an accelerator, one after another: gradients are cleared inside, as in a loop that trains. Of a
        backward alone the forwards are run here.
        """
        calls = [self.timed(x, grad) for x, grad in zip(inputs, grads, strict=True)]
        return [partial(self._cleared, x, call) for x, call in zip(inputs, calls, strict=True)] if self.train else calls

    def _cleared(self, x: Tensor, call: Callable[[], Tensor]) -> Tensor:
        if self._last is not None:
            self._last.grad = None
        self.clear(x)
        self._last = x
        return call()

    def slowed(self, call: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """The call, and then a spin for the given share of its own time: a slow-down that is known exactly."""

        def slow(*args: Tensor) -> Tensor:
            start = perf_counter()
            y = call(*args)
            end = perf_counter()
            until = end + self.slowdown * (end - start)
            while perf_counter() < until:
                pass
            return y

        return slow

    def clear(self, x: Tensor | None = None) -> None:
        """Forget all leaf gradients, so that no call pays for adding to the last one's."""
        if self.train:
            (self.x if x is None else x).grad = None
            for parameter in self.module.parameters():
                parameter.grad = None


def subject_of(module: nn.Module, workload: Workload, d_model: int, seed: int) -> Subject:
    """Move nothing, time nothing: inputs of seeded N(0, 1), gradient of the output's shape, mode set."""
    dtype, train = getattr(torch, workload.dtype), workload.train
    generator = torch.Generator().manual_seed(seed)
    shape, place = (workload.batch, workload.seq_len, d_model), place_of(workload.device)
    x, grad = (torch.randn(shape, generator=generator).to(place, dtype) for _ in range(2))
    module.train(train)
    cold = workload.cache == Cache.COLD.value
    return Subject(
        module, x.requires_grad_(train), grad, train, workload.mode == Mode.BACKWARD.value, workload.slowdown,
        accelerator=accelerator_of(workload.device), by_device=cold or workload.time == Time.DEVICE.value, cold=cold,
    )  # fmt: skip
