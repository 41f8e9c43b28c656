"""The command `block`."""

from __future__ import annotations

from ffnbench.cli.commands import command, sink_of
from ffnbench.report.flags import MeasuredOutput
from ffnbench.request import BlockRequest


@command(
    "block",
    "ffnbench block --preset bert-base --cost-only",
    "ffnbench block llama3-8b --seq-len 128,1Ki,8Ki --cost-only",
    "ffnbench block --d-model 512 --quick",
    docs="docs/block.md#what-is-counted",
)
def block(request: BlockRequest, output: MeasuredOutput) -> int:
    """Set an FFN beside the attention of its block: parameters, FLOPs, KV bytes, latency, and the share of each."""
    from ffnbench import api

    with sink_of(output, "block", *vars(request).values(), pictures=True) as sink:
        api.block(request, sink, output.measure)
    return sink.code
