"""The command that sets an FFN beside the attention of its block."""

from __future__ import annotations

from ffnbench.cli.app import leave
from ffnbench.cli.bundles import command, sink_of
from ffnbench.cli.help import examples
from ffnbench.report.flags import MeasuredOutput
from ffnbench.request import BlockRequest


@command(
    "block",
    epilog=examples(
        "ffnbench block --preset bert-base --cost-only",
        "ffnbench block --preset llama3-8b --seq-len 128,1Ki,8Ki --cost-only",
        "ffnbench block --d-model 512 --quick",
        docs="docs/block.md#what-is-counted",
    ),
)
def block(request: BlockRequest, output: MeasuredOutput) -> None:
    """Set an FFN beside the attention of its block: parameters, FLOPs, KV bytes, latency, and the share of each."""
    from ffnbench import api

    whole = request.whole_model
    with sink_of(output, "model" if whole else "block", *vars(request).values(), pictures=not whole) as sink:
        (api.whole_model if whole else api.block)(request, sink)
    leave(sink.code)
