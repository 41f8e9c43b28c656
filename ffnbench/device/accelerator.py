"""A GPU as torch.cuda offers it (ROCm's too): its clock, events and memory, how long it
works for a call, and its errors.

All timing on a GPU goes through one Accelerator, so that tests can use a simulated one.
Only a worker that uses a GPU loads this file (device/environment.py: accelerator_of).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter as clock
from typing import Any

import torch
from torch import Tensor

# errors that every later call on the device repeats
STICKY = re.compile(r"(CUDA|HIP) error|device-side assert|Triton Error \[(CUDA|HIP)\]")
# what torch and the libraries say where the device's memory is full, which does not
# break the device's context
FULL = re.compile(
    r"out of memory|CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED|rocblas_status_memory_error",
    re.I,
)


SPUN_S = 0.002  # a spin that it is calibrated with takes so long at least
# bytes of AMD's largest cache, which lies behind the one whose size HIP tells
INFINITY_CACHE = 1 << 28
LEAST_CACHE = 1 << 25  # bytes, where the device does not tell what its last cache holds

MOST_CALLS_OF_QUEUE = 64
# calls of a sample that are timed from queues, at most: the host needs time to launch
MOST_QUEUED_CALLS = 128
TRIES = 4  # to time a queue
SPIN_FACTOR = 2.0  # a spin is so many times as long as queueing is expected to take
LEAST_SPIN_S = 2e-4
LONGEST_SPIN_S = 1.0
# a queue was alone on the device if waiting for all of the device took no longer than
# the queue by this share and these seconds
LATE, LATE_S = 0.25, 0.0003
DRAIN_S = 2e-5  # after a flush, until none of its writes is under way
CLOCK_EVENTS = 16  # events by which the step of their clock is found
# after so many samples in a row without a device time, and none with one before, it is
# not tried again
GIVEN_UP = 2


def _chain(problem: BaseException | None) -> Iterator[BaseException]:
    """An exception, and those from which or during which it was raised: code of the
    user's may raise another one for an error of the device.
    """
    for _ in range(100):  # an exception that is its own cause would have no end
        if problem is not None:
            yield problem
            problem = problem.__cause__ or problem.__context__


def device_error(problem: BaseException) -> str:
    """What broke the device's context, in one line; "" for any other problem.

    Afterwards every call of this process on the device fails with the same error.
    """
    for cause in _chain(problem):
        text = str(cause)
        is_sticky = isinstance(cause, RuntimeError) and STICKY.search(text) is not None
        is_of_device = is_sticky or type(cause).__name__ == "AcceleratorError"
        if is_of_device and not FULL.search(text):
            return first_line(text)
    return ""


def is_full(problem: BaseException) -> bool:
    """Whether the device's memory was full."""
    full = isinstance(problem, RuntimeError) and FULL.search(str(problem)) is not None
    return full or type(problem).__name__ == "OutOfMemoryError"


def first_line(text: str) -> str:
    """The first line of an error of a device, without the advice that torch adds to
    each such message.
    """
    for line in text.splitlines():
        if line.strip():
            return line.strip().partition(" Including non-PyTorch")[0]
    return ""


@dataclass(frozen=True, slots=True)
class Event:
    """A mark in the queue of the device."""

    torch_event: Any

    def record(self) -> None:
        """Put the mark behind all that is queued."""
        self.torch_event.record()

    def seconds_since(self, start: Event) -> float:
        """Seconds of the device from another mark to this one; it has passed both."""
        return float(start.torch_event.elapsed_time(self.torch_event)) / 1e3


