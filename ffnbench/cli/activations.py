"""The commands that look at activations."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from ffnbench.cli.app import leave
from ffnbench.cli.bundles import command, sink_of
from ffnbench.cli.help import examples
from ffnbench.report.flags import MeasuredOutput, Written
from ffnbench.request import MEASURING, FactsRequest, PictureRequest, TimingRequest

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
)
def plot_activations(request: PictureRequest, output: Written) -> None:
    """Draw activations with their derivatives, or the surfaces of gated forms, to png, svg, pdf or csv."""
    from ffnbench import api
    from ffnbench.report.formats import PICTURE_SUFFIXES

    written = output if output.out else replace(output, out=(DEFAULT_PICTURE,))
    with sink_of(written, "activations", request.activations, suffixes=PICTURE_SUFFIXES) as sink:
        api.plot_activations(request, sink)


@command(
    "activations",
    epilog=examples(
        "ffnbench activations --wide",
        "ffnbench activations --activations gelu,swish@beta=0.5,mine=act.py:soft",
        "ffnbench activations --time --quick --dtype float32,bf16 --elements 64Ki,1Mi",
        docs="docs/methodology.md#facts-of-activations",
    ),
)
def activations(request: TimingRequest, output: MeasuredOutput, time: Annotated[bool, TIME] = False) -> None:
    """Show the facts of activations, or with --time what their operations cost."""
    from ffnbench import api
    from ffnbench.ffn.dtypes import DTYPES
    from ffnbench.planning.lists import several
    from ffnbench.planning.workload import device_of

    device_of(request.device)  # a word that is none is a mistake, whatever is asked of them
    several("dtype", request.dtype, DTYPES.get)
    with sink_of(output, "activations", request.activations, pictures=time) as sink:
        if time:
            api.time_activations(request, sink)
        else:
            api.facts(FactsRequest(activations=request.activations, timeout=request.timeout), sink)
    leave(sink.code)
