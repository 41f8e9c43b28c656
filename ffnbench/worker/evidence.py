"""What one timed call leaves behind for a judge: drawn rows of its output and gradients, copied when the clock stops.

The rows travel as the bytes of their dtype, in base64. Where the call drew random numbers, the generator's state from
before it goes along. Needs torch.
"""

from __future__ import annotations

import base64
import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import SystemRandom
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from ffnbench.device.accelerator import Accelerator
from ffnbench.worker.inputs import Pool

ROWS = 4  # of an output; of a weight's gradient
LEAST_GRADIENT = 8  # elements: of fewer, a sum over all tokens may be near 0, where rounding is all that there is
Places = set[tuple[StorageWeakRef, int]]  # in memory, of outputs: storages of which no other is taken for one
_get_state, _clone, _dice = torch.random.get_rng_state, Tensor.clone, SystemRandom()


@dataclass(slots=True)
class OutputRecorder:
    """Looks at one call of a sample: `before` it, and `after` it; `told` is what the judge gets."""

    module: nn.Module
    pool: Pool
    salt: int
    calls: int
    call: int
    foreign: bool  # code of the user's
    draws: bool  # whether it is known to draw random numbers
    accelerator: Accelerator | None = None
    earlier: Places | None = None  # of the outputs that were looked at; None where they may be the same
    x: Tensor | None = None
    y: Tensor | None = None
    problem: str = ""
    drew: bool = False  # whether it did so now
    _state: Tensor | None = None
    _gradients: bool = False
    _copied: bool = False
    _dx: Tensor | None = None
    _dw: dict[str, tuple[list[int], Tensor]] = field(default_factory=dict)

    def before(self, number: int | None = None) -> None:
        """The clock stands, and the call of that number comes next; without a number it is the first of several."""
        if number is None or number <= self.call:
            self._state = self._random_state()

    def copy(self, x: Tensor, y: Any, gradients: bool) -> None:
        """Copy what the call gave. On an accelerator the copy stands in the queue behind the call."""
        self._copied = True
        self.y = _clone(y.detach()) if type(y) is Tensor else None
        if gradients and x.grad is not None and type(x.grad) is Tensor:
            self._dx = _clone(x.grad)

    def after(self, x: Tensor, y: Any, gradients: bool) -> None:
        """The clock has stopped: copy first, look afterwards."""
        if not self._copied:
            self.copy(x, y, gradients)
        self.x = x
        self.problem = unlike_plain(y, x, foreign=self.foreign)
        if self.foreign and self.earlier is not None and not self.problem:
            place = StorageWeakRef(y.untyped_storage()), y.storage_offset()
            if place in self.earlier:
                self.problem = "it gives the memory of an earlier output again"
            self.earlier.add(place)
        self.drew = self._state is not None and not torch.equal(self._state, self._random_state())
        self._gradients = gradients
        if gradients:
            for name, parameter in self.module.named_parameters():
                self._dw[name] = _gradient_rows(parameter)

    def told(self) -> dict[str, Any]:
        """The evidence, as JSON."""
        found: dict[str, Any] = {"salt": self.salt, "calls": self.calls, "call": self.call, "problem": self.problem}
        if self.problem or self.y is None or self.x is None:
            return found
        rows = torch.tensor(_drawn(len(self.pool)), device=self.x.device)
        found |= {"rows": rows.tolist(), "y": packed(self._rows_of(self.y, rows))}
        expected = self.pool.rows(self.salt, self.calls, self.call, rows)
        if not torch.equal(self._rows_of(self.x, rows), expected):
            return found | {"problem": "it writes into its input"}
        if self._gradients:
            dx = torch.zeros_like(self.x) if self._dx is None else self._dx
            found["dx"] = packed(self._rows_of(dx, rows))
            found["dw"] = {name: {"rows": of, "values": packed(values)} for name, (of, values) in self._dw.items()}
        if self.drew and self._state is not None:
            found["state"] = packed(self._state)
        return found

    def _random_state(self) -> Tensor:
        """Of the generator that dropout draws from."""
        return _get_state() if self.accelerator is None else self.accelerator.rng_state()

    def _rows_of(self, values: Tensor, rows: Tensor) -> Tensor:
        return values.detach().reshape(-1, self.pool.width).index_select(0, rows)


def _drawn(count: int) -> list[int]:
    """A few of so many rows, in order, by the system's own dice."""
    return sorted(_dice.sample(range(count), min(ROWS, count)))


def _gradient_rows(parameter: nn.Parameter) -> tuple[list[int], Tensor]:
    """A few rows of a weight's gradient, by their flat numbers; zeros where it has none, as an optimiser takes it."""
    width = parameter.shape[-1] if parameter.ndim else 1
    count = parameter.numel() // max(1, width)
    rows = _drawn(count)
    if type(parameter.grad) is not Tensor or not parameter.requires_grad:
        return rows, torch.zeros(len(rows), width, dtype=parameter.dtype)
    return rows, parameter.grad.reshape(-1, width)[rows]


def unlike_plain(y: Any, x: Tensor, *, foreign: bool) -> str:
    """Why an output is not an ordinary tensor of this process like its input; "" where it is."""
    if type(y) is not Tensor:
        lazy = ", which may compute when it is looked at" if isinstance(y, Tensor) else ""
        return f"its output is a {type(y).__name__}{lazy}, not a plain tensor"
    if y.device != x.device or y.shape != x.shape or y.dtype != x.dtype:
        shown = f"{tuple(y.shape)} of {str(y.dtype).removeprefix('torch.')} on {y.device}"
        return f"its output is {shown}, unlike its input"
    if foreign and y.numel() and y.untyped_storage().data_ptr() == x.untyped_storage().data_ptr():
        return "it returns its input's own memory"
    return ""


def packed(values: Tensor) -> str:
    """The bytes of a tensor's elements, in base64."""
    values = values.detach().cpu().contiguous()
    return base64.b64encode(ctypes.string_at(values.data_ptr(), values.nbytes)).decode("ascii")


def unpacked(text: str, dtype: torch.dtype, shape: Sequence[int]) -> Tensor:
    """The tensor again."""
    raw = bytearray(base64.b64decode(text))
    return torch.frombuffer(raw, dtype=dtype).view(shape) if raw else torch.empty(shape, dtype=dtype)
