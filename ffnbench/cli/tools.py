"""The commands about names, and this machine."""

import typer

from ffnbench.cli import options as o
from ffnbench.cli.commands import Command, destination_of, ending, output_of, settings_here
from ffnbench.features import of_features
from ffnbench.planning.fields import refuse_empty

app = typer.Typer()


@app.command(
    "list",
    cls=Command,
    epilog=ending(
        "ffnbench list variants",
        "ffnbench list rules -v",
        "ffnbench list presets --json",
        docs="docs/forms.md#names-that-mean-different-things",
    ),
)
def list_(
    ctx: typer.Context,
    what: o.Topic = "variants",
    format: o.Format = "table",
    json: o.Json = False,
    verbose: o.Verbose = False,
) -> int:
    """Show the names there are to choose from."""
    from ffnbench.report.listing import LIST_OF_BACKENDS, listing_view

    refuse_empty("WHAT", [what])
    with destination_of(output_of(ctx), "list") as destination:
        if what == LIST_OF_BACKENDS:
            from ffnbench.api.this_machine import backends
            from ffnbench.run.world import this_machine

            view = backends(this_machine())
        elif what in of_features("listings"):
            view = of_features("listings")[what].file("table").LISTINGS[what]()
        else:
            view = listing_view(what)
        destination.show(view)
    return 0


@app.command(
    "env",
    cls=Command,
    epilog=ending(
        "ffnbench env",
        "ffnbench env --ceilings",
        "ffnbench env --timer --json",
        docs="docs/performance.md#what-the-machine-can-do",
    ),
)
def env(
    ctx: typer.Context,
    timer: o.Timer = False,
    ceilings: o.Ceilings = False,
    format: o.Format = "table",
    json: o.Json = False,
    verbose: o.Verbose = False,
    quiet: o.Quiet = False,
) -> int:
    """Show this machine, and what makes it noisy now.

    Where numbers would be made: machine, torch, fingerprint.
    """
    from ffnbench.api.this_machine import environment
    from ffnbench.run.world import this_machine

    with destination_of(output_of(ctx), "env") as destination:
        settings = settings_here()
        rows = settings.rows() if settings else []
        world, progress = this_machine(), destination.progress
        destination.show(environment(world, progress, timer=timer, ceilings=ceilings, settings=rows))
    return 0
