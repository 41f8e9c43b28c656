"""Every flag once: what Python may pass for it, the reader that makes a value of that
or of what is typed, and how the help shows it.

A command takes them as annotations of its parameters: `d_model: o.DModel = None` is
`--d-model`.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from typer import Argument, Option
from typer.models import ArgumentInfo, OptionInfo

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
from ffnbench.plan.metrics import METRIC_GROUPS
from ffnbench.plan.reading import (
    DEVICES,
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
    threads,
)

if TYPE_CHECKING:
    import torch

StrPath = str | os.PathLike[str]
OneVariant = StrPath | Callable[..., Any]  # a name, a class or a function
SeveralVariants = OneVariant | Sequence[OneVariant] | Mapping[str, OneVariant]
Sizes = int | str | Iterable[int | str]
Names = str | Sequence[str]
MatchName = Literal["params", "flops", "none"]
ConventionName = Literal["causal", "square", "megatron"]
ModeName = Literal["forward", "train", "backward", "inference", "training"]
Pairs = str | Sequence[str] | Mapping[str, str]
OneDType: TypeAlias = "str | torch.dtype"
DTypes: TypeAlias = "OneDType | Sequence[OneDType]"
OneDevice: TypeAlias = "str | torch.device"
Devices: TypeAlias = "OneDevice | Sequence[OneDevice]"

MODEL, WIDTHS, WORKLOAD, OUTPUT = "Model", "Widths", "Workload", "Output"
MEASURED, EFFORT = "What is measured", "How long"
SIDES, LIMITS = "Sides", "Limits"

FORMATS = ("table", "markdown", "latex", "csv", "json")
Words = Iterable[str] | Callable[[], Iterable[str]]


# What an alias has for Typer; `words` are those that a shell offers at TAB


def option(
    panel: str, help: str, *names: str, words: Words = (), **more: Any
) -> OptionInfo:
    """An option of a panel of the help, by its own name where no `names` are given."""
    info: OptionInfo = Option(
        *names,
        rich_help_panel=panel,
        help=help,
        autocompletion=completed(words),
        **more,
    )
    return info


def argument(metavar: str, help: str, words: Words = ()) -> ArgumentInfo:
    """An argument, typed by its place or by its name."""
    info: ArgumentInfo = Argument(
        metavar=metavar, help=help, autocompletion=completed(words)
    )
    return info


def completed(words: Words) -> Callable[[str], list[str]]:
    """A function that completes a value: it gives the words that may stand there,
    behind those of its list that are typed already.
    """

    def complete(incomplete: str) -> list[str]:
        before, comma, _ = incomplete.rpartition(",")
        every = words if isinstance(words, Iterable) else words()
        typed = before.split(",")
        return [f"{before}{comma}{word}" for word in every if word not in typed]

    return complete


def variant_words() -> list[str]:
    """Forms and models."""
    from ffnbench.ffn.spec import GATED

    return [*activation_words(), *GATED.names(), *preset_words()]


def activation_words() -> list[str]:
    """Activations."""
    from ffnbench.ffn.activations import ACTIVATIONS

    return ACTIVATIONS.names()


def preset_words() -> list[str]:
    """Published models."""
    from ffnbench.models.presets import PRESETS

    return PRESETS.names()


def topic_words() -> Iterable[str]:
    """What `list` shows."""
    from ffnbench.report.listing import LISTINGS

    return LISTINGS


def hardware_words() -> list[str]:
    """Published machines."""
    from ffnbench.record.hardware import published

    return published().names()


def tolerance_words() -> list[str]:
    """Metrics that a check holds against a baseline."""
    from ffnbench.gate.decision import CHECKED_METRICS

    return [f"{metric}=" for metric in CHECKED_METRICS]


def dtype_words() -> list[str]:
    """Dtypes, by every name."""
    from ffnbench.ffn.spec import DTYPES

    return DTYPES.spellings()


# Readers of what one kind of flag takes


def variants(name: str, value: Any) -> str:
    """The list of variants, or of activations, as it would be typed. Raises
    FfnbenchError for a class or a function that a worker can't find.
    """
    typed = value if isinstance(value, list) else [value]
    if typed and all(isinstance(text, str) for text in typed):
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
    if text not in METRIC_GROUPS:
        hint = hint_for(text, METRIC_GROUPS, f"metrics: {', '.join(METRIC_GROUPS)}")
        raise FfnbenchError(f"unknown metric {text!r}", hint)
    return text


def interval(name: str, value: Any) -> tuple[float, float]:
    """The bounds of LO:HI, or of a pair."""
    from ffnbench.activations.plan import parse_range

    return parse_range(":".join(texts_of(name, value)))


# Arguments, typed by their place, or by their name

Variants = Annotated[
    SeveralVariants,
    variants,
    argument(
        "VARIANT",
        "Names of `ffnbench list variants`, swiglu@d_ff=64, file.py:Class.",
        variant_words,
    ),
]
VariantsOrModel = Annotated[
    SeveralVariants | None,
    variants,
    argument(
        "VARIANT|MODEL",
        "FFNs as in `compare`, or a model; by default relu, gelu and swiglu.",
        variant_words,
    ),
]
Code = Annotated[
    OneVariant,
    variants,
    argument(
        "VARIANT",
        "package.module:Attr, path/to/file.py:Attr, or a name of `ffnbench list variants`.",
        variant_words,
    ),
]
BaseRev = Annotated[
    str | None,
    text,
    argument("BASE_REV", "The git revision to compare with; also --base-rev."),
]
Activations = Annotated[
    SeveralVariants | None,
    variants,
    argument(
        "NAME",
        "relu, swish@beta=0.5, file.py:function; names: `ffnbench activations`.",
        activation_words,
    ),
]
Baseline = Annotated[
    StrPath,
    text,
    argument("BASELINE", "A file that `ffnbench compare ... -o baseline.json` wrote."),
]
Current = Annotated[
    StrPath | None,
    text,
    argument("CURRENT", "A saved run to check; without it, the plan is measured now."),
]
File = Annotated[
    StrPath,
    text,
    argument(
        "FILE",
        "A .json of `compare`, `cost`, `block`, `check` or `ab`.",
    ),
]
Topic = Annotated[
    str,
    text,
    argument("WHAT", "variants, keys, presets or hardware.", topic_words),
]

# Which FFNs

Preset = Annotated[
    StrPath | None,
    text,
    option(
        WIDTHS,
        "`ffnbench list presets`, or a config.json.",
        metavar="NAME|PATH",
        words=preset_words,
    ),
]
DModel = Annotated[
    Sizes | None,
    many(positive),
    option(WIDTHS, "Width of the model.", "--d-model", "--hidden-size", metavar="INT"),
]
DFF = Annotated[
    Sizes | None,
    many(positive),
    option(
        WIDTHS,
        "Width of a branch; by default 4 * d_model; 2/3 of it for gated forms.",
        "--d-ff",
        "--intermediate-size",
        metavar="INT",
    ),
]
Match = Annotated[
    MatchName,
    one(member(choices.Match, "match")),
    option(
        WIDTHS,
        "What is made equal: params, flops or none.",
        metavar="WHAT",
        words=choices.Match,
    ),
]
Layers = Annotated[
    int | str | None,
    one(positive),
    option(
        WIDTHS, "Blocks of a stack; by default 4, or those of the model.", metavar="INT"
    ),
]
Heads = Annotated[
    int | str | None,
    one(positive),
    option(WIDTHS, "Query heads; by default d_model / 64.", metavar="INT"),
]
KVHeads = Annotated[
    int | str | None,
    one(positive),
    option(
        WIDTHS,
        "Heads of keys and values; by default as many as --heads.",
        "--kv-heads",
        metavar="INT",
    ),
]

# A published model

Model = Annotated[
    StrPath,
    text,
    argument(
        "CONFIG|PRESET",
        "A config.json, its folder, a preset, or ORG/NAME in the hub's cache.",
        preset_words,
    ),
]

TokensOfModel = Annotated[
    int | str,
    one(positive),
    option(WORKLOAD, "Tokens in a sequence, for FLOPs.", "--seq-len", metavar="INT"),
]
Convention = Annotated[
    ConventionName,
    one(member(choices.Convention, "attention")),
    option(
        WORKLOAD,
        "How FLOPs are counted: causal, square or megatron.",
        "--attention",
        metavar="NAME",
        words=choices.Convention,
    ),
]

# What an FFN is fed, and what it runs on

Batch = Annotated[
    Sizes,
    many(positive),
    option(WORKLOAD, "Sequences in a call.", "--batch", "--batch-size", metavar="INT"),
]
SeqLen = Annotated[
    Sizes | None,
    many(positive),
    option(
        WORKLOAD, "Tokens: 1..4Ki; by default 512, 64 if d_model > 2048.", metavar="INT"
    ),
]
DType = Annotated[
    "DTypes",
    many(dtype),
    option(
        WORKLOAD,
        "float32, bfloat16, float16 or float64.",
        "--dtype",
        metavar="NAME",
        words=dtype_words,
    ),
]
Mode = Annotated[
    ModeName | Sequence[ModeName],
    many(mode_of),
    option(
        WORKLOAD,
        "forward, train or backward.",
        metavar="NAME",
        words=(*choices.Mode, *choices.MODE_ALIASES),
    ),
]
Cache = Annotated[
    Names,
    many(member(choices.Cache, "cache")),
    option(
        WORKLOAD,
        "Weights before a call: hot, cold, or rotated as in a deep model.",
        metavar="NAME",
        words=choices.Cache,
    ),
]
Hardware = Annotated[
    Names | None,
    many(plain),
    option(
        WORKLOAD,
        "Add the least time on machines of `ffnbench list hardware`, or of a .toml of your own.",
        metavar="LIST",
        words=hardware_words,
    ),
]
Device = Annotated[
    "Devices",
    many(device_of),
    option(
        WORKLOAD,
        "auto (a GPU if there is one), cpu, cuda:1.",
        metavar="NAME",
        words=DEVICES,
    ),
]
# of Python alone
AnyDevice = Annotated[
    "OneDevice | None", one(device_of), Option(help="Where the module is made.")
]
Threads = Annotated[
    Sizes | None,
    many(threads),
    option(WORKLOAD, "CPU threads; by default all available ones.", metavar="INT"),
]
Backend = Annotated[
    Names,
    backends,
    option(
        WORKLOAD,
        "eager, compile, onednn, ort, openvino or all.",
        metavar="NAME",
        words=(*choices.Backend, choices.ALL_BACKENDS),
    ),
]
Layer = Annotated[
    int | str | None,
    one(count),
    option(
        WORKLOAD,
        "With --preset FOLDER: the weights of that layer, from 0, in place of random ones.",
        metavar="INT",
    ),
]
Weights = Annotated[
    Names,
    many(member(choices.Weights, "weights")),
    option(
        WORKLOAD,
        "Storage of weights: none, int8, int8-dynamic, int4; to count: fp8, mxfp4, nvfp4.",
        metavar="LIST",
        words=choices.Weights,
    ),
]

# What is measured, and how long

Range = Annotated[
    str | tuple[float, float],
    interval,
    option(
        MEASURED,
        "Range of x; a negative LO needs =, as in --range=-4:4.",
        "--range",
        metavar="LO:HI",
    ),
]
Metrics = Annotated[
    Names,
    many(metric),
    option(
        MEASURED,
        "latency, memory, rate (of bare matrix products and a copy), sparsity, routing or error (of outputs against float64, timing nothing if given "
        "alone).",
        metavar="LIST",
        words=METRIC_GROUPS,
    ),
]
CostOnly = Annotated[
    bool,
    switch,
    option(MEASURED, "Count only; nothing is measured.", "--cost-only"),
]
Quick = Annotated[
    bool,
    switch,
    option(EFFORT, "A first look: only 5 workers of 4 rounds.", "--quick"),
]
Precision = Annotated[
    float | str | None,
    one(percent),
    option(EFFORT, "Measure until intervals are +-1 %, or +-PCT %.", metavar="PCT"),
]
Budget = Annotated[
    float | str | None,
    one(seconds),
    option(EFFORT, "Finish within this time, such as 90s or 5m.", metavar="TIME"),
]
Workers = Annotated[
    int | str | None,
    one(positive),
    option(EFFORT, "Measure in exactly this many processes (workers).", metavar="INT"),
]
Rounds = Annotated[
    int | str | None,
    one(positive),
    option(
        EFFORT,
        "Measure exactly this many rounds in each worker; a round is one sample of each case.",
        metavar="INT",
    ),
]
Seed = Annotated[
    int | str,
    one(count),
    option(EFFORT, "Seed of inputs, weights and the order of rounds.", metavar="INT"),
]
Runs = Annotated[
    int | str,
    one(count),
    option(
        EFFORT,
        "Measure this many times with new processes, and save all runs as a baseline.",
        metavar="INT",
    ),
]
Resume = Annotated[
    bool,
    switch,
    option(
        EFFORT,
        "Continue the file of -o; groups that it contains are not measured again.",
        "--resume",
    ),
]
On = Annotated[
    str,
    text,
    option(
        EFFORT,
        "Measure each group as a job on SLURM, with fields of submitit's SlurmExecutor, as in "
        "slurm:partition=gpu,gpus_per_node=1. Needs -o FILE.json; see docs/sweeps.md.",
        metavar="slurm[:KEY=VALUE,...]",
    ),
]
# Sides and limits of a check

BasePython = Annotated[
    StrPath | None,
    text,
    option(
        SIDES, "Run base in this interpreter, which needs only torch.", metavar="PATH"
    ),
]
BaseSource = Annotated[
    StrPath | None,
    text,
    option(SIDES, "Take the code of base from this folder.", metavar="DIR"),
]
BaseEnv = Annotated[
    Pairs,
    pairs(":"),
    option(
        SIDES, "Set an environment variable for base. Repeatable.", metavar="NAME:VALUE"
    ),
]
HeadRev = Annotated[
    str | None,
    text,
    option(
        SIDES, "Take head from this revision, not from the working tree.", metavar="REV"
    ),
]
Tolerance = Annotated[
    Pairs,
    pairs("="),
    option(
        LIMITS,
        "How much a metric may grow; latency means the ratio to the reference. Repeatable.",
        metavar="[[CASE:]METRIC=]PCT%",
        show_default="latency=5%",
        words=tolerance_words,
    ),
]
ExactOnly = Annotated[
    bool,
    switch,
    option(
        LIMITS,
        "Check only parameters, FLOPs and bytes; nothing is timed.",
        "--exact-only",
    ),
]
AllowMismatch = Annotated[
    bool,
    switch,
    option(
        LIMITS, "Measure and pass a row whose output has changed.", "--allow-mismatch"
    ),
]
Trust = Annotated[
    Names,
    texts,
    option(
        LIMITS,
        "Allow code that the baseline names to run. Repeatable.",
        metavar="TARGET",
    ),
]
OnUnclear = Annotated[
    str,
    text,
    option(
        LIMITS,
        "Exit with 0 (pass) or 4 (fail) if the run can't tell.",
        metavar="pass|fail",
        words=("pass", "fail"),
    ),
]
Update = Annotated[
    bool,
    switch,
    option(LIMITS, "Replace the baseline by this run.", "--update"),
]
# How an answer is shown and written

Format = Annotated[
    str,
    text,
    option(
        OUTPUT,
        "table, markdown, latex, csv or json (--json).",
        "--format",
        "-f",
        metavar="NAME",
        words=FORMATS,
    ),
]
CheckFormat = Annotated[
    str,
    text,
    option(
        OUTPUT,
        "table, markdown, latex, csv, json (--json) or github.",
        "--format",
        "-f",
        metavar="NAME",
        words=(*FORMATS, "github"),
    ),
]
Verbose = Annotated[
    bool,
    switch,
    option(OUTPUT, "Show every column and all details.", "--verbose", "-v"),
]
Quiet = Annotated[
    bool,
    switch,
    option(OUTPUT, "Show no progress on stderr.", "--quiet", "-q"),
]


def _out(suffixes: Sequence[str]) -> OptionInfo:
    """-o of a command that writes these suffixes."""
    text = f"Write {', '.join(suffixes)}, or a folder/ with all. Repeatable."
    return option(OUTPUT, text, "--out", "-o", metavar="PATH")


WITH_TABLE = (PAGE_SUFFIX, *SUFFIXES)
WITH_PICTURE = (PAGE_SUFFIX, *FIGURE_SUFFIXES, *SUFFIXES)
OF_CHECK = (PAGE_SUFFIX, *CHECK_SUFFIXES)
Out = Annotated[Names, texts, _out(WITH_PICTURE)]
TableOut = Annotated[Names, texts, _out(WITH_TABLE)]
CurvesOut = Annotated[Names, texts, _out(PICTURE_SUFFIXES)]
CheckOut = Annotated[Names, texts, _out(OF_CHECK)]
