"""The commands `activations` and `plot-activations`."""

from dataclasses import replace

import typer

from ffnbench.cli import options as o
from ffnbench.cli.commands import (
    Command,
    answer_request,
    destination_of,
    ending,
    output_from_typed,
    request_from_typed,
)
from ffnbench.planning.fields import several
from ffnbench.request import FactsRequest, PictureRequest, TimingRequest

app = typer.Typer()


@app.command(
    "plot-activations",
    cls=Command,
    epilog=ending(
        "ffnbench plot-activations relu,gelu,silu -o curves.svg",
        "ffnbench plot-activations gelu,gelu_tanh -o difference.pdf",
        "ffnbench plot-activations --range=-8:8 -o wide.png",
        docs="docs/methodology.md#facts-of-activations",
    ),
)
def plot_activations(
    ctx: typer.Context,
    activations: o.Activations = None,
    range_: o.Range = "-4:4",
    out: o.CurvesOut = None,
) -> int:
    """Draw activations and their derivatives.

    Without -o, the picture is written to activations.png.
    """
    from ffnbench.activations import describing
    from ffnbench.choices import PICTURE_SUFFIXES
    from ffnbench.common.streams import say
    from ffnbench.run.world import this_machine

    request, output = request_from_typed(PictureRequest, ctx), output_from_typed(ctx)
    if not output.out:
        output = replace(output, out=("activations.png",))
    with destination_of(
        output, "activations", request.activations, suffixes=PICTURE_SUFFIXES
    ) as destination:
        _, files = describing.draw_activations(request, this_machine())
        for path in destination.write(files):
            say(f"wrote {path}")
    return 0


@app.command(
    "activations",
    cls=Command,
    epilog=ending(
        "ffnbench activations -v",
        "ffnbench activations gelu,silu,mish",
        "ffnbench activations --time --quick --dtype float32,bf16 --elements 64Ki,1Mi",
        docs="docs/methodology.md#facts-of-activations",
    ),
)
def activations(
    ctx: typer.Context,
    activations: o.Activations = None,
    time: o.OperationsTimed = False,
    elements: o.Elements = "1048576",
    dtype: o.DType = "float32",
    device: o.Device = "auto",
    threads: o.Threads = None,
    quick: o.Quick = False,
    workers: o.Workers = None,
    rounds: o.Rounds = None,
    format: o.Format = "table",
    verbose: o.Verbose = False,
    out: o.TimesOut = None,
    quiet: o.Quiet = False,
) -> int:
    """Show facts of activations; --time measures them."""
    request = request_from_typed(TimingRequest, ctx)
    if time:
        from ffnbench.activations.plan import plan_timing

        return answer_request(ctx, request, "activations", plan_timing)

    from ffnbench.activations import describing
    from ffnbench.ffn.spec import DTYPES
    from ffnbench.planning.workload import device_of
    from ffnbench.run.world import this_machine

    # facts need no device and no dtype, but a wrong one is a mistake here too
    several("device", request.device, device_of)
    several("dtype", request.dtype, DTYPES.get)
    with destination_of(
        output_from_typed(ctx), "activations", request.activations
    ) as destination:
        destination.show(
            describing.describe_activations(
                FactsRequest(activations=request.activations), this_machine()
            )
        )
    return destination.code
