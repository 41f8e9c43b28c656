"""Every option once, but for those that one feature alone has: its names, its panel in
the help, the word for its value, and its help.

A command takes them as annotations of its parameters: `d_model: o.DModel = None` is
`--d-model`. A value is a text, as it was typed: cli/commands.py makes a request of all
of them. A switch states its own name, or else Typer adds its `--no-...`. What few
people use is `hidden`: `--help-all` shows it.
"""

from __future__ import annotations

from typing import Annotated, Any

from typer import Argument, Option

from ffnbench.choices import (
    CHECK_SUFFIXES,
    FIGURE_SUFFIXES,
    PAGE_SUFFIX,
    PICTURE_SUFFIXES,
    SUFFIXES,
)
from ffnbench.cli.words import words_for

TypedText = str | None
TypedTexts = list[str] | None

MODEL, WIDTHS, WORKLOAD, OUTPUT = "Model", "Widths", "Workload", "Output"
MEASURED, EFFORT = "What is measured", "How long"
SIDES, LIMITS = "Sides", "Limits"

# Arguments, typed by their place, or by their name: cli/words.py

Variants = Annotated[
    TypedTexts,
    Argument(
        metavar="VARIANT",
        show_default=False,
        help="Names of `ffnbench list variants`, swiglu@d_ff=64, file.py:Class.",
        autocompletion=words_for("variants"),
    ),
]
Variant = Annotated[
    TypedText,
    Argument(
        metavar="VARIANT|MODEL",
        help="An FFN as in `compare`, or a model.",
        autocompletion=words_for("variants"),
    ),
]
Code = Annotated[
    str,
    Argument(
        metavar="VARIANT",
        help="package.module:Attr, path/to/file.py:Attr, or a name of `ffnbench list variants`.",
        autocompletion=words_for("variants"),
    ),
]
BaseRev = Annotated[
    TypedText,
    Argument(
        metavar="BASE_REV",
        help="The git revision to compare with; also --base-rev.",
    ),
]
Activations = Annotated[
    TypedTexts,
    Argument(
        metavar="NAME",
        help="relu, swish@beta=0.5, file.py:function; names: `ffnbench activations`.",
        autocompletion=words_for("activations"),
    ),
]
Baseline = Annotated[
    str,
    Argument(
        metavar="BASELINE",
        help="A file that `ffnbench compare ... -o baseline.json` wrote.",
    ),
]
Current = Annotated[
    TypedText,
    Argument(
        metavar="CURRENT",
        help="A saved run to check; without it, the plan is measured now.",
    ),
]
File = Annotated[
    str,
    Argument(
        metavar="FILE",
        help="A .json of `compare`, `cost`, `block`, `activations --time`, `check` or `ab`.",
    ),
]
Topic = Annotated[
    str,
    Argument(
        metavar="WHAT",
        help="variants, keys, presets or hardware.",
        autocompletion=words_for("what"),
    ),
]

# Which FFNs

Preset = Annotated[
    TypedText,
    Option(
        rich_help_panel=WIDTHS,
        metavar="NAME|PATH",
        help="`ffnbench list presets`, or a config.json.",
        autocompletion=words_for("preset"),
    ),
]
DModel = Annotated[
    TypedText,
    Option(
        "--d-model",
        "--hidden-size",
        rich_help_panel=WIDTHS,
        metavar="INT",
        help="Width of the model.",
    ),
]
DFF = Annotated[
    TypedText,
    Option(
        "--d-ff",
        "--intermediate-size",
        rich_help_panel=WIDTHS,
        metavar="INT",
        help="Width of a branch; by default 4 * d_model; 2/3 of it for gated forms.",
    ),
]
Bias = Annotated[
    bool | None,
    Option(rich_help_panel=WIDTHS, help="Biases in all linear layers.", hidden=True),
]
Match = Annotated[
    TypedText,
    Option(
        rich_help_panel=WIDTHS,
        show_default=False,
        metavar="WHAT",
        help="What is made equal: params, flops or none.",
        autocompletion=words_for("match"),
    ),
]
Heads = Annotated[
    TypedText,
    Option(
        rich_help_panel=WIDTHS,
        metavar="INT",
        help="Query heads; by default d_model / 64.",
    ),
]
KVHeads = Annotated[
    TypedText,
    Option(
        "--kv-heads",
        rich_help_panel=WIDTHS,
        metavar="INT",
        help="Heads of keys and values; by default as many as --heads.",
    ),
]

