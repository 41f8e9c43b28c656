"""The calls of roofs: made from their description, tried, and timed. Runs in a worker; needs torch.

Operands are random and never zeros, and are views of one buffer a dtype: only one call is timed at a time. OpenBLAS is
reached through the numpy that torch has loaded, with the threads that are asked for; its own threads are ended after
each sample, because they would spin on the CPUs that the next call needs.
"""

from __future__ import annotations

import ctypes
import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache, partial
from time import perf_counter, sleep
from typing import Any

import torch
from torch import Tensor, nn

from ffnbench.backends.onednn import unavailable
from ffnbench.device.accelerator import accelerator_of, place_of
from ffnbench.device.ceilings import AGAIN, MATVEC, MM, MV, ONEDNN, OPENBLAS, SUM, SUM_INT, group_of, matrix_of
from ffnbench.device.device_time import device_seconds
from ffnbench.device.waiting import WaitMeter, threads_of
from ffnbench.result import Bound, Roof
from ffnbench.stats.ceilings import MEMORY, read_bytes
from ffnbench.stats.rounds import WAITED
from ffnbench.worker import meters, precision

Call = Callable[[], Any]
Reached = tuple[Roof, float, int]  # seconds of a call, and the calls of a sample
SAMPLE_S = 0.003  # of one sample: a case's is 10 ms, but there are more roofs than cases
TRIED = 3  # calls of a candidate that are timed, and then as many more of the best
WEIGHTS = {Bound.PRODUCTS: 4}  # of a group's share of the time; others have 1
KEPT_READS = 2
FAR = 0.4  # of the best rate: a path that is slower on small shapes is not tried on larger ones
NEAR = 0.03  # of the best rate: what a look of a few calls can't tell apart
SPIN_S = 0.02  # that torch's threads spin on after their work, at most
BLOCK = 1 << 18  # elements that are drawn; the rest repeats them
CANNOT = (RuntimeError, TypeError, ValueError, AttributeError, MemoryError, OSError)  # what a missing path raises
BLAS_PATHS = (OPENBLAS, MATVEC)
BLAS_THREADS = (
    "scipy_openblas_{}_num_threads64_", "scipy_openblas_{}_num_threads", "openblas_{}_num_threads64_",
    "openblas_{}_num_threads",
)  # fmt: skip


