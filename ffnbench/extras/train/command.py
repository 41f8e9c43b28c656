"""The command `train`."""

import typer

from ffnbench.cli import options as o
from ffnbench.cli.commands import Command, answer, asked, ending

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
    variants: o.Variants = None,
    preset: o.Preset = None,
    d_model: o.DModel = None,
    d_ff: o.DFF = None,
    match: o.Match = "params",
    layers: o.Layers = "3",
    context: o.Context = "128",
    batch: o.Batch = "24",
    dtype: o.DType = "float32",
    text: o.Learnt = None,
    device: o.Device = "auto",
    threads: o.Threads = None,
    steps: o.Steps = "800",
    seeds: o.Seeds = "3",
    lr: o.LearningRates = "3e-3",
    budget: o.Budget = None,
    seed: o.Seed = "0",
    resume: o.Resume = False,
    wait: o.Wait = False,
    on: o.On = "",
    slurm: o.Slurm = None,
    format: o.Format = "table",
    verbose: o.Verbose = False,
    out: o.Out = None,
    quiet: o.Quiet = False,
) -> int:
    """Train a small language model with each variant.

    Held-out loss, beside the time of a step.
    """
    from ffnbench.extras.train.measuring import measure
    from ffnbench.extras.train.plan import TrainRequest, plan_train

    return answer(ctx, asked(TrainRequest, ctx), "train", planned=plan_train, own=measure)
