"""The command `bisect`."""

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

app = typer.Typer()
Good = Annotated[
    o.TypedText,
    Option(
        rich_help_panel=o.SIDES, metavar="REV", help="A revision that is fast enough."
    ),
]
Bad = Annotated[
    o.TypedText,
    Option(
        rich_help_panel=o.SIDES, metavar="REV", help="A later revision that is slow."
    ),
]
Probes = Annotated[
    o.TypedText,
    Option(
        rich_help_panel=o.EFFORT,
        metavar="INT",
        help="Measure at most this many times in this call.",
    ),
]


@app.command(
    "bisect",
    cls=Command,
    epilog=ending(
        "ffnbench bisect mypkg.mlp:SwiGLU --good v1.0 --bad HEAD --tolerance 3%",
        "ffnbench bisect mypkg/mlp.py:SwiGLU --good HEAD~40 --d-model 1024 --budget 20m",
        "ffnbench bisect mypkg.mlp:SwiGLU --good v1.0 -o bisect.json",
        docs="docs/bisect.md#which-commit",
    ),
)
def bisect(
    ctx: typer.Context,
    variant: o.Code,
    good: Good = "",
    bad: Bad = "HEAD",
    d_model: o.DModel = None,
    d_ff: o.DFF = None,
    batch: o.Batch = "1",
    seq_len: o.SeqLen = None,
    dtype: o.DType = "float32",
    mode: o.Mode = "forward",
    device: o.Device = "auto",
    threads: o.Threads = None,
    tolerance: o.Tolerance = None,
    probes: Probes = "20",
    budget: o.Budget = "3600s",
    wait: o.Wait = False,
    format: o.Format = "table",
    verbose: o.Verbose = False,
    out: o.Out = None,
    quiet: o.Quiet = False,
) -> int:
    """Find the commit that made a module slower.

    Each commit is compared with the good one, as in `ab`. A commit that
    can't be imported or built is skipped. Results are kept in git's own
    folder, so the same command continues where it ended.
    """
    from ffnbench.extras.bisect.search import BisectRequest, search
    from ffnbench.extras.bisect.table import bisect_view
    from ffnbench.run.world import this_machine

    request, output = request_from_typed(BisectRequest, ctx), output_from_typed(ctx)
    with destination_of(output, "bisect") as destination:
        bisected = search(request, this_machine(wait=output.wait), destination.progress)
        destination.show(bisect_view(bisected))
    return destination.code