@dataclass(slots=True)
class Ceilings:
    """The roofs of one worker: their calls are kept once they are made."""

    _made: dict[str, Call] = field(default_factory=dict)
    _buffers: dict[tuple[str, str], Tensor] = field(default_factory=dict)  # by dtype and device

    def explore(self, roofs: Sequence[Roof], seconds: float, keep: int | None, waits: WaitMeter) -> list[Reached]:
        """The `keep` fastest of each group, or the best of each path.

        Groups share the time, those of products with the greatest parts. Each candidate has a few calls; one that would
        take longer than what is left is passed over, and so is one that this machine can't run.
        """
        groups: dict[tuple[str | int, ...], list[Roof]] = {}
        for roof in roofs:
            groups.setdefault(group_of(roof), []).append(roof)
        found, end = list[Reached](), perf_counter() + seconds
        parts = [WEIGHTS.get(group[0].bound, 1) for group in groups.values()]
        for place, group in enumerate(groups.values()):
            share = max(0.0, end - perf_counter()) * parts[place] / sum(parts[place:])
            most = keep if keep is None or group[0].bound is Bound.PRODUCTS else min(keep, KEPT_READS)
            found += self._best(group, perf_counter() + share, most, waits)
        for name in self._made.keys() - {roof.name for roof, *_ in found}:
            del self._made[name]
        return found

    def sample(self, roof: Roof, calls: int, waits: WaitMeter) -> tuple[float, float | None]:
        """Mean seconds of a call, and the share of the time that threads waited, after a call that is not timed."""
        with _ready(roof), torch.inference_mode():
            call = self._call(roof)
            if calls > 1 or roof.path in BLAS_PATHS:  # the first is of cold caches, and of threads that begin
                _seconds(roof, call, 1)
            return waits.with_share(partial(_seconds, roof, call, calls), roof.threads)

    def _best(self, group: Sequence[Roof], end: float, keep: int | None, waits: WaitMeter) -> list[Reached]:
        seconds: dict[str, float] = {}
        rates: dict[str, float] = {}  # the best so far, by path; of calls that nothing disturbed
        for roof in group:
            rate = rates.get(roof.path)
            late = perf_counter() + (TRIED + 1) * (roof.amount / rate if rate else 0.0) > end
            if (late and seconds) or (rate is not None and rate < FAR * max(rates.values())):
                continue
            try:
                seconds[roof.name], clean = self._tried(roof, end, waits)
            except CANNOT:
                rates.setdefault(roof.path, 0.0)  # what can't be run here is no ceiling
                self._made.pop(roof.name, None)
                continue
            if clean:
                rates[roof.path] = max(rates.get(roof.path, 0.0), roof.amount / seconds[roof.name])
            for other in seconds.keys() - {one.name for one in _fastest(group, seconds, keep, more=1)}:
                self._made.pop(other, None)  # its operands are not needed any more
        settled: set[str] = set()  # looked at once more, and nothing disturbed it
        while perf_counter() < end:
            left = [roof for roof in _fastest(group, seconds, keep, more=1) if roof.name not in settled]
            for roof in left:
                value, clean = self._tried(roof, end, waits)
                seconds[roof.name] = min(seconds[roof.name], value)
                settled |= {roof.name} if clean else set()
            if not left:
                break
        return [
            (_levelled(roof), seconds[roof.name], max(1, math.ceil(SAMPLE_S / seconds[roof.name])))
            for roof in _fastest(group, seconds, keep)
        ]

    def _tried(self, roof: Roof, end: float, waits: WaitMeter) -> tuple[float, bool]:
        """The fastest of a few calls, one at least, and whether nothing disturbed it."""
        with _ready(roof), torch.inference_mode():
            call = self._call(roof)
            first = _seconds(roof, call, 1)
            calls = max(1, min(1000, math.ceil(SAMPLE_S / 4 / max(first, 1e-9))))
            best, clean = first, False
            for _ in range(TRIED):
                if perf_counter() + calls * best > end:
                    break
                value, waited = waits.with_share(partial(_seconds, roof, call, calls), roof.threads)
                undisturbed = waited is None or waited <= WAITED
                best, clean = (value, undisturbed) if value < best else (best, clean or undisturbed)
        return best, clean

    def _call(self, roof: Roof) -> Call:
        """What to time; raises where this machine has no such path."""
        if roof.name not in self._made:
            self._made[roof.name] = MAKERS[roof.bound](self, roof)
        return self._made[roof.name]

    def operand(self, elements: int, dtype: str, device: str, after: int = 0) -> Tensor:
        """So many random numbers, never zeros, of the buffer that all share, from `after` on."""
        have = self._buffers.get((dtype, device))
        if have is None or have.numel() < after + elements:
            drawn = torch.randn(BLOCK, generator=torch.Generator().manual_seed(0))
            drawn = drawn.to(place_of(device), getattr(torch, dtype))
            drawn[drawn == 0] = 1
            # twice as long each time: older ones, whose views are still there, are no longer than it in all
            times = 1 << (math.ceil((after + elements) / BLOCK) - 1).bit_length()
            have = self._buffers[dtype, device] = drawn.repeat(times)
        return have[after : after + elements]


def _levelled(roof: Roof) -> Roof:
    """On a GPU the worker knows what its cache holds."""
    accelerator = accelerator_of(roof.device)
    if roof.bound is not Bound.BYTES or accelerator is None:
        return roof
    return replace(roof, level="L2" if roof.amount <= accelerator.cache_bytes() else MEMORY)


def _fastest(group: Sequence[Roof], seconds: dict[str, float], keep: int | None, more: int = 0) -> list[Roof]:
    """The best of each path; of them two, and the fastest of the others, where only so many are kept: what disturbs one
    look at them does not disturb all paths alike. Those that are near the best of all are as good, and the shortest
    calls of them come first: they can be sampled more often.
    """
    known = [r for r in group if r.name in seconds]
    rates = {r.name: r.amount / seconds[r.name] for r in known}
    near = (1 - NEAR) * max(rates.values(), default=0.0)
    known.sort(key=lambda r: (0.0, seconds[r.name]) if rates[r.name] >= near else (1.0, 1 / rates[r.name]))
    firsts = list({roof.path: roof for roof in reversed(known)}.values())
    firsts.sort(key=known.index)
    if keep is None:
        return firsts
    chosen = firsts[:2]
    return (chosen + [roof for roof in known if roof not in chosen])[: keep + more]


def _product(of: Ceilings, roof: Roof) -> Call:
    tokens, out, width = roof.shape
    x = of.operand(tokens * width, roof.dtype, roof.device).view(tokens, width)
    w = of.operand(out * width, roof.dtype, roof.device, after=tokens * width).view(out, width)
    if roof.path == MM:
        return partial(torch.mm, x, w.t(), out=torch.empty(tokens, out, dtype=x.dtype, device=x.device))
    if roof.path == ONEDNN:
        if reason := unavailable(x.dtype):
            raise ValueError(reason)
        packed = torch.ops.mkldnn._reorder_linear_weight(w.contiguous(), tokens)
        return partial(torch.ops.mkldnn._linear_pointwise, x, packed, None, "none", [], "")
    if roof.path == OPENBLAS and roof.dtype in ("float32", "float64"):
        y = torch.empty(tokens, out, dtype=x.dtype).numpy()
        return partial(_numpy().matmul, x.numpy(), w.numpy().T, out=y)
    raise ValueError(f"no product by {roof.path}")


