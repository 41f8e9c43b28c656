"""Every key that a variant may have, `NAME@KEY=VALUE`: one row each, and what the keys of a spec say, read and checked.

How the text is cut is the business of planning/variant_text.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from ffnbench.errors import FfnbenchError
from ffnbench.ffn.moe import Dispatch, MoESpec, Scores
from ffnbench.ffn.spec import LARGEST, Scalar
from ffnbench.names import choose


class Of(Enum):
    """What a key is about; how `ffnbench list keys` calls it."""

    FORM = "form"
    EXPERTS = "experts"
    WORKLOAD = "workload"
    OWN_CODE = "own code"
    PROCESS = "process"


@dataclass(frozen=True, slots=True)
class Key:
    """A row of the table. `example` is a variant whose key is not at its default."""

    name: str
    of: Of
    meaning: str
    default: str
    example: str

    @property
    def pair(self) -> str:
        """`@d_ff=2048`: the key as the example has it."""
        return next(f"@{pair}" for pair in self.example.split("@") if pair.startswith(f"{self.name}="))


# fmt: off
KEYS = (
    Key("d_ff", Of.FORM, "final width per branch", "matched", "swiglu@d_ff=2048"),
    Key("rule", Of.FORM, "a published rule for the width: `ffnbench list rules`", "none", "swiglu@rule=llama"),
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
    Key("seq_len", Of.WORKLOAD, "tokens in a sequence", "512", "swiglu@seq_len=128"),
    Key("dtype", Of.WORKLOAD, "float32, bfloat16, float16 or float64", "float32", "swiglu@dtype=bf16"),
    Key("device", Of.WORKLOAD, "auto, cpu, cuda (ROCm too) or cuda:1", "auto", "swiglu@device=cpu"),
    Key("mode", Of.WORKLOAD, "forward (inference), train (training) or backward", "forward",
        "swiglu@mode=train"),
    Key("threads", Of.WORKLOAD, "CPU threads", "all CPUs", "swiglu@threads=2"),
    Key("backend", Of.WORKLOAD, "how it is run: `ffnbench list backends`", "eager",
        "swiglu@backend=packed"),
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


def keys_of(*about: Of) -> tuple[str, ...]:
    """The names of the keys that are about these, in the order of the table."""
    return tuple(key.name for key in KEYS if key.of in about)


MOE_KEYS, SPEC_KEYS = keys_of(Of.EXPERTS), keys_of(Of.FORM, Of.EXPERTS)
WORKLOAD_KEYS, ARM_KEYS = keys_of(Of.WORKLOAD), keys_of(Of.PROCESS)
Keys = dict[str, Scalar]
_EXPERTS = re.compile(r"^(?P<experts>\d{1,9})[xX](?P<top_k>\d{1,9})$")


def flag(keys: Keys, name: str, default: bool) -> bool:
    """A key that is true or false."""
    value = keys.get(name, default)
    if not isinstance(value, bool):
        raise FfnbenchError(f"{name} must be true or false, not {value!r}", f"for example swiglu@{name}=true")
    return value


def number(keys: Keys, name: str, default: float, hint: str) -> float:
    """A key that is a number."""
    value = keys.get(name, default)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise FfnbenchError(f"{name} must be a number, not {value!r}", hint)
    return float(value)


def limit_of(keys: Keys) -> float | None:
    """The limit of a clamped gate; `none` takes away what a name brings along."""
    return None if keys.get("limit") is None else number(keys, "limit", 0, "gpt-oss has swiglu_oai@limit=7")


def moe_of(keys: Keys, text: str) -> MoESpec | None:
    """The experts that a variant asks for; `text` is the variant as it was typed."""
    if (shape := keys.get("moe")) is None:
        if lonely := [key for key in keys if key in MOE_KEYS and key != "moe"]:
            raise FfnbenchError(f"{lonely[0]!r} belongs to experts, in {text!r}", "add @moe=8x2: 8 experts, 2 a token")
        return None
    found = _EXPERTS.match(str(shape))
    if not found:
        raise FfnbenchError(f"cannot read moe={shape!s}, in {text!r}", "moe=8x2 is 8 experts, 2 of them for each token")
    groups = _EXPERTS.match(str(keys.get("groups", "1x1")))
    if not groups:
        raise FfnbenchError(
            f"cannot read groups={keys['groups']!s}, in {text!r}", "groups=8x4 is 4 of 8 groups a token"
        )
    shared = keys.get("shared") or 0
    if not isinstance(shared, int) or not 0 <= shared <= LARGEST:
        raise FfnbenchError(f"shared must be the width of the shared experts, not {shared!r}", "e.g. @shared=2048")
    return MoESpec(
        experts=int(found["experts"]),
        top_k=int(found["top_k"]),
        shared_d_ff=shared,
        shared_gate=flag(keys, "shared_gate", False),
        router_bias=flag(keys, "router_bias", False),
        scores=choose(Scores, "scores", keys.get("scores", Scores.SOFTMAX.value)),
        normalised=flag(keys, "normalised", True),
        routed_scale=number(keys, "routed_scale", 1.0, "DeepSeek-V3 has @routed_scale=2.5"),
        groups=int(groups["experts"]),
        top_groups=int(groups["top_k"]),
        dispatch=choose(Dispatch, "experts", keys.get("experts", Dispatch.EAGER.value)),
    )
