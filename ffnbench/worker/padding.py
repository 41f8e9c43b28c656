"""Random gaps in memory between the weights of a module that is built. Needs torch.

Where weights lie decides which cache lines and pages they share, so one layout is one draw of many, and a process that
is forked would repeat its starter's.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.module import register_module_parameter_registration_hook

PAD_BYTES = 1 << 18

HOLES, LARGEST_HOLE = 128, 1 << 20  # filled before anything is built, half of them for good; a pad fits into none


@contextmanager
def padded(seed: str, device: str) -> Iterator[list[Tensor]]:
    """While it is open, storage of a size drawn from the seed is taken before everything and after each parameter that
    a module registers. What it gives has to live as long as the module. An accelerator's allocator begins anew in each
    process, and is left alone.
    """
    dice = random.Random(seed)
    pads: list[Tensor] = []
    if device != "cpu":
        yield pads
        return

    def pad(*_: Any) -> None:
        pads.append(torch.empty(LARGEST_HOLE + dice.randrange(PAD_BYTES), dtype=torch.uint8))

    # what the imports have freed are holes, which small weights would fall into in the same order each time
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
