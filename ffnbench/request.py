"""What can be asked: every flag once, with its default and its meaning. A command's request is a list of bundles.

A field is a flag: `d_ff` is `--d-ff` on the command line (cli/commands.py makes it) and `d_ff=` in Python. Values are
kept as they were typed; planning/ reads and checks them. A request is plain data, and stays in the plan made of it.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

from ffnbench.jsonable import LATER

MODEL, WIDTHS, WORKLOAD, OUTPUT = "Model", "Widths", "Workload", "Output"
MEASURING, EFFORT = "What is measured", "How long"
ATTENTION, CURVES, SIDES, LIMITS = "Attention", "Curves", "Sides", "Limits"
ARGUMENTS = "Arguments"  # typed by their place
PANELS = (  # in the order of the help
    ARGUMENTS, SIDES, MODEL, WIDTHS, ATTENTION, CURVES, WORKLOAD, LIMITS, MEASURING, EFFORT, OUTPUT, "Options",
)  # fmt: skip
TAKE_LISTS = "`ffnbench compare` and `ffnbench cost` take lists"
EXAMPLES = {  # of a list, by the flags that may have one
    "d_model": "512,1024..4096", "dtype": "float32,bfloat16", "mode": "forward,train", "threads": "1,2..8",
    "batch": "1,8..64", "seq_len": "1,128..1024", "elements": "4096,64Ki..1Mi", "d_ff": "2688..2752/8",
    "ratio": "2..4/0.5", "dropout": "0..0.3/0.1", "device": "cpu,cuda", "time": "wall,device", "cache": "hot,cold",
    "matmul_precision": "highest,high", "routing": "uniform,skewed",
}  # fmt: skip
# what others call it; ffn/imported.py has more names, which are too unsure to be taken for a flag
D_MODEL = ("--hidden-size", "--n-embd", "--embed-dim", "--embedding-dim", "--dim", "--model-dim")
D_FF = ("--dff", "--intermediate-size", "--ffn-dim", "--n-inner", "--dim-feedforward", "--ffn-hidden-size")
SEQ_LEN = ("--seq", "--seq-length", "--sequence-length", "--seqlen", "--max-seq-len", "--tokens", "--n-tokens")
BATCH, THREADS = ("--batch-size", "--bs"), ("--num-threads", "--n-threads")
DEFAULT_BUDGET_S = 120.0  # of a check, and of a run with --precision


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """How a field is typed on the command line: its help, its panel, what stands for its value.

    `short` is a letter; `off` is the name that switches it off; `also` are other names, which the help leaves out.
    `place` stands for a value that is typed without a name, by its place; with a `metavar` it may have its name too.
    """

    help: str
    panel: str
    metavar: str = ""
    short: str = ""
    off: str = ""
    also: tuple[str, ...] = ()
    place: str = ""

    @property
    def named(self) -> bool:
        """Whether it can be typed by its name."""
        return not self.place or bool(self.metavar)


def flag(default: Any, help: str, panel: str, metavar: str = "", **how: Any) -> Any:
    """A field of a bundle that is a flag."""
    return field(default=default, metadata={"flag": Flag(help=help, panel=panel, metavar=metavar, **how)})


def several(bundle: Any, name: str) -> Any:
    """The field of a bundle, as one that may be a list."""
    one = next(one for one in fields(bundle) if one.name == name)
    said, default, value = one.metadata["flag"].help.partition(" [default")
    help = f"{said.removesuffix('.')}; or several: {EXAMPLES[name]}.{default}{value}"
    return field(default=one.default, metadata={"flag": replace(one.metadata["flag"], help=help, metavar="LIST")})


def spelling(name: str) -> str:
    """The flag of a field: `d_ff` is `--d-ff`."""
    return "--" + name.rstrip("_").replace("_", "-")


# fmt: off
@dataclass(frozen=True, kw_only=True)
class VariantList:
    """Which FFNs."""

    variants: str = flag(
        "relu,gelu,swiglu", "Comma separated [LABEL=]NAME[@KEY=VALUE]...; names: `ffnbench list variants`; "
        "your own: pkg.mod:Class, file.py:Class, with @like=NAME held against that form.", MODEL, "LIST",
        place="VARIANT...")


@dataclass(frozen=True, kw_only=True)
class NamedModel:
    """A model that stands for sizes."""

    preset: str | None = flag(
        None, "A model: a name of `ffnbench list presets`, a config.json, its folder, or ORG/NAME in the hub's cache.",
        MODEL, "NAME|PATH", also=("--config", "--model"))


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The widths of one FFN, and whether it has biases."""

    d_model: int | None = flag(
        None, "Width of the model. [default: the model's that is named, else 768]", WIDTHS, "INT", also=D_MODEL)
    d_ff: int | None = flag(
        None, "Final width per branch of the reference. [default: 4 * d_model, classic form]", WIDTHS, "INT", also=D_FF)
    bias: bool | None = flag(
        None, "Biases in all linear layers. [default: where the named model has some]", MODEL, off="--no-bias")


