"""The Python function `block`."""

from __future__ import annotations

from ffnbench.api.measuring import measure_plan
from ffnbench.api.preparing import prepare_plan
from ffnbench.block.plan import plan_block
from ffnbench.python.arguments import (
    Backend,
    Devices,
    DTypes,
    Float,
    Int,
    Ints,
    Modes,
    StrPath,
    Variant,
    request_from_arguments,
)
from ffnbench.python.public import called_here, public
from ffnbench.report.shown_report import ShownReport as Report
from ffnbench.request import BlockRequest


@public
def block(
    variant: Variant | None = None,
    *,
    preset: StrPath | None = None,
    d_model: Ints | None = None,
    d_ff: Ints | None = None,
    bias: bool | None = None,
    heads: Int | None = None,
    kv_heads: Int | None = None,
    batch: Ints = 1,
    seq_len: Ints = "512",
    dtype: DTypes = "float32",
    mode: Modes = "forward",
    device: Devices = "auto",
    threads: Ints | None = None,
    backend: Backend = "eager",
    workers: Int | None = None,
    rounds: Int | None = None,
    quick: bool = False,
    precision: Float | None = None,
    budget: Float | None = None,
    cost_only: bool = False,
    quiet: bool = False,
) -> Report:
    """An FFN beside the attention of its block, by length of the sequence: parameters,
    FLOPs, latency, shares.

    `cost_only=True` counts and measures nothing.

    >>> ffnbench.block(preset="llama3-8b", seq_len=[128, 8192], cost_only=True)
    """
    request = request_from_arguments(BlockRequest, locals())
    with called_here(quiet=quiet) as here:
        prepared = prepare_plan(
            request, here.world, plan_block, counts=request.cost_only
        )
        if request.cost_only:
            return prepared.cost_report()
        return measure_plan(prepared, here.world, here.following)
