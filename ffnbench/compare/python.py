"""The Python functions `compare` and `cost`."""

from __future__ import annotations

from ffnbench.api.measuring import measure
from ffnbench.api.preparing import prepare
from ffnbench.python.following import CalledHere
from ffnbench.python.public import asks
from ffnbench.report.shown_report import ShownReport as Report
from ffnbench.request import CompareRequest, CostRequest


@asks(CompareRequest, follows=True)
def compare(request: CompareRequest, here: CalledHere) -> Report:
    """Measure FFN variants side by side: parameters, FLOPs, latency and memory, at equal parameters.

    Fresh processes measure. A class of your own as a variant must stand in a file; where that is the script which calls
    this, it does so under `if __name__ == "__main__":`. Raises ffnbench.Error for a mistake, before anything is
    measured, and KeyboardInterrupt at Ctrl-C: its `.report` holds what was measured by then.

    >>> report = ffnbench.compare(["relu", "swiglu"], d_model=256, quick=True)
    >>> report.frame()[["label", "params", "latency_s", "ratio", "verdict"]]
    """
    return measure(prepare(request, here.world), here.world, here.following)


@asks(CostRequest)
def cost(request: CostRequest, here: CalledHere) -> Report:
    """Count parameters, FLOPs and bytes of variants; nothing is measured.

    >>> ffnbench.cost(["relu", "swiglu"], d_model=4096).frame()[["label", "d_ff", "params", "flops_forward"]]
    """
    return prepare(CompareRequest(**vars(request)), here.world, counts=True).priced()
