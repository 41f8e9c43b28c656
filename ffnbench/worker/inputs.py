"""Fresh inputs for the calls of a sample: no content repeats.

An input is the seeded one, its columns multiplied by factors of either sign, drawn for each call from the salt of its
sample: so neither signs nor magnitudes come twice. The products are made in one pass over memory. Needs torch.
"""

from __future__ import annotations

import torch
from torch import Tensor

MOST_BYTES = 1 << 28  # of a pool
WIDEST = 1 << 16  # elements of a token; a wider one is no token but a list of numbers, and is cut into parts
LEAST, MOST = 0.5, 1.42705098  # a factor without its sign: the mean square of what lies evenly between is 1
PART = 4096  # at most, of such a list


def most_inputs(x: Tensor, memory_bytes: int | None) -> int:
    """How many inputs like x a pool may have: a sixteenth of the memory at most; one at least."""
    room = MOST_BYTES if memory_bytes is None else min(MOST_BYTES, memory_bytes // 16)
    return max(1, room // max(1, int(x.nbytes)))


def gradient_salt(salt: int) -> int:
    """The salt of the gradients that flow back: other factors."""
    return salt + 1


def width_of(d_model: int) -> int:
    """Elements of a row: of a token, or the largest divisor that cuts a long list into parts."""
    if d_model <= WIDEST:
        return d_model
    return next(width for width in range(PART, 0, -1) if d_model % width == 0)


def factors_of(salt: int, calls: int, width: int) -> Tensor:
    """For each call and column of a sample, (calls, width) of float32 on the CPU, as often below 0 as above."""
    drawn = torch.rand(calls, width, generator=torch.Generator().manual_seed(salt)) * 2 - 1
    return drawn * (MOST - LEAST) + LEAST * drawn.sign()


class Pool:
    """The inputs of a sample's calls, each of the shape of `base`, the seeded input (batch, seq_len, d_model).

    They are written at once, into one storage, and copied from there: each input has a storage of its own, so that none
    leads to the next. A row is a token.
    """

    def __init__(self, base: Tensor, *, train: bool) -> None:
        self._base, self._train = base.detach().clone(), train  # its own: the seeded one is moved
        self._width = width_of(base.shape[-1])
        self._rows = self._base.view(-1, self._width)
        self.memory = torch.empty(0, *base.shape, dtype=base.dtype, device=base.device)
        self._inputs: list[Tensor] = []

    def renew(self, salt: int, calls: int) -> list[Tensor]:
        """So many inputs that no call has seen."""
        with torch.no_grad():
            if len(self.memory) < calls:
                self.memory = self._base.new_empty(calls, *self._base.shape)
            factors = factors_of(salt, calls, self._width).to(self._base.device, self._base.dtype)
            written = self.memory[:calls].view(calls, -1, self._width)
            torch.mul(self._rows, factors.view(calls, 1, self._width), out=written)
            made = [torch.empty_like(self._base) for _ in range(calls - len(self._inputs))]
            self._inputs += [x.requires_grad_(self._train) for x in made]
            torch._foreach_copy_([x.detach() for x in self._inputs[:calls]], list(self.memory[:calls].unbind(0)))
        return self._inputs[:calls]
