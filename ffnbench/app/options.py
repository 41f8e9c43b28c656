"""Every flag once: what Python may pass for it, the reader that makes a value of that
or of what is typed, and how the help shows it.

A command takes them as annotations of its parameters: `d_model: o.DModel = None` is
`--d-model`.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from typer import Argument, Option

from ffnbench.common import choices
from ffnbench.common.choices import (
    CHECK_SUFFIXES,
    FIGURE_SUFFIXES,
    PAGE_SUFFIX,
    PICTURE_SUFFIXES,
    SUFFIXES,
)
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.names import hint_for
from ffnbench.plan.reading import (
    count,
    cut,
    device_of,
    dtype,
    joined,
    many,
    member,
    mode_of,
    one,
    pairs,
    percent,
    plain,
    positive,
    seconds,
    spelling,
    switch,
    text,
    texts,
    texts_of,
)

if TYPE_CHECKING:
    import torch

StrPath = str | os.PathLike[str]
OneVariant = StrPath | Callable[..., Any]  # a name, a class or a function
SeveralVariants = OneVariant | Sequence[OneVariant] | Mapping[str, OneVariant]
Sizes = int | str | Iterable[int | str]
Names = str | Sequence[str]
MatchName = Literal["params", "flops", "none"]
ModeName = Literal["forward", "train", "backward", "inference", "training"]
Pairs = str | Sequence[str] | Mapping[str, str]
OneDType: TypeAlias = "str | torch.dtype"
DTypes: TypeAlias = "OneDType | Sequence[OneDType]"
OneDevice: TypeAlias = "str | torch.device"
Devices: TypeAlias = "OneDevice | Sequence[OneDevice]"

MODEL, WIDTHS, WORKLOAD, OUTPUT = "Model", "Widths", "Workload", "Output"
MEASURED, EFFORT = "What is measured", "How long"
SIDES, LIMITS = "Sides", "Limits"

# The words that a flag takes, which a shell offers at TAB, by the flag's name


def completed(name: str) -> Callable[[str], list[str]]:
    """A function that completes the value of a flag: it gives the words that may stand
    there, behind those of its list that are typed already.
    """

    def complete(incomplete: str) -> list[str]:
        before, comma, _ = incomplete.rpartition(",")
        typed = before.split(",")
        return [
            f"{before}{comma}{word}" for word in words_of(name) if word not in typed
        ]

    return complete


def words_of(name: str) -> Iterable[str]:
    """The words that a flag takes; none where it takes no fixed ones."""
    match name:
        case "variants" | "variant":
            from ffnbench.ffn.spec import GATED

            return [*words_of("activations"), *GATED.names(), *words_of("preset")]
        case "activations":
            from ffnbench.ffn.activations import ACTIVATIONS

            return ACTIVATIONS.names()
        case "preset" | "model":
            from ffnbench.models.presets import PRESETS

            return PRESETS.names()
        case "what":
            from ffnbench.report.listing import LISTINGS

            return LISTINGS
        case "hardware":
            from ffnbench.record.hardware import published

            return published().names()
        case "tolerance":
            from ffnbench.gate.decision import CHECKED_METRICS

            return [f"{metric}=" for metric in CHECKED_METRICS]
        case "dtype":
            from ffnbench.ffn.spec import DTYPES

            return DTYPES.spellings()
        case "metrics":
            from ffnbench.plan.metrics import METRIC_GROUPS

            return METRIC_GROUPS
    return FIXED.get(name, ())


FIXED: dict[str, Iterable[str]] = {
    "match": choices.Match,
    "mode": (*choices.Mode, *choices.MODE_ALIASES),
    "device": ("auto", "cpu", "cuda"),
    "cache": choices.Cache,
    "backend": (*choices.Backend, choices.ALL_BACKENDS),
    "weights": choices.Weights,
    "on_unclear": ("pass", "fail"),
    "format": ("table", "markdown", "latex", "csv", "json", "github"),
}


# Readers of what one kind of flag takes


def variants(name: str, value: Any) -> str:
    """The list of variants, or of activations, as it would be typed. Raises
    FfnbenchError for a class or a function that a worker can't find.
    """
    typed = value if isinstance(value, list) else [value]
    if all(isinstance(text, str) for text in typed):
        return joined(texts_of(name, value))
    from ffnbench.app.own_code import variants_text

    return variants_text(name, value)


def backends(name: str, value: Any) -> tuple[choices.Backend, ...]:
    """The backends of a list; `all` is every one."""
    if choices.ALL_BACKENDS in cut(spelling(name), joined(texts_of(name, value))):
        return tuple(choices.Backend)
    return many(member(choices.Backend, "backend"))(name, value)


def metric(name: str, text: str) -> str:
    """The name of a group of metrics; raises FfnbenchError for what is none."""
    from ffnbench.plan.metrics import METRIC_GROUPS

    if text not in METRIC_GROUPS:
        hint = hint_for(text, METRIC_GROUPS, f"metrics: {', '.join(METRIC_GROUPS)}")
        raise FfnbenchError(f"unknown metric {text!r}", hint)
    return text


def list_of_names(name: str, value: Any) -> str:
    """A list as one text."""
    text = joined(texts_of(name, value))
    return ",".join(cut(spelling(name), text))


def interval(name: str, value: Any) -> tuple[float, float]:
    """The bounds of LO:HI, or of a pair."""
    from ffnbench.activations.plan import parse_range

    return parse_range(":".join(texts_of(name, value)))


# Arguments, typed by their place, or by their name

Variants = Annotated[
    SeveralVariants,
    variants,
    Argument(
        metavar="VARIANT",
        help="Names of `ffnbench list variants`, swiglu@d_ff=64, file.py:Class.",
    ),
]
Variant = Annotated[
    OneVariant | None,
    variants,
    Argument(
        metavar="VARIANT|MODEL",
        help="An FFN as in `compare`, or a model.",
    ),
]
Code = Annotated[
    OneVariant,
    variants,
    Argument(
        metavar="VARIANT",
        help="package.module:Attr, path/to/file.py:Attr, or a name of `ffnbench list variants`.",
    ),
]
BaseRev = Annotated[
    str | None,
    text,
    Argument(
        metavar="BASE_REV",
        help="The git revision to compare with; also --base-rev.",
    ),
]
Activations = Annotated[
    SeveralVariants | None,
    variants,
    Argument(
        metavar="NAME",
        help="relu, swish@beta=0.5, file.py:function; names: `ffnbench activations`.",
    ),
]
Baseline = Annotated[
    StrPath,
    text,
    Argument(
        metavar="BASELINE",
        help="A file that `ffnbench compare ... -o baseline.json` wrote.",
    ),
]
Current = Annotated[
    StrPath | None,
    text,
    Argument(
        metavar="CURRENT",
        help="A saved run to check; without it, the plan is measured now.",
    ),
]
File = Annotated[
    StrPath,
    text,
    Argument(
        metavar="FILE",
        help="A .json of `compare`, `cost`, `block`, `activations --time`, `check` or `ab`.",
    ),
]
Topic = Annotated[
    str,
    text,
    Argument(
        metavar="WHAT",
        help="variants, keys, presets or hardware.",
    ),
]

# Which FFNs

Preset = Annotated[
    StrPath | None,
    text,
    Option(
        rich_help_panel=WIDTHS,
        metavar="NAME|PATH",
        help="`ffnbench list presets`, or a config.json.",
    ),
]
DModel = Annotated[
    Sizes | None,
    many(positive),
    Option(
        "--d-model",
        "--hidden-size",
        rich_help_panel=WIDTHS,
        metavar="INT",
        help="Width of the model.",
    ),
]
DFF = Annotated[
    Sizes | None,
    many(positive),
    Option(
        "--d-ff",
        "--intermediate-size",
        rich_help_panel=WIDTHS,
        metavar="INT",
        help="Width of a branch; by default 4 * d_model; 2/3 of it for gated forms.",
    ),
]
Match = Annotated[
    MatchName,
    one(member(choices.Match, "match")),
    Option(
        rich_help_panel=WIDTHS,
        metavar="WHAT",
        help="What is made equal: params, flops or none.",
    ),
]
Heads = Annotated[
    int | str | None,
    one(positive),
    Option(
        rich_help_panel=WIDTHS,
        metavar="INT",
        help="Query heads; by default d_model / 64.",
    ),
]
KVHeads = Annotated[
    int | str | None,
    one(positive),
    Option(
        "--kv-heads",
        rich_help_panel=WIDTHS,
        metavar="INT",
        help="Heads of keys and values; by default as many as --heads.",
    ),
]

# A published model

Model = Annotated[
    StrPath,
    text,
    Argument(
        metavar="CONFIG|PRESET",
        help="A config.json, its folder, a preset, or ORG/NAME in the hub's cache.",
    ),
]

# What an FFN is fed, and what it runs on

Batch = Annotated[
    Sizes,
    many(positive),
    Option(
        "--batch",
        "--batch-size",
        rich_help_panel=WORKLOAD,
        metavar="INT",
        help="Sequences in a call.",
    ),
]
SeqLen = Annotated[
    Sizes | None,
    many(positive),
    Option(
        rich_help_panel=WORKLOAD,
        metavar="INT",
        help="Tokens: 1..4Ki; by default 512, 64 if d_model > 2048.",
    ),
]
SeqLenOfBlock = Annotated[
    Sizes,
    many(positive),
    Option(
        "--seq-len",
        rich_help_panel=WORKLOAD,
        metavar="INT",
        help="Tokens in a sequence: 1,128 or 1..4Ki.",
    ),
]
DType = Annotated[
    "DTypes",
    many(dtype),
    Option(
        "--dtype",
        rich_help_panel=WORKLOAD,
        metavar="NAME",
        help="float32, bfloat16, float16 or float64.",
    ),
]
Mode = Annotated[
    ModeName | Sequence[ModeName],
    many(mode_of),
    Option(
        rich_help_panel=WORKLOAD,
        metavar="NAME",
        help="forward, train or backward.",
    ),
]
Cache = Annotated[
    Names,
    many(member(choices.Cache, "cache")),
    Option(
        rich_help_panel=WORKLOAD,
        metavar="NAME",
        help="Weights before a call: hot, cold, or rotated as in a deep model.",
    ),
]
Hardware = Annotated[
    Names | None,
    many(plain),
    Option(
        rich_help_panel=WORKLOAD,
        metavar="LIST",
        help="Add the least time on machines of `ffnbench list hardware`, or of a .toml of your own.",
    ),
]
Device = Annotated[
    "Devices",
    many(device_of),
    Option(
        rich_help_panel=WORKLOAD,
        metavar="NAME",
        help="auto (a GPU if there is one), cpu, cuda:1.",
    ),
]
# of Python alone
AnyDevice = Annotated[
    "OneDevice | None", one(device_of), Option(help="Where the module is made.")
]
Threads = Annotated[
    Sizes | None,
    many(positive),
    Option(
        rich_help_panel=WORKLOAD,
        metavar="INT",
        help="CPU threads; by default all available ones.",
    ),
]
Backend = Annotated[
    Names,
    backends,
    Option(
        rich_help_panel=WORKLOAD,
        metavar="NAME",
        help="eager, packed, compile, onednn, ort, openvino or all.",
    ),
]
Layer = Annotated[
    int | str | None,
    one(count),
    Option(
        rich_help_panel=WORKLOAD,
        metavar="INT",
        help="With --preset FOLDER: the weights of that layer, from 0, in place of random ones.",
    ),
]
Weights = Annotated[
    Names,
    many(member(choices.Weights, "weights")),
    Option(
        rich_help_panel=WORKLOAD,
        metavar="LIST",
        help="Storage of weights: none, int8, int8-dynamic, int4.",
    ),
]
Elements = Annotated[
    Sizes,
    many(positive),
    Option(
        rich_help_panel=WORKLOAD,
        metavar="INT",
        help="With --time: elements of the input, 4096,1Mi or 1Ki..1Mi.",
    ),
]

# What is measured, and how long

Range = Annotated[
    str | tuple[float, float],
    interval,
    Option(
        "--range",
        rich_help_panel=MEASURED,
        metavar="LO:HI",
        help="Range of x; a negative LO needs =, as in --range=-4:4.",
    ),
]
OperationsTimed = Annotated[
    bool,
    switch,
    Option(
        "--time",
        rich_help_panel=MEASURED,
        help="Measure the operations, forward and backward, relative to relu.",
    ),
]
Metrics = Annotated[
    Names,
    many(metric),
    Option(
        rich_help_panel=MEASURED,
        metavar="LIST",
        help="latency, memory, rate (of bare matrix products and a copy), sparsity, routing or error (of outputs against float64, timing nothing if given "
        "alone).",
    ),
]
CostOnly = Annotated[
    bool,
    switch,
    Option(
        "--cost-only",
        rich_help_panel=MEASURED,
        help="Count only; nothing is measured.",
    ),
]
Quick = Annotated[
    bool,
    switch,
    Option(
        "--quick",
        rich_help_panel=EFFORT,
        help="A first look: only 5 workers of 4 rounds.",
    ),
]
Precision = Annotated[
    float | str | None,
    one(percent),
    Option(
        rich_help_panel=EFFORT,
        metavar="PCT",
        help="Measure until intervals are +-1 %, or +-PCT %.",
    ),
]
Budget = Annotated[
    float | str | None,
    one(seconds),
    Option(
        rich_help_panel=EFFORT,
        metavar="TIME",
        help="Finish within this time, such as 90s or 5m.",
    ),
]
Workers = Annotated[
    int | str | None,
    one(positive),
    Option(
        rich_help_panel=EFFORT,
        metavar="INT",
        help="Measure in exactly this many processes (workers).",
    ),
]
Rounds = Annotated[
    int | str | None,
    one(positive),
    Option(
        rich_help_panel=EFFORT,
        metavar="INT",
        help="Measure exactly this many rounds in each worker; a round is one sample of each case.",
    ),
]
Seed = Annotated[
    int | str,
    one(count),
    Option(
        rich_help_panel=EFFORT,
        metavar="INT",
        help="Seed of inputs, weights and the order of rounds.",
    ),
]
Runs = Annotated[
    int | str,
    one(count),
    Option(
        rich_help_panel=EFFORT,
        metavar="INT",
        help="Measure this many times with new processes, and save all runs as a baseline.",
    ),
]
Resume = Annotated[
    bool,
    switch,
    Option(
        "--resume",
        rich_help_panel=EFFORT,
        help="Continue the file of -o; groups that it contains are not measured again.",
    ),
]
On = Annotated[
    str,
    text,
    Option(
        rich_help_panel=EFFORT,
        metavar="slurm[:KEY=VALUE,...]|local",
        help="Measure each group as a job, on SLURM (with fields of submitit's SlurmExecutor, as in "
        "slurm:partition=gpu,gpus_per_node=1) or locally one after another. Needs -o FILE.json; see docs/cluster.md.",
    ),
]
# Sides and limits of a check

BasePython = Annotated[
    StrPath | None,
    text,
    Option(
        rich_help_panel=SIDES,
        metavar="PATH",
        help="Run base in this interpreter, which needs only torch.",
    ),
]
BaseSource = Annotated[
    StrPath | None,
    text,
    Option(
        rich_help_panel=SIDES,
        metavar="DIR",
        help="Take the code of base from this folder.",
    ),
]
BaseEnv = Annotated[
    Pairs,
    pairs(":"),
    Option(
        rich_help_panel=SIDES,
        metavar="NAME:VALUE",
        help="Set an environment variable for base. Repeatable.",
    ),
]
HeadRev = Annotated[
    str | None,
    text,
    Option(
        rich_help_panel=SIDES,
        metavar="REV",
        help="Take head from this revision, not from the working tree.",
    ),
]
Tolerance = Annotated[
    Pairs,
    pairs("="),
    Option(
        rich_help_panel=LIMITS,
        metavar="[[CASE:]METRIC=]PCT%",
        show_default="latency=5%",
        help="How much a metric may grow; latency means the ratio to the reference. Repeatable.",
    ),
]
ExactOnly = Annotated[
    bool,
    switch,
    Option(
        "--exact-only",
        rich_help_panel=LIMITS,
        help="Check only parameters, FLOPs and bytes; nothing is timed.",
    ),
]
AllowMismatch = Annotated[
    bool,
    switch,
    Option(
        "--allow-mismatch",
        rich_help_panel=LIMITS,
        help="Measure and pass a row whose output has changed.",
    ),
]
Trust = Annotated[
    Names,
    texts,
    Option(
        rich_help_panel=LIMITS,
        metavar="TARGET",
        help="Allow code that the baseline names to run. Repeatable.",
    ),
]
OnUnclear = Annotated[
    str,
    text,
    Option(
        rich_help_panel=LIMITS,
        metavar="pass|fail",
        help="Exit with 0 (pass) or 4 (fail) if the run can't tell.",
    ),
]
Update = Annotated[
    bool,
    switch,
    Option(
        "--update",
        rich_help_panel=LIMITS,
        help="Replace the baseline by this run.",
    ),
]
# How an answer is shown and written

Format = Annotated[
    str,
    text,
    Option(
        "--format",
        "-f",
        rich_help_panel=OUTPUT,
        metavar="NAME",
        help="table, markdown, latex, csv or json (--json).",
    ),
]
CheckFormat = Annotated[
    str,
    text,
    Option(
        "--format",
        "-f",
        rich_help_panel=OUTPUT,
        metavar="NAME",
        help="table, markdown, latex, csv, json (--json) or github.",
    ),
]
Verbose = Annotated[
    bool,
    switch,
    Option(
        "--verbose",
        "-v",
        rich_help_panel=OUTPUT,
        help="Show every column and all details.",
    ),
]
Columns = Annotated[
    Names,
    list_of_names,
    Option(
        rich_help_panel=OUTPUT,
        metavar="LIST",
        help="Show only these columns, named as in the CSV or by their heading: params,latency,ratio.",
    ),
]
Sort = Annotated[
    str,
    text,
    Option(
        rich_help_panel=OUTPUT,
        metavar="COLUMN",
        help="Sort rows by a column; -latency puts the largest first. Rows of one reference stay together.",
    ),
]
Quiet = Annotated[
    bool,
    switch,
    Option(
        "--quiet",
        "-q",
        rich_help_panel=OUTPUT,
        help="Show no progress on stderr.",
    ),
]


def _out(suffixes: Sequence[str], more: str = "") -> Any:
    """-o of a command that writes these suffixes; `more` says when it writes others."""
    return Option(
        "--out",
        "-o",
        rich_help_panel=OUTPUT,
        metavar="PATH",
        help=f"Write {', '.join(suffixes)}{more}, or a folder/ with all. Repeatable.",
    )


WITH_TABLE = (PAGE_SUFFIX, *SUFFIXES)
WITH_PICTURE = (PAGE_SUFFIX, *FIGURE_SUFFIXES, *SUFFIXES)
OF_CHECK = (PAGE_SUFFIX, *CHECK_SUFFIXES)
Out = Annotated[Names, texts, _out(WITH_PICTURE)]
TableOut = Annotated[Names, texts, _out(WITH_TABLE)]
TimesOut = Annotated[
    Names, texts, _out(WITH_TABLE, f", with --time {', '.join(FIGURE_SUFFIXES)}")
]
CurvesOut = Annotated[Names, texts, _out(PICTURE_SUFFIXES)]
CheckOut = Annotated[Names, texts, _out(OF_CHECK)]
