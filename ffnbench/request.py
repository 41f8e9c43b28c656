"""What can be asked: each field of a request is a flag of its command and an argument of its Python function.

`d_ff` is `--d-ff` on the command line, whose flags stand in cli/options.py, and `d_ff=` in Python. What is typed
becomes a value by its field's type (planning/fields.py); planning/ checks it. A request is plain data, and stays in the
plan made of it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar

from ffnbench.choices import Backend, Cache, Init, Match, MatmulPrecision, Mode, Time

Texts = Annotated[str, "comma separated"]
Seconds = Annotated[float, "as 90s or 5m"]
Percent = Annotated[float, "as 0.5%"]
Ints = int | str | tuple[int, ...]  # one, several, or a range as it was typed
Floats = float | str | tuple[float, ...]

TAKE_LISTS = "`ffnbench compare` and `ffnbench cost` take lists"
EXAMPLES = {  # of a list, by the flags that may have one
    "d_model": "512,1024..4096", "dtype": "float32,bfloat16", "mode": "forward,train", "threads": "1,2..8",
    "batch": "1,8..64", "seq_len": "1,128..1024", "elements": "4096,64Ki..1Mi", "d_ff": "2688..2752/8",
    "ratio": "2..4/0.5", "dropout": "0..0.3/0.1", "device": "cpu,cuda", "time": "wall,device", "cache": "hot,cold",
    "matmul_precision": "highest,high", "routing": "uniform,skewed",
}  # fmt: skip
DEFAULT_VARIANTS = "relu,gelu,swiglu"
DEFAULT_BUDGET_S = 120.0  # of a check, and of a run with --precision


def spelling(name: str) -> str:
    """The flag of a field: `d_ff` is `--d-ff`."""
    return "--" + name.rstrip("_").replace("_", "-")


@dataclass(frozen=True, kw_only=True)
class Request:
    """The base of every command's request. `typed` are those of its fields that have lists, in the order in which they
    were typed, where there are several.
    """

    COMMAND: ClassVar[str] = ""  # what is typed before its flags
    PLACED: ClassVar[tuple[str, ...]] = ()  # what is typed without a name

    typed: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CostRequest(Request):
    """`ffnbench cost`: which FFNs, how their widths are found, and what they are fed."""

    COMMAND = "cost"

    variants: Texts = DEFAULT_VARIANTS
    preset: str | None = None
    d_model: Ints | None = None
    d_ff: Ints | None = None
    bias: bool | None = None
    match: Match = Match.PARAMS
    multiple_of: int | None = None
    rule: str | None = None
    ratio: Floats | None = None
    ffn_dim_multiplier: float | None = None
    dropout: Floats = 0.0
    reference: str | None = None
    batch: Ints = 1
    seq_len: Ints | None = None
    dtype: Texts = "float32"
    mode: Texts = "forward"


@dataclass(frozen=True, kw_only=True)
class CompareRequest(CostRequest):
    """`ffnbench compare`. `threads` None is the CPUs that this process may use: api/ fills it in; `time` None is wall,
    but the device's where a cache is cold on an accelerator.
    """

    COMMAND = "compare"

    device: Texts = "auto"
    threads: Ints | None = None
    time: Texts | None = None
    cache: Texts = "hot"
    matmul_precision: Texts = "highest"
    reduced_reductions: bool = True
    backend: Texts = "eager"
    workers: int | None = None
    rounds: int | None = None
    quick: bool = False
    precision: Percent | None = None
    budget: Seconds | None = None
    seed: int = 0
    timeout: Seconds = 300.0
    runs: int = 1
    pause: Seconds | None = None
    shard: str | None = None
    init: Init = Init.TORCH
    routing: Texts | None = None
    control: bool = False
    metrics: Texts = "latency,memory,ceilings"


@dataclass(frozen=True, kw_only=True)
class BlockRequest(Request):
    """`ffnbench block`."""

    COMMAND = "block"

    preset: str | None = None
    d_model: Ints | None = None
    d_ff: Ints | None = None
    bias: bool | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    causal: bool | None = None
    batch: Ints = 1
    seq_len: Texts = "512"
    dtype: Texts = "float32"
    mode: Texts = "forward"
    device: Texts = "auto"
    threads: Ints | None = None
    time: Texts | None = None
    cache: Texts = "hot"
    matmul_precision: Texts = "highest"
    reduced_reductions: bool = True
    backend: Backend = Backend.EAGER
    workers: int | None = None
    rounds: int | None = None
    quick: bool = False
    precision: Percent | None = None
    budget: Seconds | None = None
    seed: int = 0
    timeout: Seconds = 300.0
    runs: int = 1
    pause: Seconds | None = None
    shard: str | None = None
    variant: str | None = None
    textbook: bool = True
    cost_only: bool = False


@dataclass(frozen=True, kw_only=True)
class FactsRequest(Request):
    """`ffnbench activations`: what is true of them."""

    activations: Texts | None = None
    timeout: Seconds = 300.0


@dataclass(frozen=True, kw_only=True)
class TimingRequest(Request):
    """`ffnbench activations --time`: what their operations take."""

    COMMAND = "activations --time"

    activations: Texts | None = None
    device: Texts = "auto"
    threads: Ints | None = None
    workers: int | None = None
    rounds: int | None = None
    quick: bool = False
    seed: int = 0
    timeout: Seconds = 300.0
    runs: int = 1
    pause: Seconds | None = None
    shard: str | None = None
    elements: Texts = "1048576"
    dtype: Texts = "float32"


@dataclass(frozen=True, kw_only=True)
class PictureRequest(Request):
    """`ffnbench plot-activations`."""

    activations: Texts | None = None
    range_: str = "-4:4"
    derivative: bool | None = None
    gated: bool = False
    timeout: Seconds = 300.0


@dataclass(frozen=True, kw_only=True)
class CheckRequest(Request):
    """`ffnbench check`."""

    PLACED = ("baseline", "current")

    tolerance: tuple[str, ...] = ()
    exact_only: bool = False
    budget: Seconds = DEFAULT_BUDGET_S
    baseline: str = ""
    current: str | None = None
    across_machines: bool = False
    absolute: bool = False
    trust: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SidesRequest(Request):
    """`ffnbench ab`: base and head, as this process has them where nothing else is said; head is the working tree."""

    COMMAND = "ab"
    PLACED = ("variant",)

    d_model: int | None = None
    d_ff: int | None = None
    bias: bool | None = None
    batch: int = 1
    seq_len: int | None = None
    dtype: str = "float32"
    mode: Mode = Mode.FORWARD
    device: str = "auto"
    threads: int | None = None
    time: Time | None = None
    cache: Cache = Cache.HOT
    matmul_precision: MatmulPrecision = MatmulPrecision.HIGHEST
    reduced_reductions: bool = True
    tolerance: tuple[str, ...] = ()
    exact_only: bool = False
    budget: Seconds = DEFAULT_BUDGET_S
    seed: int = 0
    timeout: Seconds = 300.0
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


@dataclass(frozen=True, kw_only=True)
class AddedRequest(Request):
    """The base of a feature's request about variants, of which some may fail."""

    variants: Texts = DEFAULT_VARIANTS
    preset: str | None = None
    d_model: int | None = None
    d_ff: int | None = None
    bias: bool | None = None
    match: Match = Match.PARAMS
    multiple_of: int | None = None
    rule: str | None = None
    ratio: float | None = None
    ffn_dim_multiplier: float | None = None
    dropout: float = 0.0
    reference: str | None = None
    device: str = "auto"
    threads: int | None = None
    seed: int = 0
    timeout: Seconds = 300.0


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much is measured: numbers, or limits, and then the run finds the numbers."""

    workers: int | None = None
    rounds: int | None = None
    quick: bool = False
    precision: Percent | None = None
    budget: Seconds | None = None
    seed: int = 0
    timeout: Seconds = 300.0


GroupedRequest = CompareRequest | BlockRequest | TimingRequest  # of groups, each of which may be measured elsewhere
AnyRequest = GroupedRequest | SidesRequest | AddedRequest  # what a plan is made of


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


@dataclass(frozen=True, kw_only=True)
class Output:
    """How an answer is shown and written. `defaults` are what a reader should know of those that a file has set;
    `measure` is what a feature measures with in place of the core.
    """

    format: str = "table"
    json: bool = False
    verbose: bool = False
    columns: Texts = ""
    sort: str = ""
    out: tuple[str, ...] = ()
    quiet: bool = False
    wait: bool = False
    resume: bool = False
    on_unclear: str = "pass"
    update: bool = False
    append: bool = False
    defaults: tuple[str, ...] = ()
    measure: Callable[..., Any] | None = None
