"""A GPU as torch.cuda offers it (ROCm's too): its clock, events and memory, what it
works for a call, and its errors.

All that is timed on it goes through one Accelerator, so that tests can bring a
simulated one. Runs inside a worker that uses one; nothing of it is loaded for the CPU
(device/environment.py: accelerator_of).
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

STICKY = re.compile(r"(CUDA|HIP) error|device-side assert|Triton Error \[(CUDA|HIP)\]")
# what torch and the libraries say where the device's memory is full; the context stays
# whole then
FULL = re.compile(
    r"out of memory|CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED|rocblas_status_memory_error",
    re.I,
)


def _chain(problem: BaseException | None) -> Iterator[BaseException]:
    """It, and what it was raised from or while: user code may dress an error as one of
    its own.
    """
    for _ in range(100):  # one that is its own cause has no end
        if problem is not None:
            yield problem
            problem = problem.__cause__ or problem.__context__


def device_error(problem: BaseException) -> str:
    """What broke the device's context, in one line; "" where it was nothing such.

    Afterwards every call of this process on the device fails with it, whoever makes it.
    """
    for cause in _chain(problem):
        text = str(cause)
        is_sticky = isinstance(cause, RuntimeError) and STICKY.search(text) is not None
        is_of_device = is_sticky or type(cause).__name__ == "AcceleratorError"
        if is_of_device and not FULL.search(text):
            return first_line(text)
    return ""


def is_full(problem: BaseException) -> bool:
    """Whether the device's memory was too little."""
    full = isinstance(problem, RuntimeError) and FULL.search(str(problem)) is not None
    return full or type(problem).__name__ == "OutOfMemoryError"


def first_line(text: str) -> str:
    """An error of a device without the advice that follows it in every message, in
    lines or sentences.
    """
    for line in text.splitlines():
        if line.strip():
            return line.strip().partition(" Including non-PyTorch")[0]
    return ""


SPUN_S = 0.002  # that a spin is calibrated with, at least
# bytes of AMD's largest, which stands behind the cache that HIP tells of
INFINITY_CACHE = 1 << 28
LEAST_CACHE = 1 << 25  # bytes, where the device does not tell what its last cache holds


@dataclass(frozen=True, slots=True)
class Event:
    """A mark in the queue of the device."""

    of_torch: Any

    def record(self) -> None:
        """Put it behind all that is queued."""
        self.of_torch.record()

    def seconds_since(self, start: Event) -> float:
        """Seconds of the device between two marks that it has passed."""
        return float(start.of_torch.elapsed_time(self.of_torch)) / 1e3


class Accelerator:
    """One GPU. `device` is where its tensors live. What is not said to wait only queues
    work.
    """

    def __init__(self, name: str) -> None:
        self.device = torch.device(name if ":" in name else f"{name}:0")
        self._buffer: Tensor | None = None
        self._rate = 0.0  # units of spinning a second

    def make_current(self) -> None:
        """Make it the current device: events are recorded on that."""
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
        """Queue work that takes about so long and does nothing else."""
        if not self._rate:
            self._rate = self._calibrated()
        self._spin(max(1, round(seconds * self._rate)))

    def _spin(self, units: int) -> None:
        """A unit is 1,000 cycles of the clock that `_sleep` reads."""
        torch.cuda._sleep(1000 * units)

    def _calibrated(self) -> float:
        """Units a second, by events around ever more units, until they take long enough
        to be told.
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
        """Queue a write of twice what the last cache holds."""
        if self._buffer is None:
            size = 2 * max(
                LEAST_CACHE if torch.version.hip is None else INFINITY_CACHE,
                self.cache_bytes(),
            )
            self._buffer = torch.empty(size, dtype=torch.uint8, device=self.device)
        self._buffer.zero_()

    def cache_bytes(self) -> int:
        """What its last cache holds, 0 where it does not tell."""
        return int(
            getattr(torch.cuda.get_device_properties(self.device), "L2_cache_size", 0)
        )

    def rng_state(self) -> Tensor:
        """The state that random numbers on it come from."""
        return torch.cuda.get_rng_state(self.device)

    def requested_bytes(self) -> int:
        """Bytes of living tensors as they were asked for, without the allocator's
        rounding.
        """
        return int(
            torch.cuda.memory_stats(self.device).get("requested_bytes.all.current", 0)
        )

    def peak_requested_bytes(self) -> int:
        """The most of them since `reset_peak`."""
        return int(
            torch.cuda.memory_stats(self.device).get("requested_bytes.all.peak", 0)
        )

    def reset_peak(self) -> None:
        """Forget the peak."""
        torch.cuda.reset_peak_memory_stats(self.device)

    def free_bytes(self) -> int:
        """What the driver has left, and what torch's allocator holds and nobody
        uses.
        """
        free, _ = torch.cuda.mem_get_info(self.device)
        return int(
            free
            + torch.cuda.memory_reserved(self.device)
            - torch.cuda.memory_allocated(self.device)
        )


MAKE = Accelerator  # tests put theirs here
_MADE: dict[str, Accelerator] = {}


def of_name(name: str) -> Accelerator:
    """The one accelerator of that name in this process."""
    if name not in _MADE:
        _MADE[name] = MAKE(name)
    return _MADE[name]


UNROLLED = 64  # calls of a queue, at most
# calls of a sample that are timed from queues, at most: launching takes the host its
# time
QUEUED = 128
TRIES = 4
SPIN_MARGIN = 2.0  # times what launching is known to take, of a spin
LEAST_SPIN_S = 2e-4
LONGEST_SPIN_S = 1.0
# of what was queued, by which waiting for all of the device may take longer
LATE, LATE_S = 0.25, 0.0003
DRAIN_S = 2e-5  # after a flush, until nothing of it is under way
CLOCK_EVENTS = 16  # events by which a step of their clock is found
GIVEN_UP = 2  # samples in a row that could not be held back, none before them


def clock_step(accelerator: Accelerator) -> float:
    """The step of the clock that stamps events, seconds: the least by which events one
    after another differ, between which the device does nothing at first, and then more
    and more.
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
# the calls from one number up to another, ready to be issued
Make = Callable[[int, int], Calls]


