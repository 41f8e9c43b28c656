"""The keys of a variant, `@KEY=VALUE`: the table of them, and how their text is
read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from ffnbench.backends import BACKENDS
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.names import hint_for
from ffnbench.ffn.spec import LIKE, Scalar, format_of, item_bytes
from ffnbench.plan import Arm, Workload

KEY_HINT = "a key is written @KEY=VALUE, e.g. swiglu@d_ff=2048"
_VARIABLE = re.compile(r"(?P<name>[A-Za-z_]\w*):(?P<value>.*)", re.DOTALL)
_WORDS: dict[str, Scalar] = {
    "true": True,
    "yes": True,
    "on": True,
    "false": False,
    "no": False,
    "off": False,
    "none": None,
    "null": None,
}


class Of(StrEnum):
    """What a key is about, in the word of `ffnbench list keys`."""

    FORM = "form"
    EXPERTS = "experts"
    WORKLOAD = "workload"
    OWN_CODE = "own code"
    PROCESS = "process"


@dataclass(frozen=True, slots=True)
class Key:
    """A row of the table. `example` is a variant with the key, not at its default."""

    name: str
    of: Of
    meaning: str
    default: str
    example: str

    @property
    def pair(self) -> str:
        """The key with its value as the example has it: `@d_ff=2048`."""
        value = self.example.partition(f"@{self.name}=")[2].partition("@")[0]
        return f"@{self.name}={value}"


# fmt: off
KEYS = (
    Key("d_ff", Of.FORM, "final width per branch", "matched", "swiglu@d_ff=2048"),
    Key("rule", Of.FORM, "a published rule for the width: llama, two_thirds, ...", "none", "swiglu@rule=llama"),
    Key("ratio", Of.FORM, "expansion, d_ff / d_model", "4", "relu@ratio=2"),
    Key("multiple_of", Of.FORM, "the width is rounded to this", "8", "swiglu@multiple_of=256"),
    Key("ffn_dim_multiplier", Of.FORM, "Llama's factor on the width, with @rule", "1",
        "swiglu@rule=llama@ffn_dim_multiplier=1.3"),
    Key("gate", Of.FORM, "inner: act(gate) * up; output: a gate after down; none: classic", "by name",
        "silu@gate=inner"),
    Key("bias", Of.FORM, "biases in all linear layers: true or false", "false", "swiglu@bias=true"),
    Key("beta", Of.FORM, "x sigmoid(beta x); of silu, swish and swiglu", "1", "swish@beta=0.5"),
    Key("dropout", Of.FORM, "dropout on the hidden layer, in train mode", "0", "relu@dropout=0.1"),
    Key("init", Of.FORM, "weights: torch, he_xavier or normal", "torch", "relu@init=normal"),
    Key("limit", Of.FORM, "clamps gate and up of a gated form; none takes it away", "none", "swiglu@limit=7"),
    Key("offset", Of.FORM, "added to up in a gated form", "0", "swiglu@limit=7@offset=1"),
    Key("moe", Of.EXPERTS, "ExK: E experts, of which each token goes to K", "none", "swiglu@moe=8x2"),
    Key("shared", Of.EXPERTS, "width of all shared experts together", "0", "swiglu@moe=8x2@shared=512"),
    Key("shared_gate", Of.EXPERTS, "a sigmoid gate on the shared experts: true or false", "false",
        "swiglu@moe=8x2@shared=512@shared_gate=true"),
    Key("router_bias", Of.EXPERTS, "a bias of the router: true or false", "false",
        "swiglu@moe=8x2@router_bias=true"),
    Key("scores", Of.EXPERTS, "how logits become scores: softmax or sigmoid", "softmax",
        "swiglu@moe=8x2@scores=sigmoid"),
    Key("normalised", Of.EXPERTS, "the chosen weights add up to 1: true or false", "true",
        "swiglu@moe=8x2@normalised=false"),
    Key("routed_scale", Of.EXPERTS, "factor on the weights", "1", "swiglu@moe=8x2@routed_scale=2.5"),
    Key("groups", Of.EXPERTS, "GxH: a token's experts come from H of G groups", "1x1",
        "swiglu@moe=8x2@groups=4x2"),
    Key("experts", Of.EXPERTS, "how they run: eager, a loop; grouped, one product", "eager",
        "swiglu@moe=8x2@experts=grouped"),
    Key("batch", Of.WORKLOAD, "sequences in a call", "1", "swiglu@batch=8"),
    Key("seq_len", Of.WORKLOAD, "tokens in a sequence", "512/64", "swiglu@seq_len=128"),
    Key("dtype", Of.WORKLOAD, "float32, bfloat16, float16 or float64", "float32", "swiglu@dtype=bf16"),
    Key("device", Of.WORKLOAD, "auto, cpu, cuda (ROCm too) or cuda:1", "auto", "swiglu@device=cpu"),
    Key("mode", Of.WORKLOAD, "forward (inference), train (training) or backward", "forward",
        "swiglu@mode=train"),
    Key("threads", Of.WORKLOAD, "CPU threads", "all CPUs", "swiglu@threads=2"),
    Key("backend", Of.WORKLOAD, "how it is run, as --backend", "eager",
        "swiglu@backend=packed"),
    Key("weights", Of.WORKLOAD, "how matrices are held: none, int8, int8-dynamic or int4", "none",
        "swiglu@weights=int8"),
    Key("group", Of.WORKLOAD, "columns that share a scale, where weights are held in groups", "32",
        "swiglu@d_ff=1024@weights=int4@group=128"),
    Key("spin", Of.WORKLOAD, "ONNX Runtime's threads wait without sleeping: on or off", "off",
        "swiglu@backend=ort@spin=on"),
    Key("compile", Of.WORKLOAD, "torch.compile's mode, and @backend=compile", "default",
        "swiglu@compile=max-autotune"),
    Key("freeze", Of.WORKLOAD, "compiled with constant weights: true or false", "false", "swiglu@freeze=true"),
    Key("time", Of.WORKLOAD, "which time is the latency on a GPU: wall or device", "wall", "swiglu@time=device"),
    Key("cache", Of.WORKLOAD, "the last-level cache before a call: hot or cold", "hot", "swiglu@cache=cold"),
    Key("matmul_precision", Of.WORKLOAD, "of float32 products: highest, high (TF32), medium (bfloat16)", "highest",
        "swiglu@matmul_precision=high"),
    Key("reduced_reductions", Of.WORKLOAD, "16-bit products may add in 16 bits: true or false", "true",
        "swiglu@dtype=bf16@reduced_reductions=false"),
    Key("slowdown", Of.WORKLOAD, "each call spins for this share of its time, on the CPU: a test of measuring", "0",
        "slow=swiglu@slowdown=0.05"),
    Key("routing", Of.WORKLOAD, "how tokens spread over experts: uniform, skewed or trained-like", "uniform",
        "swiglu@moe=8x2@routing=skewed"),
    Key("like", Of.OWN_CODE, "the form that it computes: its output is held against that", "none",
        "file.py:MyFFN@like=swiglu"),
    Key("python", Of.PROCESS, "the interpreter that it runs in", "this one", "swiglu@python=/env/python"),
    Key("source", Of.PROCESS, "a folder that is put first on the module path", "none", "pkg.mod:MyFFN@source=../old"),
    Key("env", Of.PROCESS, "variables of its process, NAME:VALUE, ; between", "none",
        "swiglu@env=DEBUG:1"),
)
# fmt: on


def names_of_keys(*about: Of) -> tuple[str, ...]:
    """The names of the keys that are about one of these, in the order of the table."""
    return tuple(key.name for key in KEYS if key.of in about)


MOE_KEYS, SPEC_KEYS = names_of_keys(Of.EXPERTS), names_of_keys(Of.FORM, Of.EXPERTS)
WORKLOAD_KEYS, ARM_KEYS = names_of_keys(Of.WORKLOAD), names_of_keys(Of.PROCESS)
# hints for keys that a form of ffnbench's own does not have
ELSEWHERE = {
    LIKE: "it names the form that your own code computes: mlp.py:MLP@like=swiglu; to compare forms, list them: relu,swiglu",
    "d_model": "all variants of a group have the same: --d-model 512,1024 makes two groups",
}
# the hint for a key that only some workloads read; which they are, `refuse_unread` says
READ_BY = {
    "spin": "ONNX Runtime's threads can spin: add @backend=ort",
    "group": "weights in groups have it: add @weights=int4",
    "matmul_precision": "products of float32 have it: leave @dtype out",
    "reduced_reductions": "products of 16 bits have it: add @dtype=bf16",
}


def parse_keys(text: str) -> tuple[dict[str, Scalar], Arm]:
    """The keys in the text of a variant; those about its process are the arm. Raises
    FfnbenchError for a key that can't be read or is there twice.
    """
    keys: dict[str, Scalar] = {}
    arm: dict[str, str] = {}
    variables: list[str] = []
    for pair in text.split("@")[1:]:
        key, _, value = (part.strip() for part in pair.partition("="))
        key = key.replace("-", "_")
        if not key or not value:
            raise FfnbenchError(f"cannot read {'@' + pair!r} in {text!r}", KEY_HINT)
        if key in keys or key in arm:
            raise FfnbenchError(
                f"key {key!r} is given twice in {text!r}", "give each key once"
            )
        if key == "env":
            variables += value.split(";")
        elif key in ARM_KEYS:
            arm[key] = value
        else:
            keys[key] = parse_scalar(value)
    return keys, Arm(env=parse_env(variables), **arm)


def check_keys(text: str, keys: Iterable[str]) -> None:
    """Raise FfnbenchError for a key of the variant `text` that no form has."""
    for key in keys:
        if key not in SPEC_KEYS + WORKLOAD_KEYS:
            names = sorted(SPEC_KEYS + WORKLOAD_KEYS + ARM_KEYS)
            hint = ELSEWHERE.get(key) or hint_for(
                key, names, "`ffnbench list keys` shows all keys"
            )
            raise FfnbenchError(f"unknown key {key!r} in {text!r}", hint)


def refuse_unread(text: str, keys: Iterable[str], works: Iterable[Workload]) -> None:
    """Raise FfnbenchError for a key of the variant `text` that has no effect on any of
    its workloads.
    """
    read = set()
    for work in works:
        if BACKENDS[work.backend].can_spin:
            read.add("spin")
        if work.dtype == "float32":
            read.add("matmul_precision")
        if item_bytes(work.dtype) == 2:
            read.add("reduced_reductions")
        held = format_of(work.weights, work.backend)
        if held is not None and held.grouped:
            read.add("group")
    for key, hint in READ_BY.items():
        if key in keys and key not in read:
            raise FfnbenchError(f"nothing reads @{key} in {text!r}", hint)


def keys_named(names: tuple[str, ...], keys: dict[str, Scalar]) -> dict[str, Scalar]:
    """Those of the keys that have these names."""
    return {key: value for key, value in keys.items() if key in names}


def parse_scalar(text: str) -> Scalar:
    """The value that a text stands for: a bool, None, an integer or a float, else the
    text itself.
    """
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for kind in (int, float):
        try:
            value = kind(text)
            # raises for a whole number beyond all floats, which float() makes infinite
            float(value)
        except (ValueError, OverflowError):
            continue
        return value
    return text


def parse_env(texts: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """The name and value of each text, which is `NAME:VALUE`; a name that is there
    twice has its last value. Raises FfnbenchError for any other text.
    """
    variables: dict[str, str] = {}
    for text in texts:
        match = _VARIABLE.fullmatch(text.strip())
        if match is None:
            raise FfnbenchError(
                f"cannot read the variable {text!r}",
                "write NAME:VALUE, for example OMP_NUM_THREADS:1",
            )
        variables[match["name"]] = match["value"]
    return tuple(variables.items())
