"""What can be asked: each field of a request is a flag of its command and an argument of its Python function.

`d_ff` is `--d-ff` on the command line, whose flags stand in cli/options.py, and `d_ff=` in Python. What is typed
becomes a value by its field's type (planning/fields.py); planning/ checks it. A request is plain data, and stays in the
plan made of it.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, fields
from typing import Annotated, ClassVar

from ffnbench.jsonable import LATER

Texts = Annotated[str, "comma separated"]
Seconds = Annotated[float, "as 90s or 5m"]
Percent = Annotated[float, "as 0.5%"]

TAKE_LISTS = "`ffnbench compare` and `ffnbench cost` take lists"
EXAMPLES = {  # of a list, by the flags that may have one
    "d_model": "512,1024..4096", "dtype": "float32,bfloat16", "mode": "forward,train", "threads": "1,2..8",
    "batch": "1,8..64", "seq_len": "1,128..1024", "elements": "4096,64Ki..1Mi", "d_ff": "2688..2752/8",
    "ratio": "2..4/0.5", "dropout": "0..0.3/0.1", "device": "cpu,cuda", "time": "wall,device", "cache": "hot,cold",
    "matmul_precision": "highest,high", "routing": "uniform,skewed",
}  # fmt: skip
DEFAULT_BUDGET_S = 120.0  # of a check, and of a run with --precision


def spelling(name: str) -> str:
    """The flag of a field: `d_ff` is `--d-ff`."""
    return "--" + name.rstrip("_").replace("_", "-")


@dataclass(frozen=True, kw_only=True)
class VariantList:
    """Which FFNs."""

    variants: Texts = "relu,gelu,swiglu"


@dataclass(frozen=True, kw_only=True)
class NamedModel:
    """A model that stands for sizes."""

    preset: str | None = None


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The widths of one FFN, and whether it has biases."""

    d_model: int | None = None
    d_ff: int | None = None
    bias: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Variants(Sizes, NamedModel, VariantList):
    """Which FFNs, and how their widths are found."""

    match: str = "params"
    multiple_of: int | None = None
    rule: str | None = None
    ratio: float | None = None
    ffn_dim_multiplier: float | None = None
    dropout: float = 0.0
    reference: str | None = None


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What an FFN is fed."""

    batch: int = 1
    seq_len: int | None = None
    dtype: str = "float32"
    mode: str = "forward"


@dataclass(frozen=True, kw_only=True)
class Lists:
    """What may be a list or a range: each combination is a cell, with its own reference and widths."""

    d_model: int | str | tuple[int, ...] | None = None
    d_ff: int | str | tuple[int, ...] | None = None
    batch: int | str | tuple[int, ...] = 1
    seq_len: int | str | tuple[int, ...] | None = None
    dtype: Texts = "float32"
    mode: Texts = "forward"


@dataclass(frozen=True, kw_only=True)
class VariantsLists:
    """What variants share, as lists."""

    ratio: float | str | tuple[float, ...] | None = None
    dropout: float | str | tuple[float, ...] = 0.0


@dataclass(frozen=True, kw_only=True)
class Device:
    """What it runs on. `threads` None is the CPUs that this process may use: api/ fills it in."""

    device: str = "auto"
    threads: int | None = None


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """Under what a call is timed. `time` None is wall, but the device's where a cache is cold on an accelerator."""

    time: str | None = None
    cache: str = "hot"
    matmul_precision: str = "highest"
    reduced_reductions: bool = True


