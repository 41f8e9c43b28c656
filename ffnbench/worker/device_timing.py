"""What one sample is on an accelerator: seconds of the wall, of the host, and of the
device itself. Runs in a worker.

Calls only queue work, so gradients are cleared inside them, as in a loop that trains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from ffnbench.common.errors import Unsupported
from ffnbench.device.accelerator import UNROLLED
from ffnbench.worker.subject import Subject

# at the device's time, where it is what was asked for and others disturb the host
MEASURING_PASSES = 3
# of the clock of events that a sample is made of, at least: it is known to 2 %
STEPS = 20
NO_DEVICE_TIME = (
    "device time can't be told apart: its calls wait for the device, run on another stream, "
    "or are too short for the clock of its events"
)
# calls of an idle device, whose issuing is timed: a queue that is full would make the
# host wait
FEW = 3


def time_calls_on_device(
    subject: Subject,
    inputs: Sequence[Tensor],
    grads: Sequence[Tensor],
    *,
    is_sample: bool,
) -> dict[str, Any]:
    """The wall's time of calls one after another, and the device's own for the same
    calls: the fields of timing.Times.

    `counts` as in timing.py. Raises Unsupported where the device's time is asked for,
    and can't be had apart.
    """
    calls = len(inputs)
    wall, host = _wall_pass(subject, inputs, grads)
    passes = MEASURING_PASSES if subject.by_device else int(counts)
    device = None
    for _ in range(passes):
        if device is None:
            device = _device_pass(subject, inputs, grads, host, STEPS if counts else 1)
    subject.clear(inputs[-1])
    times = {
        "value": wall / calls,
        "wall": wall / calls,
        "host": host,
        "device": device,
    }
    if subject.by_device:
        if device is None:
            raise Unsupported(
                NO_DEVICE_TIME, "@time=wall measures what a caller waits for"
            )
        times["value"] = device
    return times


def _wall_pass(
    subject: Subject, inputs: Sequence[Tensor], grads: Sequence[Tensor]
) -> tuple[float, float]:
    """Seconds of all calls, and the seconds that issuing one takes.

    The device is idle before the first and drained after the last. A backward alone is
    run after its forwards, some at a time.
    """
    accelerator = subject.accelerator
    assert accelerator is not None
    together = UNROLLED if subject.backward_only else len(inputs)
    wall = host = 0.0
    for first in range(0, len(inputs), together):
        calls = _issues(
            subject, inputs[first : first + together], grads[first : first + together]
        )
        few, rest = calls[:FEW], calls[FEW:]
        accelerator.synchronize()
        begin = accelerator.now()
        for call in few:
            call()
        if not first:
            host = (accelerator.now() - begin) / len(few)
        for call in rest:
            call()
        accelerator.synchronize()
        wall += accelerator.now() - begin
    return wall, host


def _device_pass(
    subject: Subject,
    inputs: Sequence[Tensor],
    grads: Sequence[Tensor],
    host: float,
    steps: int,
) -> float | None:
    """Mean seconds that the device works for a call, known to one part of so many steps
    of its clock.
    """
    timer = subject.timer
    assert timer is not None
    if timer.gives_up:
        return None

    def make(first: int, end: int) -> list[Callable[[], Tensor]]:
        return _issues(subject, inputs[first:end], grads[first:end])

    return timer.seconds(make, len(inputs), host, steps, cold=subject.cold)


def _issues(
    subject: Subject, inputs: Sequence[Tensor], grads: Sequence[Tensor]
) -> list[Callable[[], Tensor]]:
    """Calls one after another, each with its gradients cleared. Of a backward alone the
    forwards are run here.
    """
    calls = [subject.timed(x, grad) for x, grad in zip(inputs, grads, strict=True)]
    if not subject.train:
        return calls
    return [
        partial(_cleared, subject, x, call)
        for x, call in zip(inputs, calls, strict=True)
    ]


def _cleared(subject: Subject, x: Tensor, call: Callable[[], Tensor]) -> Tensor:
    if subject.last is not None:
        subject.last.grad = None
    subject.clear(x)
    subject.last = x
    return call()
