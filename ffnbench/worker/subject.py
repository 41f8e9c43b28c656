"""A module with its inputs, ready to be called again and again, and what it is built
and run under. In a worker.

Under: random gaps in memory between its weights (where these lie decides which cache
lines and pages they share, so one layout is one draw of many, and a process that is
forked would repeat its starter's), and how exactly this process multiplies matrices (a
model file that calls torch.set_float32_matmul_precision, or
TORCH_ALLOW_TF32_CUBLAS_OVERRIDE in the environment, would otherwise make all rows of
its process less exact, and faster).

Inputs: no content repeats. One is the seeded one, its columns multiplied by factors of
either sign, drawn for each call from the salt of its sample: so neither signs nor
magnitudes come twice. The products are made in one pass over memory.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from ffnbench.choices import Cache, MatmulPrecision, Mode, Time
from ffnbench.device.environment import accelerator_of, torch_device
from ffnbench.plan import Workload

if TYPE_CHECKING:
    from ffnbench.device.accelerator import Accelerator, DeviceTimer

# torch's word: a more particular setting, or torch's own default, says it
INHERITED = "none"


def set_precision_of(work: Workload) -> None:
    """Set what the workload asks."""
    set_precision(work.matmul_precision, reduced_reductions=work.reduced_reductions)


def set_precision(matmul_precision: str, *, reduced_reductions: bool = True) -> None:
    """Set the precision of float32 products, a value of MatmulPrecision, and whether
    16-bit ones may add in 16 bits.

    Convolutions follow: a 1x1 one is a linear layer too, and cuDNN's would be TF32
    where nobody asked. What is set by torch's newer `fp32_precision` comes undone, for
    torch refuses to answer where both ways were used.
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


PAD_BYTES = 1 << 18

# filled before anything is built, half of them for good; a pad fits into none
HOLES, LARGEST_HOLE = 128, 1 << 20


@contextmanager
def random_gaps(seed: str, device: str) -> Iterator[list[Tensor]]:
    """While it is open, storage of a size drawn from the seed is taken before
    everything and after each parameter that a module registers. What it gives has to
    live as long as the module. An accelerator's allocator begins anew in each process,
    and is left alone.
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

    # what the imports have freed are holes, which small weights would fall into in the
    # same order each time
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


MOST_POOL_BYTES = 1 << 28  # of a pool
# elements of a token; a wider one is no token but a list of numbers, and is cut into
# parts
WIDEST_TOKEN = 1 << 16
# a factor without its sign: the mean square of what lies evenly between is 1
LEAST, MOST = 0.5, 1.42705098
WIDEST_PART = 4096  # at most, of such a list


def most_inputs(x: Tensor, memory_bytes: int | None) -> int:
    """How many inputs like x a pool may have: a sixteenth of the memory at most; one at
    least.
    """
    most_bytes = MOST_POOL_BYTES
    if memory_bytes is not None:
        most_bytes = min(MOST_POOL_BYTES, memory_bytes // 16)
    return max(1, most_bytes // max(1, int(x.nbytes)))


def gradient_salt(salt: int) -> int:
    """The salt of the gradients that flow back: other factors."""
    return salt + 1


def row_width(d_model: int) -> int:
    """Elements of a row: of a token, or the largest divisor that cuts a long list into
    parts.
    """
    if d_model <= WIDEST_TOKEN:
        return d_model
    return max(width for width in range(1, WIDEST_PART + 1) if d_model % width == 0)


def factors_of(salt: int, calls: int, width: int) -> Tensor:
    """For each call and column of a sample, (calls, width) of float32 on the CPU, as
    often below 0 as above.
    """
    drawn = (
        torch.rand(calls, width, generator=torch.Generator().manual_seed(salt)) * 2 - 1
    )
    return drawn * (MOST - LEAST) + LEAST * drawn.sign()


class Pool:
    """The inputs of a sample's calls, each of the shape of `base`, the seeded input
    (batch, seq_len, d_model).

    They are written at once, into one storage, and copied from there: each input has a
    storage of its own, so that none leads to the next. A row is a token.
    """

    def __init__(self, base: Tensor, *, train: bool) -> None:
        self._base = base.detach().clone()  # its own: the seeded one is moved
        self._train = train
        self._width = row_width(base.shape[-1])
        self._rows = self._base.view(-1, self._width)
        self.memory = torch.empty(0, *base.shape, dtype=base.dtype, device=base.device)
        self._inputs: list[Tensor] = []

    def renew(self, salt: int, calls: int) -> list[Tensor]:
        """So many inputs that no call has seen."""
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


Forward = Callable[[Tensor], Tensor]


@dataclass(slots=True)
class Subject:
    """A module and what it is called with: `x` where nothing is timed, and a pool of
    fresh inputs where it is.

    `grad` is the gradient that flows back where there is a backward. `by_device` asks
    for the device's time, `cold` for calls that find nothing in the cache.
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
    # between its weights, alive as long as these
    pads: list[Tensor] = field(default_factory=list, init=False)
    pool: Pool = field(init=False)
    # fresh ones too: what flows back in one call is in no other
    grads: Pool = field(init=False)
    timer: DeviceTimer | None = field(default=None, init=False)
    # the input of the last call, whose gradient is still there
    last: Tensor | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.pool = Pool(self.x, train=self.train)
        self.grads = Pool(self.grad, train=False)
        if self.accelerator is not None:
            from ffnbench.device.accelerator import DeviceTimer

            self.timer = DeviceTimer(self.accelerator)

    @property
    def forward(self) -> Forward:
        """What is timed."""
        return self.run or self.module

    def call(self, x: Tensor | None = None, grad: Tensor | None = None) -> Tensor:
        """One call as it is timed: forward, or forward and backward through a fresh
        graph. Gives the output.
        """
        if x is None:
            x = self.x
        if not self.train:
            with torch.inference_mode():
                return self.forward(x)
        y = self.forward(x)
        y.backward(self.grad if grad is None else grad)
        return y

    def timed(self, x: Tensor, grad: Tensor) -> Callable[[], Tensor]:
        """What to time: the whole call, or for backward alone the second half, its
        graph built here.
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
        """The call, and then a spin for the given share of its own time: a slow-down
        that is known exactly.
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
        """Forget all leaf gradients, so that no call pays for adding to the last
        one's.
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
    """Move nothing, time nothing: inputs of seeded N(0, 1), gradient of the output's
    shape, mode set.
    """
    generator = torch.Generator().manual_seed(seed)
    shape = (workload.batch, workload.seq_len, d_model)
    where, dtype = torch_device(workload.device), getattr(torch, workload.dtype)
    x = torch.randn(shape, generator=generator).to(where, dtype)
    grad = torch.randn(shape, generator=generator).to(where, dtype)
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
