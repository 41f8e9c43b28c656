"""The commands that look at activations."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from ffnbench.cli.app import leave
from ffnbench.cli.bundles import command
from ffnbench.cli.compare import ALL_SUFFIXES, WORDS
from ffnbench.cli.help import examples
from ffnbench.report.files.outputs import inputs_of
from ffnbench.report.formats import PICTURE_SUFFIXES
from ffnbench.report.output import MeasuredOutput, OutputSink, Written
from ffnbench.request import MEASURING, FactsRequest, PictureRequest, TimingRequest
from ffnbench.streams import visible

DEFAULT_PICTURE = "activations.png"
TIME = typer.Option(
    "--time", rich_help_panel=MEASURING, help="Measure the operations, forward and backward, against relu."
)


@command(
    "plot-activations",
    epilog=examples(
        "ffnbench plot-activations --activations relu,gelu,silu -o curves.svg",
        "ffnbench plot-activations --range=-8:8 --no-derivative -o wide.png",
        "ffnbench plot-activations --gated -o surfaces.pdf",
        docs="docs/methodology.md#facts-of-activations",
    ),
    words={"suffixes": ", ".join(PICTURE_SUFFIXES) + f"; default: {DEFAULT_PICTURE}"},
)
def plot_activations(request: PictureRequest, output: Written) -> None:
    """Draw activations with their derivatives, or the surfaces of gated forms, to png, svg, pdf or csv."""
    from ffnbench import api

    written = output if output.out else replace(output, out=(DEFAULT_PICTURE,))
    with OutputSink(written, "activations", suffixes=PICTURE_SUFFIXES, inputs=inputs_of(request.activations)) as sink:
        lines = api.plot_activations(request, sink)
    print("\n".join(map(visible, lines)))


@command(
    epilog=examples(
        "ffnbench activations --wide",
        "ffnbench activations --activations gelu,swish@beta=0.5,mine=act.py:soft",
        "ffnbench activations --time --quick --dtype float32,bf16 --elements 64Ki,1Mi",
        docs="docs/methodology.md#facts-of-activations",
    ),
    words=WORDS,
)
def activations(request: TimingRequest, output: MeasuredOutput, time: Annotated[bool, TIME] = False) -> None:
    """Show the facts of activations, or with --time what their operations cost."""
    from ffnbench import api

    if not time:
        with OutputSink(output, "activations", inputs=inputs_of(request.activations)) as sink:
            api.facts(FactsRequest(activations=request.activations, timeout=request.timeout), sink)
    else:
        inputs = inputs_of(request.activations)
        with OutputSink(output, "activations", suffixes=ALL_SUFFIXES, inputs=inputs) as sink:
            api.time_activations(request, sink)
    leave(sink.code)
