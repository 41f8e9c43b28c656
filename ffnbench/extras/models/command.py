"""The command `inspect`."""

import typer

from ffnbench.cli import options as o
from ffnbench.cli.commands import Command, asked, destination_of, ending, output_of

app = typer.Typer()


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
    model: o.Model,
    whole_model: o.WholeModel = False,
    length: o.Length = None,
    dtype: o.DType = "float32",
    format: o.Format = "table",
    verbose: o.Verbose = False,
    out: o.Out = None,
) -> int:
    """Show a model's FFNs, one row a kind of layer."""
    from ffnbench.extras.models.by_length import InspectRequest
    from ffnbench.extras.models.inspecting import model_answer
    from ffnbench.run.world import this_machine

    request, output = asked(InspectRequest, ctx), output_of(ctx)
    with destination_of(output, "inspect", request.model) as destination:
        destination.show(model_answer(request, this_machine()))
    return 0
