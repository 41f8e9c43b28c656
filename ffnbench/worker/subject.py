"""A module with its inputs, ready to be called again and again, and the conditions
under which it is built and run. Runs in a worker.

There are random gaps in memory between its weights. Where weights lie decides which
cache lines and pages they share, so one layout is one draw of many, and a forked
process would repeat that of its starter.

The precision of matrix products is set before a case runs. Otherwise a model file that
calls torch.set_float32_matmul_precision, or TORCH_ALLOW_TF32_CUBLAS_OVERRIDE in the
environment, would make all rows of its process less exact, and faster.

No input repeats. Each is the seeded input with its columns multiplied by factors of
either sign, which are drawn for each call from the salt of its sample: so neither signs
nor magnitudes come twice. The products are made in one pass over memory.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from ffnbench.common.choices import Cache, MatmulPrecision, Mode, Time
from ffnbench.device.environment import accelerator_of, torch_device
from ffnbench.plan.plan import Workload

if TYPE_CHECKING:
    from ffnbench.device.accelerator import Accelerator, DeviceTimer

# torch's word for a precision that another setting, or torch's default, decides
INHERITED = "none"

PAD_BYTES = 1 << 18  # the sizes of gaps differ by so much at most
# blocks that are taken before anything is built, and half of them kept; a gap is larger
# than any of them
HOLES, LARGEST_HOLE = 128, 1 << 20

MOST_POOL_BYTES = 1 << 28
# the size of a factor is drawn evenly between these; the mean of its square is 1
LEAST_FACTOR, LARGEST_FACTOR = 0.5, 1.42705098


def set_precision_of(work: Workload) -> None:
    """Set the precision of products that a workload has."""
    set_precision(work.matmul_precision, reduced_reductions=work.reduced_reductions)


def set_precision(matmul_precision: str, *, reduced_reductions: bool = True) -> None:
    """Set the precision of float32 products, a value of MatmulPrecision, and whether
    products of 16-bit numbers may be added in 16 bits.

    Convolutions get the same precision: a 1x1 convolution is a linear layer too, and
    that of cuDNN would be TF32 by default. A `fp32_precision` that code of the user's
    has set is put back first: torch raises where it contradicts the older settings.
    """
    backends: Any = torch.backends
    for settings in (backends, backends.cudnn, backends.mkldnn):
        if settings.fp32_precision != INHERITED:
            settings.fp32_precision = INHERITED
    torch.set_float32_matmul_precision(matmul_precision)  # cuBLAS and oneDNN
    backends.cudnn.allow_tf32 = matmul_precision != MatmulPrecision.HIGHEST
    backends.mkldnn.conv.fp32_precision = backends.mkldnn.matmul.fp32_precision
    cublas = backends.cuda.matmul
    cublas.allow_fp16_reduced_precision_reduction = reduced_reductions
    cublas.allow_bf16_reduced_precision_reduction = reduced_reductions
    # torch's default, and no workload asks for another
    cublas.allow_fp16_accumulation = False


@contextmanager
def random_gaps(seed: str, device: str) -> Iterator[list[Tensor]]:
    """A context in which a module is built with gaps in memory: storage of a size drawn
    from the seed is taken before everything, and after each parameter that a module
    registers. It gives these tensors, which have to live as long as the module.

    An accelerator's allocator begins anew in each process; there are no gaps there.
    """
    dice = random.Random(seed)
    pads: list[Tensor] = []
    if device != "cpu":
        yield pads
        return

    def pad(*_: Any) -> None:
        pads.append(
            torch.empty(LARGEST_HOLE + dice.randrange(PAD_BYTES), dtype=torch.uint8)
        )

    # memory that the imports have freed is filled: small weights would be put there, in
    # the same order each time
    sizes = [int(2 ** dice.uniform(6, 20)) for _ in range(HOLES)]
    holes = [torch.empty(size, dtype=torch.uint8) for size in sizes]
    dice.shuffle(holes)
    pads += holes[: HOLES // 2]
    del holes
    pad()
    handle = register_module_parameter_registration_hook(pad)
    try:
        yield pads
    finally:
        handle.remove()


def most_inputs(x: Tensor, memory_bytes: int | None) -> int:
    """How many inputs like x a pool may have: as many as a sixteenth of the memory
    holds, and one at least.
    """
    most_bytes = MOST_POOL_BYTES
    if memory_bytes is not None:
        most_bytes = min(MOST_POOL_BYTES, memory_bytes // 16)
    return max(1, most_bytes // max(1, int(x.nbytes)))


def gradient_salt(salt: int) -> int:
    """The salt of the gradients that flow back in a sample: their factors are others
    than those of the inputs.
    """
    return salt + 1


def factors_of(salt: int, calls: int, width: int) -> Tensor:
    """A factor for each call and column of a sample, as often below 0 as above: float32
    (calls, width) on the CPU.
    """
    drawn = (
        torch.rand(calls, width, generator=torch.Generator().manual_seed(salt)) * 2 - 1
    )
    return drawn * (LARGEST_FACTOR - LEAST_FACTOR) + LEAST_FACTOR * drawn.sign()


class Pool:
    """The inputs of a sample's calls, each of the shape of `base`, the seeded input
    (batch, seq_len, d_model).

    They are written at once into one storage, `memory`, and copied from there. Each
    input has a storage of its own, so that none lies behind another.
    """

    def __init__(self, base: Tensor, *, train: bool) -> None:
        self._base = base.detach().clone()  # code of the user's may change the other
        self._train = train
        self._width = base.shape[-1]
        self._rows = self._base.view(-1, self._width)
        self.memory = torch.empty(0, *base.shape, dtype=base.dtype, device=base.device)
        self._inputs: list[Tensor] = []

    def renew(self, salt: int, calls: int) -> list[Tensor]:
        """Write so many inputs that no call has seen, and return them. Earlier ones are
        overwritten.
        """
        with torch.no_grad():
            if len(self.memory) < calls:
                self.memory = self._base.new_empty(calls, *self._base.shape)
            factors = factors_of(salt, calls, self._width).to(
                self._base.device, self._base.dtype
            )
            written = self.memory[:calls].view(calls, -1, self._width)
            torch.mul(self._rows, factors.view(calls, 1, self._width), out=written)
            while len(self._inputs) < calls:
                self._inputs.append(
                    torch.empty_like(self._base).requires_grad_(self._train)
                )
            torch._foreach_copy_(
                [x.detach() for x in self._inputs[:calls]],
                list(self.memory[:calls].unbind(0)),
            )
        return self._inputs[:calls]


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Mean seconds of a call of a sample. `value` is the time that was asked for.

    `wall` is what a caller waits for, calls one after another. On an accelerator
    `device` is how long it works for a call, None where that can't be told apart, and
    `host` is how long it takes to issue a call.
    """

    value: float
    wall: float
    host: float | None = None
    device: float | None = None


