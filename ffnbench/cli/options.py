"""Every flag once, with its help and its panel. Choices are taken as text and checked in request.py: one voice."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ffnbench.report.store import FORMATS, WRITERS


def whole(text: str) -> int:
    """An integer from a flag, with a complaint that shows what was typed."""
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a whole number") from None


def number(text: str) -> float:
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
Preset = Annotated[
    str | None,
    typer.Option(
        "--preset",
        metavar="NAME",
        rich_help_panel=MODEL,
        help="A published model, `ffnbench list presets`: its FFN is the variant `preset`.",
    ),
]
ConfigPath = Annotated[
    str | None,
    typer.Option(
        "--config",
        metavar="PATH",
        rich_help_panel=MODEL,
        help="A Hugging Face config.json, or its folder: its FFN is the variant `config`.",
    ),
]
DModel = Annotated[
    int | None,
    typer.Option(
        "--d-model",
        parser=whole,
        metavar="INT",
        rich_help_panel=MODEL,
        help="Width of the model. \\[default: the model's that is named, else 768]",
    ),
]
DFF = Annotated[
    int | None,
    typer.Option(
        "--d-ff",
        parser=whole,
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
        parser=whole,
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
        parser=number,
        metavar="X",
        rich_help_panel=MODEL,
        help="Expansion, d_ff / d_model. \\[default: 4]",
    ),
]
Multiplier = Annotated[
    float | None,
    typer.Option(
        "--ffn-dim-multiplier",
        parser=number,
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
        parser=number,
        metavar="P",
        rich_help_panel=MODEL,
        help="Dropout on the hidden layer, in train mode.",
    ),
]
InitName = Annotated[
    str, typer.Option("--init", metavar="NAME", rich_help_panel=MODEL, help="Weights: torch, he_xavier or normal.")
]

Batch = Annotated[
    int, typer.Option("--batch", parser=whole, metavar="INT", rich_help_panel=WORKLOAD, help="Sequences in a call.")
]
SeqLen = Annotated[
    int, typer.Option("--seq-len", parser=whole, metavar="INT", rich_help_panel=WORKLOAD, help="Tokens in a sequence.")
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
        parser=whole,
        metavar="INT",
        rich_help_panel=WORKLOAD,
        help="CPU threads. Default: the CPUs this process may use.",
    ),
]

BackendName = Annotated[
    str,
    typer.Option(
        "--backend", metavar="NAME", rich_help_panel=WORKLOAD, help="eager, or compile: through torch.compile."
    ),
]
RoutingName = Annotated[
    str | None,
    typer.Option(
        "--routing",
        metavar="NAME",
        rich_help_panel=WORKLOAD,
        help="How tokens spread over experts: uniform, skewed or trained-like. \\[default: uniform]",
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
        parser=whole,
        metavar="INT",
        rich_help_panel=MEASURING,
        help="Exactly so many fresh processes, one after another; intervals are over them.",
    ),
]
Rounds = Annotated[
    int | None,
    typer.Option(
        "--rounds",
        parser=whole,
        metavar="INT",
        rich_help_panel=MEASURING,
        help="Exactly so many rounds in each worker; a round measures each case once.",
    ),
]
Precision = Annotated[
    float | None,
    typer.Option(
        "--precision",
        parser=number,
        metavar="PCT",
        rich_help_panel=MEASURING,
        help="Measure until every ratio is known to +-PCT percent. \\[default: 1]",
    ),
]
Budget = Annotated[
    float | None,
    typer.Option(
        "--budget",
        parser=number,
        metavar="SECONDS",
        rich_help_panel=MEASURING,
        help="... or until this time is over; 3 workers at least. "
        "\\[default: 5 a variant, 15 at least; with --precision 120]",
    ),
]
Control = Annotated[
    bool,
    typer.Option(
        "--control",
        rich_help_panel=MEASURING,
        help="Measure the reference a second time: where it differs from itself, this machine can't be trusted now.",
    ),
]
Quick = Annotated[bool, typer.Option("--quick", rich_help_panel=MEASURING, help="3 workers of 8 rounds: a first look.")]
MetricNames = Annotated[
    str,
    typer.Option("--metrics", metavar="LIST", rich_help_panel=MEASURING, help="latency, memory, sparsity, routing."),
]
Seed = Annotated[
    int,
    typer.Option(
        "--seed",
        parser=whole,
        metavar="INT",
        rich_help_panel=MEASURING,
        help="Seed of inputs, weights and the order of rounds; of simulated machines.",
    ),
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        parser=number,
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

GATE = "Gate"
Tolerances = Annotated[
    list[str] | None,
    typer.Option(
        "--tolerance",
        metavar="[CASE:]METRIC=PCT%",
        rich_help_panel=GATE,
        help="How much a metric may grow; latency is the ratio to the reference. Repeatable. \\[default: latency=5%]",
    ),
]
ExactOnly = Annotated[
    bool,
    typer.Option("--exact-only", rich_help_panel=GATE, help="Parameters, FLOPs and bytes alone; nothing is timed."),
]
GateBudget = Annotated[
    float,
    typer.Option("--budget", parser=number, metavar="SECONDS", rich_help_panel=GATE, help="Decide within this time."),
]
AcrossMachines = Annotated[
    bool,
    typer.Option("--across-machines", rich_help_panel=GATE, help="Compare ratios with another kind of machine too."),
]
Absolute = Annotated[
    bool, typer.Option("--absolute", rich_help_panel=GATE, help="Gate seconds too, on the very same machine only.")
]
OnUnclear = Annotated[
    str,
    typer.Option(
        "--on-unclear", metavar="pass|fail", rich_help_panel=GATE, help="What follows where the run can't tell."
    ),
]
Update = Annotated[
    bool, typer.Option("--update", rich_help_panel=GATE, help="Accept what was found: it becomes the baseline.")
]
GateFormat = Annotated[
    str,
    typer.Option(
        "--format", "-f", metavar="NAME", rich_help_panel=OUTPUT, help="On stdout: table, markdown, json, csv, github."
    ),
]
Exports = Annotated[
    list[str] | None,
    typer.Option(
        "--export",
        metavar="NAME[=PATH]",
        rich_help_panel=OUTPUT,
        help="bencher, github-action-benchmark or go-bench. Repeatable.",
    ),
]
GateOut = Annotated[
    list[str] | None,
    typer.Option(
        "--out", "-o", metavar="PATH", rich_help_panel=OUTPUT, help="Write a .xml (JUnit), .md, .json or .csv."
    ),
]


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


SIDES = "Sides"


def _side(flag: str, metavar: str, help_: str) -> Any:
    return typer.Option(flag, metavar=metavar, rich_help_panel=SIDES, help=help_)


BaseRev = Annotated[str | None, _side("--base-rev", "REV", "Base is this git revision, checked out for the while.")]
HeadRev = Annotated[str | None, _side("--head-rev", "REV", "Head is this revision, not the working tree as it is.")]
BaseSource = Annotated[str | None, _side("--base-source", "DIR", "Base is the code in this folder.")]
HeadSource = Annotated[str | None, _side("--head-source", "DIR", "Head is the code in this folder.")]
BasePython = Annotated[
    str | None, _side("--base-python", "PATH", "Base runs in this interpreter; it needs torch alone.")
]
HeadPython = Annotated[str | None, _side("--head-python", "PATH", "Head runs in this interpreter.")]
BaseEnv = Annotated[list[str] | None, _side("--base-env", "NAME:VALUE", "A variable of base's processes. Repeatable.")]
HeadEnv = Annotated[list[str] | None, _side("--head-env", "NAME:VALUE", "A variable of head's processes. Repeatable.")]
FailAbove = Annotated[
    str | None,
    typer.Option(
        "--fail-above",
        metavar="PCT%",
        rich_help_panel=GATE,
        help="Short for --tolerance latency=PCT%: how much slower head may be. \\[default: 5%]",
    ),
]
AllowMismatch = Annotated[
    bool,
    typer.Option("--allow-mismatch", rich_help_panel=GATE, help="Go on, and pass, where head's output has changed."),
]
