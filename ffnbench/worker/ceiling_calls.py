"""Makes the calls that roofs describe, and times them. Runs in a worker; needs torch.

Operands are random numbers other than zero. Those of one dtype are views of one buffer,
which is possible because only one call is timed at a time.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from ffnbench.device.ceilings import (
    MM,
    MV,
    ONEDNN,
    SUM,
    SUM_INT,
    SUM_REPEATED,
    group_of,
    matrix_of,
)
from ffnbench.device.environment import accelerator_of, torch_device, usable_cpus
from ffnbench.device.waiting import WaitMeter
from ffnbench.messages import MeasureCeilings, ReachedRoof, ReachedRoofs
from ffnbench.result import MEMORY, MOST_WAITED, Bound, Roof
from ffnbench.worker import timing
from ffnbench.worker.backends.building import why_no_onednn
from ffnbench.worker.subject import Subject, set_precision

# the function to call; for the roof of a call itself an empty subject
RoofCall = Callable[[], Any] | Subject
# length of a sample: that of a case is 10 ms, but there are more roofs than cases
SAMPLE_S = 0.003
MOST_SAMPLES = 3  # of a roof of the machine, until one is not disturbed
# times that a candidate is timed, and that the best ones are timed again
TRIES = 3
WEIGHT_OF_PRODUCTS = 4  # of their groups, when groups share the time; others have 1
KEPT_READS = 2  # of a group of reads, at most
NEAR = 0.03  # below the best rate: a few calls can't tell such roofs apart
DRAWN_ELEMENTS = 1 << 18  # the rest of a buffer repeats them
# what is raised where this machine has no such path
CANNOT = (RuntimeError, TypeError, ValueError, AttributeError, MemoryError)


@dataclass(slots=True)
class RoofCalls:
    """The calls of one worker's roofs, which are kept once they are made."""

    _calls: dict[str, RoofCall] = field(default_factory=dict)  # by the name of the roof
    # by dtype and device
    _buffers: dict[tuple[str, str], Tensor] = field(default_factory=dict)

    def explore(
        self, roofs: Sequence[Roof], seconds: float, keep: int | None
    ) -> list[ReachedRoof]:
        """Find the `keep` fastest roofs of each group, or where `keep` is None the
        fastest by each path. Drop the calls of all others.

        Groups share the time; those of products have a larger share. Each candidate is
        called a few times. One that would take longer than the time that is left is
        passed over, and so is one that this machine can't run.
        """
        groups: dict[tuple[str | int, ...], list[Roof]] = defaultdict(list)
        for roof in roofs:
            groups[group_of(roof)].append(roof)
        end = perf_counter() + seconds
        weights_left = sum(_weight_of(group) for group in groups.values())
        reached: list[ReachedRoof] = []
        for group in groups.values():
            left_s = max(0.0, end - perf_counter())
            share_s = left_s * _weight_of(group) / weights_left
            weights_left -= _weight_of(group)
            keep_here = keep
            if keep is not None and group[0].bound is not Bound.PRODUCTS:
                keep_here = min(keep, KEPT_READS)
            end_of_group = perf_counter() + share_s
            reached += self._fastest_of_group(group, end_of_group, keep_here)
        for name in self._calls.keys() - {best.roof.name for best in reached}:
            del self._calls[name]
        return reached

    def time_roof(
        self, roof: Roof, calls: int, wait_meter: WaitMeter
    ) -> tuple[float, float | None]:
        """Mean seconds of a call, and the share of the time that threads waited for a
        CPU. Of several calls, one that is not timed comes first.
        """
        _set_conditions_of(roof)
        with torch.inference_mode():
            call = self._call(roof)
            if calls > 1:  # the first call finds cold caches
                _seconds(roof, call, 1)
            return wait_meter.with_share(
                partial(_seconds, roof, call, calls), roof.threads
            )

    def _fastest_of_group(
        self, group: Sequence[Roof], end: float, keep: int | None
    ) -> list[ReachedRoof]:
        """Time the roofs of a group until `end`, and return the fastest ones: `keep` of
        them, or as explore says. The calls of others are dropped.
        """
        seconds: dict[str, float] = {}
        best_rate = 0.0
        for roof in group:
            if seconds:
                would_take_s = (TRIES + 1) * roof.amount / best_rate
                if perf_counter() + would_take_s > end:
                    continue
            try:
                seconds[roof.name] = self._fastest_call(roof, end)
            except CANNOT:  # a call that can't be run here is no ceiling
                self._calls.pop(roof.name, None)
                continue
            best_rate = max(best_rate, roof.amount / seconds[roof.name])
            candidates = {
                candidate.name
                for candidate in _best_of_paths(group, seconds, keep, more=1)
            }
            for name in seconds.keys() - candidates:
                self._calls.pop(name, None)  # its operands are not needed any more
        # the best are timed once more: something may have disturbed the first calls
        for roof in _best_of_paths(group, seconds, keep, more=1):
            if perf_counter() < end:
                seconds[roof.name] = min(
                    seconds[roof.name], self._fastest_call(roof, end)
                )
        reached = []
        for roof in _best_of_paths(group, seconds, keep):
            call_s = seconds[roof.name]
            calls = max(1, math.ceil(SAMPLE_S / call_s))
            reached.append(
                ReachedRoof(roof=_with_cache_level(roof), seconds=call_s, calls=calls)
            )
        return reached

    def _fastest_call(self, roof: Roof, end: float) -> float:
        """Seconds of the fastest of a few calls, one at least."""
        _set_conditions_of(roof)
        with torch.inference_mode():
            call = self._call(roof)
            best = _seconds(roof, call, 1)
            calls = max(1, min(1000, math.ceil(SAMPLE_S / 4 / max(best, 1e-9))))
            for _ in range(TRIES):
                if perf_counter() + calls * best > end:
                    break
                best = min(best, _seconds(roof, call, calls))
        return best

    def _call(self, roof: Roof) -> RoofCall:
        """The call of a roof, made when it is first asked for; raises one of CANNOT
        where this machine has no such path.
        """
        if roof.name not in self._calls:
            self._calls[roof.name] = self._make(roof)
        return self._calls[roof.name]

    def _make(self, roof: Roof) -> RoofCall:
        match roof.bound:
            case Bound.PRODUCTS:
                return self._product(roof)
            case Bound.BYTES:
                return self._read(roof)
            case Bound.CALL:
                return timing.empty_subject(roof.device)

    def operand(self, elements: int, dtype: str, device: str, after: int = 0) -> Tensor:
        """A view of so many random numbers other than zero, which begins at element
        `after` of the buffer that all operands share.
        """
        end = after + elements
        buffer = self._buffers.get((dtype, device))
        if buffer is None or len(buffer) < end:
            drawn = torch.randn(
                DRAWN_ELEMENTS, generator=torch.Generator().manual_seed(0)
            )
            drawn = drawn.to(torch_device(device), getattr(torch, dtype))
            drawn[drawn == 0] = 1
            # its length is a power of two: older buffers, whose views are still in use,
            # take no more memory together than the new one
            times = 1 << (math.ceil(end / DRAWN_ELEMENTS) - 1).bit_length()
            buffer = self._buffers[dtype, device] = drawn.repeat(times)
        return buffer[after:end]

    def _product(self, roof: Roof) -> RoofCall:
        tokens, out, width = roof.shape
        x = self.operand(tokens * width, roof.dtype, roof.device).view(tokens, width)
        w = self.operand(
            out * width, roof.dtype, roof.device, after=tokens * width
        ).view(out, width)
        if roof.path == MM:
            return partial(
                torch.mm,
                x,
                w.t(),
                out=torch.empty(tokens, out, dtype=x.dtype, device=x.device),
            )
        if roof.path != ONEDNN:
            raise ValueError(f"no product by {roof.path}")
        reason = why_no_onednn(x.dtype)
        if reason:
            raise ValueError(reason)
        packed = torch.ops.mkldnn._reorder_linear_weight(w.contiguous(), tokens)
        return partial(
            torch.ops.mkldnn._linear_pointwise, x, packed, None, "none", [], ""
        )

    def _read(self, roof: Roof) -> RoofCall:
        rows, columns = matrix_of(roof.read_bytes)
        flat = self.operand(rows * columns, "float32", roof.device)
        if roof.path == SUM:
            return partial(torch.sum, flat)
        if roof.path == SUM_INT:
            return partial(torch.sum, flat.view(torch.int64))
        if roof.path == SUM_REPEATED:
            return partial(torch.sum, flat.expand(roof.shape[0], len(flat)))
        if roof.path == MV:
            vector = self.operand(columns, "float32", roof.device).clone()
            return partial(torch.mv, flat.view(rows, columns), vector)
        raise ValueError(f"no reading by {roof.path}")


