"""The command `selftest`."""

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
Repeats = Annotated[
    o.TypedText, Option(rich_help_panel=o.EFFORT, metavar="INT", help="Number of runs.")
]
Budget = Annotated[
    o.TypedText,
    Option(
        rich_help_panel=o.EFFORT,
        metavar="TIME",
        help="Time of each run, such as 15s or 1m.",
    ),
]


@app.command(
    "selftest",
    cls=Command,
    epilog=ending(
        "ffnbench selftest",
        "ffnbench selftest --threads 1 --budget 30s",
        "ffnbench selftest --repeats 40 --d-model 256 -o selftest.json",
        docs="docs/selftest.md#how-often-is-it-wrong-here",
    ),
)
def selftest(
    ctx: typer.Context,
    d_model: o.DModel = "256",
    threads: o.Threads = None,
    repeats: Repeats = "10",
    budget: Budget = "15s",
    wait: o.Wait = False,
    format: o.Format = "table",
    verbose: o.Verbose = False,
    out: o.Out = None,
    quiet: o.Quiet = False,
) -> int:
    """Count how often ffnbench is wrong on this machine."""
    from ffnbench.extras.selftest.measuring import SelftestRequest, run_selftest
    from ffnbench.extras.selftest.table import selftest_view
    from ffnbench.run.world import this_machine

    request, output = request_from_typed(SelftestRequest, ctx), output_from_typed(ctx)
    with destination_of(output, "selftest") as destination:
        runs = run_selftest(
            request, this_machine(wait=output.wait), destination.progress
        )
        destination.show(selftest_view(runs))
    return destination.code
