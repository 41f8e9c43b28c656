"""The command `train`."""

from typing import Annotated

import typer
from typer import Option

from ffnbench.cli import options as o
from ffnbench.cli.commands import Command, answer_request, ending, request_from_typed

app = typer.Typer()
Layers = Annotated[
    o.TypedText,
    Option(rich_help_panel=o.WIDTHS, metavar="INT", help="Blocks of the model."),
]
Context = Annotated[
    o.TypedText,
    Option(rich_help_panel=o.WORKLOAD, metavar="INT", help="Bytes of a sequence."),
]
Text = Annotated[
    o.TypedText,
    Option(
        "--text",
        rich_help_panel=o.WORKLOAD,
        metavar="PATH",
        help="Text to learn: a file or a folder; by default the source of Python's standard library.",
    ),
]
Steps = Annotated[
    o.TypedText, Option(rich_help_panel=o.EFFORT, metavar="INT", help="Steps of AdamW.")
]
Seeds = Annotated[
    o.TypedText,
    Option(
        rich_help_panel=o.EFFORT,
        metavar="INT",
        help="Runs of each variant, each with another seed; intervals are over them.",
    ),
]
LearningRates = Annotated[
    o.TypedText,
    Option(
        "--lr",
        rich_help_panel=o.EFFORT,
        metavar="LIST",
        help="Learning rate; with several, each variant is reported at its best.",
    ),
]


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
    layers: Layers = "3",
    context: Context = "128",
    batch: o.Batch = "24",
    dtype: o.DType = "float32",
    text: Text = None,
    device: o.Device = "auto",
    threads: o.Threads = None,
    steps: Steps = "800",
    seeds: Seeds = "3",
    lr: LearningRates = "3e-3",
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

    Shows the held-out loss and the time of a step.
    """
    from ffnbench.extras.train.measuring import measure_training
    from ffnbench.extras.train.plan import TrainRequest, plan_train

    return answer_request(
        ctx,
        request_from_typed(TrainRequest, ctx),
        "train",
        plan_train,
        own=measure_training,
    )
