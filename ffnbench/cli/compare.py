"""The commands that answer which FFN: measured, counted, and shown again."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Annotated

import typer

from ffnbench.cli.app import leave
from ffnbench.cli.bundles import command
from ffnbench.cli.completing import variants
from ffnbench.cli.help import examples
from ffnbench.cli.positional import with_names
from ffnbench.report.files.outputs import inputs_of
from ffnbench.report.formats import FORMATS, PICTURES, SUFFIXES
from ffnbench.report.output import CountedOutput, MeasuredOutput, OutputSink, Reported
from ffnbench.request import CompareRequest, CostRequest
from ffnbench.streams import visible

ALL_SUFFIXES = (*SUFFIXES, *PICTURES)
WORDS = {"formats": ", ".join(FORMATS), "suffixes": ", ".join(ALL_SUFFIXES)}
MEASURED = WORDS | {"suffixes": WORDS["suffixes"] + "; roofline.png: under ceilings"}


NAMES = typer.Argument(
    metavar="VARIANT...",
    help="Variants, as in --variants; they stand after those of that flag.",
    autocompletion=variants,
)


@command(
    epilog=examples(
        "ffnbench compare --d-model 768 --variants relu,gelu,swiglu -o run.csv -o run.json",
        "ffnbench compare --variants swiglu,mine=mypkg.mlp:SwiGLU@like=swiglu --dtype bf16",
        "ffnbench compare --preset llama3-8b --seq-len 2Ki --precision 0.5% --budget 2m",
        docs="docs/methodology.md#the-method-on-one-page",
    ),
    words=MEASURED,
)
def compare(
    request: CompareRequest,
    output: MeasuredOutput,
    context: typer.Context,
    names: Annotated[list[str] | None, NAMES] = None,
) -> None:
    """Measure variants side by side: parameters, FLOPs, latency and memory, at equal parameters."""
    from ffnbench import api

    request = replace(request, variants=with_names(context, request.variants, names))
    with OutputSink(output, "compare", suffixes=ALL_SUFFIXES, inputs=inputs_of(*vars(request).values())) as sink:
        api.compare(request, sink)
    leave(sink.code)


@command(
    epilog=examples(
        "ffnbench cost --d-model 4096 --variants relu2,swiglu --rule llama",
        "ffnbench cost --preset mixtral-8x7b --json",
        "ffnbench cost --variants gelu,swiglu@moe=8x2 --mode train -f md",
        docs="docs/forms.md#widths",
    ),
    words=WORDS,
)
def cost(
    request: CostRequest,
    output: CountedOutput,
    context: typer.Context,
    names: Annotated[list[str] | None, NAMES] = None,
) -> None:
    """Count parameters, FLOPs and bytes of variants, without measuring and without torch."""
    from ffnbench import api

    request = replace(request, variants=with_names(context, request.variants, names))
    inputs = inputs_of(*vars(request).values())
    with OutputSink(output, "cost", suffixes=ALL_SUFFIXES, inputs=inputs, counts_only=True) as sink:
        api.cost(CompareRequest(**vars(request)), sink)
    leave(sink.code)


FILES = typer.Argument(
    metavar="FILE...",
    help="A .json that `compare`, `block` or `activations --time` wrote with -o; several: side by side.",
)


@command(
    epilog=examples(
        "ffnbench report run.json --wide",
        "ffnbench report run.json -o run.md -o run.png",
        "ffnbench report old.json new.json",
        docs="docs/methodology.md#counts",
    ),
    words=MEASURED,
)
def report(paths: Annotated[list[str], FILES], output: Reported) -> None:
    """Show a saved run again, every figure computed anew; or several side by side: old, new, change, its interval."""
    from ffnbench import api

    if len(paths) > 1:
        return _side_by_side(paths, output)
    with OutputSink(output, "report", suffixes=ALL_SUFFIXES, inputs=inputs_of(*paths)) as sink:
        _, differs = api.report(paths[0], sink)
    if differs:
        print(visible(f"note: {differs}"), file=sys.stderr)


def _side_by_side(paths: list[str], output: Reported) -> None:
    from ffnbench import api

    with OutputSink(output, "report", inputs=inputs_of(*paths)) as sink:
        api.reports(paths, sink)
    leave(sink.code)