Forward = Callable[[Tensor], Tensor]


@dataclass(slots=True)
class Subject:
    """A module and what it is called with.

    `x` is the seeded input, and `grad` the gradient that flows back where there is a
    backward; timed calls have fresh ones, from `pool` and `grads`. `run` is what a
    backend calls in place of the module, and `slowdown` the share of its own time by
    which each call is made longer. `by_device` asks for the device's time, `cold` for
    calls that find nothing in the cache.

    `turns` gives the subject of each timed call in turn, where several copies of the
    weights are used; None where this one is called each time.

    `pads` are the gaps between the weights, which have to live as long as these.
    `last` is the subject and the input of the last call on an accelerator, whose
    gradients are still there.
    """

    module: nn.Module
    x: Tensor
    grad: Tensor
    train: bool
    backward_only: bool = False
    slowdown: float = 0.0
    run: Forward | None = None
    accelerator: Accelerator | None = None
    by_device: bool = False
    cold: bool = False
    turns: Iterator[Subject] | None = field(default=None, init=False)
    pads: list[Tensor] = field(default_factory=list, init=False)
    pool: Pool = field(init=False)
    grads: Pool = field(init=False)
    timer: DeviceTimer | None = field(default=None, init=False)
    last: tuple[Subject, Tensor] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.pool = Pool(self.x, train=self.train)
        self.grads = Pool(self.grad, train=False)
        if self.accelerator is not None:
            from ffnbench.device.accelerator import DeviceTimer

            self.timer = DeviceTimer(self.accelerator)

    @property
    def forward(self) -> Forward:
        """The function that is timed: the module, or what a backend calls for it."""
        return self.run or self.module

    def next(self) -> Subject:
        """The subject of the next timed call."""
        return self if self.turns is None else next(self.turns)

    def with_module(self, module: nn.Module) -> Subject:
        """A subject with another module, which shares the inputs of this one."""
        other = copy(self)
        other.module, other.run = module, None
        return other

    def call(self, x: Tensor | None = None, grad: Tensor | None = None) -> Tensor:
        """Make one call as it is timed: forward, or forward and backward through a
        fresh graph. Return the output.
        """
        if x is None:
            x = self.x
        if not self.train:
            with torch.inference_mode():
                return self.forward(x)
        y = self.forward(x)
        y.backward(self.grad if grad is None else grad)
        return y

    def timed_call(self, x: Tensor, grad: Tensor) -> Callable[[], Tensor]:
        """The call to time. Where backward alone is measured, its forward is run here,
        and the call is the backward.
        """
        call: Callable[[], Tensor] = partial(self.call, x, grad)
        if self.backward_only:
            call = partial(self._backward, self.forward(x), grad)
        if self.slowdown:
            call = self.slowed(call)
        return call

    def _backward(self, y: Tensor, grad: Tensor) -> Tensor:
        y.backward(grad)
        return y

    def slowed(self, call: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """The call with a spin behind it that takes `slowdown` of its own time: a
        slow-down that is known exactly.
        """

        def slow(*args: Tensor) -> Tensor:
            start = perf_counter()
            y = call(*args)
            end = perf_counter()
            until = end + self.slowdown * (end - start)
            while perf_counter() < until:
                pass
            return y

        return slow

    def weight_bytes(self) -> int:
        """Bytes of the module's parameters."""
        return sum(parameter.nbytes for parameter in self.module.parameters())

    def clear(self, x: Tensor | None = None) -> None:
        """Remove the gradients of an input and of all parameters, so that no call has
        to add to those of the last one.
        """
        if not self.train:
            return
        if x is None:
            x = self.x
        x.grad = None
        for parameter in self.module.parameters():
            parameter.grad = None


def subject_of(
    module: nn.Module, workload: Workload, d_model: int, seed: int
) -> Subject:
    """The subject of a module that is already on its device: its input and, in
    training, its gradient, (batch, seq_len, d_model), are drawn from N(0, 1) by the
    seed, and the module is brought into the workload's mode.
    """
    generator = torch.Generator().manual_seed(seed)
    shape = (workload.batch, workload.seq_len, d_model)
    device, dtype = torch_device(workload.device), getattr(torch, workload.dtype)
    x = torch.randn(shape, generator=generator).to(device, dtype)
    grad = x
    if workload.train:
        grad = torch.randn(shape, generator=generator).to(device, dtype)
    module.train(workload.train)
    is_cold = workload.cache == Cache.COLD
    return Subject(
        module,
        x.requires_grad_(workload.train),
        grad,
        train=workload.train,
        backward_only=workload.mode == Mode.BACKWARD,
        slowdown=workload.slowdown,
        accelerator=accelerator_of(workload.device),
        by_device=is_cold or workload.time == Time.DEVICE,
        cold=is_cold,
    )