@dataclass(frozen=True, kw_only=True)
class Variants(Sizes, NamedModel, VariantList):
    """Which FFNs, and how their widths are found."""

    match: str = flag("params", "Make params, flops or none equal to the reference's.", WIDTHS, "WHAT")
    multiple_of: int | None = flag(
        None, "Round widths to this; 8 when matching, else the rule's own.", WIDTHS, "INT")
    rule: str | None = flag(
        None, "Size gated forms by a published rule: `ffnbench list rules`.", WIDTHS, "NAME")
    ratio: float | None = flag(None, "Expansion, d_ff / d_model. [default: 4]", WIDTHS, "X")
    ffn_dim_multiplier: float | None = flag(None, "Llama's ffn_dim_multiplier, for --rule llama.", WIDTHS, "X")
    dropout: float = flag(0.0, "Dropout on the hidden layer, in train mode.", MODEL, "P")
    reference: str | None = flag(
        None, "What ratios are relative to. [default: the first variant]", MODEL, "LABEL", also=("--ref", "--baseline"))


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What an FFN is fed."""

    batch: int = flag(1, "Sequences in a call.", WORKLOAD, "INT", also=BATCH)
    seq_len: int | None = flag(
        None, "Tokens in a sequence; 2k is 2,000, 2Ki is 2,048. [default: 512; 64 where d_model is above 2,048]",
        WORKLOAD, "INT", also=SEQ_LEN)
    dtype: str = flag("float32", "float32, bfloat16, float16, float64.", WORKLOAD, "NAME")
    mode: str = flag(
        "forward", "forward (inference), train (training: forward and backward) or backward alone.", WORKLOAD, "NAME")


@dataclass(frozen=True, kw_only=True)
class Lists:
    """What may be a list or a range: each combination is a cell, with its own reference and widths."""

    d_model: int | str | tuple[int, ...] | None = several(Sizes, "d_model")
    d_ff: int | str | tuple[int, ...] | None = flag(
        None, "Final width per branch of the reference, or several: 2688..2752/8 goes by steps of 8. "
        "[default: 4 * d_model, classic form]", WIDTHS, "LIST", also=D_FF)
    batch: int | str | tuple[int, ...] = several(Shape, "batch")
    seq_len: int | str | tuple[int, ...] | None = flag(
        None, "Tokens in a sequence: 1,128,2k, or 1..4096, which doubles; 2k is 2,000, 2Ki is 2,048. "
        "[default: 512; 64 where d_model is above 2,048]", WORKLOAD, "LIST", also=SEQ_LEN)
    dtype: str = several(Shape, "dtype")
    mode: str = several(Shape, "mode")


@dataclass(frozen=True, kw_only=True)
class VariantsLists:
    """What variants share, as lists."""

    ratio: float | str | tuple[float, ...] | None = several(Variants, "ratio")
    dropout: float | str | tuple[float, ...] = several(Variants, "dropout")


@dataclass(frozen=True, kw_only=True)
class Device:
    """What it runs on. `threads` None is the CPUs that this process may use: api/ fills it in."""

    device: str = flag(
        "auto", "auto (a GPU where there is one), cpu, cuda (ROCm too), cuda:1.", WORKLOAD, "NAME")
    threads: int | None = flag(
        None, "CPU threads. [default: the CPUs this process may use]", WORKLOAD, "INT", also=THREADS)


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """Under what a call is timed. `time` None is wall, but the device's where a cache is cold on an accelerator."""

    time: str | None = flag(
        None, "Which time is the latency on a GPU: wall, what a caller waits for, or device, what the GPU works. "
        "[default: wall, or device with --cache cold]", WORKLOAD, "NAME")
    cache: str = flag(
        "hot", "What the last-level cache holds before a call: hot, what the last one left, or cold, nothing of it.",
        WORKLOAD, "NAME")
    matmul_precision: str = flag(
        "highest", "Of float32 matrix products: highest, high (TF32) or medium (bfloat16 inside), as torch has it.",
        WORKLOAD, "NAME")
    reduced_reductions: bool = flag(
        True, "On a GPU, let 16-bit matrix products add partial sums in 16 bits, as torch does.", WORKLOAD,
        off="--no-reduced-reductions")


