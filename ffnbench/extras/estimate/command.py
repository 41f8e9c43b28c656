"""The command `estimate`."""

from typing import Annotated

import typer
from typer import Option

from ffnbench.cli import options as o
from ffnbench.cli.commands import (
    Command,
    destination_of,
    ending,
    output_from_typed,
    request_from_typed,
)
from ffnbench.cli.words import words_for

app = typer.Typer()
Hardware = Annotated[
    o.TypedText,
    Option(
        rich_help_panel=o.WORKLOAD,
        metavar="LIST",
        help="Machines of `ffnbench list hardware`, or a .toml of your own.",
        autocompletion=words_for("hardware"),
    ),
]
TensorParallel = Annotated[
    o.TypedText,
    Option(
        "--tensor-parallel",
        "--tp",
        rich_help_panel=o.WORKLOAD,
        metavar="INT",
        help="Split d_ff over this many devices, with a ring all-reduce.",
    ),
]


@app.command(
    "estimate",
    cls=Command,
    epilog=ending(
        "ffnbench estimate relu,swiglu --hardware h100,a100 --seq-len 1,4Ki -v",
        "ffnbench estimate --preset llama3-8b --tensor-parallel 8 --mode train",
        "ffnbench estimate swiglu --hardware mi300x,epyc-9654 -o bounds.csv",
        docs="docs/performance.md#machines-that-are-not-here",
    ),
)
def estimate(
    ctx: typer.Context,
    variants: o.Variants = None,
    preset: o.Preset = None,
    d_model: o.DModel = None,
    d_ff: o.DFF = None,
    match: o.Match = "params",
    bias: o.Bias = None,
    hardware: Hardware = "h100",
    tensor_parallel: TensorParallel = "1",
    batch: o.Batch = "1",
    seq_len: o.SeqLen = None,
    dtype: o.DType = "float32",
    mode: o.Mode = "forward",
    format: o.Format = "table",
    verbose: o.Verbose = False,
    out: o.Out = None,
) -> int:
    """Show the least time of variants on other machines.

    The bound follows from published peaks; nothing is measured.
    """
    from ffnbench.extras.estimate.estimating import EstimateRequest, estimate_answer
    from ffnbench.run.world import this_machine

    request, output = request_from_typed(EstimateRequest, ctx), output_from_typed(ctx)
    with destination_of(output, "estimate", *vars(request).values()) as destination:
        destination.show(estimate_answer(request, this_machine(), destination.defaults))
    return destination.code
