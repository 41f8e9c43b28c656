"""Takes a sample: mean seconds of a call of a subject. Runs in a worker.

On a CPU, the time of a sample never includes the clearing of gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from os import urandom
from time import perf_counter

import torch
from torch import Tensor, nn

from ffnbench.device.environment import (
    accelerator_of,
    last_cache_bytes,
    torch_device,
)
from ffnbench.record.messages import SALT_BITS
from ffnbench.worker.subject import Subject, Times

# a subject is warm after so many calls in a row of which none was faster than the
# fastest before them; a faster one takes less than this share of its time
CALLS_WITHOUT_FASTER, FASTER = 3, 0.98
LONGEST_WARM_UP = 5  # times as long as was asked for
CALLS_TO_LOOK = 3  # single calls that are timed to find how many make a sample
# as many before the warm-up, and how many samples the faster one has to take where none
# is needed
COLD_CALLS, LONG = 2, 4


def empty_subject(device: str = "cpu") -> Subject:
    """An empty module. A call of it takes what measuring a call itself takes."""
    x = torch.randn(1, 1, 8, device=torch_device(device))
    return Subject(nn.Identity(), x, x, train=False, accelerator=accelerator_of(device))


def empty_call() -> float:
    """Seconds that measuring a call itself takes."""
    subject = empty_subject()
    return min(time_calls(subject, [subject.x] * 200).value for _ in range(10))


def warm_up(subject: Subject, seconds: float) -> None:
    """Call until so many seconds are over and the last calls are no faster than those
    before, or until LONGEST_WARM_UP times the seconds are over.
    """
    start = _now(subject)
    best_s, calls_since_best = math.inf, 0
    elapsed_s = 0.0
    while elapsed_s < LONGEST_WARM_UP * seconds:
        call_s = time_calls(subject, fresh_input(subject), is_sample=False).value
        calls_since_best += 1
        if call_s < FASTER * best_s:
            best_s, calls_since_best = call_s, 0
        if elapsed_s >= seconds and calls_since_best >= CALLS_WITHOUT_FASTER:
            return
        elapsed_s = _now(subject) - start


def calls_for(subject: Subject, min_sample_s: float, warmup_s: float) -> int:
    """How many calls make a sample last as long as `min_sample_s`. The subject is
    warmed up for `warmup_s` first, unless a call is so long that one is enough however
    warm it becomes.

    On an accelerator a call by itself takes longer than one of several, so several are
    timed too.
    """
    fastest = min(_seconds_a_call(subject, 1) for _ in range(COLD_CALLS))
    if fastest > LONG * min_sample_s:
        return 1
    warm_up(subject, warmup_s)
    for _ in range(CALLS_TO_LOOK):
        fastest = min(fastest, _seconds_a_call(subject, 1))
        # one call is long enough, even if this one was disturbed
        if fastest > 2 * min_sample_s:
            return 1
    calls = max(1, math.ceil(min_sample_s / max(fastest, 1e-9)))
    if subject.accelerator is not None and calls > 1:
        from ffnbench.device.accelerator import MOST_CALLS_OF_QUEUE

        fastest = min(
            _seconds_a_call(subject, min(calls, MOST_CALLS_OF_QUEUE)) for _ in range(2)
        )
    return max(1, math.ceil(min_sample_s / max(fastest, 1e-9)))


def _seconds_a_call(subject: Subject, calls: int) -> float:
    """Mean seconds of so many calls, with the time to flush the cache between them if
    that should be cold.
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
    """A list of one input that no call has seen, for a call that is no sample."""
    return subject.pool.renew(int.from_bytes(urandom(SALT_BITS // 8)), 1)


def time_calls(
    subject: Subject,
    inputs: Sequence[Tensor],
    grads: Sequence[Tensor] = (),
    *,
    is_sample: bool = True,
) -> Times:
    """Time a call on each of the inputs, with the gradient at its place in `grads`
    flowing back; without `grads`, always the seeded one.

    `is_sample` is False for a call that only prepares one. For a sample an accelerator
    is asked for its own time too, even where the wall's is measured. Raises Unsupported
    where the device's time is measured and can't be told apart.
    """
    grads = grads or [subject.grad] * len(inputs)
    if subject.accelerator is not None:
        from ffnbench.worker.device_timing import time_calls_on_device

        return time_calls_on_device(subject, inputs, grads, is_sample=is_sample)
    if subject.train or subject.cold:
        seconds = _one_by_one(subject, inputs, grads)
    else:
        seconds = _in_a_row(subject, inputs)
    call_s = seconds / len(inputs)
    return Times(value=call_s, wall=call_s)


def _in_a_row(subject: Subject, inputs: Sequence[Tensor]) -> float:
    """Seconds of calls one after another, on the CPU."""
    calls: list[Callable[..., Tensor]] = [subject.next().call for _ in inputs]
    if subject.slowdown:
        calls = [subject.slowed(call) for call in calls]
    start = perf_counter()
    for call, x in zip(calls, inputs, strict=True):
        call(x)
    return perf_counter() - start


def _one_by_one(
    subject: Subject, inputs: Sequence[Tensor], grads: Sequence[Tensor]
) -> float:
    """Seconds of calls on the CPU, each timed by itself: between them gradients are
    cleared, and caches flushed where they should be cold.
    """
    total = 0.0
    for x, grad in zip(inputs, grads, strict=True):
        called = subject.next()
        called.clear(x)
        call = called.timed_call(x, grad)
        if subject.cold:
            # reading too: the C library writes so much past the caches
            _buffer_of(2 * last_cache_bytes()).add_(1)
        start = perf_counter()
        call()
        total += perf_counter() - start
        called.clear(x)
    return total


@cache
def _buffer_of(size: int) -> Tensor:
    return torch.zeros(size, dtype=torch.uint8).view(torch.int64)
