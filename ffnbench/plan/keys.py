"""The keys of a variant, `@KEY=VALUE`: the table of them, and how their text is
read.

A new key of the workload is a row here and a field of that name in plan/plan.py:
Workload. One that changes a form is a row here and such a field in ffn/spec.py:
FFNSpec; then ffn/modules.py (the module and its float64 reference), ffn/cost.py and
worker/backends/onnx_graph.py compute what it means.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

from ffnbench.common.choices import (
    Backend,
    Cache,
    Init,
    MatmulPrecision,
    Routing,
    Time,
    Weights,
)
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.names import hint_for
from ffnbench.common.units import LARGEST_SIZE
from ffnbench.ffn.activations import ACTIVATIONS
from ffnbench.ffn.spec import (
    LIKE,
    Dispatch,
    Gate,
    Norm,
    Scalar,
    Scores,
    format_of,
    item_bytes,
)
from ffnbench.ffn.width_rules import WIDTH_RULES
from ffnbench.plan.backends import BACKENDS
from ffnbench.plan.plan import Workload
from ffnbench.plan.reading import (
    ReadText,
    device_of,
    dtype,
    member,
    mode_of,
    number,
    plain,
    positive,
    threads,
    written_out,
)

KEY_HINT = "a key is written @KEY=VALUE, e.g. swiglu@d_ff=2048"
WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}  # fmt: skip
NONE = ("none", "null")
# 8x2: how many experts, or groups of them, there are and how many a token has
_PAIR = re.compile(r"\d{1,9}[xX]\d{1,9}")


class Of(StrEnum):
    """What a key is about, in the word of `ffnbench list keys`."""

    FORM = "form"
    EXPERTS = "experts"
    WORKLOAD = "workload"
    OWN_CODE = "own code"


# Readers of values that keys alone have


def positive_number(name: str, text: str) -> float:
    """A number above zero; raises FfnbenchError for any other text."""
    value = number(name, text)
    if not 0 < value < 1e6:
        raise FfnbenchError(f"{name} must be a positive number, not {text}", "")
    return value


def boolean(name: str, text: str) -> bool:
    """Whether a text says yes; raises FfnbenchError for one that is neither."""
    if text.lower() not in WORDS:
        raise FfnbenchError(f"{name} must be true or false, not {text!r}", "")
    return WORDS[text.lower()]


def pair(name: str, text: str) -> str:
    """A text such as `8x2`, as it is; raises FfnbenchError for any other."""
    if not _PAIR.fullmatch(text):
        raise FfnbenchError(f"cannot read {name}={text}", "")
    return text.lower()


def width(name: str, text: str) -> int:
    """A width, or a number of experts, that may be 0."""
    if not text.isdecimal() or int(text) > LARGEST_SIZE:
        raise FfnbenchError(f"{name} must be 0 or a whole number, not {text!r}", "")
    return int(text)


def compile_mode(name: str, text: str) -> str:
    """The name of a mode of torch.compile; the worker knows which its torch has."""
    if not text.replace("-", "").isalpha():
        raise FfnbenchError(f"{text!r} is no mode of torch.compile", "")
    return text


def share(name: str, text: str) -> float:
    """A number from 0 to 10."""
    value = number(name, text)
    if not 0 <= value <= 10:
        raise FfnbenchError(
            f"{name} must be a share of the call's own time, not {text}",
            "e.g. 0.05 is 5%",
        )
    return value


def rule(name: str, text: str) -> str:
    """The name of a published width rule."""
    return WIDTH_RULES.get(text).name


def activation(name: str, text: str) -> str:
    """The name of an activation."""
    return ACTIVATIONS.get(text).name


def norm(name: str, text: str) -> Norm:
    """A norm by its short name: rms or layer."""
    names = {each.name.lower(): each for each in Norm}
    if text.lower() not in names:
        raise FfnbenchError(f"{name} must be {' or '.join(names)}, not {text!r}", "")
    return names[text.lower()]


def or_none(read: ReadText[Any]) -> ReadText[Any]:
    """A reader for which `none` is None."""
    return lambda name, text: None if text in NONE else read(name, text)


def scalar(name: str, text: str) -> Scalar:
    """The value that a text stands for: a bool, None, an integer or a float, else the
    text itself.
    """
    if text.lower() in NONE:
        return None
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    for kind in (int, float):
        try:
            value = kind(text)
            if math.isfinite(value):
                return value
        except (ValueError, OverflowError):  # no number, or beyond all floats
            continue
    return text


@dataclass(frozen=True, slots=True)
class Key:
    """A row of the table. `read` makes a value of its text; `example` is a variant with
    the key, not at its default.
    """

    name: str
    of: Of
    read: ReadText[Any]
    meaning: str
    default: str
    example: str

    @property
    def value(self) -> str:
        """The value that the example has."""
        return self.example.partition(f"@{self.name}=")[2].partition("@")[0]


# fmt: off
KEYS = (
    Key("d_ff", Of.FORM, positive, "final width per branch", "matched", "swiglu@d_ff=2048"),
    Key("rule", Of.FORM, rule, "a published rule for the width: llama, two_thirds, ...", "matched", "swiglu@rule=llama"),
    Key("ratio", Of.FORM, positive_number, "expansion, d_ff / d_model", "4", "relu@ratio=2"),
    Key("multiple_of", Of.FORM, positive, "the width is rounded to this", "8", "swiglu@multiple_of=256"),
    Key("ffn_dim_multiplier", Of.FORM, positive_number, "Llama's factor on the width, with @rule", "1",
        "swiglu@rule=llama@ffn_dim_multiplier=1.3"),
    Key("gate", Of.FORM, member(Gate, "gate"), "inner: act(gate) * up; output: a gate after down; none: classic", "by name",
        "silu@gate=inner"),
    Key("bias", Of.FORM, boolean, "biases in all linear layers: true or false", "false", "swiglu@bias=true"),
    Key("up", Of.FORM, activation, "a second activation, on up of a gated form", "by name", "relu_glu@up=relu"),
    Key("subnorm", Of.FORM, or_none(norm), "a norm before down: rms or layer", "none", "swiglu@subnorm=rms"),
    Key("dropout", Of.FORM, number, "dropout on the hidden layer, in train mode", "0", "relu@dropout=0.1"),
    Key("checkpoint", Of.FORM, boolean, "the forward is computed again in the backward: true or false", "false",
        "swiglu@checkpoint=true@mode=train"),
    Key("tile", Of.FORM, positive, "the tokens are computed in so many parts, one after another", "1", "swiglu@tile=4"),
    Key("init", Of.FORM, member(Init, "init"), "weights: torch, he_xavier or normal", "torch", "relu@init=normal"),
    Key("beta", Of.FORM, number, "of silu, swish and swiglu: x sigmoid(beta x)", "1", "swish@beta=0.5"),
    Key("slope", Of.FORM, number, "of leaky_relu and leaky_relu2, below zero", "0.01/0.5", "leaky_relu@slope=0.2"),
    Key("smooth", Of.FORM, number, "of smooth_relu2: how far its bend reaches", "0.2", "smooth_relu2@smooth=0.1"),
    Key("limit", Of.FORM, number, "of clamp, softcap and situ; of others an upper bound of the argument", "by name", "swiglu@limit=10"),
    Key("offset", Of.FORM, number, "added to the activation", "0", "relu@offset=1"),
    Key("up_beta", Of.FORM, number, "as beta, of the activation on up", "1", "silu_glu@up=silu@up_beta=0.5"),
    Key("up_slope", Of.FORM, number, "as slope, of the activation on up", "0.01/0.5", "reglu@up=leaky_relu@up_slope=0.2"),
    Key("up_smooth", Of.FORM, number, "as smooth, of the activation on up", "0.2", "reglu@up=smooth_relu2@up_smooth=0.1"),
    Key("up_limit", Of.FORM, number, "as limit, of the activation on up", "by name", "swiglu@up=clamp@up_limit=7"),
    Key("up_offset", Of.FORM, number, "as offset, of the activation on up", "0", "swiglu@up=identity@up_offset=1"),
    Key("moe", Of.EXPERTS, or_none(pair), "ExK: E experts, of which each token goes to K", "none", "swiglu@moe=8x2"),
    Key("shared", Of.EXPERTS, width, "width of all shared experts together", "0", "swiglu@moe=8x2@shared=512"),
    Key("latent", Of.EXPERTS, width, "width to which tokens are projected for the routed experts", "0", "swiglu@moe=8x2@latent=256"),
    Key("zero", Of.EXPERTS, width, "experts without weights, which give back their input", "0", "swiglu@moe=8x2@zero=4"),
    Key("capacity", Of.EXPERTS, or_none(positive_number), "an expert takes so many times the mean number of tokens; more are dropped", "none", "swiglu@moe=8x2@capacity=1.25"),
    Key("shared_gate", Of.EXPERTS, boolean, "a sigmoid gate on the shared experts: true or false", "false",
        "swiglu@moe=8x2@shared=512@shared_gate=true"),
    Key("router_bias", Of.EXPERTS, boolean, "a bias of the router: true or false", "false",
        "swiglu@moe=8x2@router_bias=true"),
    Key("scores", Of.EXPERTS, member(Scores, "scores"), "how logits become scores: softmax or sigmoid", "softmax",
        "swiglu@moe=8x2@scores=sigmoid"),
    Key("normalised", Of.EXPERTS, boolean, "the chosen weights add up to 1: true or false", "true",
        "swiglu@moe=8x2@normalised=false"),
    Key("routed_scale", Of.EXPERTS, number, "factor on the weights", "1", "swiglu@moe=8x2@routed_scale=2.5"),
    Key("groups", Of.EXPERTS, pair, "GxH: a token's experts come from H of G groups", "1x1",
        "swiglu@moe=8x2@groups=4x2"),
    Key("experts", Of.EXPERTS, member(Dispatch, "experts"), "how they run: eager, a loop; grouped, one product; batched, one bmm over rows padded to @capacity", "eager",
        "swiglu@moe=8x2@experts=grouped"),
    Key("batch", Of.WORKLOAD, positive, "sequences in a call", "1", "swiglu@batch=8"),
    Key("seq_len", Of.WORKLOAD, positive, "tokens in a sequence", "512/64", "swiglu@seq_len=128"),
    Key("dtype", Of.WORKLOAD, dtype, "float32, bfloat16, float16 or float64", "float32", "swiglu@dtype=bf16"),
    Key("device", Of.WORKLOAD, device_of, "auto, cpu, cuda (ROCm too) or cuda:1", "auto", "swiglu@device=cpu"),
    Key("mode", Of.WORKLOAD, mode_of, "forward (inference), train (training) or backward", "forward",
        "swiglu@mode=train"),
    Key("threads", Of.WORKLOAD, threads, "CPU threads", "all CPUs", "swiglu@threads=2"),
    Key("backend", Of.WORKLOAD, member(Backend, "backend"), "how it is run, as --backend", "eager",
        "swiglu@backend=onednn"),
    Key("weights", Of.WORKLOAD, member(Weights, "weights"), "how matrices are held: none, int8, int8-dynamic, int4; in `cost` fp8, fp8-row, fp8-block, mxfp4, nvfp4", "none",
        "swiglu@weights=int8"),
    Key("group", Of.WORKLOAD, positive, "columns that share a scale, where weights are held in groups", "32",
        "swiglu@d_ff=1024@weights=int4@group=128"),
    Key("spin", Of.WORKLOAD, boolean, "ONNX Runtime's threads wait without sleeping: on or off", "off",
        "swiglu@backend=ort@spin=on"),
    Key("compile", Of.WORKLOAD, compile_mode, "torch.compile's mode, and @backend=compile", "default",
        "swiglu@compile=max-autotune"),
    Key("freeze", Of.WORKLOAD, boolean, "compiled with constant weights: true or false", "false", "swiglu@freeze=true"),
    Key("time", Of.WORKLOAD, member(Time, "time"), "which time is the latency on a GPU: wall or device", "wall", "swiglu@time=device"),
    Key("cache", Of.WORKLOAD, member(Cache, "cache"), "the last-level cache before a call: hot, cold, or rotated (copies of the weights by turns)", "hot", "swiglu@cache=rotated"),
    Key("matmul_precision", Of.WORKLOAD, member(MatmulPrecision, "matmul_precision"), "of float32 products: highest, high (TF32), medium (bfloat16)", "highest",
        "swiglu@matmul_precision=high"),
    Key("reduced_reductions", Of.WORKLOAD, boolean, "16-bit products may add in 16 bits: true or false", "true",
        "swiglu@dtype=bf16@reduced_reductions=false"),
    Key("slowdown", Of.WORKLOAD, share, "each call spins for this share of its time, on the CPU: a test of measuring", "0",
        "slow=swiglu@slowdown=0.05"),
    Key("routing", Of.WORKLOAD, member(Routing, "routing"), "how tokens spread over experts: uniform, skewed or trained-like", "uniform",
        "swiglu@moe=8x2@routing=skewed"),
    Key("like", Of.OWN_CODE, plain, "the form that it computes: its output is held against that", "no form",
        "file.py:MyFFN@like=swiglu"),
)
# fmt: on
KEY_OF = {key.name: key for key in KEYS}


def names_of_keys(*about: Of) -> tuple[str, ...]:
    """The names of the keys that are about one of these, in the order of the table."""
    return tuple(key.name for key in KEYS if key.of in about)


MOE_KEYS, FORM_KEYS = names_of_keys(Of.EXPERTS), names_of_keys(Of.FORM)
WORKLOAD_KEYS = names_of_keys(Of.WORKLOAD)
OF_OWN_CODE = ("d_ff", "ratio", LIKE, *WORKLOAD_KEYS)
# of the form that @like names
LIKE_KEYS = (*MOE_KEYS, "subnorm")
OF_A_FORM = (*FORM_KEYS, *MOE_KEYS, *WORKLOAD_KEYS)
# the keys that are no axes: lists of --backend and --weights make rows in one group
NO_AXES = {LIKE, "backend", "weights"}
# hints for keys that a form of ffnbench's own does not have
ELSEWHERE = {
    LIKE: "it names the form that your own code computes: mlp.py:MLP@like=swiglu; to compare forms, list them: relu,swiglu",
    "d_model": "all variants of a group have the same: --d-model 512,1024 makes two groups",
}
# the keys that only some workloads read, with the hint where none does
READ_BY: dict[str, tuple[Callable[[Workload], bool], str]] = {
    "checkpoint": (lambda work: work.train, "a backward reads it: add @mode=train"),
    "spin": (
        lambda work: BACKENDS[work.backend].can_spin,
        "ONNX Runtime's threads can spin: add @backend=ort",
    ),
    "group": (
        lambda work: grouped(work),
        "weights in groups have it: add @weights=int4",
    ),
    "matmul_precision": (
        lambda work: work.dtype == "float32",
        "products of float32 have it: leave @dtype out",
    ),
    "reduced_reductions": (
        lambda work: item_bytes(work.dtype) == 2,
        "products of 16 bits have it: add @dtype=bf16",
    ),
}


def grouped(work: Workload) -> bool:
    """Whether the weights are held in groups of columns."""
    weight_format = format_of(work.weights, work.backend)
    return weight_format is not None and weight_format.grouped


def parse_keys(text: str, *, own_code: bool) -> dict[str, tuple[Any, ...]]:
    """The keys in the text of a variant, each with its value, or with several where it
    has a list.

    Raises FfnbenchError for a key that can't be read, that is there twice, or that no
    form has; of a variant of the user's `own_code` such a key is an argument of its
    constructor.
    """
    known = (*OF_OWN_CODE, *LIKE_KEYS) if f"@{LIKE}=" in text else OF_OWN_CODE
    if not own_code:
        known = OF_A_FORM
    keys: dict[str, tuple[Any, ...]] = {}
    for typed in text.split("@")[1:]:
        name, value = key_of(typed)
        if not name or not value:
            raise FfnbenchError(f"cannot read {'@' + typed!r} in {text!r}", KEY_HINT)
        if name in keys:
            raise FfnbenchError(
                f"key {name!r} is given twice in {text!r}", "give each key once"
            )
        if name not in known and not own_code:
            where = "`ffnbench list keys` shows all keys"
            hint = hint_for(name, sorted(OF_A_FORM), where)
            raise FfnbenchError(
                f"unknown key {name!r} in {text!r}", ELSEWHERE.get(name, hint)
            )
        read = partial(_read_key, KEY_OF[name], text) if name in known else scalar
        parts = [value] if name in NO_AXES else written_out(f"@{name}", value)
        keys[name] = tuple(dict.fromkeys(read(name, part) for part in parts))
    return keys


def key_of(typed: str) -> tuple[str, str]:
    """The name of a key and the text of its value, of `KEY=VALUE`."""
    name, _, value = typed.partition("=")
    return name.strip().replace("-", "_"), value.strip()


def _read_key(key: Key, text: str, name: str, value: str) -> Any:
    """The value of a key in the variant `text`."""
    try:
        return key.read(name, value)
    except FfnbenchError as problem:
        hint = problem.hint or f"for example {key.example}"
        raise FfnbenchError(f"{problem.message}, in {text!r}", hint) from None


def refuse_unread(text: str, keys: Iterable[str], works: Sequence[Workload]) -> None:
    """Raise FfnbenchError for a key of the variant `text` that has no effect on any of
    its workloads.
    """
    for key in READ_BY.keys() & {*keys}:
        reads, hint = READ_BY[key]
        if not any(map(reads, works)):
            raise FfnbenchError(f"nothing reads @{key} in {text!r}", hint)