# What an FFN is fed, and what it runs on

Batch = Annotated[
    TypedText,
    Option(
        "--batch",
        "--batch-size",
        rich_help_panel=WORKLOAD,
        metavar="INT",
        help="Sequences in a call.",
    ),
]
SeqLen = Annotated[
    TypedText,
    Option(
        rich_help_panel=WORKLOAD,
        metavar="INT",
        help="Tokens: 1..4Ki; by default 512, 64 if d_model > 2048.",
    ),
]
SeqLenOfBlock = Annotated[
    TypedText,
    Option(
        "--seq-len",
        rich_help_panel=WORKLOAD,
        metavar="INT",
        help="Tokens in a sequence: 1,128 or 1..4Ki.",
    ),
]
DType = Annotated[
    TypedText,
    Option(
        "--dtype",
        rich_help_panel=WORKLOAD,
        show_default=False,
        metavar="NAME",
        help="float32, bfloat16, float16 or float64.",
        autocompletion=words_for("dtype"),
    ),
]
Mode = Annotated[
    TypedText,
    Option(
        rich_help_panel=WORKLOAD,
        show_default=False,
        metavar="NAME",
        help="forward, train or backward.",
        autocompletion=words_for("mode"),
    ),
]
Hardware = Annotated[
    TypedText,
    Option(
        rich_help_panel=WORKLOAD,
        show_default=False,
        metavar="LIST",
        help="Add the least time on machines of `ffnbench list hardware`, or of a .toml of your own.",
        autocompletion=words_for("hardware"),
    ),
]
Device = Annotated[
    TypedText,
    Option(
        rich_help_panel=WORKLOAD,
        show_default=False,
        metavar="NAME",
        help="auto (a GPU if there is one), cpu, cuda:1.",
        autocompletion=words_for("device"),
    ),
]
Threads = Annotated[
    TypedText,
    Option(
        rich_help_panel=WORKLOAD,
        metavar="INT",
        help="CPU threads; by default all available ones.",
    ),
]
Backend = Annotated[
    TypedText,
    Option(
        rich_help_panel=WORKLOAD,
        show_default=False,
        metavar="NAME",
        help="eager, packed, compile, onednn, ort, openvino or all.",
        autocompletion=words_for("backend"),
    ),
]
Layer = Annotated[
    TypedText,
    Option(
        rich_help_panel=WORKLOAD,
        metavar="INT",
        show_default=False,
        help="With --preset FOLDER: the weights of that layer, from 0, in place of random ones.",
        hidden=True,
    ),
]
Weights = Annotated[
    TypedText,
    Option(
        rich_help_panel=WORKLOAD,
        metavar="LIST",
        show_default=False,
        help="Storage of weights: none, int8, int8-dynamic, int4.",
        autocompletion=words_for("weights"),
    ),
]
Elements = Annotated[
    TypedText,
    Option(
        rich_help_panel=WORKLOAD,
        metavar="INT",
        help="With --time: elements of the input, 4096,1Mi or 1Ki..1Mi.",
    ),
]

# What is measured, and how long

