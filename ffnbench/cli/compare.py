"""The commands that answer which FFN: measured, counted, and shown again."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Annotated, TypeVar

import typer

from ffnbench.cli.app import leave
from ffnbench.cli.bundles import TYPED, command, sink_of, source_of
from ffnbench.cli.completing import completer
from ffnbench.cli.help import examples
from ffnbench.report.flags import CountedOutput, MeasuredOutput, Reported
from ffnbench.request import CompareRequest, CostRequest

R = TypeVar("R", CompareRequest, CostRequest)
NAMES = typer.Argument(
    metavar="VARIANT...",
    help="Variants, as in --variants; they stand after those of that flag.",
    autocompletion=completer("variants"),
)


def with_names(request: R, context: typer.Context, names: list[str] | None) -> R:
    """The request with the variants that are typed without a flag, after those of the flag."""
    given: list[str] = [request.variants] if not names or source_of(context, "variants") == TYPED else []
    return replace(request, variants=",".join([*given, *(names or ())]))


@command(
    "compare",
    epilog=examples(
        "ffnbench compare --d-model 768 --variants relu,gelu,swiglu -o run.csv -o run.json",
        "ffnbench compare --variants swiglu,mine=mypkg.mlp:SwiGLU@like=swiglu --dtype bf16",
        "ffnbench compare --preset llama3-8b --seq-len 2Ki --precision 0.5% --budget 2m",
        docs="docs/methodology.md#the-method-on-one-page",
    ),
)
def compare(
    request: CompareRequest,
    output: MeasuredOutput,
    context: typer.Context,
    names: Annotated[list[str] | None, NAMES] = None,
) -> None:
    """Measure variants side by side: parameters, FLOPs, latency and memory, at equal parameters."""
    from ffnbench import api

    request = with_names(request, context, names)
    with sink_of(output, "compare", *vars(request).values(), pictures=True) as sink:
        api.compare(request, sink)
    leave(sink.code)


@command(
    "cost",
    epilog=examples(
        "ffnbench cost --d-model 4096 --variants relu2,swiglu --rule llama",
        "ffnbench cost --preset mixtral-8x7b --json",
        "ffnbench cost --variants gelu,swiglu@moe=8x2 --mode train -f md",
        docs="docs/forms.md#widths",
    ),
)
def cost(
    request: CostRequest,
    output: CountedOutput,
    context: typer.Context,
    names: Annotated[list[str] | None, NAMES] = None,
) -> None:
    """Count parameters, FLOPs and bytes of variants, without measuring and without torch."""
    from ffnbench import api

    request = with_names(request, context, names)
    with sink_of(output, "cost", *vars(request).values(), pictures=True, counts_only=True) as sink:
        api.cost(CompareRequest(**vars(request)), sink)
    leave(sink.code)


FILES = typer.Argument(
    metavar="FILE...",
    help="A .json that `compare`, `block` or `activations --time` wrote with -o; several: side by side.",
)


@command(
    "report",
    epilog=examples(
        "ffnbench report run.json -v",
        "ffnbench report run.json -o run.md -o run.png",
        "ffnbench report old.json new.json",
        docs="docs/methodology.md#counts",
    ),
)
def report(paths: Annotated[list[str], FILES], output: Reported) -> None:
    """Show a saved run again, every figure computed anew; or several side by side: old, new, change, its interval."""
    from ffnbench import api
    from ffnbench.streams import visible

    differs = ""
    with sink_of(output, "report", *paths, pictures=len(paths) == 1) as sink:
        if len(paths) > 1:
            api.reports(paths, sink)
        else:
            _, differs = api.report(paths[0], sink)
    if differs:
        print(visible(f"note: {differs}"), file=sys.stderr)
    leave(sink.code)