def _weight_of(group: Sequence[Roof]) -> int:
    """The share of the time that a group has, relative to other groups."""
    return WEIGHT_OF_PRODUCTS if group[0].bound is Bound.PRODUCTS else 1


def _with_cache_level(roof: Roof) -> Roof:
    """The roof with the cache level that it reads on a GPU: only the worker knows how
    much that cache holds.
    """
    accelerator = accelerator_of(roof.device)
    if roof.bound is not Bound.BYTES or accelerator is None:
        return roof
    level = "L2" if roof.amount <= accelerator.cache_bytes() else MEMORY
    return replace(roof, level=level)


def _best_of_paths(
    group: Sequence[Roof], seconds: dict[str, float], keep: int | None, more: int = 0
) -> list[Roof]:
    """The best of the roofs that have `seconds`: where `keep` is None, the best by each
    path; otherwise two of these and the fastest others, `keep + more` in all. Two paths
    are kept since what disturbs the calls of one does not disturb all alike.

    Roofs with nearly the best rate are as good as the best. Among them those with the
    shortest calls come first, since they can be sampled more often.
    """
    tried = [roof for roof in group if roof.name in seconds]
    rates = {roof.name: roof.amount / seconds[roof.name] for roof in tried}
    near = (1 - NEAR) * max(rates.values(), default=0.0)
    best = sorted(
        (r for r in tried if rates[r.name] >= near), key=lambda roof: seconds[roof.name]
    )
    others = sorted(
        (r for r in tried if rates[r.name] < near), key=lambda roof: -rates[roof.name]
    )
    ranked = best + others
    best_of_paths: dict[str, Roof] = {}
    for roof in ranked:
        best_of_paths.setdefault(roof.path, roof)
    firsts = list(best_of_paths.values())
    if keep is None:
        return firsts
    chosen = firsts[:2]
    chosen += [roof for roof in ranked if roof not in chosen]
    return chosen[: keep + more]


