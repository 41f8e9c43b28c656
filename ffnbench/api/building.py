"""Builds the module of a variant in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ffnbench.common.choices import Weights
from ffnbench.common.errors import FfnbenchError, Unfinished
from ffnbench.common.targets import one_line
from ffnbench.plan.backends import BACKENDS
from ffnbench.plan.cases import Lists
from ffnbench.plan.plan import Protocol

if TYPE_CHECKING:
    from torch import nn


def build_planned(variant: str, flags: Lists, device: Any, **how: Any) -> nn.Module:
    """Build the nn.Module of one variant, on a device of torch's. `how` are further
    arguments of `plan_variants`.

    Without a `device` it is that of the variant, or torch's default. Raises
    FfnbenchError for several variants, and for what needs another process or runtime.
    """
    import torch

    from ffnbench.api.preparing import refuse_device
    from ffnbench.plan.cases import plan_variants
    from ffnbench.run.world import this_machine
    from ffnbench.worker.backends.building import build_module
    from ffnbench.worker.probe_jobs import InProcess

    protocol = Protocol()
    plan = plan_variants(variant, flags, probe=InProcess(), protocol=protocol, **how)
    if len(plan.cases) > 1:
        raise FfnbenchError(
            f"build makes one module, and these are {len(plan.cases)}",
            "build one at a time",
        )
    case = plan.cases[0]
    work = case.workload
    if work.weights != Weights.NONE or BACKENDS[work.backend].is_runtime:
        raise FfnbenchError(
            "build gives a module as it is written", "leave out @weights and @backend"
        )
    own_device = None if work.device == "auto" else work.device
    device = device or own_device
    refuse_device(device or "cpu", this_machine())
    dtype = getattr(torch, work.dtype)
    try:
        return build_module(case.ffn, device=device, dtype=dtype)
    except (RuntimeError, MemoryError) as problem:
        raise Unfinished(f"cannot build {case.label!r}: {one_line(problem)}") from None
