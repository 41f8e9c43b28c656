"""Work shared by processes of this machine."""

from __future__ import annotations

import gc
import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from typing import TypeVar

from ffnbench.bench.environment import usable_cpus

Task = TypeVar("Task")
Answer = TypeVar("Answer")
Counting = Callable[[int, int], None]  # tasks done, of how many


def silent(done: int, of: int) -> None:
    """Tell nobody."""


def each(
    work: Callable[[Task], Answer], tasks: Sequence[Task], processes: int | None = None, counting: Counting = silent
) -> list[Answer]:
    """What every task came to, in order, by as many processes as there are CPUs; 1 is this very one."""
    answers: dict[int, Answer] = {}
    for place, answer in _done(work, tasks, processes or usable_cpus()):
        answers[place] = answer
        counting(len(answers), len(tasks))
    return [answers[place] for place in range(len(tasks))]


def _done(work: Callable[[Task], Answer], tasks: Sequence[Task], processes: int) -> Iterator[tuple[int, Answer]]:
    """Each task's answer with its place, as they are done. Ended early, it waits for the tasks in hand alone.

    Other processes don't look for cycles of objects: there are none, and looking takes a tenth of the time.
    """
    if processes == 1:
        yield from ((place, work(task)) for place, task in enumerate(tasks))
        return
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), initializer=gc.disable)
    try:
        with _interrupts_for_the_parent():
            asked = {pool.submit(work, task): place for place, task in enumerate(tasks)}
        yield from ((asked[future], future.result()) for future in as_completed(asked))
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _interrupts_for_the_parent() -> Iterator[None]:
    """Processes that are started meanwhile never hear of Ctrl-C, not even before their first line; ours ends them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
