"""What one sample is: seconds of a call of a subject. Runs inside a worker.

On a CPU, timing never includes the clearing of gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from os import urandom
from time import perf_counter

import torch
from torch import Tensor, nn

from ffnbench.device.environment import UNKNOWN_CACHE, caches
from ffnbench.worker.subject import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Mean seconds of a call of a sample. `value` is what was asked for.

    `wall` is what a caller waits for, calls one after another. On an accelerator
    `device` is what it works for a call, None where that can't be had apart, and `host`
    is what issuing a call takes.
    """

    value: float
    wall: float
    host: float | None = None
    device: float | None = None


def empty_call() -> float:
    """Seconds of a call of an empty module, measured as every other call is: what the
    harness itself costs.
    """
    subject = Subject(
        nn.Identity(), torch.randn(1, 1, 8), torch.randn(1, 1, 8), train=False
    )
    return min(time_calls(subject, [subject.x] * 200).value for _ in range(10))


def warm_up(subject: Subject, seconds: float) -> None:
    """Call until the time is over and the last calls are no faster than those before,
    at most 5x as long.
    """
    start = _now(subject)
    best_s, calls_since_best = math.inf, 0
    elapsed_s = 0.0
    while elapsed_s < 5 * seconds:
        call_s = time_calls(subject, fresh_input(subject), is_sample=False).value
        calls_since_best += 1
        if call_s < 0.98 * best_s:
            best_s, calls_since_best = call_s, 0
        if elapsed_s >= seconds and calls_since_best >= 3:
            return
        elapsed_s = _now(subject) - start


def calls_for(subject: Subject, min_sample_s: float) -> int:
    """How many calls make one sample last long enough for the clock and for the
    scheduler.

    On an accelerator one call by itself takes longer than one of several: so several
    are looked at too.
    """
    fastest = math.inf
    for _ in range(3):
        fastest = min(fastest, _seconds_a_call(subject, 1))
        # one call is long enough, even if this one was disturbed
        if fastest > 2 * min_sample_s:
            return 1
    calls = max(1, math.ceil(min_sample_s / max(fastest, 1e-9)))
    if subject.accelerator is not None and calls > 1:
        from ffnbench.device.accelerator import UNROLLED

        fastest = min(_seconds_a_call(subject, min(calls, UNROLLED)) for _ in range(2))
    return max(1, math.ceil(min_sample_s / max(fastest, 1e-9)))


def _seconds_a_call(subject: Subject, calls: int) -> float:
    """Seconds of so many calls, each; with what it takes to flush the cache, where that
    stands between them.
    """
    inputs = fresh_input(subject) * calls
    start = _now(subject)
    call_s = time_calls(subject, inputs, is_sample=False).value
    if subject.cold:
        return (_now(subject) - start) / calls
    return call_s


def _now(subject: Subject) -> float:
    if subject.accelerator is None:
        return perf_counter()
    return subject.accelerator.now()


def fresh_input(subject: Subject) -> list[Tensor]:
    """One input that no call has seen, for a call that is no sample."""
    return subject.pool.renew(int.from_bytes(urandom(7)), 1)


def time_calls(
    subject: Subject,
    inputs: Sequence[Tensor],
    grads: Sequence[Tensor] = (),
    *,
    is_sample: bool = True,
) -> Times:
    """Mean seconds of one call over those of these inputs, with these gradients that
    flow back; without any, always the seeded one.

    `counts`: it is more than a look. Then an accelerator is asked for its own time too,
    even where that is not what is measured. Raises Unsupported where it is, and can't
    be had.
    """
    grads = grads or [subject.grad] * len(inputs)
    if subject.accelerator is not None:
        from ffnbench.worker.device_timing import time_calls_on_device

        return Times(
            **time_calls_on_device(subject, inputs, grads, is_sample=is_sample)
        )
    if subject.train or subject.cold:
        seconds = _one_by_one(subject, inputs, grads)
    else:
        seconds = _in_a_row(subject, inputs)
    call_s = seconds / len(inputs)
    return Times(value=call_s, wall=call_s)


def _in_a_row(subject: Subject, inputs: Sequence[Tensor]) -> float:
    """On the CPU, calls one after another."""
    call: Callable[..., Tensor] = subject.call
    if subject.slowdown:
        call = subject.slowed(call)
    start = perf_counter()
    for x in inputs:
        call(x)
    return perf_counter() - start


def _one_by_one(
    subject: Subject, inputs: Sequence[Tensor], grads: Sequence[Tensor]
) -> float:
    """On the CPU: between calls gradients are cleared, and caches flushed where they
    should be cold.
    """
    total = 0.0
    for x, grad in zip(inputs, grads, strict=True):
        subject.clear(x)
        call = subject.timed(x, grad)
        if subject.cold:
            _flush()
        start = perf_counter()
        call()
        total += perf_counter() - start
        subject.clear(x)
    return total


@cache
def _buffer_of(size: int) -> Tensor:
    return torch.zeros(size, dtype=torch.uint8).view(torch.int64)


@cache
def _flush_size(threads: int) -> int:
    """Twice what the last cache holds that so many threads may use."""
    levels = caches()
    if not levels:
        return 2 * UNKNOWN_CACHE
    return 2 * levels[-1].capacity(threads)


def _flush() -> None:
    """Evict what the CPU's caches hold: read and write twice what the last of them
    does. To write alone would not do: the C library writes so much past the caches.
    """
    _buffer_of(_flush_size(torch.get_num_threads())).add_(1)