@dataclass(frozen=True, kw_only=True)
class DeviceLists:
    """What it runs on, as lists."""

    device: str = several(Device, "device")
    threads: int | str | tuple[int, ...] | None = several(Device, "threads")


@dataclass(frozen=True, kw_only=True)
class ConditionsLists:
    """Under what a call is timed, as lists."""

    time: str | None = several(Conditions, "time")
    cache: str = several(Conditions, "cache")
    matmul_precision: str = several(Conditions, "matmul_precision")


@dataclass(frozen=True, kw_only=True)
class Running:
    """How its forward is run."""

    backend: str = flag(
        "eager", "eager, packed, packed-up-gate, compile, onednn, a list of them, or all: `ffnbench list backends`.",
        WORKLOAD, "LIST")


@dataclass(frozen=True, kw_only=True)
class Counts:
    """How much is measured, in numbers."""

    workers: int | None = flag(
        None, "Exactly so many fresh processes, one after another; intervals are over them.", EFFORT, "INT")
    rounds: int | None = flag(
        None, "Exactly so many rounds in each worker; a round measures each case once.", EFFORT, "INT")
    quick: bool = flag(False, "5 workers of 4 rounds: a first look.", EFFORT)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much is measured, by what is wanted of it."""

    precision: float | None = flag(
        None, "Measure until every ratio is known to +-PCT percent, 0.5 or 0.5%. [default: 1%]", EFFORT, "PCT")
    budget: float | None = flag(
        None, "Be done in so long at most, 90s or 5m, start and all. "
        "[default: 5s a variant, 15s at least, and what 3 workers take; with --precision 2m]", EFFORT, "TIME")


@dataclass(frozen=True, kw_only=True)
class Repeatable:
    """What makes a run the same again, and what ends one that hangs."""

    seed: int = flag(
        0, "Seed of inputs, weights and the order of rounds; of simulated machines.", MEASURING, "INT")
    timeout: float = flag(300.0, "Give up a case that takes longer for one step.", EFFORT, "TIME")


@dataclass(frozen=True, kw_only=True)
class Effort(Repeatable, Limits, Counts):
    """How much is measured: numbers, or limits, and then the run finds the numbers."""


@dataclass(frozen=True, kw_only=True)
class Apart:
    """Several runs in one file: what moves between runs is then known."""

    runs: int = flag(1, "Measure so many times, each with fresh processes, and keep all: a baseline.", EFFORT, "INT")
    pause: float | None = flag(None, "Wait so long between two runs. [default: 60s]", EFFORT, "TIME")


@dataclass(frozen=True, kw_only=True)
class Sharded:
    """Which of the groups are measured here."""

    shard: str | None = flag(
        None, "Measure the second of eight parts of the groups: 2/8. `ffnbench report` joins the files of all.", EFFORT,
        "I/N")


@dataclass(frozen=True, kw_only=True)
class Request:
    """The base of every command's request. `typed` are those of its fields that have lists, in the order in which they
    were typed, where there are several.
    """

    COMMAND: ClassVar[str] = ""  # what is typed before its flags

    typed: tuple[str, ...] = field(default=(), metadata=LATER)


@dataclass(frozen=True, kw_only=True)
class CostRequest(VariantsLists, Lists, Shape, Variants, Request):  # type: ignore[misc]  # lists for single values
    """`ffnbench cost`."""

    COMMAND = "cost"


@dataclass(frozen=True, kw_only=True)
class CompareRequest(  # type: ignore[misc]
    Sharded, Apart, Effort, Running, ConditionsLists, Conditions, DeviceLists, Device, VariantsLists, Lists,
    Shape, Variants, Request,
):
    """`ffnbench compare`."""

    COMMAND = "compare"

    init: str = flag("torch", "Weights: torch, he_xavier or normal.", MODEL, "NAME")
    routing: str | None = flag(
        None, "How tokens spread over experts: uniform, skewed, trained-like, or several: uniform,skewed. "
        "[default: uniform]", WORKLOAD, "LIST")
    control: bool = flag(
        False, "Measure the reference a second time: where it differs from itself, this machine can't be trusted now.",
        MEASURING)
    metrics: str = flag(
        "latency,memory,ceilings", "latency, memory, ceilings, sparsity, routing; error: how far outputs are "
        "from float64, of @like=NAME from that form's; alone it times nothing.", MEASURING, "LIST")


@dataclass(frozen=True, kw_only=True)
class AddedRequest(Repeatable, Device, Variants, Request):
    """The base of a feature's request about variants, of which some may fail."""


