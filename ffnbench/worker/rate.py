"""Times the bare matrix products of a case, and a copy of its bytes. Runs in a worker;
needs torch.

All operands are views of one buffer of random numbers, since only one call is timed at
a time. The first call after another row finds cold caches, and is not timed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from time import perf_counter

import torch
from torch import Tensor

from ffnbench.common.choices import Mode
from ffnbench.device.environment import accelerator_of, torch_device
from ffnbench.plan.backends import bare_form
from ffnbench.plan.plan import Case

DRAWN_ELEMENTS = 1 << 18  # the rest of a buffer repeats them


class BareCalls:
    """The calls of one worker; a sample of them lasts about `min_sample_s`."""

    def __init__(self, min_sample_s: float) -> None:
        self.min_sample_s = min_sample_s
        self._calls: dict[tuple[str, str], int] = {}  # by what is called, and the case
        self._buffers: dict[tuple[str, str], Tensor] = {}  # by dtype and device

    def times(self, case: Case) -> tuple[float, float]:
        """Mean seconds of all matrix products of a call, and of a copy of its bytes."""
        torch.set_num_threads(case.workload.threads)
        with torch.inference_mode():
            products = self._products(case)
            source, target = self._halves(case)

            def multiply() -> None:
                for left, right, out in products:
                    torch.mm(left, right, out=out)

            return (
                self._seconds("products", case, multiply),
                self._seconds("copy", case, lambda: target.copy_(source)),
            )

    def _products(self, case: Case) -> list[tuple[Tensor, Tensor, Tensor]]:
        """The factors of each product in the passes that are timed, and where it goes:
        of a weight W (out, in) X W^T forward, and dY W and dY^T X backward.
        """
        form, work = bare_form(case), case.workload
        assert form is not None
        operands = []
        start = 0
        for rows, columns in form.matrices.values():
            for shape in ((work.tokens, columns), (rows, columns), (work.tokens, rows)):
                operands.append((start, shape))
                start += math.prod(shape)
        buffer = self._buffer(case, start)
        views = [
            buffer[first : first + math.prod(shape)].view(shape)
            for first, shape in operands
        ]
        pairs: list[tuple[Tensor, Tensor]] = []
        for x, w, dy in zip(views[0::3], views[1::3], views[2::3], strict=True):
            if work.mode != Mode.BACKWARD:
                pairs.append((x, w.t()))
            if work.mode != Mode.FORWARD:
                pairs += [(dy, w), (dy.t(), x)]
        return [
            (left, right, buffer.new_empty(left.shape[0], right.shape[1]))
            for left, right in pairs
        ]

    def _halves(self, case: Case) -> tuple[Tensor, Tensor]:
        """What is copied and where to: together as many bytes as weights, input and
        output of a call.
        """
        form = bare_form(case)
        assert form is not None
        weights = sum(rows * columns for rows, columns in form.matrices.values())
        half = weights // 2 + case.workload.tokens * form.d_model
        buffer = self._buffer(case, 2 * half)
        return buffer[:half], buffer[half : 2 * half]

    def _buffer(self, case: Case, elements: int) -> Tensor:
        """So many random numbers, in the dtype and on the device of a case."""
        work = case.workload
        buffer = self._buffers.get((work.dtype, work.device))
        if buffer is None or len(buffer) < elements:
            generator = torch.Generator().manual_seed(0)
            drawn = torch.randn(DRAWN_ELEMENTS, generator=generator)
            drawn = drawn.to(torch_device(work.device), getattr(torch, work.dtype))
            buffer = drawn.repeat(math.ceil(elements / DRAWN_ELEMENTS))
            self._buffers[work.dtype, work.device] = buffer
        return buffer

    def _seconds(self, name: str, case: Case, call: Callable[[], object]) -> float:
        """Mean seconds of a call: on an accelerator those that the device works."""
        device = case.workload.device
        call()
        if (name, case.label) not in self._calls:
            once_s = max(_mean_seconds(call, 1, device), 1e-9)
            self._calls[name, case.label] = math.ceil(self.min_sample_s / once_s)
        return _mean_seconds(call, self._calls[name, case.label], device)


def _mean_seconds(call: Callable[[], object], calls: int, device: str) -> float:
    accelerator = accelerator_of(device)
    if accelerator is not None:
        from ffnbench.device.accelerator import device_seconds

        return device_seconds(accelerator, call, calls)
    begun = perf_counter()
    for _ in range(calls):
        call()
    return (perf_counter() - begun) / calls
