"""A device with a queue of its own: its clock, its events, its graphs, its memory. Runs inside a worker.

All that is timed on a device other than the CPU goes through one Accelerator, so that tests can bring a simulated one.
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

from ffnbench.errors import Unsupported

SPUN_S = 0.002  # that a spin is calibrated with, at least
SPINNER = 256  # rows of a product that a spin repeats where the device has no instruction for waiting
INFINITY_CACHE = 1 << 28  # bytes of AMD's largest, which stands behind the cache that HIP tells of
LEAST_CACHE = 1 << 25  # bytes, where the device does not tell what its last cache holds


class CaptureFailed(Exception):
    """What was called can't be captured: it waits for the device, copies to the host, or the device has no graphs."""


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
    """One device, by what torch offers for every kind: of torch.xpu, torch.mps and torch.cuda, what each has.

    `name` is as in `--device`, `device` is where its tensors live. What is not said to wait only queues work.
    """

    def __init__(self, name: str) -> None:
        kind, _, index = name.partition(":")
        self.name, self._torch = name, getattr(torch, kind)
        self.device = torch.device(name if index or kind == "mps" else f"{kind}:0")
        self._where = () if kind == "mps" else (self.device,)  # torch.mps knows one device, and takes none
        self._buffer: Tensor | None = None
        self._spinner: tuple[Tensor, Tensor] | None = None
        self._rate = 0.0  # units of spinning a second

    def settle(self) -> None:
        """Make it the current device: events are recorded on that."""
        if hasattr(self._torch, "set_device"):
            self._torch.set_device(self.device.index)

    def now(self) -> float:
        """Seconds of the host's clock."""
        return clock()

    def synchronize(self) -> None:
        """Wait for all that is queued, on every stream."""
        self._torch.synchronize(*self._where)

    def event(self) -> Event:
        """A new mark; it is recorded on the current stream."""
        kind = getattr(self._torch, "Event", None) or self._torch.event.Event
        return Event(kind(enable_timing=True))

    def spin(self, seconds: float) -> None:
        """Queue work that takes about so long and does nothing else."""
        if not self._rate:
            self._rate = self._calibrated()
        self._spin(max(1, round(seconds * self._rate)))

    def capture(self, work: Callable[[], object]) -> Replay:
        """A graph of what `work` queues; what that returns stays alive with it. Raises CaptureFailed: of these kinds
        of device none has graphs that torch can capture.
        """
        raise CaptureFailed(f"torch has no graphs that can be captured on {self.name}")

    def flush(self) -> None:
        """Queue a write of twice what the last cache holds."""
        if self._buffer is None:
            size = 2 * max(LEAST_CACHE if torch.version.hip is None else INFINITY_CACHE, self.cache_bytes())
            self._buffer = torch.empty(size, dtype=torch.uint8, device=self.device)
        self._buffer.zero_()

    def cache_bytes(self) -> int:
        """What its last cache holds, 0 where it does not tell."""
        asked = getattr(self._torch, "get_device_properties", None)
        properties = asked(self.device) if asked else None
        return int(getattr(properties, "L2_cache_size", 0) or getattr(properties, "last_level_cache_size", 0) or 0)

    def rng_state(self) -> Tensor:
        """The state that random numbers on it come from."""
        state: Tensor = self._torch.get_rng_state(*self._where)
        return state

    def set_rng_state(self, state: Tensor) -> None:
        """Go on from that state."""
        self._torch.set_rng_state(state, *self._where)

    def requested_bytes(self) -> int:
        """Bytes of living tensors as they were asked for, without the allocator's rounding."""
        if self.device.type == "mps":
            return int(self._torch.current_allocated_memory())
        return self._counted("requested_bytes.all.current")

    def peak_requested_bytes(self) -> int:
        """The most of them since `reset_peak`; raises Unsupported where torch keeps no count."""
        return self._counted("requested_bytes.all.peak")

    def reset_peak(self) -> None:
        """Forget the peak; raises Unsupported where torch keeps none."""
        if not hasattr(self._torch, "reset_peak_memory_stats"):
            raise Unsupported(f"torch counts no peak of memory on {self.name}")
        self._torch.reset_peak_memory_stats(self.device)

    def free_bytes(self) -> int | None:
        """What the driver has left, and what torch's allocator holds and nobody uses; None where it is not known."""
        if self.device.type == "mps":
            return int(self._torch.recommended_max_memory() - self._torch.current_allocated_memory())
        try:
            free, _ = self._torch.mem_get_info(self.device)
        except (AttributeError, RuntimeError, AssertionError):  # some drivers do not tell, nor a torch without any
            return None
        return int(free + self._torch.memory_reserved(self.device) - self._torch.memory_allocated(self.device))

    def release_workspaces(self) -> None:
        """Give back the memory that the device's libraries keep for themselves, where torch can tell them to."""

    def _counted(self, key: str) -> int:
        if not hasattr(self._torch, "memory_stats"):
            raise Unsupported(f"torch counts no requested bytes on {self.name}")
        return int(self._torch.memory_stats(self.device).get(key, 0))

    def _spin(self, units: int) -> None:
        """A product over and over: it neither waits for the host nor reads more than a cache holds."""
        if self._spinner is None:
            one = torch.ones(SPINNER, SPINNER, device=self.device)
            self._spinner = one, torch.empty_like(one)
        one, into = self._spinner
        for _ in range(units):
            torch.mm(one, one, out=into)

    def _calibrated(self) -> float:
        """Units a second, by events around ever more units, until they take long enough to be told."""
        units, start, end = 1, self.event(), self.event()
        with torch.no_grad():
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


class CudaAccelerator(Accelerator):
    """CUDA, and ROCm, which torch calls by the same names: with graphs, and an instruction that waits."""

    def release_workspaces(self) -> None:
        """Those of cuBLAS, by the function that torch's own graph trees call."""
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

    def _spin(self, units: int) -> None:
        """A unit is 1,000 cycles of the clock that `_sleep` reads."""
        torch.cuda._sleep(1000 * units)


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


# by the kind of device; tests put theirs here
MAKERS: dict[str, Callable[[str], Accelerator]] = {"cuda": CudaAccelerator, "xpu": Accelerator, "mps": Accelerator}
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


def known_device(name: str) -> str:
    """The name of a workload's device; of `auto` what that is in this process."""
    if name != "auto":
        return name
    found = torch.accelerator.current_accelerator(check_available=True)
    return found.type if found else "cpu"


def place_of(device: str) -> torch.device:
    """Where tensors of a workload's device live."""
    found = accelerator_of(device)
    return torch.device(device) if found is None else found.device