Range = Annotated[
    TypedText,
    Option(
        "--range",
        rich_help_panel=MEASURED,
        metavar="LO:HI",
        help="Range of x; a negative LO needs =, as in --range=-4:4.",
    ),
]
OperationsTimed = Annotated[
    bool,
    Option(
        "--time",
        rich_help_panel=MEASURED,
        help="Measure the operations, forward and backward, relative to relu.",
    ),
]
Metrics = Annotated[
    TypedText,
    Option(
        rich_help_panel=MEASURED,
        metavar="LIST",
        autocompletion=words_for("metrics"),
        help="latency, memory, rate (of bare matrix products and a copy), sparsity, routing or error (of outputs against float64, timing nothing if given "
        "alone).",
        hidden=True,
    ),
]
CostOnly = Annotated[
    bool,
    Option(
        "--cost-only",
        rich_help_panel=MEASURED,
        help="Count only; nothing is measured.",
    ),
]
Quick = Annotated[
    bool,
    Option(
        "--quick",
        rich_help_panel=EFFORT,
        help="A first look: only 5 workers of 4 rounds.",
    ),
]
Precision = Annotated[
    TypedText,
    Option(
        rich_help_panel=EFFORT,
        metavar="PCT",
        help="Measure until intervals are +-1 %, or +-PCT %.",
    ),
]
Budget = Annotated[
    TypedText,
    Option(
        rich_help_panel=EFFORT,
        metavar="TIME",
        help="Finish within this time, such as 90s or 5m.",
    ),
]
Workers = Annotated[
    TypedText,
    Option(
        rich_help_panel=EFFORT,
        metavar="INT",
        help="Measure in exactly this many processes (workers).",
        hidden=True,
    ),
]
Rounds = Annotated[
    TypedText,
    Option(
        rich_help_panel=EFFORT,
        metavar="INT",
        help="Measure exactly this many rounds in each worker; a round is one sample of each case.",
        hidden=True,
    ),
]
Seed = Annotated[
    TypedText,
    Option(
        rich_help_panel=EFFORT,
        metavar="INT",
        help="Seed of inputs, weights and the order of rounds.",
        hidden=True,
    ),
]
Timeout = Annotated[
    TypedText,
    Option(
        rich_help_panel=EFFORT,
        metavar="TIME",
        help="A case fails if one of its steps takes longer.",
        hidden=True,
    ),
]
Runs = Annotated[
    TypedText,
    Option(
        rich_help_panel=EFFORT,
        metavar="INT",
        hidden=True,
        help="Measure this many times with new processes, and save all runs as a baseline.",
    ),
]
Pause = Annotated[
    TypedText,
    Option(
        rich_help_panel=EFFORT,
        metavar="TIME",
        help="With --runs: time between two runs; by default 60s.",
        hidden=True,
    ),
]
Resume = Annotated[
    bool,
    Option(
        "--resume",
        rich_help_panel=EFFORT,
        hidden=True,
        help="Continue the file of -o; groups that it contains are not measured again.",
    ),
]
Wait = Annotated[
    bool,
    Option(
        "--wait",
        rich_help_panel=EFFORT,
        help="Wait while another run of ffnbench measures on this machine.",
        hidden=True,
    ),
]
On = Annotated[
    TypedText,
    Option(
        rich_help_panel=EFFORT,
        metavar="slurm[:KEY=VALUE,...]|local",
        hidden=True,
        help="Measure each group as a job, on SLURM (with fields of submitit's SlurmExecutor, as in "
        "slurm:partition=gpu,gpus_per_node=1) or locally one after another. Needs -o FILE.json; see docs/cluster.md.",
    ),
]
# Sides and limits of a check

