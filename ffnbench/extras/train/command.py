"""The command `train`."""

import typer

from ffnbench.cli import options as o
from ffnbench.cli.commands import Command, asked, destination_of, ending, output_of

app = typer.Typer()


@app.command(
    "train",
    cls=Command,
    epilog=ending(
        "ffnbench train relu gelu swiglu relu2 -o learnt.json -o learnt.png",
        "ffnbench train relu mine=mypkg.mlp:Mlp --steps 200 --text book.txt",
        "ffnbench train relu swiglu --lr 1e-3,3e-3,6e-3 --budget 30m -o learnt.json",
        docs="docs/training.md#what-is-reported",
    ),
)
def train(
    ctx: typer.Context,
    placed: o.VariantsPlaced = None,
    variants: o.Variants = "relu,gelu,swiglu",
    preset: o.Preset = None,
    d_model: o.TrainedWidth = None,
    d_ff: o.DFF = None,
    match: o.Match = "params",
    multiple_of: o.MultipleOf = None,
    rule: o.Rule = None,
    ratio: o.Ratio = None,
    ffn_dim_multiplier: o.FfnDimMultiplier = None,
    bias: o.Bias = None,
    dropout: o.Dropout = "0",
    reference: o.Reference = None,
    layers: o.Layers = "3",
    context: o.Context = "128",
    batch: o.Batch = "24",
    dtype: o.TrainedDType = "float32",
    text: o.Learnt = None,
    device: o.Device = "auto",
    threads: o.Threads = None,
    steps: o.Steps = "800",
    seeds: o.Seeds = "3",
    lr: o.LearningRates = "3e-3",
    budget: o.Budget = None,
    seed: o.Seed = "0",
    timeout: o.Timeout = "300s",
    resume: o.Resume = False,
    wait: o.Wait = False,
    on: o.On = "",
    slurm: o.Slurm = None,
    format: o.Format = "table",
    json: o.Json = False,
    verbose: o.Verbose = False,
    out: o.Out = None,
    quiet: o.Quiet = False,
    columns: o.Columns = "",
    sort: o.Sort = "",
) -> int:
    """Train a small language model with each variant.

    Held-out loss, beside the time of a step.
    """
    from ffnbench.api.measuring import measure_here_or_as_jobs
    from ffnbench.api.preparing import prepare
    from ffnbench.extras.train.measuring import measure
    from ffnbench.extras.train.plan import TrainRequest, plan_train
    from ffnbench.report.shown_report import report_view
    from ffnbench.run.world import this_machine

    request, output = asked(TrainRequest, ctx, variants=placed), output_of(ctx)
    with destination_of(output, "train", *vars(request).values(), pictures=True) as destination:
        world, as_jobs = this_machine(wait=output.wait), output.measure
        notes = destination.defaults
        prepared = prepare(request, world, plan_train, notes=notes, as_jobs=as_jobs is not None)
        destination.expect(prepared.cost_report())
        report = measure_here_or_as_jobs(prepared, world, destination, as_jobs, measure)
        destination.show(report_view(report))
    return destination.code
