"""The command `history`."""

import shlex
from typing import Annotated

import typer
from typer import Argument, Option

from ffnbench.cli import options as o
from ffnbench.cli.commands import Command, destination_of, ending, output_from_typed
from ffnbench.planning.fields import refuse_empty

# metrics as they are typed, with their keys
METRIC_KEYS = {
    "ratio": "ratio",
    "latency": "latency",
    "params": "params",
    "flops": "flops_timed",
    "peak": "peak_bytes",
}


app = typer.Typer()
Files = Annotated[
    list[str],
    Argument(
        metavar="FILE",
        help="A .json of `compare -o` or `check --append`, or a folder of them.",
    ),
]
Metric = Annotated[
    o.TypedText,
    Option(
        rich_help_panel=o.MEASURED,
        metavar="NAME",
        help="ratio, latency, params, flops or peak; by default the ratio, and exact metrics that changed.",
    ),
]


@app.command(
    "history",
    cls=Command,
    epilog=ending(
        "ffnbench history results/",
        "ffnbench history results/*.json -o history.png",
        "ffnbench history baseline.json --metric latency --format github",
        docs="docs/history.md#over-time",
    ),
)
def history(
    ctx: typer.Context,
    paths: Files,
    metric: Metric = "",
    format: o.CheckFormat = "table",
    verbose: o.Verbose = False,
    out: o.Out = None,
) -> int:
    """Show saved runs over time, and where they change.

    Each row has its first and last value, and the commits at which it changed.
    """
    from ffnbench.extras.history.table import history_view
    from ffnbench.extras.history.timeline import history_of_files
    from ffnbench.report.destination import refuse_unknown
    from ffnbench.report.formats import CHECK_FORMATS

    refuse_empty("FILE", paths)
    output = output_from_typed(ctx)
    with destination_of(
        output, "history", *paths, pictures=True, formats=CHECK_FORMATS
    ) as destination:
        if metric:
            refuse_unknown("--metric", metric, list(METRIC_KEYS))
        tell = destination.progress.tell
        timeline = history_of_files(
            paths, tell, metric=METRIC_KEYS.get(metric or "", "")
        )
        words = ["ffnbench", "history", *paths]
        if metric:
            words += ["--metric", metric]
        destination.show(history_view(timeline, shlex.join(words)))
    return destination.code
