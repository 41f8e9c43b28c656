"""New places in memory for the tensors of a subject, with the same values. Needs torch.

Where weights and inputs lie decides which cache lines and pages they share, so one placement is one draw of many: at
d_model 256 a worker that makes all of its rounds on one is off by some 5 % (docs/methodology.md). A module that holds
memory beside its parameters and buffers (packed, frozen or captured weights) is left where it is: what it computes with
would not move.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from ffnbench.bench.memory_limits import PAD_BYTES

DEEPEST = 3  # lists in lists of a module's attributes
INDICES_BYTES = 1 << 16  # whole numbers of more are packed weights
COMPILED = "OptimizedModule"  # what torch.compile makes of a module
PLAIN = (Tensor, nn.Parameter)


class Placement:
    """Moves the tensors of one module and what it is called with. `movable` tells whether they can be moved."""

    def __init__(self, module: nn.Module, inputs: Iterable[Tensor], *, captured: bool) -> None:
        self._tensors = [*module.parameters(), *module.buffers(), *inputs]
        self._pads: list[Tensor] = []
        self.movable = not captured and all(map(_is_plain, self._tensors)) and not holds_other_memory(module)

    def move(self, seed: str) -> bool:
        """Give every storage a new place, drawn from the seed; whether that was done.

        One after another, in a shuffled order, is copied to its new place and freed: so each one moves, may take the
        place of another, and no more than one is there twice. Where something else holds an old one, the module is
        not movable from then on.
        """
        if not self.movable:
            return False
        dice = random.Random(seed)
        self._pads.clear()
        groups = _by_storage(self._tensors)
        dice.shuffle(groups)
        for tensors in groups:
            try:
                pad = torch.empty(dice.randrange(1, PAD_BYTES), dtype=torch.uint8, device=tensors[0].device)
                self._pads.append(pad)
                self.movable &= _move(tensors)
            except (RuntimeError, MemoryError):  # there is no room: what has not moved is where it was, and whole
                self.movable = False
                return False
        return True


def holds_other_memory(module: nn.Module) -> bool:
    """Whether a module keeps weights, packed ones too, or compiled code beside its parameters and buffers."""
    own = ("_parameters", "_buffers", "_modules")
    return any(
        type(part).__name__ == COMPILED
        or any(_holds(value, DEEPEST) for name, value in vars(part).items() if name not in own)
        for part in module.modules()
    )


def _holds(value: Any, deep: int) -> bool:
    if isinstance(value, Tensor):
        return bool(value.is_floating_point()) or value.nbytes > INDICES_BYTES
    if isinstance(value, torch.ScriptObject):
        return True
    if isinstance(value, dict):
        value = list(value.values())
    return deep > 0 and isinstance(value, list | tuple | set) and any(_holds(item, deep - 1) for item in value)


def _is_plain(tensor: Tensor) -> bool:
    return type(tensor) in PLAIN and tensor.layout is torch.strided and not tensor.is_quantized


def _by_storage(tensors: Iterable[Tensor]) -> list[list[Tensor]]:
    """Tensors that share memory, together; empty ones are left out."""
    found: dict[int, dict[int, Tensor]] = {}
    for tensor in tensors:
        if tensor.untyped_storage().nbytes():
            found.setdefault(tensor.untyped_storage().data_ptr(), {})[id(tensor)] = tensor
    return [list(group.values()) for group in found.values()]


def _move(tensors: list[Tensor]) -> bool:
    """Move the one storage of these tensors; whether the old one is gone."""
    old = tensors[0].untyped_storage()
    new, before = old.clone(), StorageWeakRef(old)
    for tensor in tensors:
        offset, shape, stride = tensor.storage_offset(), tensor.size(), tensor.stride()
        tensor.data = torch.empty(0, dtype=tensor.dtype, device=old.device).set_(new, offset, shape, stride)
    del old
    return bool(before.expired())