@dataclass(frozen=True, kw_only=True)
class DeviceLists:
    """What it runs on, as lists."""

    device: Texts = "auto"
    threads: int | str | tuple[int, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class ConditionsLists:
    """Under what a call is timed, as lists."""

    time: Texts | None = None
    cache: Texts = "hot"
    matmul_precision: Texts = "highest"


@dataclass(frozen=True, kw_only=True)
class Running:
    """How its forward is run."""

    backend: Texts = "eager"


@dataclass(frozen=True, kw_only=True)
class Counts:
    """How much is measured, in numbers."""

    workers: int | None = None
    rounds: int | None = None
    quick: bool = False


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much is measured, by what is wanted of it."""

    precision: Percent | None = None
    budget: Seconds | None = None


@dataclass(frozen=True, kw_only=True)
class Repeatable:
    """What makes a run the same again, and what ends one that hangs."""

    seed: int = 0
    timeout: Seconds = 300.0


@dataclass(frozen=True, kw_only=True)
class Effort(Repeatable, Limits, Counts):
    """How much is measured: numbers, or limits, and then the run finds the numbers."""


@dataclass(frozen=True, kw_only=True)
class Apart:
    """Several runs in one file: what moves between runs is then known."""

    runs: int = 1
    pause: Seconds | None = None


@dataclass(frozen=True, kw_only=True)
class Sharded:
    """Which of the groups are measured here."""

    shard: str | None = None


@dataclass(frozen=True, kw_only=True)
class Request:
    """The base of every command's request. `typed` are those of its fields that have lists, in the order in which they
    were typed, where there are several.
    """

    COMMAND: ClassVar[str] = ""  # what is typed before its flags
    PLACED: ClassVar[tuple[str, ...]] = ()  # what is typed without a name

    typed: tuple[str, ...] = field(default=(), metadata=LATER)


@dataclass(frozen=True, kw_only=True)
class CostRequest(VariantsLists, Lists, Shape, Variants, Request):  # type: ignore[misc]  # lists for single values
    """`ffnbench cost`."""

    COMMAND = "cost"


@dataclass(frozen=True, kw_only=True)
class CompareRequest(  # type: ignore[misc]
    Sharded,
    Apart,
    Effort,
    Running,
    ConditionsLists,
    Conditions,
    DeviceLists,
    Device,
    VariantsLists,
    Lists,
    Shape,
    Variants,
    Request,
):
    """`ffnbench compare`."""

    COMMAND = "compare"

    init: str = "torch"
    routing: Texts | None = None
    control: bool = False
    metrics: Texts = "latency,memory,ceilings"


@dataclass(frozen=True, kw_only=True)
class AddedRequest(Repeatable, Device, Variants, Request):
    """The base of a feature's request about variants, of which some may fail."""


@dataclass(frozen=True, kw_only=True)
class Heads:
    """An attention's heads, and what a token sees, where these are not the model's own."""

    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    causal: bool | None = None


@dataclass(frozen=True, kw_only=True)
class BlockRequest(  # type: ignore[misc]
    Sharded,
    Apart,
    Effort,
    Running,
    ConditionsLists,
    Conditions,
    DeviceLists,
    Device,
    Lists,
    Shape,
    Heads,
    Sizes,
    NamedModel,
    Request,
):
    """`ffnbench block`."""

    COMMAND = "block"

    variant: str | None = None
    textbook: bool = True
    seq_len: Texts = "512"  # type: ignore[assignment]
    backend: str = "eager"
    cost_only: bool = False


@dataclass(frozen=True, kw_only=True)
class Activations:
    """Which activations."""

    activations: Texts | None = None


@dataclass(frozen=True, kw_only=True)
class FactsRequest(Activations, Request):
    """`ffnbench activations`: what is true of them."""

    timeout: Seconds = 300.0


@dataclass(frozen=True, kw_only=True)
class TimingRequest(Sharded, Apart, Repeatable, Counts, DeviceLists, Device, Activations, Request):  # type: ignore[misc]
    """`ffnbench activations --time`: what their operations take."""

    COMMAND = "activations --time"

    elements: Texts = "1048576"
    dtype: Texts = "float32"


@dataclass(frozen=True, kw_only=True)
class PictureRequest(Activations, Request):
    """`ffnbench plot-activations`."""

    range_: str = "-4:4"
    derivative: bool | None = None
    gated: bool = False
    timeout: Seconds = 300.0


@dataclass(frozen=True, kw_only=True)
class Tolerances:
    """How much may change, and how long deciding may take."""

    tolerance: tuple[str, ...] = ()
    exact_only: bool = False
    budget: Seconds = DEFAULT_BUDGET_S


@dataclass(frozen=True, kw_only=True)
class CheckRequest(Tolerances, Request):
    """`ffnbench check`."""

    PLACED = ("baseline", "current")

    baseline: str = ""
    current: str | None = None
    across_machines: bool = False
    absolute: bool = False
    trust: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SidesRequest(Repeatable, Tolerances, Conditions, Device, Shape, Sizes, Request):
    """`ffnbench ab`: base and head, as this process has them where nothing else is said; head is the working tree."""

    COMMAND = "ab"
    PLACED = ("variant",)

    variant: str = ""
    base_rev: str | None = None
    base_python: str | None = None
    base_source: str | None = None
    base_env: tuple[str, ...] = ()
    head_rev: str | None = None
    head_python: str | None = None
    head_source: str | None = None
    head_env: tuple[str, ...] = ()
    fail_above: str | None = None
    allow_mismatch: bool = False


AnyRequest = CompareRequest | BlockRequest | TimingRequest | SidesRequest | AddedRequest  # what a plan is made of


def command_line(request: Request, command: str = "") -> str:
    """The command that asks the same again: the variants, and every other flag that is not at its default."""
    words, order = ["ffnbench", command or request.COMMAND], request.typed
    words += [shlex.quote(getattr(request, name)) for name in request.PLACED]
    for one in sorted(fields(request), key=lambda one: order.index(one.name) if one.name in order else -1):
        value = getattr(request, one.name)
        if one.name in ("typed", *request.PLACED) or (value == one.default and one.name != "variants"):
            continue
        name = spelling(one.name)
        if isinstance(value, bool):
            words.append(name if value else name.replace("--", "--no-", 1))
        else:
            if isinstance(value, tuple) and not isinstance(one.default, tuple):
                value = ",".join(map(str, value))
            for item in value if isinstance(value, tuple) else (value,):
                words += [name, shlex.quote(f"{item:g}" if isinstance(item, float) else str(item))]
    return " ".join(words)