def _set_conditions_of(roof: Roof) -> None:
    """Set threads, current device and precision as a roof has them."""
    set_precision(roof.matmul_precision)
    accelerator = accelerator_of(roof.device)
    if accelerator is not None:
        accelerator.make_current()
    if roof.bound is not Bound.CALL and torch.get_num_threads() != roof.threads:
        torch.set_num_threads(roof.threads)


def _seconds(roof: Roof, call: RoofCall, calls: int) -> float:
    """Mean seconds of a call: of an empty subject by the wall, of any other on an
    accelerator by the device.
    """
    if isinstance(call, Subject):
        return timing.time_calls(call, [call.x] * calls, is_sample=False).wall
    accelerator = accelerator_of(roof.device)
    if accelerator is not None:
        from ffnbench.device.accelerator import device_seconds

        return device_seconds(accelerator, call, calls)
    begun = perf_counter()
    for _ in range(calls):
        call()
    return (perf_counter() - begun) / calls


def measure_ceilings(request: MeasureCeilings) -> ReachedRoofs:
    """Find the fastest roof by each path, and measure it until a sample is not
    disturbed.
    """
    roof_calls, wait_meter = RoofCalls(), WaitMeter(usable_cpus())
    measured = []
    for reached in roof_calls.explore(request.roofs, request.seconds, None):
        best, disturbed = reached.seconds, True
        for _ in range(MOST_SAMPLES):
            value, waited = roof_calls.time_roof(
                reached.roof, reached.calls, wait_meter
            )
            best = min(best, value)
            disturbed = waited is not None and waited > MOST_WAITED
            if not disturbed:
                break
        measured.append(replace(reached, seconds=best, disturbed=disturbed))
    return ReachedRoofs(roofs=tuple(measured))
