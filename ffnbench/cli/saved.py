"""The command that shows saved runs again."""

import typer

from ffnbench.cli import options as o
from ffnbench.cli.commands import Command, destination_of, ending, output_of
from ffnbench.common.streams import say
from ffnbench.features import function_of
from ffnbench.planning.fields import refuse_empty

app = typer.Typer()


@app.command(
    "report",
    cls=Command,
    epilog=ending(
        "ffnbench report run.json -v",
        "ffnbench report run.json -o run.md -o run.png",
        "ffnbench report old.json new.json",
        docs="docs/methodology.md#counts",
    ),
)
def report(
    ctx: typer.Context,
    paths: o.Files,
    format: o.Format = "table",
    verbose: o.Verbose = False,
    out: o.Out = None,
    columns: o.Columns = "",
    sort: o.Sort = "",
) -> int:
    """Show a saved run again, or several side by side.

    Every figure is computed anew; of several: old, new, change, its interval.
    """
    from ffnbench.api.saved import report_of
    from ffnbench.report.shown_report import report_view

    refuse_empty("FILE", paths)
    output, difference = output_of(ctx), ""
    with destination_of(output, "report", *paths, pictures=len(paths) == 1) as destination:
        if len(paths) > 1:
            view = function_of("gate.shown:runs_view")(paths)
        else:
            report, difference = report_of(paths[0])
            destination.expect(report)
            view = report_view(report).ending(0)  # whatever it ended with: it can be shown
        destination.show(view)
    if difference:
        say(f"note: {difference}")
    return destination.code