@dataclass(frozen=True, kw_only=True)
class Heads:
    """An attention's heads, and what a token sees, where these are not the model's own."""

    heads: int | None = flag(None, "Query heads. [default: d_model / 64, or the model's]", ATTENTION, "INT")
    kv_heads: int | None = flag(None, "Heads of keys and values. [default: as --heads]", ATTENTION, "INT")
    head_dim: int | None = flag(None, "Width of a head. [default: d_model / heads]", ATTENTION, "INT")
    causal: bool | None = flag(
        None, "A token sees those before it, or all. [default: causal, but for encoders]", ATTENTION,
        off="--no-causal")


@dataclass(frozen=True, kw_only=True)
class BlockRequest(  # type: ignore[misc]
    Sharded, Apart, Effort, Running, ConditionsLists, Conditions, DeviceLists, Device, Lists, Shape, Heads, Sizes,
    NamedModel, Request,
):
    """`ffnbench block`."""

    COMMAND = "block"

    variant: str | None = flag(
        None, "The FFN, as in `compare`, where no model is named. [default: gelu]", MODEL, "VARIANT",
        place="VARIANT|MODEL")
    textbook: bool = flag(
        True, "Measure attention as textbooks write it too: scores, mask, softmax, values.", ATTENTION,
        off="--no-textbook")
    seq_len: str = flag(  # type: ignore[assignment]
        "512", "Tokens in a sequence: 128,1024, or 128..8192, which doubles.", WORKLOAD, "LIST", also=SEQ_LEN)
    backend: str = flag(
        "eager", "eager, packed, packed-up-gate, compile or onednn: `ffnbench list backends`.", WORKLOAD, "NAME")
    cost_only: bool = flag(False, "Count, measure nothing: no torch.", MEASURING)


@dataclass(frozen=True, kw_only=True)
class Activations:
    """Which activations."""

    activations: str | None = flag(
        None, "Comma separated: names, swish@beta=0.5, file.py:function. Names: `ffnbench list activations`.", CURVES,
        "LIST", place="NAME...")


@dataclass(frozen=True, kw_only=True)
class FactsRequest(Activations, Request):
    """`ffnbench activations`: what is true of them."""

    timeout: float = 300.0


@dataclass(frozen=True, kw_only=True)
class TimingRequest(Sharded, Apart, Repeatable, Counts, DeviceLists, Device, Activations, Request):  # type: ignore[misc]
    """`ffnbench activations --time`: what their operations take."""

    COMMAND = "activations --time"

    elements: str = flag("1048576", "With --time: sizes: 4096,1Mi or 1Ki..1Mi. [default: 1048576]", WORKLOAD, "LIST")
    dtype: str = flag("float32", "With --time: float32,bfloat16. [default: float32]", WORKLOAD, "LIST")


@dataclass(frozen=True, kw_only=True)
class PictureRequest(Activations, Request):
    """`ffnbench plot-activations`."""

    range_: str = flag("-4:4", "Range of x; write a negative LO with =.", CURVES, "LO:HI")
    derivative: bool | None = flag(
        None, "The derivative beside f. [default: derivative]", CURVES, off="--no-derivative")
    gated: bool = flag(False, "Surfaces act(g) * u of the gated forms instead.", CURVES)
    timeout: float = flag(300.0, "Give up a case that takes longer for one step.", EFFORT, "TIME")