@dataclass(slots=True)
class DeviceTimer:
    """Of one subject."""

    accelerator: Accelerator
    # of a spin, and calls of a queue at most: a disturbed host asks for more, and for
    # fewer
    _room: float = SPIN_MARGIN
    _most: int = UNROLLED
    _missed: int = 0
    _known: bool = False  # whether a time of the device was ever known
    _step_s: float = 0.0  # of the clock of events

    def seconds(
        self,
        make: Make,
        count: int,
        host_s: float,
        steps: int = 1,
        *,
        cold: bool = False,
    ) -> float | None:
        """Mean seconds of the device for one of `count` calls; None where they can't be
        had apart, or are so short that the clock of events makes fewer steps. `host_s`
        is about what issuing one takes. Of `cold` calls each finds the cache flushed.
        """
        total, done, queues = 0.0, 0, 0
        if not self._step_s:
            self._step_s = clock_step(self.accelerator)
        self._room, self._most = SPIN_MARGIN, UNROLLED
        while done < min(count, QUEUED):
            queue = self._queue(make, done, count, host_s, cold)
            if queue is None:
                break
            queue_s, calls = queue
            total, done, queues = total + queue_s, done + calls, queues + 1
        # nothing, where all is beside
        if total <= steps * self._step_s * math.sqrt(done if cold else queues):
            self._missed += 1
            return None
        self._missed, self._known = 0, True
        return total / done

    @property
    def gives_up(self) -> bool:
        """Whether the device's time is not to be had, again and again."""
        return not self._known and self._missed >= GIVEN_UP

    def _queue(
        self, make: Make, first: int, count: int, host_s: float, cold: bool
    ) -> tuple[float, int] | None:
        """Seconds of one queue that all was in before its first began, and its calls:
        where the host took longer than the spin, with more room, and then with fewer
        calls, since a queue that is full makes the host wait.
        """
        for attempt in range(TRIES):
            number = min(self._most, count - first)
            device_s, queued_s = self._held_back(
                make(first, first + number), self._room * host_s * number, cold
            )
            if device_s is not None:
                return device_s, number
            self._room = max(
                self._room,
                min(
                    4 * self._room, SPIN_MARGIN * queued_s / max(host_s * number, 1e-9)
                ),
            )
            if attempt:
                self._most = max(1, self._most // 8)
        return None

    def _held_back(
        self, calls: Calls, spin_s: float, cold: bool
    ) -> tuple[float | None, float]:
        """Seconds of the device for these calls behind a spin, each between marks of
        its own where the cache is flushed before it; None unless all was queued before
        the spin was over, and nothing ran beside the queue. And the seconds that
        queueing took.
        """
        accelerator = self.accelerator
        before = accelerator.event()
        marks = [
            (accelerator.event(), accelerator.event())
            for _ in (calls if cold else range(1))
        ]
        accelerator.synchronize()
        begin = accelerator.now()
        before.record()
        accelerator.spin(min(LONGEST_SPIN_S, max(LEAST_SPIN_S, spin_s)))
        for number, (start, end) in enumerate(marks):
            if cold:
                accelerator.flush()
                accelerator.spin(DRAIN_S)
            start.record()
            for call in calls[number : number + 1] if cold else calls:
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
    """Mean seconds that the device works for one of so many calls that wait for
    nothing. By marks alone where a spin can't hold them back: what launching takes may
    be inside then.
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
