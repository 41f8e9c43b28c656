"""Work shared by processes of this machine."""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

from ffnbench.device.environment import usable_cpus

Task = TypeVar("Task")
Answer = TypeVar("Answer")


def each(
    work: Callable[[Task], Answer], tasks: Sequence[Task], processes: int | None = None
) -> list[Answer]:
    """What every task came to, in order, by as many processes as there are CPUs; 1 is
    this very one.

    Other processes don't look for cycles of objects: there are none, and looking takes
    a tenth of the time.
    """
    count = processes or usable_cpus()
    if count == 1:
        return list(map(work, tasks))
    with ProcessPoolExecutor(
        count, multiprocessing.get_context("spawn"), initializer=gc.disable
    ) as pool:
        return list(pool.map(work, tasks))