@dataclass(frozen=True, kw_only=True)
class Tolerances:
    """How much may change, and how long deciding may take."""

    tolerance: tuple[str, ...] = flag(
        (), "How much a metric may grow; latency is the ratio to the reference, and 5% alone is latency's. Repeatable. "
        "[default: latency=5%]", LIMITS, "[[CASE:]METRIC=]PCT%")
    exact_only: bool = flag(False, "Parameters, FLOPs and bytes alone; nothing is timed.", LIMITS)
    budget: float = flag(DEFAULT_BUDGET_S, "Measure for so long at most, 90s or 5m.", LIMITS, "TIME")


@dataclass(frozen=True, kw_only=True)
class CheckRequest(Tolerances, Request):
    """`ffnbench check`."""

    baseline: str = flag("", "A .json that `ffnbench compare ... -o baseline.json` made.", ARGUMENTS, place="BASELINE")
    current: str | None = flag(
        None, "A saved run to hold against it, in place of measuring now.", ARGUMENTS, place="CURRENT")
    across_machines: bool = flag(False, "Compare ratios with another kind of machine too.", LIMITS)
    absolute: bool = flag(False, "Check seconds too, on the very same machine only.", LIMITS)
    trust: tuple[str, ...] = flag(
        (), "Let this code run, which the baseline names. Repeatable.", LIMITS, "TARGET")


@dataclass(frozen=True, kw_only=True)
class SidesRequest(Repeatable, Tolerances, Conditions, Device, Shape, Sizes, Request):
    """`ffnbench ab`: base and head, as this process has them where nothing else is said; head is the working tree."""

    COMMAND = "ab"

    variant: str = flag(
        "", "package.module:Attr, path/to/file.py:Attr, or a name of `ffnbench list variants`.", ARGUMENTS,
        place="VARIANT")
    base_rev: str | None = flag(None, "Base is this git revision, checked out for the while.", SIDES, "REV",
        place="BASE_REV")
    base_python: str | None = flag(None, "Base runs in this interpreter; it needs torch alone.", SIDES, "PATH")
    base_source: str | None = flag(None, "Base is the code in this folder.", SIDES, "DIR")
    base_env: tuple[str, ...] = flag((), "A variable of base's processes. Repeatable.", SIDES, "NAME:VALUE")
    head_rev: str | None = flag(None, "Head is this revision, not the working tree as it is.", SIDES, "REV")
    head_python: str | None = flag(None, "Head runs in this interpreter.", SIDES, "PATH")
    head_source: str | None = flag(None, "Head is the code in this folder.", SIDES, "DIR")
    head_env: tuple[str, ...] = flag((), "A variable of head's processes. Repeatable.", SIDES, "NAME:VALUE")
    fail_above: str | None = flag(
        None, "Short for --tolerance latency=PCT%: how much slower head may be. [default: 5%]", LIMITS, "PCT%")
    allow_mismatch: bool = flag(False, "Go on, and pass, where head's output has changed.", LIMITS)


# fmt: on


AnyRequest = CompareRequest | BlockRequest | TimingRequest | SidesRequest | AddedRequest  # what a plan is made of


def command_line(request: Request, command: str = "") -> str:
    """The command that asks the same again: the variants, and every other flag that is not at its default."""
    words, order = ["ffnbench", command or request.COMMAND], request.typed
    for one in fields(request):
        how = one.metadata.get("flag")
        if how is not None and not how.named and getattr(request, one.name):
            words.append(shlex.quote(str(getattr(request, one.name))))
    for one in sorted(fields(request), key=lambda one: order.index(one.name) if one.name in order else -1):
        value, how = getattr(request, one.name), one.metadata.get("flag")
        if how is None or not how.named or (value == one.default and one.name != "variants"):
            continue
        name = spelling(one.name)
        if isinstance(value, bool):
            words.append(name if value else how.off)
        else:
            if isinstance(value, tuple) and not isinstance(one.default, tuple):
                value = ",".join(map(str, value))
            for item in value if isinstance(value, tuple) else (value,):
                words += [name, shlex.quote(f"{item:g}" if isinstance(item, float) else str(item))]
    return " ".join(words)
