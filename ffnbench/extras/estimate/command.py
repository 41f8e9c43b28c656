"""The command `estimate`."""

from __future__ import annotations

from ffnbench.cli.commands import command, destination_of
from ffnbench.extras.estimate.request import EstimateRequest
from ffnbench.report.flags import Kept


@command(
    "estimate",
    "ffnbench estimate relu,swiglu --hardware h100,a100 --seq-len 1,4Ki -v",
    "ffnbench estimate --preset llama3-8b --tensor-parallel 8 --mode train",
    "ffnbench estimate swiglu --hardware mi300x,epyc-9654 -o bounds.csv",
    docs="docs/performance.md#machines-that-are-not-here",
)
def estimate(request: EstimateRequest, output: Kept) -> int:
    """Bound the time of variants on machines that are not here, by published peaks; nothing is measured."""
    from ffnbench.extras.estimate.estimating import bounds
    from ffnbench.run.world import this_machine

    with destination_of(output, "estimate", *vars(request).values()) as destination:
        destination.show(bounds(request, this_machine(), destination.defaults))
    return destination.code
