"""The commands that answer which FFN: measured, counted, and shown again."""

from __future__ import annotations

from ffnbench.cli.commands import command, destination_of
from ffnbench.report.flags import MeasuredOutput, Reported
from ffnbench.request import (
    CompareRequest,
    CostRequest,
)


@command(
    "compare",
    "ffnbench compare relu,gelu,swiglu --d-model 768 -o run.csv -o run.json",
    "ffnbench compare swiglu,mine=mypkg.mlp:SwiGLU@like=swiglu --metrics error",
    "ffnbench compare gelu,swiglu@d_ff=1536..2560/128 --d-model 768 -o d_ff.png",
    "ffnbench compare --preset llama3-8b --seq-len 2Ki --precision 0.5% --budget 2m",
    docs="docs/methodology.md#the-method-on-one-page",
)
def compare(request: CompareRequest, output: MeasuredOutput) -> int:
    """Measure variants side by side: parameters, FLOPs, latency and memory, at equal parameters."""
    from ffnbench.api.measuring import measure_here_or_elsewhere
    from ffnbench.api.preparing import prepare
    from ffnbench.report.views import report_view
    from ffnbench.run.world import this_machine

    with destination_of(output, "compare", *vars(request).values(), pictures=True) as destination:
        world = this_machine(wait=output.wait)
        prepared = prepare(request, world, notes=destination.defaults, elsewhere=output.measure is not None)
        destination.expect(prepared.priced())
        report = measure_here_or_elsewhere(prepared, world, destination, output.measure)
        destination.show(report_view(report))
    return destination.code


@command(
    "cost",
    "ffnbench cost --d-model 4096 --variants relu2,swiglu --rule llama",
    "ffnbench cost --preset mixtral-8x7b --json",
    "ffnbench cost --variants gelu,swiglu@moe=8x2 --mode train -f md",
    docs="docs/forms.md#widths",
)
def cost(request: CostRequest, output: Reported) -> int:
    """Count parameters, FLOPs and bytes of variants, without measuring and without torch."""
    from ffnbench.api.preparing import prepare
    from ffnbench.report.views import report_view
    from ffnbench.run.world import this_machine

    inputs = vars(request).values()
    with destination_of(output, "cost", *inputs, pictures=True, counts_only=True) as destination:
        asked = CompareRequest(**vars(request))
        report = prepare(asked, this_machine(), notes=destination.defaults, counts=True).priced()
        destination.expect(report)
        destination.show(report_view(report))
    return destination.code
