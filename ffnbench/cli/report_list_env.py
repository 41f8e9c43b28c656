"""The commands `report`, `list` and `env`, which measure no network: they show saved
runs, names, and this machine.
"""

import typer

from ffnbench.cli import options as o
from ffnbench.cli.commands import (
    Command,
    destination_of,
    ending,
    output_from_typed,
    settings_here,
)
from ffnbench.common.streams import say
from ffnbench.planning.fields import refuse_empty

app = typer.Typer()


@app.command(
    "report",
    cls=Command,
    epilog=ending(
        "ffnbench report run.json -v",
        "ffnbench report run.json -o run.md -o run.png",
        "ffnbench report check.json -o check.html",
        docs="docs/methodology.md#counts",
    ),
)
def report(
    ctx: typer.Context,
    path: o.File,
    format: o.Format = "table",
    verbose: o.Verbose = False,
    out: o.Out = None,
    columns: o.Columns = "",
    sort: o.Sort = "",
) -> int:
    """Show a saved run again.

    Every figure is computed again from the samples.
    """
    from ffnbench.api.saved_runs import load_recomputed
    from ffnbench.report.files.store import holds_findings
    from ffnbench.report.shown_report import report_view

    refuse_empty("FILE", [path])
    output, difference = output_from_typed(ctx), ""
    is_check = holds_findings(path)
    with destination_of(output, "report", path, pictures=not is_check) as destination:
        if is_check:
            from ffnbench.gate.saved_check import saved_check_view

            view = saved_check_view(path)
        else:
            report, difference = load_recomputed(path)
            destination.expect(report)
            # 0, even where the run itself ended with an error
            view = report_view(report).ending(0)
        destination.show(view)
    if difference:
        say(f"note: {difference}")
    return destination.code


@app.command(
    "list",
    cls=Command,
    epilog=ending(
        "ffnbench list variants",
        "ffnbench list keys -v",
        "ffnbench list presets --json",
        docs="docs/forms.md#names-that-mean-different-things",
    ),
)
def list_(
    ctx: typer.Context,
    what: o.Topic = "variants",
    format: o.Format = "table",
    verbose: o.Verbose = False,
) -> int:
    """Show the names that a command takes."""
    from ffnbench.report.listing import listing_view

    refuse_empty("WHAT", [what])
    with destination_of(output_from_typed(ctx), "list") as destination:
        destination.show(listing_view(what))
    return 0


@app.command(
    "env",
    cls=Command,
    epilog=ending(
        "ffnbench env",
        "ffnbench env -v",
        "ffnbench env --json",
        docs="docs/methodology.md#what-an-interval-does-not-cover",
    ),
)
def env(
    ctx: typer.Context,
    format: o.Format = "table",
    verbose: o.Verbose = False,
    quiet: o.Quiet = False,
) -> int:
    """Show this machine, and what makes it noisy now.

    Shows what is stored with every run: machine, torch, settings.
    """
    from ffnbench.api.this_machine import environment
    from ffnbench.run.world import this_machine

    with destination_of(output_from_typed(ctx), "env") as destination:
        settings = settings_here()
        rows = settings.rows() if settings else []
        destination.show(environment(this_machine(), rows))
    return 0
