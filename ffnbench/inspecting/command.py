"""The command `inspect`."""

from typing import Annotated

import typer
from typer import Argument, Option

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
WholeModel = Annotated[
    bool,
    Option(
        "--whole-model",
        rich_help_panel=o.MODEL,
        help="Show all parameters by part: embeddings, attention, FFN, norms, head.",
    ),
]
Length = Annotated[
    o.TypedText,
    Option(
        rich_help_panel=o.WORKLOAD,
        metavar="INT",
        help="Show FLOPs, keys and values at this many tokens, by kind of layer, and all parameters by part.",
    ),
]


@app.command(
    "inspect",
    cls=Command,
    epilog=ending(
        "ffnbench inspect deepseek-v3",
        "ffnbench inspect mixtral-8x7b --whole-model",
        "ffnbench inspect deepseek-v3 --length 32Ki",
        "ffnbench inspect path/to/config.json --json",
        docs="docs/inspect.md#the-whole-model",
    ),
)
def inspect(
    ctx: typer.Context,
    model: Model,
    whole_model: WholeModel = False,
    length: Length = None,
    dtype: o.DType = "float32",
    format: o.Format = "table",
    verbose: o.Verbose = False,
    out: o.TableOut = None,
) -> int:
    """Show the FFNs of a model, a row for each kind of layer."""
    from ffnbench.inspecting.by_length import InspectRequest
    from ffnbench.inspecting.layers import model_answer

    request, output = request_from_typed(InspectRequest, ctx), output_from_typed(ctx)
    with destination_of(output, "inspect", request.model) as destination:
        destination.show(model_answer(request))
    return destination.code
