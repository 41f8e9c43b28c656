"""The commands that look at activations."""

from dataclasses import replace

import typer

from ffnbench.cli import options as o
from ffnbench.cli.commands import Command, asked, destination_of, ending, output_of
from ffnbench.planning.fields import several
from ffnbench.request import FactsRequest, PictureRequest, TimingRequest

app = typer.Typer()


@app.command(
    "plot-activations",
    cls=Command,
    epilog=ending(
        "ffnbench plot-activations --activations relu,gelu,silu -o curves.svg",
        "ffnbench plot-activations --range=-8:8 --no-derivative -o wide.png",
        "ffnbench plot-activations --gated -o surfaces.pdf",
        docs="docs/methodology.md#facts-of-activations",
    ),
)
def plot_activations(
    ctx: typer.Context,
    placed: o.ActivationsPlaced = None,
    activations: o.Activations = None,
    range_: o.Range = "-4:4",
    derivative: o.Derivative = None,
    gated: o.Gated = False,
    timeout: o.Timeout = "300s",
    out: o.PictureOut = None,
) -> int:
    """Draw activations, or the surfaces of gated forms."""
    from ffnbench.activations import describing
    from ffnbench.common.streams import say
    from ffnbench.report.formats import PICTURE_SUFFIXES
    from ffnbench.run.world import this_machine

    request, output = asked(PictureRequest, ctx, activations=placed), output_of(ctx)
    if not output.out:
        output = replace(output, out=("activations.png",))
    with destination_of(output, "activations", request.activations, suffixes=PICTURE_SUFFIXES) as destination:
        _, files = describing.draw_activations(request, this_machine())
        for path in destination.write(files):
            say(f"wrote {path}")
    return 0


@app.command(
    "activations",
    cls=Command,
    epilog=ending(
        "ffnbench activations -v",
        "ffnbench activations --activations gelu,silu,mish",
        "ffnbench activations --time --quick --dtype float32,bf16 --elements 64Ki,1Mi",
        docs="docs/methodology.md#facts-of-activations",
    ),
)
def activations(
    ctx: typer.Context,
    placed: o.ActivationsPlaced = None,
    activations: o.Activations = None,
    time: o.OperationsTimed = False,
    elements: o.Elements = "1048576",
    dtype: o.DType = "float32",
    device: o.Device = "auto",
    threads: o.Threads = None,
    quick: o.Quick = False,
    workers: o.Workers = None,
    rounds: o.Rounds = None,
    seed: o.Seed = "0",
    timeout: o.Timeout = "300s",
    runs: o.Repeated = "1",
    pause: o.Pause = None,
    shard: o.Shard = None,
    resume: o.Resume = False,
    wait: o.Wait = False,
    on: o.On = "",
    slurm: o.Slurm = None,
    format: o.Format = "table",
    json: o.Json = False,
    verbose: o.Verbose = False,
    out: o.FactsOut = None,
    quiet: o.Quiet = False,
    columns: o.Columns = "",
    sort: o.Sort = "",
) -> int:
    """Show facts of activations; --time: what they cost."""
    from ffnbench.activations import describing
    from ffnbench.api.measuring import measure_here_or_as_jobs
    from ffnbench.api.preparing import prepare
    from ffnbench.ffn.spec import DTYPES
    from ffnbench.planning.workload import device_of
    from ffnbench.report.shown_report import report_view
    from ffnbench.run.world import this_machine

    request, output = asked(TimingRequest, ctx, activations=placed), output_of(ctx)
    several("device", request.device, device_of)  # a word that is none is a mistake, whatever is asked of them
    several("dtype", request.dtype, DTYPES.get)
    with destination_of(output, "activations", request.activations, pictures=time) as destination:
        world = this_machine(wait=output.wait)
        if time:
            as_jobs = output.measure is not None
            prepared = prepare(request, world, notes=destination.defaults, as_jobs=as_jobs)
            destination.expect(prepared.cost_report())
            view = report_view(measure_here_or_as_jobs(prepared, world, destination, output.measure))
        else:
            facts = FactsRequest(activations=request.activations, timeout=request.timeout)
            view = describing.facts(facts, world)
        destination.show(view)
    return destination.code
