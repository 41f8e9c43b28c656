"""A device with a queue of its own: its clock, its events, its graphs, its memory. Runs inside a worker.

All that is timed on a device other than the CPU goes through one Accelerator, so that tests can bring a simulated one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch


class Event(Protocol):
    """A mark in the queue of the device."""

    def record(self) -> None:
        """Put it behind all that is queued."""
        ...

    def seconds_since(self, start: Event) -> float:
        """Seconds of the device between two marks that it has passed."""
        ...


class Replay(Protocol):
    """A graph of device work that was captured once: replaying it launches all of it at once."""

    def replay(self) -> None:
        """Queue the work."""
        ...


class CaptureFailed(Exception):
    """What was called can't be captured: it waits for the device, copies to the host, or the device has no graphs."""


class Accelerator(Protocol):
    """One device. Every method but `now` and those that read memory only queues work, unless it says otherwise."""

    name: str  # cuda:0
    device: torch.device  # where its tensors live

    def settle(self) -> None:
        """Make it the current device."""
        ...

    def now(self) -> float:
        """Seconds of the host's clock."""
        ...

    def synchronize(self) -> None:
        """Wait for all that is queued, on every stream."""
        ...

    def event(self) -> Event:
        """A new mark."""
        ...

    def spin(self, seconds: float) -> bool:
        """Queue work that takes about so long and does nothing else; False where the device has none such."""
        ...

    def capture(self, work: Callable[[], object]) -> Replay:
        """A graph of what `work` queues. What it returns stays alive with the graph. Raises CaptureFailed."""
        ...

    def flush(self) -> None:
        """Queue a write of more bytes than the last-level cache holds."""
        ...

    def rng_state(self) -> torch.Tensor:
        """The state that random numbers on it come from."""
        ...

    def set_rng_state(self, state: torch.Tensor) -> None:
        """Go on from that state."""
        ...

    def requested_bytes(self) -> int:
        """Bytes of living tensors as they were asked for, without the allocator's rounding."""
        ...

    def peak_requested_bytes(self) -> int:
        """The most of them since `reset_peak`."""
        ...

    def reset_peak(self) -> None:
        """Forget the peak."""
        ...

    def free_bytes(self) -> int | None:
        """Bytes that can still be allocated; None where that is not known."""
        ...


MAKERS: dict[str, Callable[[str], Accelerator]] = {}  # by the kind of device: cuda, xpu, mps; tests put theirs here
_MADE: dict[str, Accelerator] = {}


def accelerator_of(device: str | torch.device) -> Accelerator | None:
    """The one accelerator of that name in this process; None for the CPU."""
    name = str(device)
    kind = name.partition(":")[0]
    if kind not in MAKERS:
        return None
    if name not in _MADE:
        _MADE[name] = MAKERS[kind](name)
    return _MADE[name]
