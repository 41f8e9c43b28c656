"""Takes a sample on an accelerator: seconds of the wall, of the host, and of the device
itself. Runs in a worker.

Calls only queue work, so gradients are cleared inside of them, as in a training loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from torch import Tensor

from ffnbench.common.errors import Unsupported
from ffnbench.device.accelerator import MOST_CALLS_OF_QUEUE
from ffnbench.worker.subject import Subject, Times

# tries to get the device's time, where that is what is measured: other processes may
# disturb the host
MEASURING_PASSES = 3
# the device's time of a sample is so many steps of the clock of events at least: it is
# known to about 2 % then
LEAST_STEPS = 20
NO_DEVICE_TIME = (
    "device time can't be told apart: its calls wait for the device, run on another stream, "
    "or are too short for the clock of its events"
)
# the first calls on an idle device, by which the time to issue a call is known: a full
# queue would make the host wait
FIRST_CALLS = 3


def time_calls_on_device(
    subject: Subject,
    inputs: Sequence[Tensor],
    grads: Sequence[Tensor],
    *,
    is_sample: bool,
) -> Times:
    """Time calls one after another by the wall, and the same calls by the device.

    The arguments are those of timing.py: time_calls. Raises Unsupported where the
    device's time is measured and can't be told apart.
    """
    wall, host = _wall_pass(subject, inputs, grads)
    passes = MEASURING_PASSES if subject.by_device else int(is_sample)
    steps = LEAST_STEPS if is_sample else 1
    device = None
    for _ in range(passes):
        device = _device_pass(subject, inputs, grads, host, steps)
        if device is not None:
            break
    subject.clear(inputs[-1])
    call_s = wall / len(inputs)
    value = call_s
    if subject.by_device:
        if device is None:
            raise Unsupported(
                NO_DEVICE_TIME, "@time=wall measures what a caller waits for"
            )
        value = device
    return Times(value=value, wall=call_s, host=host, device=device)


def _wall_pass(
    subject: Subject, inputs: Sequence[Tensor], grads: Sequence[Tensor]
) -> tuple[float, float]:
    """Seconds of all calls by the wall, and the mean seconds to issue one.

    The device is idle before the first call and after the last. Where backward alone is
    measured, the forwards of some calls are run, and then their backwards are timed.
    """
    accelerator = subject.accelerator
    assert accelerator is not None
    together = MOST_CALLS_OF_QUEUE if subject.backward_only else len(inputs)
    wall = host = 0.0
    for first in range(0, len(inputs), together):
        calls = _calls_to_issue(
            subject, inputs[first : first + together], grads[first : first + together]
        )
        few, rest = calls[:FIRST_CALLS], calls[FIRST_CALLS:]
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
    """Mean seconds that the device works for a call; None where that is not to be had,
    or is less than so many steps of the clock of events (DeviceTimer.seconds).
    """
    timer = subject.timer
    assert timer is not None
    if timer.gives_up:
        return None

    def make(first: int, end: int) -> list[Callable[[], Tensor]]:
        return _calls_to_issue(subject, inputs[first:end], grads[first:end])

    return timer.seconds(make, len(inputs), host, steps, cold=subject.cold)


def _calls_to_issue(
    subject: Subject, inputs: Sequence[Tensor], grads: Sequence[Tensor]
) -> list[Callable[[], Tensor]]:
    """The calls on these inputs, each of which clears the gradients before. Where
    backward alone is measured, the forwards are run here.
    """
    calls = []
    for x, grad in zip(inputs, grads, strict=True):
        called = subject.next()
        call = called.timed_call(x, grad)
        if subject.train:
            call = partial(_clear_and_call, subject, called, x, call)
        calls.append(call)
    return calls


def _clear_and_call(
    subject: Subject, called: Subject, x: Tensor, call: Callable[[], Tensor]
) -> Tensor:
    if subject.last is not None:
        last, last_x = subject.last
        last_x.grad = None
        if last is not called:
            last.clear()
    called.clear(x)
    subject.last = called, x
    return call()
