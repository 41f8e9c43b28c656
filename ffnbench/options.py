"""Every flag once, with its help and its panel. Choices are taken as text and checked in request.py: one voice."""

from __future__ import annotations

from typing import Annotated

import typer

from ffnbench.report.store import FORMATS, WRITERS


def _whole(text: str) -> int:
    """An integer from a flag, with a complaint that shows what was typed."""
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a whole number") from None


def _number(text: str) -> float:
    """A number from a flag, with a complaint that shows what was typed."""
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a number") from None


MODEL, WORKLOAD, MEASURING, OUTPUT = "Model", "Workload", "Measurement", "Output"

Variants = Annotated[
    str,
    typer.Option(
        "--variants",
        metavar="LIST",
        rich_help_panel=MODEL,
        help="Comma separated \\[LABEL=]NAME\\[@KEY=VALUE]...; names: "
        "`ffnbench list variants`; your own: pkg.mod:Class, file.py:Class.",
    ),
]
DModel = Annotated[
    int, typer.Option("--d-model", parser=_whole, metavar="INT", rich_help_panel=MODEL, help="Width of the model.")
]
DFF = Annotated[
    int | None,
    typer.Option(
        "--d-ff",
        parser=_whole,
        metavar="INT",
        rich_help_panel=MODEL,
        help="Final width per branch of the reference; the others follow --match. Default: 4 * d_model, classic form.",
    ),
]
MatchOn = Annotated[
    str,
    typer.Option(
        "--match",
        metavar="WHAT",
        rich_help_panel=MODEL,
        help="Make params, flops or none equal to the reference's.",
    ),
]
MultipleOf = Annotated[
    int | None,
    typer.Option(
        "--multiple-of",
        parser=_whole,
        metavar="INT",
        rich_help_panel=MODEL,
        help="Round widths to this; 8 when matching, else the rule's own.",
    ),
]
RuleName = Annotated[
    str | None,
    typer.Option(
        "--rule",
        metavar="NAME",
        rich_help_panel=MODEL,
        help="Size gated forms by a published rule: `ffnbench list rules`.",
    ),
]
Ratio = Annotated[
    float | None,
    typer.Option(
        "--ratio",
        parser=_number,
        metavar="X",
        rich_help_panel=MODEL,
        help="Expansion, d_ff / d_model. \\[default: 4]",
    ),
]
Multiplier = Annotated[
    float | None,
    typer.Option(
        "--ffn-dim-multiplier",
        parser=_number,
        metavar="X",
        rich_help_panel=MODEL,
        help="Llama's ffn_dim_multiplier, for --rule llama.",
    ),
]
Bias = Annotated[bool, typer.Option("--bias/--no-bias", rich_help_panel=MODEL, help="Biases in all linear layers.")]
Dropout = Annotated[
    float,
    typer.Option(
        "--dropout",
        parser=_number,
        metavar="P",
        rich_help_panel=MODEL,
        help="Dropout on the hidden layer, in train mode.",
    ),
]
InitName = Annotated[
    str, typer.Option("--init", metavar="NAME", rich_help_panel=MODEL, help="Weights: torch, he_xavier or normal.")
]

Batch = Annotated[
    int, typer.Option("--batch", parser=_whole, metavar="INT", rich_help_panel=WORKLOAD, help="Sequences in a call.")
]
SeqLen = Annotated[
    int, typer.Option("--seq-len", parser=_whole, metavar="INT", rich_help_panel=WORKLOAD, help="Tokens in a sequence.")
]
Dtype = Annotated[
    str, typer.Option("--dtype", metavar="NAME", rich_help_panel=WORKLOAD, help="float32, bfloat16, float16, float64.")
]
Device = Annotated[
    str,
    typer.Option(
        "--device", metavar="NAME", rich_help_panel=WORKLOAD, help="auto (cuda where there is one), cpu, cuda, cuda:1."
    ),
]
ModeName = Annotated[
    str,
    typer.Option(
        "--mode",
        metavar="NAME",
        rich_help_panel=WORKLOAD,
        help="forward, train (forward and backward) or backward alone.",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        parser=_whole,
        metavar="INT",
        rich_help_panel=WORKLOAD,
        help="CPU threads. Default: the CPUs this process may use.",
    ),
]

Reference = Annotated[
    str | None,
    typer.Option(
        "--reference",
        metavar="LABEL",
        rich_help_panel=MEASURING,
        help="What ratios are relative to. Default: the first variant.",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        parser=_whole,
        metavar="INT",
        rich_help_panel=MEASURING,
        help="Fresh processes, one after another; intervals are over them. \\[default: 5]",
    ),
]
Rounds = Annotated[
    int | None,
    typer.Option(
        "--rounds",
        parser=_whole,
        metavar="INT",
        rich_help_panel=MEASURING,
        help="Rounds in each worker; a round measures each case once. \\[default: 30]",
    ),
]
Quick = Annotated[bool, typer.Option("--quick", rich_help_panel=MEASURING, help="3 workers of 8 rounds: a first look.")]
MetricNames = Annotated[
    str, typer.Option("--metrics", metavar="LIST", rich_help_panel=MEASURING, help="latency, memory, sparsity.")
]
Seed = Annotated[
    int,
    typer.Option(
        "--seed",
        parser=_whole,
        metavar="INT",
        rich_help_panel=MEASURING,
        help="Seed of inputs, weights and the order of rounds.",
    ),
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        parser=_number,
        metavar="SECONDS",
        rich_help_panel=MEASURING,
        help="Give up a case that takes longer for one step.",
    ),
]

Format = Annotated[
    str,
    typer.Option("--format", "-f", metavar="NAME", rich_help_panel=OUTPUT, help=f"On stdout: {', '.join(FORMATS)}."),
]
Out = Annotated[
    list[str] | None,
    typer.Option(
        "--out",
        "-o",
        metavar="PATH",
        rich_help_panel=OUTPUT,
        help=f"Write a file ({', '.join(WRITERS)}), or all of them into a folder/. Repeatable.",
    ),
]
Wide = Annotated[bool, typer.Option("--wide", rich_help_panel=OUTPUT, help="Show every column, in blocks that fit.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", rich_help_panel=OUTPUT, help="No progress on stderr.")]

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
Dpi = Annotated[int, typer.Option("--dpi", parser=_whole, metavar="INT", rich_help_panel=OUTPUT, help="Dots per inch.")]
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
