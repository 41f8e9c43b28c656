"""A GPU as torch.cuda offers it (ROCm's too): its clock, events and memory. Runs inside a worker.

All that is timed on it goes through one Accelerator, so that tests can bring a simulated one.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter as clock
from typing import Any

import torch
from torch import Tensor

SPUN_S = 0.002  # that a spin is calibrated with, at least
INFINITY_CACHE = 1 << 28  # bytes of AMD's largest, which stands behind the cache that HIP tells of
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
    """One GPU. `device` is where its tensors live. What is not said to wait only queues work."""

    def __init__(self, name: str) -> None:
        self.device = torch.device(name if ":" in name else f"{name}:0")
        self._buffer: Tensor | None = None
        self._rate = 0.0  # units of spinning a second

    def settle(self) -> None:
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
        """Units a second, by events around ever more units, until they take long enough to be told."""
        units, start, end = 1, self.event(), self.event()
        self._spin(units)
        for _ in range(64):
            self.synchronize()
            start.record()
            self._spin(units)
            end.record()
            self.synchronize()
            if (seconds := end.seconds_since(start)) >= SPUN_S:
                break
            units *= 2
        return units / max(seconds, 1e-9)

    def flush(self) -> None:
        """Queue a write of twice what the last cache holds."""
        if self._buffer is None:
            size = 2 * max(LEAST_CACHE if torch.version.hip is None else INFINITY_CACHE, self.cache_bytes())
            self._buffer = torch.empty(size, dtype=torch.uint8, device=self.device)
        self._buffer.zero_()

    def cache_bytes(self) -> int:
        """What its last cache holds, 0 where it does not tell."""
        return int(getattr(torch.cuda.get_device_properties(self.device), "L2_cache_size", 0))

    def rng_state(self) -> Tensor:
        """The state that random numbers on it come from."""
        return torch.cuda.get_rng_state(self.device)

    def set_rng_state(self, state: Tensor) -> None:
        """Go on from that state."""
        torch.cuda.set_rng_state(state, self.device)

    def requested_bytes(self) -> int:
        """Bytes of living tensors as they were asked for, without the allocator's rounding."""
        return int(torch.cuda.memory_stats(self.device).get("requested_bytes.all.current", 0))

    def peak_requested_bytes(self) -> int:
        """The most of them since `reset_peak`."""
        return int(torch.cuda.memory_stats(self.device).get("requested_bytes.all.peak", 0))

    def reset_peak(self) -> None:
        """Forget the peak."""
        torch.cuda.reset_peak_memory_stats(self.device)

    def free_bytes(self) -> int:
        """What the driver has left, and what torch's allocator holds and nobody uses."""
        free, _ = torch.cuda.mem_get_info(self.device)
        return int(free + torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device))


MAKE = Accelerator  # tests put theirs here
_MADE: dict[str, Accelerator] = {}


def accelerator_of(device: str | torch.device) -> Accelerator | None:
    """The one accelerator of that name in this process; None for the CPU."""
    name = str(device)
    if not name.startswith("cuda"):
        return None
    if name not in _MADE:
        _MADE[name] = MAKE(name)
    return _MADE[name]


def known_device(name: str) -> str:
    """The name of a workload's device; of `auto` what that is in this process."""
    return ("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name


def place_of(device: str) -> torch.device:
    """Where tensors of a workload's device live."""
    found = accelerator_of(device)
    return torch.device(device) if found is None else found.device
