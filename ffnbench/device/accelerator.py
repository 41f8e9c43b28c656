"""A GPU as torch.cuda offers it (ROCm's too): its clock, events, graphs and memory. Runs inside a worker.

All that is timed on it goes through one Accelerator, so that tests can bring a simulated one.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter as clock
from typing import Any

import torch
from torch import Tensor

SPUN_S = 0.002  # that a spin is calibrated with, at least
INFINITY_CACHE = 1 << 28  # bytes of AMD's largest, which stands behind the cache that HIP tells of
LEAST_CACHE = 1 << 25  # bytes, where the device does not tell what its last cache holds


class CaptureFailed(Exception):
    """What was called can't be captured: it waits for the device, or copies to the host."""


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


@dataclass(frozen=True, slots=True)
class Replay:
    """A graph of device work that was captured once: replaying it launches all of it at once."""

    graph: Any
    kept: object  # what the graph writes stays alive with it

    def replay(self) -> None:
        """Queue the work."""
        self.graph.replay()


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
        return free + torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)

    def release_workspaces(self) -> None:
        """Give back the memory that cuBLAS keeps, by the function that torch's own graph trees call."""
        if release := getattr(torch._C, "_cuda_clearCublasWorkspaces", None):
            release()

    def capture(self, work: Callable[[], object]) -> Replay:
        """Warm up on a side stream, as torch asks. What waits for the device is found there, before a capture begins:
        one that breaks off may leave random numbers unusable.
        https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs
        """
        stream, graph, begun = torch.cuda.Stream(self.device), torch.cuda.CUDAGraph(), False
        try:
            stream.wait_stream(torch.cuda.current_stream(self.device))
            with torch.cuda.stream(stream), _nothing_waits():
                work()  # once: it is warm, but the matrix library has a workspace for each stream
            torch.cuda.current_stream(self.device).wait_stream(stream)
            self.synchronize()
            gc.collect()  # what is collected during a capture could not be freed
            with torch.cuda.stream(stream), _no_collection(), self._workspaces_of_its_own():
                begun = True
                graph.capture_begin(capture_error_mode="global")
                try:
                    kept = work()
                except BaseException:
                    _end(graph)
                    raise
                graph.capture_end()
        except Exception as problem:
            self.synchronize()
            if begun:
                self._mend(stream)
            first = next(iter(str(problem).strip().splitlines()), type(problem).__name__)  # torch adds advice
            raise CaptureFailed(first.strip()[:200]) from problem
        return Replay(graph, kept)

    @contextmanager
    def _workspaces_of_its_own(self) -> Iterator[None]:
        """What the matrix library takes in here is memory of the graph, which no call after it uses or gives back."""
        self.release_workspaces()
        try:
            yield
        finally:
            self.release_workspaces()

    def _mend(self, stream: Any) -> None:
        """Capture a trifle: one that ends well takes the generator of random numbers out of one that broke off."""
        one, graph = torch.empty(1, device=self.device), torch.cuda.CUDAGraph()
        with torch.cuda.stream(stream):
            graph.capture_begin()
            one.zero_()
            graph.capture_end()
        self.synchronize()


@contextmanager
def _nothing_waits() -> Iterator[None]:
    """Operations of torch that would wait for the device raise RuntimeError in here."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that it does not find all of them
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


@contextmanager
def _no_collection() -> Iterator[None]:
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _end(graph: Any) -> None:
    """End a capture that has failed: the stream takes work again."""
    try:
        graph.capture_end()
    except Exception:  # it says once more that the capture is not valid
        return


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
