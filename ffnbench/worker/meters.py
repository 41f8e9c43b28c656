"""What one sample is: seconds of a call of a subject. Runs inside a worker.

On a CPU, timing never includes the clearing of gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from os import urandom
from time import perf_counter

import torch
from torch import Tensor, nn

from ffnbench.device.environment import UNKNOWN_CACHE, caches
from ffnbench.worker.subject import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Mean seconds of a call of a sample. `value` is what was asked for.

    `wall` is what a caller waits for, calls one after another. On an accelerator `device` is what it works for a call,
    None where that can't be had apart, and `host` is what issuing a call takes.
    """

    value: float
    wall: float
    host: float | None = None
    device: float | None = None


def empty_call() -> float:
    """Seconds of a call of an empty module, measured as every other call is: what the harness itself costs."""
    subject = Subject(nn.Identity(), torch.randn(1, 1, 8), torch.randn(1, 1, 8), train=False)
    return min(sample(subject, [subject.x] * 200).value for _ in range(10))


def warm_up(subject: Subject, seconds: float) -> None:
    """Call until the time is over and the last calls are no faster than those before, at most 5x as long."""
    start, best, since = _now(subject), math.inf, 0
    while (elapsed := _now(subject) - start) < 5 * seconds:
        took = sample(subject, fresh(subject), counts=False).value
        best, since = (took, 0) if took < 0.98 * best else (best, since + 1)
        if elapsed >= seconds and since >= 3:
            return


def calls_for(subject: Subject, min_sample_s: float) -> int:
    """How many calls make one sample last long enough for the clock and for the scheduler.

    On an accelerator one call by itself takes longer than one of several: so several are looked at too.
    """
    fastest = math.inf
    for _ in range(3):
        fastest = min(fastest, _lasts(subject, 1))
        if fastest > 2 * min_sample_s:  # one call is long enough, even if this one was disturbed
            return 1
    calls = max(1, math.ceil(min_sample_s / max(fastest, 1e-9)))
    if subject.accelerator is not None and calls > 1:
        from ffnbench.device.accelerator import UNROLLED

        fastest = min(_lasts(subject, min(calls, UNROLLED)) for _ in range(2))
    return max(1, math.ceil(min_sample_s / max(fastest, 1e-9)))


def _lasts(subject: Subject, calls: int) -> float:
    """Seconds of so many calls, each; with what it takes to flush the cache, where that stands between them."""
    inputs, start = fresh(subject) * calls, _now(subject)
    took = sample(subject, inputs, counts=False).value
    return (_now(subject) - start) / calls if subject.cold else took


def _now(subject: Subject) -> float:
    return perf_counter() if subject.accelerator is None else subject.accelerator.now()


def fresh(subject: Subject) -> list[Tensor]:
    """One input that no call has seen, for a call that is no sample."""
    return subject.pool.renew(int.from_bytes(urandom(7)), 1)


def sample(
    subject: Subject,
    inputs: Sequence[Tensor],
    grads: Sequence[Tensor] = (),
    *,
    counts: bool = True,
) -> Times:
    """Mean seconds of one call over those of these inputs, with these gradients that flow back; without any, always the
    seeded one.

    `counts`: it is more than a look. Then an accelerator is asked for its own time too, even where that is not what is
    measured. Raises Unsupported where it is, and can't be had.
    """
    grads = grads or [subject.grad] * len(inputs)
    if subject.accelerator is not None:
        from ffnbench.worker.accelerated import measure

        return Times(**measure(subject, inputs, grads, counts=counts))
    seconds = _one_by_one(subject, inputs, grads) if subject.train or subject.cold else _in_a_row(subject, inputs)
    return Times(value=seconds / len(inputs), wall=seconds / len(inputs))


def _in_a_row(subject: Subject, inputs: Sequence[Tensor]) -> float:
    """On the CPU, calls one after another."""
    call = subject.slowed(subject.call) if subject.slowdown else subject.call
    start = perf_counter()
    for x in inputs:
        call(x)
    return perf_counter() - start


def _one_by_one(subject: Subject, inputs: Sequence[Tensor], grads: Sequence[Tensor]) -> float:
    """On the CPU: between calls gradients are cleared, and caches flushed where they should be cold."""
    total = 0.0
    flush = _flusher() if subject.cold else None
    for x, grad in zip(inputs, grads, strict=True):
        subject.clear(x)
        call = subject.timed(x, grad)
        if flush is not None:
            flush()
        start = perf_counter()
        call()
        total += perf_counter() - start
        subject.clear(x)
    return total


@cache
def _buffer_of(size: int) -> Tensor:
    return torch.zeros(size, dtype=torch.uint8).view(torch.int64)


def _flusher() -> Callable[[], object]:
    """What evicts the CPU's caches: it reads and writes twice what the last of them holds. To write alone would not do:
    the C library writes so much past the caches.
    """
    known = caches()
    size = known[-1].capacity(torch.get_num_threads()) if known else UNKNOWN_CACHE
    return partial(_buffer_of(2 * size).add_, 1)