BasePython = Annotated[
    TypedText,
    Option(
        rich_help_panel=SIDES,
        metavar="PATH",
        help="Run base in this interpreter, which needs only torch.",
    ),
]
BaseSource = Annotated[
    TypedText,
    Option(
        rich_help_panel=SIDES,
        metavar="DIR",
        help="Take the code of base from this folder.",
    ),
]
BaseEnv = Annotated[
    TypedTexts,
    Option(
        rich_help_panel=SIDES,
        metavar="NAME:VALUE",
        help="Set an environment variable for base. Repeatable.",
    ),
]
HeadRev = Annotated[
    TypedText,
    Option(
        rich_help_panel=SIDES,
        metavar="REV",
        help="Take head from this revision, not from the working tree.",
    ),
]
Tolerance = Annotated[
    TypedTexts,
    Option(
        rich_help_panel=LIMITS,
        metavar="[[CASE:]METRIC=]PCT%",
        show_default="latency=5%",
        autocompletion=words_for("tolerance"),
        help="How much a metric may grow; latency means the ratio to the reference. Repeatable.",
    ),
]
ExactOnly = Annotated[
    bool,
    Option(
        "--exact-only",
        rich_help_panel=LIMITS,
        help="Check only parameters, FLOPs and bytes; nothing is timed.",
    ),
]
AllowMismatch = Annotated[
    bool,
    Option(
        "--allow-mismatch",
        rich_help_panel=LIMITS,
        help="Measure and pass a row whose output has changed.",
    ),
]
Trust = Annotated[
    TypedTexts,
    Option(
        rich_help_panel=LIMITS,
        metavar="TARGET",
        help="Allow code that the baseline names to run. Repeatable.",
    ),
]
OnUnclear = Annotated[
    TypedText,
    Option(
        rich_help_panel=LIMITS,
        metavar="pass|fail",
        help="Exit with 0 (pass) or 4 (fail) if the run can't tell.",
        autocompletion=words_for("on_unclear"),
    ),
]
Update = Annotated[
    bool,
    Option(
        "--update",
        rich_help_panel=LIMITS,
        help="Replace the baseline by this run.",
    ),
]
# How an answer is shown and written

Format = Annotated[
    TypedText,
    Option(
        "--format",
        "-f",
        rich_help_panel=OUTPUT,
        show_default=False,
        metavar="NAME",
        help="table, markdown, latex, csv or json (--json).",
        autocompletion=words_for("format"),
    ),
]
CheckFormat = Annotated[
    TypedText,
    Option(
        "--format",
        "-f",
        rich_help_panel=OUTPUT,
        show_default=False,
        metavar="NAME",
        help="table, markdown, latex, csv, json (--json) or github.",
        autocompletion=words_for("format"),
    ),
]
Verbose = Annotated[
    bool,
    Option(
        "--verbose",
        "-v",
        rich_help_panel=OUTPUT,
        help="Show every column and all details.",
    ),
]
Columns = Annotated[
    TypedText,
    Option(
        rich_help_panel=OUTPUT,
        metavar="LIST",
        hidden=True,
        help="Show only these columns, named as in the CSV or by their heading: params,latency,ratio; +gflops adds a column.",
    ),
]
Sort = Annotated[
    TypedText,
    Option(
        rich_help_panel=OUTPUT,
        metavar="COLUMN",
        hidden=True,
        help="Sort rows by a column; -latency puts the largest first. Rows of one reference stay together.",
    ),
]
Quiet = Annotated[
    bool,
    Option(
        "--quiet",
        "-q",
        rich_help_panel=OUTPUT,
        help="Show no progress on stderr.",
        hidden=True,
    ),
]


def _out(*suffixes: str, more: str = "") -> Any:
    """-o of a command that writes these suffixes; `more` says when it writes others."""
    return Option(
        "--out",
        "-o",
        rich_help_panel=OUTPUT,
        metavar="PATH",
        help=f"Write {', '.join(suffixes)}{more}, or a folder/ with all. Repeatable.",
    )


Out = Annotated[TypedTexts, _out(PAGE_SUFFIX, *FIGURE_SUFFIXES, *SUFFIXES)]
TableOut = Annotated[TypedTexts, _out(PAGE_SUFFIX, *SUFFIXES)]
TimesOut = Annotated[
    TypedTexts,
    _out(PAGE_SUFFIX, *SUFFIXES, more=f", with --time {', '.join(FIGURE_SUFFIXES)}"),
]
CurvesOut = Annotated[TypedTexts, _out(*PICTURE_SUFFIXES)]
CheckOut = Annotated[TypedTexts, _out(PAGE_SUFFIX, *CHECK_SUFFIXES)]