class Accelerator:
    """One GPU. `device` is where its tensors are. Methods only queue work, unless they
    say that they wait.
    """

    def __init__(self, name: str) -> None:
        self.device = torch.device(name if ":" in name else f"{name}:0")
        self._buffer: Tensor | None = None
        self._spin_units_a_second = 0.0  # 0 until it is calibrated

    def make_current(self) -> None:
        """Make this the current device, on which events are recorded."""
        torch.cuda.set_device(self.device)

    def now(self) -> float:
        """Seconds of the host's clock."""
        return clock()

    def synchronize(self) -> None:
        """Wait for all that is queued, on every stream."""
        torch.cuda.synchronize(self.device)

    def event(self) -> Event:
        """A new mark; it is recorded on the current stream."""
        return Event(torch.cuda.Event(enable_timing=True))

    def spin(self, seconds: float) -> None:
        """Queue a kernel that does nothing for about so long."""
        if not self._spin_units_a_second:
            self._spin_units_a_second = self._calibrate()
        self._spin(max(1, round(seconds * self._spin_units_a_second)))

    def _spin(self, units: int) -> None:
        """Queue so many units, 1,000 cycles each of the clock that `_sleep` reads."""
        torch.cuda._sleep(1000 * units)

    def _calibrate(self) -> float:
        """Units of spinning a second: twice as many units are timed each time, until
        they take long enough for the clock of events.
        """
        units, start, end = 1, self.event(), self.event()
        self._spin(units)
        for _ in range(64):
            self.synchronize()
            start.record()
            self._spin(units)
            end.record()
            self.synchronize()
            seconds = end.seconds_since(start)
            if seconds >= SPUN_S:
                break
            units *= 2
        return units / max(seconds, 1e-9)

    def flush(self) -> None:
        """Queue a write of twice as many bytes as the last cache holds."""
        if self._buffer is None:
            least = LEAST_CACHE if torch.version.hip is None else INFINITY_CACHE
            size = 2 * max(least, self.cache_bytes())
            self._buffer = torch.empty(size, dtype=torch.uint8, device=self.device)
        self._buffer.zero_()

    def cache_bytes(self) -> int:
        """Bytes of the cache that the device tells of, 0 where it tells of none."""
        return int(
            getattr(torch.cuda.get_device_properties(self.device), "L2_cache_size", 0)
        )

    def rng_state(self) -> Tensor:
        """The state of the random number generator on this device."""
        return torch.cuda.get_rng_state(self.device)

    def requested_bytes(self) -> int:
        """Bytes of all living tensors as they were requested, without the allocator's
        rounding.
        """
        return int(
            torch.cuda.memory_stats(self.device).get("requested_bytes.all.current", 0)
        )

    def peak_requested_bytes(self) -> int:
        """The largest value of requested_bytes since `reset_peak`."""
        return int(
            torch.cuda.memory_stats(self.device).get("requested_bytes.all.peak", 0)
        )

    def reset_peak(self) -> None:
        """Forget the peak."""
        torch.cuda.reset_peak_memory_stats(self.device)

    def free_bytes(self) -> int:
        """Bytes that a tensor may take: those that the driver has left, and those that
        torch's allocator holds for no tensor.
        """
        free, _ = torch.cuda.mem_get_info(self.device)
        return int(
            free
            + torch.cuda.memory_reserved(self.device)
            - torch.cuda.memory_allocated(self.device)
        )


MAKE = Accelerator  # tests put a simulated one here
_MADE: dict[str, Accelerator] = {}


def of_name(name: str) -> Accelerator:
    """The accelerator of this name, made when it is first asked for."""
    if name not in _MADE:
        _MADE[name] = MAKE(name)
    return _MADE[name]


def clock_step(accelerator: Accelerator) -> float:
    """The step of the clock that stamps events, in seconds: the least difference of two
    events in a row. Between them the device does nothing at first, and then ever longer
    spins, until there is a difference.
    """
    between_s = 0.0
    while between_s < LONGEST_SPIN_S:
        marks = [accelerator.event() for _ in range(CLOCK_EVENTS)]
        accelerator.synchronize()
        accelerator.spin(LEAST_SPIN_S)
        for mark in marks:
            mark.record()
            if between_s:
                accelerator.spin(between_s)
        accelerator.synchronize()
        steps = [after.seconds_since(before) for before, after in pairwise(marks)]
        if any(steps):
            return min(step for step in steps if step)
        between_s = max(1e-6, 4 * between_s)
    return LONGEST_SPIN_S


Calls = Sequence[Callable[[], object]]
MakeCalls = Callable[[int, int], Calls]  # makes those from one number up to another


