"""The commands that answer which FFN: measured, counted, and shown again."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from ffnbench.cli.commands import command, sink_of
from ffnbench.report.flags import MeasuredOutput, Reported
from ffnbench.request import (
    ARGUMENTS,
    CompareRequest,
    CostRequest,
    flag,
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


@dataclass(frozen=True, kw_only=True)
class Saved:
    """Runs in files."""

    paths: tuple[str, ...] = flag(
        (), "A .json that `compare`, `block` or `activations --time` wrote with -o; several: side by side.", ARGUMENTS,
        place="FILE...",
    )  # fmt: skip


@command(
    "report",
    "ffnbench report run.json -v",
    "ffnbench report run.json -o run.md -o run.png",
    "ffnbench report old.json new.json",
    docs="docs/methodology.md#counts",
)
def report(saved: Saved, output: Reported) -> int:
    """Show a saved run again, every figure computed anew; or several side by side: old, new, change, its interval."""
    from ffnbench import api
    from ffnbench.streams import visible

    paths, differs = saved.paths, ""
    with sink_of(output, "report", *paths, pictures=len(paths) == 1, features=True) as sink:
        if len(paths) > 1:
            api.reports(paths, sink)
        else:
            _, differs = api.report(paths[0], sink)
    if differs:
        print(visible(f"note: {differs}"), file=sys.stderr)
    return sink.code
