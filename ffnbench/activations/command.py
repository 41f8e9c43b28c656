"""The commands that look at activations."""

from __future__ import annotations

from dataclasses import dataclass

from ffnbench.cli.commands import command, sink_of
from ffnbench.planning.lists import several
from ffnbench.report.flags import FactsOutput, Written
from ffnbench.request import MEASURING, FactsRequest, PictureRequest, TimingRequest, flag


@command(
    "plot-activations",
    "ffnbench plot-activations --activations relu,gelu,silu -o curves.svg",
    "ffnbench plot-activations --range=-8:8 --no-derivative -o wide.png",
    "ffnbench plot-activations --gated -o surfaces.pdf",
    docs="docs/methodology.md#facts-of-activations",
)
def plot_activations(request: PictureRequest, output: Written) -> int:
    """Draw activations with their derivatives, or the surfaces of gated forms, to png, svg, pdf or csv."""
    from ffnbench.activations import describing
    from ffnbench.report.formats import PICTURE_SUFFIXES

    with sink_of(output, "activations", request.activations, suffixes=PICTURE_SUFFIXES) as sink:
        describing.plot_activations(request, sink)
    return 0


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Whether anything is measured."""

    time: bool = flag(False, "Measure the operations, forward and backward, against relu.", MEASURING)


@command(
    "activations",
    "ffnbench activations -v",
    "ffnbench activations --activations gelu,silu,mish",
    "ffnbench activations --time --quick --dtype float32,bf16 --elements 64Ki,1Mi",
    docs="docs/methodology.md#facts-of-activations",
)
def activations(request: TimingRequest, timing: Timing, output: FactsOutput) -> int:
    """Show the facts of activations, or with --time what their operations cost."""
    from ffnbench import api
    from ffnbench.activations import describing
    from ffnbench.ffn.dtypes import DTYPES
    from ffnbench.planning.workload import device_of

    several("device", request.device, device_of)  # a word that is none is a mistake, whatever is asked of them
    several("dtype", request.dtype, DTYPES.get)
    with sink_of(output, "activations", request.activations, pictures=timing.time) as sink:
        if timing.time:
            api.time_activations(request, sink, output.measure)
        else:
            describing.facts(FactsRequest(activations=request.activations, timeout=request.timeout), sink)
    return sink.code
