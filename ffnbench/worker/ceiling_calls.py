"""The calls of roofs: made from their description, tried, and timed. Runs in a worker; needs torch.

Operands are random and never zeros, and are views of one buffer a dtype: only one call is timed at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from ffnbench.device.ceilings import AGAIN, MM, MV, ONEDNN, SUM, SUM_INT, group_of, matrix_of
from ffnbench.device.environment import accelerator_of, place_of, usable_cpus
from ffnbench.device.waiting import WaitMeter
from ffnbench.messages import MeasureCeilings, ReachedRoof, ReachedRoofs
from ffnbench.result import MEMORY, WAITED, Bound, Roof
from ffnbench.worker import meters
from ffnbench.worker.backends.onednn import no_onednn
from ffnbench.worker.subject import Subject, set_precision

Call = Callable[[], Any]
SAMPLE_S = 0.003  # of one sample: a case's is 10 ms, but there are more roofs than cases
LOOKS = 3  # at one of a machine by itself, until nothing disturbs it
TRIED = 3  # calls of a candidate that are timed, and then as many more of the best
WEIGHTS = {Bound.PRODUCTS: 4}  # of a group's share of the time; others have 1
KEPT_READS = 2
NEAR = 0.03  # of the best rate: what a look of a few calls can't tell apart
BLOCK = 1 << 18  # elements that are drawn; the rest repeats them
CANNOT = (RuntimeError, TypeError, ValueError, AttributeError, MemoryError)  # what a missing path raises


@dataclass(slots=True)
class Ceilings:
    """The roofs of one worker: their calls are kept once they are made."""

    _made: dict[str, Call] = field(default_factory=dict)
    _buffers: dict[tuple[str, str], Tensor] = field(default_factory=dict)  # by dtype and device

    def explore(self, roofs: Sequence[Roof], seconds: float, keep: int | None) -> list[ReachedRoof]:
        """The `keep` fastest of each group, or the best of each path.

        Groups share the time, those of products with the greatest parts. Each candidate has a few calls; one that would
        take longer than what is left is passed over, and so is one that this machine can't run.
        """
        groups: dict[tuple[str | int, ...], list[Roof]] = {}
        for roof in roofs:
            groups.setdefault(group_of(roof), []).append(roof)
        found, end = list[ReachedRoof](), perf_counter() + seconds
        parts = [WEIGHTS.get(group[0].bound, 1) for group in groups.values()]
        for place, group in enumerate(groups.values()):
            share = max(0.0, end - perf_counter()) * parts[place] / sum(parts[place:])
            most = keep if keep is None or group[0].bound is Bound.PRODUCTS else min(keep, KEPT_READS)
            found += self._best(group, perf_counter() + share, most)
        for name in self._made.keys() - {reached.roof.name for reached in found}:
            del self._made[name]
        return found

    def sample(self, roof: Roof, calls: int, waits: WaitMeter) -> tuple[float, float | None]:
        """Mean seconds of a call, and the share of the time that threads waited, after a call that is not timed."""
        _settle(roof)
        with torch.inference_mode():
            call = self._call(roof)
            if calls > 1:  # the first is of cold caches
                _seconds(roof, call, 1)
            return waits.with_share(partial(_seconds, roof, call, calls), roof.threads)

    def _best(self, group: Sequence[Roof], end: float, keep: int | None) -> list[ReachedRoof]:
        seconds: dict[str, float] = {}
        rate = math.inf  # the best so far
        for roof in group:
            if seconds and perf_counter() + (TRIED + 1) * roof.amount / rate > end:
                continue
            try:
                seconds[roof.name] = self._tried(roof, end)
            except CANNOT:  # what can't be run here is no ceiling
                self._made.pop(roof.name, None)
                continue
            rate = max(one.amount / seconds[one.name] for one in group if one.name in seconds)
            for other in seconds.keys() - {one.name for one in _fastest(group, seconds, keep, more=1)}:
                self._made.pop(other, None)  # its operands are not needed any more
        for roof in _fastest(group, seconds, keep, more=1):  # once more: something may have disturbed the first look
            if perf_counter() < end:
                seconds[roof.name] = min(seconds[roof.name], self._tried(roof, end))
        return [
            ReachedRoof(
                roof=_levelled(roof),
                seconds=seconds[roof.name],
                calls=max(1, math.ceil(SAMPLE_S / seconds[roof.name])),
            )
            for roof in _fastest(group, seconds, keep)
        ]

    def _tried(self, roof: Roof, end: float) -> float:
        """The fastest of a few calls, one at least."""
        _settle(roof)
        with torch.inference_mode():
            call = self._call(roof)
            best = _seconds(roof, call, 1)
            calls = max(1, min(1000, math.ceil(SAMPLE_S / 4 / max(best, 1e-9))))
            for _ in range(TRIED):
                if perf_counter() + calls * best > end:
                    break
                best = min(best, _seconds(roof, call, calls))
        return best

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
        if reason := no_onednn(x.dtype):
            raise ValueError(reason)
        packed = torch.ops.mkldnn._reorder_linear_weight(w.contiguous(), tokens)
        return partial(torch.ops.mkldnn._linear_pointwise, x, packed, None, "none", [], "")
    raise ValueError(f"no product by {roof.path}")


def _read(of: Ceilings, roof: Roof) -> Call:
    rows, columns = matrix_of(roof.read_bytes)
    flat = of.operand(rows * columns, "float32", roof.device)
    if roof.path in (SUM, SUM_INT, AGAIN):
        again = flat.expand(roof.shape[0], flat.numel()) if roof.path == AGAIN else flat
        return partial(torch.sum, again.view(torch.int64) if roof.path == SUM_INT else again)
    matrix, vector = flat.view(rows, columns), of.operand(columns, "float32", roof.device).clone()
    if roof.path == MV:
        return partial(torch.mv, matrix, vector)
    raise ValueError(f"no reading by {roof.path}")


def _nothing(_: Ceilings, roof: Roof) -> Call:
    """A call of an empty module, measured as every other call is."""
    x = torch.randn(1, 1, 8, device=place_of(roof.device))
    of_device = accelerator_of(roof.device)
    return Subject(nn.Identity(), x, torch.randn_like(x), train=False, accelerator=of_device).call


MAKERS: dict[Bound, Callable[[Ceilings, Roof], Call]] = {
    Bound.PRODUCTS: _product, Bound.BYTES: _read, Bound.CALL: _nothing,
}  # fmt: skip


def _settle(roof: Roof) -> None:
    """Threads, current device and precision are the roof's."""
    set_precision(roof.matmul_precision)
    if (accelerator := accelerator_of(roof.device)) is not None:
        accelerator.settle()
    if roof.bound is not Bound.CALL and torch.get_num_threads() != roof.threads:
        torch.set_num_threads(roof.threads)


def _seconds(roof: Roof, call: Call, calls: int) -> float:
    """Mean seconds of a call; on an accelerator those of the device."""
    if roof.bound is Bound.CALL:
        empty = call.__self__  # type: ignore[attr-defined]
        return float(meters.sample(empty, [empty.x] * calls, counts=False).wall)
    if (accelerator := accelerator_of(roof.device)) is not None:
        from ffnbench.device.accelerator import device_seconds

        return device_seconds(accelerator, call, calls)
    begun = perf_counter()
    for _ in range(calls):
        call()
    return (perf_counter() - begun) / calls


def measure_ceilings(request: MeasureCeilings) -> ReachedRoofs:
    """Of each path the fastest call, by the kind of ceiling."""
    ceilings, waits, measured = Ceilings(), WaitMeter(usable_cpus()), []
    for reached in ceilings.explore(request.roofs, request.seconds, None):
        best = reached.seconds
        for _ in range(LOOKS):
            value, waited = ceilings.sample(reached.roof, reached.calls, waits)
            best, disturbed = min(best, value), waited is not None and waited > WAITED
            if not disturbed:
                break
        measured.append(replace(reached, seconds=best, disturbed=disturbed))
    return ReachedRoofs(roofs=tuple(measured))
