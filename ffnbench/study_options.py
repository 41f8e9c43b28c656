"""The flags of the commands that look at activations and at ffnbench itself."""

from __future__ import annotations

from typing import Annotated

import typer

from ffnbench.options import MEASURING, MODEL, OUTPUT, WORKLOAD, number, whole

CURVES = "Curves"
Activations = Annotated[
    str | None,
    typer.Option(
        "--activations",
        metavar="LIST",
        rich_help_panel=CURVES,
        help="Comma separated: names, swish@beta=0.5, file.py:function. Names: `ffnbench list activations`.",
    ),
]
Range = Annotated[
    str,
    typer.Option("--range", metavar="LO:HI", rich_help_panel=CURVES, help="Range of x; write a negative LO with =."),
]
Derivative = Annotated[
    bool | None,
    typer.Option(
        "--derivative/--no-derivative", rich_help_panel=CURVES, help="The derivative beside f. \\[default: derivative]"
    ),
]
Gated = Annotated[
    bool, typer.Option("--gated", rich_help_panel=CURVES, help="Surfaces act(g) * u of the gated forms instead.")
]
Size = Annotated[str | None, typer.Option("--size", metavar="WxH", rich_help_panel=OUTPUT, help="Inches, e.g. 10x4.5.")]
Dpi = Annotated[int, typer.Option("--dpi", parser=whole, metavar="INT", rich_help_panel=OUTPUT, help="Dots per inch.")]
Style = Annotated[
    str, typer.Option("--style", metavar="NAME", rich_help_panel=OUTPUT, help="A matplotlib style, e.g. ggplot.")
]
PictureOut = Annotated[
    list[str] | None,
    typer.Option(
        "--out",
        "-o",
        metavar="PATH",
        rich_help_panel=OUTPUT,
        help="A .png, .svg, .pdf, or .csv with the points; all of them into a folder/. Repeatable. "
        "\\[default: activations.png]",
    ),
]
Time = Annotated[
    bool,
    typer.Option(
        "--time", rich_help_panel=MEASURING, help="Measure the operations, forward and backward, against relu."
    ),
]
Elements = Annotated[
    str | None,
    typer.Option(
        "--elements", metavar="LIST", rich_help_panel=WORKLOAD, help="With --time: sizes. \\[default: 1048576]"
    ),
]
Dtypes = Annotated[
    str | None,
    typer.Option("--dtype", metavar="LIST", rich_help_panel=WORKLOAD, help="With --time: dtypes. \\[default: float32]"),
]

GateToo = Annotated[
    bool,
    typer.Option(
        "--gate", rich_help_panel=MEASURING, help="Count the false alarms of `check`, and the slow-downs that it finds."
    ),
]
Runs = Annotated[
    int | None,
    typer.Option(
        "--runs",
        parser=whole,
        metavar="INT",
        rich_help_panel=MEASURING,
        help="Simulated runs in all; with --gate, baselines. \\[default: 1000, or 140]",
    ),
]
Live = Annotated[
    bool,
    typer.Option(
        "--live",
        rich_help_panel=MEASURING,
        help="Measure on this machine instead, beside torch's Timer and a median loop, quiet and with a neighbour.",
    ),
]
Repeats = Annotated[
    int | None,
    typer.Option(
        "--repeats",
        parser=whole,
        metavar="INT",
        rich_help_panel=MEASURING,
        help="With --live: how often everything is measured. \\[default: 5, or 20 with --gate]",
    ),
]
LiveBudget = Annotated[
    float | None,
    typer.Option(
        "--budget",
        parser=number,
        metavar="SECONDS",
        rich_help_panel=MEASURING,
        help="With --live: time of one run, or check. \\[default: 20, or 120 with --gate]",
    ),
]
LiveWidth = Annotated[
    int | None,
    typer.Option(
        "--d-model",
        parser=whole,
        metavar="INT",
        rich_help_panel=MODEL,
        help="With --live: width of the module. \\[default: 256, or 768 with --gate]",
    ),
]
RecordsOut = Annotated[
    list[str] | None,
    typer.Option("--out", "-o", metavar="PATH", rich_help_panel=OUTPUT, help="Write a .json, .csv or .md. Repeatable."),
]
SavedReadings = Annotated[
    list[str] | None,
    typer.Option(
        "--from",
        metavar="FILE",
        rich_help_panel=MEASURING,
        help="Show what --live saved with -o FILE.json instead; several together. Repeatable.",
    ),
]