@dataclass(slots=True)
class DeviceTimer:
    """Measures how long a device works for calls of one subject, without the time that
    the host needs to launch them.

    The calls are queued behind a spin, and timed by events around them. If all are in
    the queue before the spin ends, the device works through them without waiting for
    the host. If not, for instance because other processes disturb the host, it is tried
    again with a longer spin, and then with fewer calls.
    """

    accelerator: Accelerator
    _spin_factor: float = SPIN_FACTOR
    _most_calls: int = MOST_CALLS_OF_QUEUE
    _misses: int = 0  # samples in a row without a device time
    _has_succeeded: bool = False  # whether there ever was a device time
    _clock_step_s: float = 0.0  # 0 until it is measured

    def seconds(
        self,
        make_calls: MakeCalls,
        count: int,
        host_s: float,
        steps: int = 1,
        *,
        cold: bool = False,
    ) -> float | None:
        """Mean seconds of the device for one of `count` calls, of which as many are
        timed as MOST_QUEUED_CALLS allows. Each `cold` call finds the cache flushed.

        `host_s` is about how long the host takes to issue one. None where no queue
        could be timed, or where the time is less than so many `steps` of the clock of
        events. Each time between two events may be wrong by a step, so the error of
        their sum grows with the root of their number, and so does the least time.
        """
        total, done, queues = 0.0, 0, 0
        if not self._clock_step_s:
            self._clock_step_s = clock_step(self.accelerator)
        self._spin_factor, self._most_calls = SPIN_FACTOR, MOST_CALLS_OF_QUEUE
        while done < min(count, MOST_QUEUED_CALLS):
            queue = self._time_queue(make_calls, done, count, host_s, cold)
            if queue is None:
                break
            queue_s, calls = queue
            total, done, queues = total + queue_s, done + calls, queues + 1
        intervals = done if cold else queues  # between two events
        # the total is 0 without a queue, and where all calls run on another stream
        if total <= steps * self._clock_step_s * math.sqrt(intervals):
            self._misses += 1
            return None
        self._misses, self._has_succeeded = 0, True
        return total / done

    @property
    def gives_up(self) -> bool:
        """Whether the device's time can't be had, again and again."""
        return not self._has_succeeded and self._misses >= GIVEN_UP

    def _time_queue(
        self, make_calls: MakeCalls, first: int, count: int, host_s: float, cold: bool
    ) -> tuple[float, int] | None:
        """Time the calls from the number `first` on, as many as a queue may have.
        Return the seconds of the device, and the number of calls; None after TRIES.

        Where the host took longer than the spin, the next try has a longer one, and
        later ones fewer calls too, since a full queue makes the host wait.
        """
        for attempt in range(TRIES):
            number = min(self._most_calls, count - first)
            issue_s = host_s * number
            device_s, queued_s = self._seconds_behind_spin(
                make_calls(first, first + number), self._spin_factor * issue_s, cold
            )
            if device_s is not None:
                return device_s, number
            wanted = SPIN_FACTOR * queued_s / max(issue_s, 1e-9)
            self._spin_factor = max(
                self._spin_factor, min(4 * self._spin_factor, wanted)
            )
            if attempt:
                self._most_calls = max(1, self._most_calls // 8)
        return None

    def _seconds_behind_spin(
        self, calls: Calls, spin_s: float, cold: bool
    ) -> tuple[float | None, float]:
        """Queue the calls behind a spin. Return the seconds of the device for them, and
        the seconds that queueing took.

        `cold` calls have a flush before each, and are timed one by one. The seconds of
        the device are None unless all was queued before the spin was over, and nothing
        else ran on the device.
        """
        accelerator = self.accelerator
        before = accelerator.event()
        timed_together = [[call] for call in calls] if cold else [calls]
        marks = [(accelerator.event(), accelerator.event()) for _ in timed_together]
        accelerator.synchronize()
        begin = accelerator.now()
        before.record()
        accelerator.spin(min(LONGEST_SPIN_S, max(LEAST_SPIN_S, spin_s)))
        for some_calls, (start, end) in zip(timed_together, marks, strict=True):
            if cold:
                accelerator.flush()
                accelerator.spin(DRAIN_S)
            start.record()
            for call in some_calls:
                call()
            end.record()
        queued_s = accelerator.now() - begin
        accelerator.synchronize()
        all_s = accelerator.now() - begin
        first_start, last_end = marks[0][0], marks[-1][1]
        was_held_back = queued_s <= first_start.seconds_since(before)
        was_alone = all_s <= (1 + LATE) * last_end.seconds_since(before) + LATE_S
        if not (was_held_back and was_alone):
            return None, queued_s
        return sum(end.seconds_since(start) for start, end in marks), queued_s


def device_seconds(
    accelerator: Accelerator, call: Callable[[], object], calls: int
) -> float:
    """Mean seconds that the device works for one of so many calls, which only queue
    work. Where DeviceTimer fails, they are timed by events without a spin, which may
    include time to launch them.
    """
    begin = accelerator.now()
    call()
    host = accelerator.now() - begin
    device_s = DeviceTimer(accelerator).seconds(
        lambda first, end: [call] * (end - first), calls, host
    )
    if device_s is not None:
        return device_s
    start, end = accelerator.event(), accelerator.event()
    accelerator.synchronize()
    start.record()
    for _ in range(calls):
        call()
    end.record()
    accelerator.synchronize()
    return end.seconds_since(start) / calls
