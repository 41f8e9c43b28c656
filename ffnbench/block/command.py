"""The command `block`."""

from __future__ import annotations

from ffnbench.cli.commands import command, destination_of
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
    from ffnbench.api.measuring import measure_here_or_elsewhere
    from ffnbench.api.preparing import prepare
    from ffnbench.report.views import report_view
    from ffnbench.run.world import this_machine

    with destination_of(output, "block", *vars(request).values(), pictures=True) as destination:
        world, counts = this_machine(wait=output.wait), request.cost_only
        elsewhere = None if counts else output.measure
        prepared = prepare(request, world, notes=destination.defaults, counts=counts, elsewhere=elsewhere is not None)
        report = prepared.priced()
        destination.expect(report)
        if not counts:
            report = measure_here_or_elsewhere(prepared, world, destination, elsewhere)
        destination.show(report_view(report))
    return destination.code
