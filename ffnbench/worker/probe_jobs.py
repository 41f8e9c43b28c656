"""Looks at one function or module of the user's, or of ours, without timing it. Runs in a worker; needs torch."""

from __future__ import annotations

import time
from contextlib import suppress
from importlib import import_module
from math import isfinite
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ffnbench import jsonable
from ffnbench.backends.backend import unavailable
from ffnbench.device.environment import about_device, usable_cpus
from ffnbench.device.waiting import WaitMeter
from ffnbench.ffn.cost import Cost
from ffnbench.ffn.imported import CONFIG_NAMES, D_FF_NAMES, D_MODEL_NAMES, RATIO_NAMES
from ffnbench.ffn.spec import ActivationSpec, ImportedSpec
from ffnbench.ffn.user_activation import OwnActivation, as_activation
from ffnbench.plan import Arm, Backend, Probe, Workload
from ffnbench.result import Roof
from ffnbench.targets import origin_of, resolve
from ffnbench.worker import agreement
from ffnbench.worker.ceiling_calls import Ceilings
from ffnbench.worker.counting import count
from ffnbench.worker.functions import Function, checked, value_and_slope
from ffnbench.worker.meters import empty_call

LOOKS = 3  # at a ceiling, for one that nothing disturbs
WIDTH_NAMES = (*D_MODEL_NAMES, *D_FF_NAMES, *RATIO_NAMES, *CONFIG_NAMES)


class InProcess(Probe):
    """A plan's probe in this very process, for `ffnbench.build`."""

    def describe(self, target: str) -> OwnActivation | None:
        """What a function declares as an activation; raises FfnbenchError where it does not behave like one."""
        found = resolve(target)
        own = as_activation(found, target, WIDTH_NAMES)
        if own is not None:
            checked(found, target)
        return own

    def within(self, arm: Arm) -> InProcess:
        """There is this process alone; who builds in it refuses another arm."""
        return self

    def count(self, spec: ImportedSpec, workload: Workload) -> Cost:
        """Parameters and FLOPs of a module."""
        return count(spec, workload)


def function_of(spec: ActivationSpec) -> Function:
    """The activation as a function of one tensor."""
    beta = 1.0 if spec.beta is None else spec.beta

    def function(x: Tensor) -> Tensor:
        y: Tensor = spec.row.apply(F, x, beta)
        return y

    return function


def describe(target: str) -> dict[str, Any]:
    """Job: is this an activation, and what does it declare?"""
    return {"own": jsonable.encode(InProcess().describe(target))}


def origin(target: str) -> dict[str, str]:
    """Job: which file a target's module is."""
    return {"file": origin_of(target)}


def counted(spec: dict[str, Any], workload: dict[str, Any]) -> dict[str, Any]:
    """Job: parameters and FLOPs of a user's module."""
    cost = count(jsonable.decode(ImportedSpec, spec), jsonable.decode(Workload, workload))
    found: dict[str, Any] = jsonable.encode(cost)
    return found


def curve(spec: dict[str, Any], low: float, high: float, points: int) -> dict[str, Any]:
    """Job: x, f(x), f'(x) in float64. Where f' is not finite it is None."""
    chosen = jsonable.decode(ActivationSpec, spec)
    function = function_of(chosen)
    x = torch.linspace(low, high, points, dtype=torch.float64)
    y, slope = value_and_slope(function, x)
    return {
        "x": x.tolist(),
        "y": y.nan_to_num().tolist(),
        "slope": [s if isfinite(s) else None for s in slope.tolist()],
        "finite": bool(torch.isfinite(y).all()),
    }


def timer(label: str = "") -> dict[str, float]:
    """Job: what measuring itself costs here, in seconds."""
    resolution = time.get_clock_info("perf_counter").resolution
    return {"empty_call_s": empty_call(), "resolution_s": resolution}


def ceilings(roofs: list[Any], seconds: float) -> dict[str, Any]:
    """Job: of each path the fastest call, by the kind of ceiling; `disturbed` where threads waited for a CPU whenever
    it was looked at again.
    """
    from ffnbench.stats.rounds import WAITED

    reached, waits, told = Ceilings(), WaitMeter(usable_cpus()), []
    for roof, best, calls in reached.explore([jsonable.decode(Roof, roof) for roof in roofs], seconds, None):
        for _ in range(LOOKS):
            value, waited = reached.sample(roof, calls, waits)
            best, disturbed = min(best, value), waited is not None and waited > WAITED
            if not disturbed:
                break
        told.append({"roof": jsonable.encode(roof), "seconds": best, "disturbed": disturbed})
    return {"found": told}


def backends(device: str) -> dict[str, dict[str, str]]:
    """Job: why each backend can't run on a device here, "" where it can."""
    where, half = torch.device(device), torch.bfloat16
    return {
        "backends": {one.value: unavailable(one.value, where) for one in Backend},
        "bfloat16": {one.value: unavailable(one.value, where, half) for one in Backend},
    }


def preload(targets: list[str], compiles: bool) -> dict[str, Any]:
    """Job of a starter: import what its children will need. What can't be is told by the case that needs it."""
    for target in targets:
        with suppress(Exception, SystemExit):
            resolve(target)
    for name in ("torch._dynamo", "torch._inductor.compile_fx") if compiles else ():
        with suppress(ImportError):
            import_module(name)
    return {}


JOBS = {
    "preload": preload, "timer": timer, "describe": describe, "count": counted,
    "curve": curve, "backends": backends, "ceilings": ceilings, "origin": origin,
    "keep": agreement.keep, "hold": agreement.hold,
    "device": about_device,
}  # fmt: skip
