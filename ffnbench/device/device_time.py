"""What a device works for a call, without what the host takes to launch it. Runs inside a worker; needs no torch.

From a graph of several calls that was captured once, where capture works; else from calls that stand in the queue
behind a spin, so that the last is queued before the first begins. A call that waits for the device itself can't be held
back so: its device time can't be had apart.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from ffnbench.device.accelerator import Accelerator, CaptureFailed, Replay

GRAPH, QUEUE = "graph", "queue"
UNROLLED = 64  # calls of a graph, or of a queue, at most
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
class _Span:
    """Seconds between marks behind a spin; `apart` is whether all was queued before the spin was over, and nothing ran
    beside the queue."""

    seconds: float
    apart: bool
    queued_s: float


@dataclass(slots=True)
class DeviceTimer:
    """Of one subject. `why_not` says why its calls can't be captured, "" while nothing speaks against it."""

    accelerator: Accelerator
    why_not: str = ""
    quiet: bool = False  # whether `why_not` is nothing that a reader should know
    _replay: Replay | None = None
    _key: Hashable = None
    _launch_s: float = 0.0  # of a replay
    _room: float = ROOM  # of a spin, and calls of a queue at most: a disturbed host asks for more, and for fewer
    _most: int = UNROLLED
    _missed: int = 0
    _held: bool = False  # whether a queue was ever held back

    def forget(self) -> None:
        """Let go of the graph: what it reads and writes is moved."""
        self._replay, self._key = None, None

    def capture(self, key: Hashable, work: Callable[[], object], same: Callable[[Replay], bool]) -> bool:
        """Whether there is a graph of this work; it is captured once for a key. `same` is whether a replay does what
        the work does.
        """
        if self.why_not:
            return False
        if self._replay is None or self._key != key:
            self.forget()
            try:
                replay = self.accelerator.capture(work)
                if not same(replay):
                    raise CaptureFailed("a replay does not give what a call gives")
            except CaptureFailed as problem:
                self.why_not = str(problem)
                return False
            self._replay, self._key = replay, key
        return True

    def replayed(self, times: int) -> float | None:
        """Seconds of the device for so many replays one after another."""
        assert self._replay is not None
        replay = self._replay.replay

        def work() -> None:
            for _ in range(times):
                replay()

        return self._behind(work, times)

    def replayed_cold(self, times: int) -> float | None:
        """Seconds of the device for so many replays, the cache flushed before each."""
        assert self._replay is not None
        cold = _Cold(self.accelerator, [self._replay.replay] * times)
        return None if self._behind(cold.work, times) is None else cold.seconds

    def _behind(self, work: Callable[[], None], times: int) -> float | None:
        for _ in range(TRIES):
            span = self._span(work, ROOM * self._launch_s * times)
            self._launch_s = max(self._launch_s, span.queued_s / times)
            if span.apart:
                return span.seconds
        return None

    def queued(self, make: Make, count: int, host_s: float, *, cold: bool = False) -> tuple[float, int] | None:
        """Seconds of the device for some of `count` calls, and how many; None where they can't be had apart. `host_s`
        is about what issuing one takes.
        """
        total, done = 0.0, 0
        self._room, self._most = ROOM, UNROLLED
        while done < min(count, QUEUED):
            found = self._queue(make, done, count, host_s, cold)
            if found is None:
                break
            total, done = total + found[0], done + found[1]
        self._missed = 0 if done else self._missed + 1
        return (total, done) if done else None

    @property
    def gives_up(self) -> bool:
        """Whether calls can't be held back, again and again."""
        return not self._held and self._missed >= GIVEN_UP

    def _queue(self, make: Make, first: int, count: int, host_s: float, cold: bool) -> tuple[float, int] | None:
        """One queue that all was in before its first began: where the host took longer than the spin, with more room,
        and then with fewer calls, since a queue that is full makes the host wait.
        """
        for attempt in range(TRIES):
            number = min(self._most, count - first)
            calls = make(first, first + number)
            timed = _Cold(self.accelerator, calls) if cold else None
            span = self._span(timed.work if timed else _each(calls), self._room * host_s * number)
            if span.apart:
                self._held = True
                return (timed.seconds if timed else span.seconds), number
            self._room = max(self._room, min(4 * self._room, ROOM * span.queued_s / max(host_s * number, 1e-9)))
            if attempt:
                self._most = max(1, self._most // 8)
        return None

    def _span(self, work: Callable[[], None], spin_s: float) -> _Span:
        accelerator = self.accelerator
        before, start, end = (accelerator.event() for _ in range(3))
        accelerator.synchronize()
        begin = accelerator.now()
        before.record()
        accelerator.spin(min(LONGEST_SPIN_S, max(LEAST_SPIN_S, spin_s)))
        start.record()
        work()
        end.record()
        queued = accelerator.now() - begin
        accelerator.synchronize()
        whole = accelerator.now() - begin
        told = end.seconds_since(before)
        apart = queued <= start.seconds_since(before) and whole <= (1 + LATE) * told + LATE_S
        return _Span(end.seconds_since(start), apart, queued)


class _Cold:
    """Calls that each find the cache flushed, and are timed by marks of their own."""

    def __init__(self, accelerator: Accelerator, calls: Calls) -> None:
        self._accelerator, self._calls = accelerator, calls
        self._marks = [(accelerator.event(), accelerator.event()) for _ in calls]

    def work(self) -> None:
        """Queue all of them."""
        for (start, end), call in zip(self._marks, self._calls, strict=True):
            self._accelerator.flush()
            start.record()
            call()
            end.record()

    @property
    def seconds(self) -> float:
        """Of all calls, once the device has made them."""
        return sum(end.seconds_since(start) for start, end in self._marks)


def device_seconds(accelerator: Accelerator, call: Callable[[], object], calls: int) -> float:
    """Mean seconds that the device works for one of so many calls that wait for nothing. By marks alone where a spin
    can't hold them back: what launching takes may be inside then.
    """
    begin = accelerator.now()
    call()
    host = accelerator.now() - begin
    found = DeviceTimer(accelerator).queued(lambda first, end: [call] * (end - first), calls, host)
    if found is not None:
        return found[0] / found[1]
    start, end = accelerator.event(), accelerator.event()
    accelerator.synchronize()
    start.record()
    for _ in range(calls):
        call()
    end.record()
    accelerator.synchronize()
    return end.seconds_since(start) / calls


def _each(calls: Calls) -> Callable[[], None]:
    def work() -> None:
        for call in calls:
            call()

    return work
