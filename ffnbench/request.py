"""What can be asked: each field of a request is a flag of its command and an argument
of its Python function.

`d_ff` is `--d-ff` on the command line, whose flags stand in cli/options.py, and `d_ff=`
in Python. What is typed becomes a value by its field's type (planning/fields.py);
planning/ checks it. A request is plain data, and stays in the plan made of it.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, fields
from typing import Annotated, ClassVar

from ffnbench.choices import Backend, Match, Mode

Texts = Annotated[str, "comma separated"]
Seconds = Annotated[float, "as 90s or 5m"]
Percent = Annotated[float, "as 0.5%"]
Ints = int | str | tuple[int, ...]  # one, several, or a range as it was typed

TAKE_LISTS = "`ffnbench compare` and `ffnbench cost` take lists"
EXAMPLES = {  # an example of a list, for each flag that may have one
    "d_model": "512,1024..4096",
    "dtype": "float32,bfloat16",
    "mode": "forward,train",
    "threads": "1,2..8",
    "batch": "1,8..64",
    "seq_len": "1,128..1024",
    "elements": "4096,64Ki..1Mi",
    "d_ff": "2688..2752/8",
    "device": "cpu,cuda",
}
DEFAULT_VARIANTS = "relu,gelu,swiglu"
DEFAULT_BUDGET_S = 120.0  # of `check` and `ab`, and of a run with --precision alone


def spelling(name: str) -> str:
    """The flag of a field: `d_ff` is `--d-ff`."""
    return "--" + name.rstrip("_").replace("_", "-")


@dataclass(frozen=True, kw_only=True)
class Request:
    """The base of every command's request. Few commands have flags for `seed` and
    `timeout`.
    """

    COMMAND: ClassVar[str] = ""  # what is typed before its flags
    # the fields that are positional arguments of the command
    POSITIONAL: ClassVar[tuple[str, ...]] = ()

    seed: int = 0
    timeout: Seconds = 300.0


@dataclass(frozen=True, kw_only=True)
class SizedRequest(Request):
    """How wide an FFN is, and what it is fed: the base for `cost`, `compare` and
    `block`.
    """

    preset: str | None = None
    d_model: Ints | None = None
    d_ff: Ints | None = None
    bias: bool | None = None
    batch: Ints = 1
    seq_len: Ints | None = None
    dtype: Texts = "float32"
    weights: Texts = "none"
    mode: Texts = "forward"


@dataclass(frozen=True, kw_only=True)
class MeasuredRequest(Request):
    """Where and how much is measured: `workers` and `rounds`, or the limits `precision`
    and `budget`, with which the run finds these numbers. Where `threads` is None, api/
    fills in the CPUs that this process may use.
    """

    device: Texts = "auto"
    threads: Ints | None = None
    workers: int | None = None
    rounds: int | None = None
    quick: bool = False
    precision: Percent | None = None
    budget: Seconds | None = None
    runs: int = 1
    pause: Seconds | None = None


@dataclass(frozen=True, kw_only=True)
class CostRequest(SizedRequest):
    """`ffnbench cost`: which FFNs, how their widths are found, and what they are
    fed.
    """

    COMMAND = "cost"
    POSITIONAL = ("variants",)

    variants: Texts = DEFAULT_VARIANTS
    match: Match = Match.PARAMS
    hardware: Texts | None = None


@dataclass(frozen=True, kw_only=True)
class CompareRequest(MeasuredRequest, CostRequest):
    """`ffnbench compare`."""

    COMMAND = "compare"

    backend: Texts = "eager"
    metrics: Texts = "latency,memory"
    layer: int | None = None


@dataclass(frozen=True, kw_only=True)
class BlockRequest(MeasuredRequest, SizedRequest):
    """`ffnbench block`."""

    COMMAND = "block"
    POSITIONAL = ("variant",)

    variant: str | None = None
    heads: int | None = None
    kv_heads: int | None = None
    seq_len: Texts = "512"
    backend: Backend = Backend.EAGER
    cost_only: bool = False


@dataclass(frozen=True, kw_only=True)
class FactsRequest(Request):
    """`ffnbench activations`: what is true of them."""

    activations: Texts | None = None


@dataclass(frozen=True, kw_only=True)
class TimingRequest(MeasuredRequest):
    """`ffnbench activations --time`: what their operations take."""

    COMMAND = "activations --time"
    POSITIONAL = ("activations",)

    activations: Texts | None = None
    elements: Texts = "1048576"
    dtype: Texts = "float32"


@dataclass(frozen=True, kw_only=True)
class PictureRequest(Request):
    """`ffnbench plot-activations`."""

    activations: Texts | None = None
    range_: str = "-4:4"


@dataclass(frozen=True, kw_only=True)
class CheckRequest(Request):
    """`ffnbench check`."""

    POSITIONAL = ("baseline", "current")

    baseline: str = ""
    current: str | None = None
    tolerance: tuple[str, ...] = ()
    exact_only: bool = False
    budget: Seconds = DEFAULT_BUDGET_S
    trust: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SidesRequest(Request):
    """`ffnbench ab`: a module, what it is fed, and where base and head run. What is not
    given is as in this process, and head is then the working tree.
    """

    COMMAND = "ab"
    POSITIONAL = ("variant",)

    variant: str = ""
    d_model: int | None = None
    d_ff: int | None = None
    batch: int = 1
    seq_len: int | None = None
    dtype: str = "float32"
    mode: Mode = Mode.FORWARD
    device: str = "auto"
    threads: int | None = None
    tolerance: tuple[str, ...] = ()
    base_rev: str | None = None
    base_python: str | None = None
    base_source: str | None = None
    base_env: tuple[str, ...] = ()
    head_rev: str | None = None
    exact_only: bool = False
    budget: Seconds = DEFAULT_BUDGET_S
    allow_mismatch: bool = False


AnyRequest = MeasuredRequest | SidesRequest  # what a plan is made of


def command_line(request: Request, command: str = "") -> str:
    """The command that asks the same again: the positional arguments, and every flag
    that is not at its default.
    """
    words = ["ffnbench", command or request.COMMAND]
    for name in request.POSITIONAL:
        text = getattr(request, name)
        if text is not None:
            words.append(shlex.quote(text))
    for field in fields(request):
        value = getattr(request, field.name)
        if field.name in request.POSITIONAL or value == field.default:
            continue
        flag = spelling(field.name)
        if isinstance(value, bool):
            words.append(flag if value else flag.replace("--", "--no-", 1))
        elif not isinstance(value, tuple):
            words += [flag, _word(value)]
        elif isinstance(field.default, tuple):  # the flag is repeated
            for item in value:
                words += [flag, _word(item)]
        else:  # the flag takes a list
            words += [flag, _word(",".join(map(str, value)))]
    return " ".join(words)


def _word(value: object) -> str:
    """A value as one word of a shell."""
    return shlex.quote(f"{value:g}" if isinstance(value, float) else str(value))


@dataclass(frozen=True, kw_only=True)
class Output:
    """How an answer is shown and written. `defaults` are notes on the flags that a
    pyproject.toml has set. `on` says where groups are measured as jobs.
    """

    format: str = "table"
    verbose: bool = False
    columns: Texts = ""
    sort: str = ""
    out: tuple[str, ...] = ()
    quiet: bool = False
    wait: bool = False
    resume: bool = False
    on_unclear: str = "pass"
    update: bool = False
    defaults: tuple[str, ...] = ()
    on: str = ""
