"""The command `inspect`."""

from typing import Annotated

import typer
from typer import Argument

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
Model = Annotated[
    str,
    Argument(
        metavar="CONFIG|PRESET",
        help="A config.json, its folder, a preset, or ORG/NAME in the hub's cache.",
        autocompletion=words_for("preset"),
    ),
]


@app.command(
    "inspect",
    cls=Command,
    epilog=ending(
        "ffnbench inspect deepseek-v3",
        "ffnbench inspect mixtral-8x7b -o parts.csv",
        "ffnbench inspect path/to/config.json --json",
        docs="docs/inspect.md#what-is-in-a-model",
    ),
)
def inspect(
    ctx: typer.Context,
    model: Model,
    format: o.Format = "table",
    verbose: o.Verbose = False,
    out: o.TableOut = None,
) -> int:
    """Show the parameters of a model by part and layer."""
    from ffnbench.inspecting.table import InspectRequest, model_view

    request, output = request_from_typed(InspectRequest, ctx), output_from_typed(ctx)
    with destination_of(output, "inspect", request.model) as destination:
        destination.show(model_view(request))
    return destination.code
