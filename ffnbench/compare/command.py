"""The commands that answer which FFN: measured, counted, and shown again."""

from __future__ import annotations

from ffnbench.cli.commands import command, sink_of
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
    from ffnbench import api

    with sink_of(output, "compare", *vars(request).values(), pictures=True) as sink:
        api.compare(request, sink, output.measure)
    return sink.code


@command(
    "cost",
    "ffnbench cost --d-model 4096 --variants relu2,swiglu --rule llama",
    "ffnbench cost --preset mixtral-8x7b --json",
    "ffnbench cost --variants gelu,swiglu@moe=8x2 --mode train -f md",
    docs="docs/forms.md#widths",
)
def cost(request: CostRequest, output: Reported) -> int:
    """Count parameters, FLOPs and bytes of variants, without measuring and without torch."""
    from ffnbench import api

    with sink_of(output, "cost", *vars(request).values(), pictures=True, counts_only=True) as sink:
        api.cost(CompareRequest(**vars(request)), sink)
    return sink.code
