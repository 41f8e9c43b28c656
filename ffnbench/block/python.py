"""The Python function `block`."""

from __future__ import annotations

from ffnbench import api
from ffnbench.python.following import Following
from ffnbench.python.public import asks
from ffnbench.report.shown_report import ShownReport as Report
from ffnbench.request import BlockRequest


@asks(BlockRequest, follows=True)
def block(request: BlockRequest, sink: Following) -> Report:
    """An FFN beside the attention of its block, by length of the sequence: parameters, FLOPs, latency, shares.

    `cost_only=True` counts and measures nothing.

    >>> ffnbench.block(preset="llama3-8b", seq_len=[128, 8192], cost_only=True)
    """
    return api.block(request, sink)