def _read(of: Ceilings, roof: Roof) -> Call:
    rows, columns = matrix_of(read_bytes(roof))
    flat = of.operand(rows * columns, "float32", roof.device)
    if roof.path in (SUM, SUM_INT, AGAIN):
        again = flat.expand(roof.shape[0], flat.numel()) if roof.path == AGAIN else flat
        return partial(torch.sum, again.view(torch.int64) if roof.path == SUM_INT else again)
    matrix, vector = flat.view(rows, columns), of.operand(columns, "float32", roof.device).clone()
    if roof.path == MV:
        return partial(torch.mv, matrix, vector)
    if roof.path == MATVEC:
        return partial(_numpy().matmul, matrix.numpy(), vector.numpy())
    raise ValueError(f"no reading by {roof.path}")


def _nothing(_: Ceilings, roof: Roof) -> Call:
    """A call of an empty module, measured as every other call is."""
    x = torch.randn(1, 1, 8, device=place_of(roof.device))
    of_device = accelerator_of(roof.device)
    return meters.Subject(nn.Identity(), x, torch.randn_like(x), train=False, accelerator=of_device).call


MAKERS: dict[Bound, Callable[[Ceilings, Roof], Call]] = {
    Bound.PRODUCTS: _product, Bound.BYTES: _read, Bound.CALL: _nothing,
}  # fmt: skip


@contextmanager
def _ready(roof: Roof) -> Iterator[None]:
    """Threads, current device and precision are the roof's."""
    precision.set_to(roof.matmul_precision)
    if (accelerator := accelerator_of(roof.device)) is not None:
        accelerator.settle()
    if roof.bound is not Bound.CALL and torch.get_num_threads() != roof.threads:
        torch.set_num_threads(roof.threads)
    with _blas(roof.threads) if roof.path in BLAS_PATHS else nullcontext():
        yield


def _seconds(roof: Roof, call: Call, calls: int) -> float:
    """Mean seconds of a call; on an accelerator those of the device."""
    if roof.bound is Bound.CALL:
        empty = call.__self__  # type: ignore[attr-defined]
        return float(meters.sample(empty, [empty.x] * calls, apart=False).wall)
    if (accelerator := accelerator_of(roof.device)) is not None:
        return device_seconds(accelerator, call, calls)
    begun = perf_counter()
    for _ in range(calls):
        call()
    return (perf_counter() - begun) / calls


def _numpy() -> Any:
    """The numpy that torch has loaded; raises OSError where there is none, or its OpenBLAS can't be told anything."""
    _openblas()
    return sys.modules["numpy"]


@dataclass(frozen=True, slots=True)
class _OpenBlas:
    """What an OpenBLAS can be told: its threads, and to end them."""

    get_threads: Callable[[], int]
    set_threads: Callable[[int], None]
    end_threads: Callable[[], int]


@cache
def _openblas() -> _OpenBlas:
    """The OpenBLAS that numpy is linked to; raises OSError without one that lets its threads be set and ended."""
    beside = os.path.dirname(os.path.dirname(getattr(sys.modules.get("numpy"), "__file__", None) or ""))
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        paths = {found[0] for line in maps if (found := re.search(r"/\S*openblas\S*\.so\S*", line))}
    for path in sorted(paths, key=lambda one: not one.startswith(os.path.join(beside, "numpy"))):
        library = ctypes.CDLL(path)
        for name in BLAS_THREADS:
            try:
                get, put, end = (
                    library[name.format("get")], library[name.format("set")], library["blas_thread_shutdown_"]
                )  # fmt: skip
            except AttributeError:
                continue
            put.argtypes, put.restype = [ctypes.c_int], None
            return _OpenBlas(get, put, end)
    raise OSError("no OpenBLAS through numpy")


def _let_sleep() -> None:
    """Wait until this process's other threads no longer run: torch's spin for some milliseconds after their work."""
    before, end = threads_of(), perf_counter() + SPIN_S
    while perf_counter() < end:
        sleep(0.001)
        now = threads_of()
        if now and sum(thread.ran - before[name].ran for name, thread in now.items() if name in before) < 2e5:
            return
        before = now


@contextmanager
def _blas(threads: int) -> Iterator[None]:
    """OpenBLAS with so many threads, torch's asleep; afterwards its own are ended, and their number is as it was."""
    library = _openblas()
    before = library.get_threads()
    _let_sleep()
    library.set_threads(threads)
    try:
        yield
    finally:
        library.set_threads(before)
        library.end_threads()
