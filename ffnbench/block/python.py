"""The Python function `block`."""

from __future__ import annotations

from ffnbench.api.measuring import measure
from ffnbench.api.preparing import prepare
from ffnbench.python.following import CalledHere
from ffnbench.python.public import asks
from ffnbench.report.shown_report import ShownReport as Report
from ffnbench.request import BlockRequest


@asks(BlockRequest, follows=True)
def block(request: BlockRequest, here: CalledHere) -> Report:
    """An FFN beside the attention of its block, by length of the sequence: parameters, FLOPs, latency, shares.

    `cost_only=True` counts and measures nothing.

    >>> ffnbench.block(preset="llama3-8b", seq_len=[128, 8192], cost_only=True)
    """
    prepared = prepare(request, here.world, counts=request.cost_only)
    if request.cost_only:
        return prepared.priced()
    return measure(prepared, here.world, here.following)
