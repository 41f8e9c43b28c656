"""What a device works for a call, without what the host takes to launch it. Runs inside a worker; needs no torch.

From calls that stand in the queue behind a spin, so that the last is queued before the first begins. A call that waits
for the device itself can't be held back so: its device time can't be had apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ffnbench.device.accelerator import Accelerator

UNROLLED = 64  # calls of a queue, at most
QUEUED = 128  # calls of a sample that are timed from queues, at most: launching takes the host its time
TRIES = 4
ROOM = 2.0  # times what launching is known to take, of a spin
LEAST_SPIN_S = 2e-4
LONGEST_SPIN_S = 1.0
LATE, LATE_S = 0.25, 0.01  # of what was queued, by which waiting for all of the device may take longer
GIVEN_UP = 2  # samples in a row that could not be held back, none before them

Calls = Sequence[Callable[[], object]]
Make = Callable[[int, int], Calls]  # the calls from one number up to another, ready to be issued


@dataclass(slots=True)
class DeviceTimer:
    """Of one subject."""

    accelerator: Accelerator
    _room: float = ROOM  # of a spin, and calls of a queue at most: a disturbed host asks for more, and for fewer
    _most: int = UNROLLED
    _missed: int = 0
    _held: bool = False  # whether a queue was ever held back

    def seconds(self, make: Make, count: int, host_s: float, *, cold: bool = False) -> float | None:
        """Mean seconds of the device for one of `count` calls; None where they can't be had apart. `host_s` is about
        what issuing one takes. Of `cold` calls each finds the cache flushed.
        """
        total, done = 0.0, 0
        self._room, self._most = ROOM, UNROLLED
        while done < min(count, QUEUED):
            found = self._queue(make, done, count, host_s, cold)
            if found is None:
                break
            total, done = total + found[0], done + found[1]
        self._missed = 0 if done else self._missed + 1
        return total / done if done else None

    @property
    def gives_up(self) -> bool:
        """Whether calls can't be held back, again and again."""
        return not self._held and self._missed >= GIVEN_UP

    def _queue(self, make: Make, first: int, count: int, host_s: float, cold: bool) -> tuple[float, int] | None:
        """Seconds of one queue that all was in before its first began, and its calls: where the host took longer than
        the spin, with more room, and then with fewer calls, since a queue that is full makes the host wait.
        """
        for attempt in range(TRIES):
            number = min(self._most, count - first)
            found, queued_s = self._held_back(make(first, first + number), self._room * host_s * number, cold)
            if found is not None:
                self._held = True
                return found, number
            self._room = max(self._room, min(4 * self._room, ROOM * queued_s / max(host_s * number, 1e-9)))
            if attempt:
                self._most = max(1, self._most // 8)
        return None

    def _held_back(self, calls: Calls, spin_s: float, cold: bool) -> tuple[float | None, float]:
        """Seconds of the device for these calls behind a spin, each between marks of its own where the cache is flushed
        before it; None unless all was queued before the spin was over, and nothing ran beside the queue. And the
        seconds that queueing took.
        """
        accelerator = self.accelerator
        before = accelerator.event()
        marks = [(accelerator.event(), accelerator.event()) for _ in (calls if cold else range(1))]
        accelerator.synchronize()
        begin = accelerator.now()
        before.record()
        accelerator.spin(min(LONGEST_SPIN_S, max(LEAST_SPIN_S, spin_s)))
        for number, (start, end) in enumerate(marks):
            if cold:
                accelerator.flush()
            start.record()
            for call in calls[number : number + 1] if cold else calls:
                call()
            end.record()
        queued = accelerator.now() - begin
        accelerator.synchronize()
        whole = accelerator.now() - begin
        told = marks[-1][1].seconds_since(before)
        apart = queued <= marks[0][0].seconds_since(before) and whole <= (1 + LATE) * told + LATE_S
        return sum(end.seconds_since(start) for start, end in marks) if apart else None, queued


def device_seconds(accelerator: Accelerator, call: Callable[[], object], calls: int) -> float:
    """Mean seconds that the device works for one of so many calls that wait for nothing. By marks alone where a spin
    can't hold them back: what launching takes may be inside then.
    """
    begin = accelerator.now()
    call()
    host = accelerator.now() - begin
    found = DeviceTimer(accelerator).seconds(lambda first, end: [call] * (end - first), calls, host)
    if found is not None:
        return found
    start, end = accelerator.event(), accelerator.event()
    accelerator.synchronize()
    start.record()
    for _ in range(calls):
        call()
    end.record()
    accelerator.synchronize()
    return end.seconds_since(start) / calls
