"""The command that sets an FFN beside the attention of its block."""

from __future__ import annotations

from ffnbench.cli.app import leave
from ffnbench.cli.bundles import command
from ffnbench.cli.compare import ALL_SUFFIXES, WORDS
from ffnbench.cli.help import examples
from ffnbench.report.files.outputs import inputs_of
from ffnbench.report.output import MeasuredOutput, OutputSink
from ffnbench.request import BlockRequest


@command(
    epilog=examples(
        "ffnbench block --preset bert-base --cost-only",
        "ffnbench block --preset llama3-8b --seq-len 128,1Ki,8Ki --cost-only",
        "ffnbench block --d-model 512 --quick",
        docs="docs/block.md#what-is-counted",
    ),
    words=WORDS,
)
def block(request: BlockRequest, output: MeasuredOutput) -> None:
    """Set an FFN beside the attention of its block: parameters, FLOPs, KV bytes, latency, and the share of each."""
    from ffnbench import api

    inputs = inputs_of(*vars(request).values())
    if request.whole_model:
        with OutputSink(output, "model", inputs=inputs) as sink:
            api.whole_model(request, sink)
    else:
        with OutputSink(output, "block", suffixes=ALL_SUFFIXES, inputs=inputs) as sink:
            api.block(request, sink)
    leave(sink.code)
