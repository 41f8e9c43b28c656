"""The Python functions `compare` and `cost`."""

from __future__ import annotations

from ffnbench.api.measuring import measure_plan
from ffnbench.api.preparing import prepare_plan
from ffnbench.planning.compare import as_compare, plan_compare
from ffnbench.planning.hardware import machines_named
from ffnbench.python.arguments import (
    Backends,
    Devices,
    DTypes,
    Float,
    Int,
    Ints,
    Match,
    Modes,
    StrPath,
    Texts,
    Variants,
    WeightFormats,
    request_from_arguments,
)
from ffnbench.python.public import called_here, public
from ffnbench.report.shown_report import ShownReport as Report
from ffnbench.request import CompareRequest, CostRequest


@public
def compare(
    variants: Variants = "relu,gelu,swiglu",
    *,
    preset: StrPath | None = None,
    d_model: Ints | None = None,
    d_ff: Ints | None = None,
    bias: bool | None = None,
    match: Match = "params",
    batch: Ints = 1,
    seq_len: Ints | None = None,
    dtype: DTypes = "float32",
    weights: WeightFormats = "none",
    mode: Modes = "forward",
    device: Devices = "auto",
    threads: Ints | None = None,
    backend: Backends = "eager",
    workers: Int | None = None,
    rounds: Int | None = None,
    quick: bool = False,
    precision: Float | None = None,
    budget: Float | None = None,
    seed: Int = 0,
    timeout: Float = 300.0,
    runs: Int = 1,
    pause: Float | None = None,
    metrics: Texts = "latency,memory",
    layer: Int | None = None,
    quiet: bool = False,
    wait: bool = False,
) -> Report:
    """Measure FFN variants side by side: parameters, FLOPs, latency and memory, at
    equal parameters.

    Fresh processes measure. A class of your own as a variant must stand in a file;
    where that is the script which calls this, it does so under
    `if __name__ == "__main__":`. Raises
    ffnbench.Error for a mistake, before anything is measured, and KeyboardInterrupt at
    Ctrl-C: its `.report` holds what was measured by then.

    >>> report = ffnbench.compare(["relu", "swiglu"], d_model=256, quick=True)
    >>> report.frame()[["label", "params", "latency_s", "ratio", "verdict"]]
    """
    request = request_from_arguments(CompareRequest, locals())
    with called_here(quiet=quiet, wait=wait) as here:
        return measure_plan(
            prepare_plan(request, here.world, plan_compare), here.world, here.following
        )


@public
def cost(
    variants: Variants = "relu,gelu,swiglu",
    *,
    preset: StrPath | None = None,
    d_model: Ints | None = None,
    d_ff: Ints | None = None,
    bias: bool | None = None,
    match: Match = "params",
    batch: Ints = 1,
    seq_len: Ints | None = None,
    dtype: DTypes = "float32",
    weights: WeightFormats = "none",
    mode: Modes = "forward",
    hardware: Texts | None = None,
) -> Report:
    """Count parameters, FLOPs and bytes of variants; nothing is measured. With
    `hardware` there is a row for each of these machines, with the least time there.

    >>> costs = ffnbench.cost(["relu", "swiglu"], d_model=4096).frame()
    >>> costs[["label", "d_ff", "params", "flops_forward"]]
    """
    request = request_from_arguments(CostRequest, locals())
    with called_here() as here:
        machines = (
            machines_named(request.hardware) if request.hardware is not None else ()
        )
        return prepare_plan(
            as_compare(request), here.world, plan_compare, counts=True
        ).cost_report(machines)
