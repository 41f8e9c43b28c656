"""Plans of latencies on one thread of a CPU, as `ffnbench compare` makes them."""

from __future__ import annotations

from ffnbench.common.choices import Mode
from ffnbench.plan.comparison import plan_variants
from ffnbench.plan.plan import Plan, Probe
from ffnbench.plan.protocol import protocol_of


def latency_plan(
    variants: str,
    *,
    d_model: int,
    workers: int | None = None,
    precision: float | None = None,
    budget: float | None = None,
) -> Plan:
    """The plan of a comparison: a precision in percent, a budget in seconds."""
    flags = {
        "d_model": (d_model,),
        "batch": (1,),
        "dtype": ("float32",),
        "mode": (Mode.FORWARD,),
        "device": ("cpu",),
        "threads": (1,),
    }
    return plan_variants(
        variants,
        flags,
        probe=Probe(),
        protocol=protocol_of(workers=workers, precision=precision, budget=budget),
        metrics=("latency",),
    )
