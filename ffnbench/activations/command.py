"""The commands that look at activations."""

from __future__ import annotations

from dataclasses import dataclass

from ffnbench.cli.commands import command, destination_of
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
    from ffnbench.run.world import this_machine
    from ffnbench.streams import say

    with destination_of(output, "activations", request.activations, suffixes=PICTURE_SUFFIXES) as destination:
        _, files = describing.draw_activations(request, this_machine())
        for path in destination.write(files):
            say(f"wrote {path}")
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
    from ffnbench.activations import describing
    from ffnbench.api.measuring import measure_here_or_elsewhere
    from ffnbench.api.preparing import prepare
    from ffnbench.ffn.dtypes import DTYPES
    from ffnbench.planning.workload import device_of
    from ffnbench.report.views import report_view
    from ffnbench.run.world import this_machine

    several("device", request.device, device_of)  # a word that is none is a mistake, whatever is asked of them
    several("dtype", request.dtype, DTYPES.get)
    with destination_of(output, "activations", request.activations, pictures=timing.time) as destination:
        world = this_machine(wait=output.wait)
        if timing.time:
            elsewhere = output.measure is not None
            prepared = prepare(request, world, notes=destination.defaults, elsewhere=elsewhere)
            destination.expect(prepared.priced())
            view = report_view(measure_here_or_elsewhere(prepared, world, destination, output.measure))
        else:
            asked = FactsRequest(activations=request.activations, timeout=request.timeout)
            view = describing.facts(asked, world)
        destination.show(view)
    return destination.code
