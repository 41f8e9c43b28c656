"""The text of a variant: `[LABEL=]NAME[@KEY=VALUE]...`, comma separated, no quoting needed in any shell.

Text in, `Variant` out: names and keys are checked here, widths are found later (planning/widths.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from ffnbench.common.errors import FfnbenchError
from ffnbench.common.names import choose, hint_for, near, normalise
from ffnbench.ffn.activations import ACTIVATIONS, OwnActivation
from ffnbench.ffn.spec import GATED, LARGEST, LIKE, Dispatch, FFNSpec, Gate, ImportedSpec, MoESpec, Scalar, Scores
from ffnbench.models.model import ModelSpec
from ffnbench.models.presets import PRESETS, as_text, variant_keys
from ffnbench.plan import OWN, Arm, Backend, Note, NoteKind, values_of
from ffnbench.planning.fields import cut
from ffnbench.request import DEFAULT_VARIANTS

KEY_HINT = "a key is written @KEY=VALUE, e.g. swiglu@d_ff=2048"
COMPILE_KEYS = ("compile", "freeze")  # how it is compiled: where no backend is named, that is what they mean
BACKEND_KEYS = {"backend", *COMPILE_KEYS}
_PAIR = re.compile(r"(?P<name>[A-Za-z_]\w*):(?P<value>.*)", re.DOTALL)
_TARGET = re.compile(r"^(?P<module>[^:]+):(?P<attr>[A-Za-z_][\w.]*)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One parsed variant. `activation` and `gate` are set for ffnbench's own forms, `target` for user code.

    A target that turns out to be an activation becomes one of our forms with `own` set. `d_model` is that of a
    model, where the variant names one. `like` is the variant that `@like` names: the form that a module of the
    user's is said to be. `also` are other names for its label, and the name of the model alone comes first:
    `llama3-8b` of `llama3-8b (swiglu)`.
    """

    label: str
    text: str
    activation: str = ""
    gate: Gate = Gate.NONE
    target: str = ""
    own: OwnActivation | None = None
    spec_keys: dict[str, Scalar]
    workload_keys: dict[str, Scalar]
    arguments: tuple[tuple[str, Scalar], ...] = ()
    notes: tuple[Note, ...] = ()  # their label is not known yet
    d_model: int | None = None
    like: Variant | None = None
    arm: Arm = OWN
    also: tuple[str, ...] = ()


def parse_variants(text: str) -> list[Variant]:
    """Parse a comma separated list; raises FfnbenchError for an empty name."""
    return [parse_variant(part) for part in cut("", text, DEFAULT_VARIANTS)]


def parse_variant(text: str, models: Mapping[str, ModelSpec] | None = None) -> Variant:
    """Parse one `[LABEL=]NAME[@KEY=VALUE]...`. `models` are names beside those of the presets: `preset` and `config`,
    where these were given.
    """
    head, *pairs = text.split("@")
    label, _, name = head.rpartition("=")
    keys, arm = _parse_keys(text, pairs)
    if (models and name in models) or name in PRESETS:
        model = models[name] if models and name in models else PRESETS.get(name)
        found = _published(text, label, model, keys)
    elif match := _TARGET.match(name):
        found = _imported(text, label, name, match["attr"], keys)
    else:
        found = _own(text, label, name, keys)
    return replace(found, arm=arm)


def is_variant(text: str) -> bool:
    """Whether it is read as a variant, whatever stands in it."""
    try:
        return bool(parse_variant(text))
    except FfnbenchError:
        return False


def _own(text: str, label: str, name: str, keys: Keys) -> Variant:
    """One of ffnbench's own forms."""
    activation, gate, notes, clamps = _form(name)
    _check_keys(text, keys)
    if keys.get("beta", 1) != 1 or {"limit", "offset"} & keys.keys():
        notes = ()  # what is said of a name holds for its own beta and its own limits
    keys = clamps | keys
    return Variant(
        label=label or text,
        text=text.removeprefix(f"{label}=") if label else text,
        activation=_with_beta(activation, keys, text),
        gate=_gate(keys, gate),
        notes=notes,
        **_split(keys),
    )


def _gate(keys: Keys, default: Gate) -> Gate:
    return choose(Gate, "gate", keys["gate"]) if "gate" in keys else default


def _split(keys: Keys) -> dict[str, Any]:
    """The keys of the spec and those of the workload, as a Variant has them; called when `_with_beta` has read them."""
    names = {"spec_keys": SPEC_KEYS, "workload_keys": WORKLOAD_KEYS}
    return {of: {key: value for key, value in keys.items() if key in known} for of, known in names.items()}


def _published(text: str, label: str, model: ModelSpec, keys: Keys) -> Variant:
    """The main FFN of a model; keys of the user's own win over the model's."""
    _check_keys(text, keys)
    spec = model.main.ffn
    own = variant_keys(spec)
    towers = {group.kind.partition(" ")[0] for group in model.groups}
    tower = f"the language model of {model.name}, not its vision tower" if {"vision"} < towers else ""
    if {"rule", "ratio"} & keys.keys():
        del own["d_ff"]
    given = own | keys
    activation, gate = _with_beta(spec.activation, given, text), _gate(keys, spec.gate)
    named = "@".join([model.key, *text.split("@")[1:]])
    return Variant(
        label=label or f"{named} ({replace(spec, activation=activation, gate=gate).name})",
        also=(model.key,) if label else tuple(dict.fromkeys((model.key, named, text))),
        text=named if model.key in PRESETS else as_text(spec, own | keys),
        activation=activation,
        gate=gate,
        notes=(
            Note(text=f"the FFN of {model.name} ({model.source})", kind=NoteKind.MODEL),
            *(Note(text=text) for text in (tower, model.defaults) if text),
        ),
        d_model=spec.d_model,
        **_split(given),
    )


def _form(name: str) -> tuple[str, Gate, tuple[Note, ...], Keys]:
    """The activation, the gate, what should be said of the name, and the keys that it stands for."""
    if name in GATED:
        row = GATED.get(name)
        note = (Note(text=row.note, kind=NoteKind.NAME),) if row.note else ()
        return row.activation, Gate.INNER, note, {} if row.limit is None else {"limit": row.limit, "offset": row.offset}
    stem = normalise(name).removesuffix("_glu")
    if name not in ACTIVATIONS and stem in ACTIVATIONS:
        activation = ACTIVATIONS.get(stem)
        return activation.name, Gate.INNER, _notes(stem, activation.name, activation.note), {}
    if name in ACTIVATIONS:
        activation = ACTIVATIONS.get(name)
        return activation.name, Gate.NONE, _notes(name, activation.name, activation.note), {}
    if len(parts := re.split(r"[\s;+|/]+", name)) > 1 and all(part in ACTIVATIONS or part in GATED for part in parts):
        raise FfnbenchError(f"unknown variant {name!r}", f"a list has commas: {','.join(parts)}")
    if hint := _of_code(name):
        raise FfnbenchError(f"{name!r} names no class or function", hint)
    if re.search(r"[():\[\]]", name):
        raise FfnbenchError(f"unknown variant {name!r}", KEY_HINT)
    if "/" in name or name.endswith(".json"):
        raise FfnbenchError(f"unknown variant {name!r}", f"a model's config.json, or ORG/NAME: --preset {name}")
    if name in values_of(Backend):
        raise FfnbenchError(f"{name!r} is a backend and no variant", "a key names one; --backend takes a list")
    known = ACTIVATIONS.spellings() + GATED.spellings() + [f"{a}_glu" for a in ACTIVATIONS.names()] + PRESETS.names()
    every = "`ffnbench list variants` shows all; your own code is package.module:Attr or path/to/file.py:Attr"
    if name.isdigit():
        every = f"a number is the value of a flag, such as --d-model {name}"
    elif key := next((key for key in KEYS if key.name == name), None):
        every = f"it is a key of a variant, as in {key.example}"
    elif set(near(name, known)) & set(PRESETS.names()):
        every = "`ffnbench list presets` shows all models"
    raise FfnbenchError(f"unknown variant {name!r}", hint_for(name, known, every))


def _of_code(name: str) -> str:
    """How code is named whose file alone was, or with dots; "" for what is not of code."""
    source, _, attr = name.rstrip(":").partition("::")
    if source.endswith(".py"):
        return f"say which of the file: {source}:{attr or 'NAME'}"
    if "." in name and not name.endswith(".json") and all(part.isidentifier() for part in name.split(".")):
        return f"its name stands behind a colon: {':'.join(name.rsplit('.', 1))}"
    return ""


def _notes(typed: str, canonical: str, note: str) -> tuple[Note, ...]:
    """What a reader should know of a name: its ambiguity, or which row an alias runs."""
    if not note and normalise(typed) == canonical:
        return ()
    text = note or f"{typed} is {canonical}: {ACTIVATIONS.get(canonical).formula}"
    return (Note(text=text, kind=NoteKind.NAME),)


def _with_beta(activation: str, keys: Keys, text: str) -> str:
    """@beta= turns silu into swish, and swish with beta 1 back into silu, which has a kernel of its own."""
    row = ACTIVATIONS.get(activation)
    if "beta" not in keys:
        return "silu" if activation == "swish" else activation
    if row.beta is None and not row.with_beta:
        raise FfnbenchError(f"{activation} has no beta, in {text!r}", "swish has: swish@beta=0.5")
    if number(keys, "beta", 1.0, "for example swish@beta=0.5") == 1:
        del keys["beta"]
        return "silu"
    return row.with_beta or activation


def _imported(text: str, label: str, target: str, attr: str, keys: Keys) -> Variant:
    """User code: keys of the workload and the width are ours, all others go to its constructor."""
    ours = {"d_ff", "ratio", LIKE}
    like = None
    if LIKE in keys:
        like = parse_variant(str(keys[LIKE]))
        if like.target or like.spec_keys.get("moe") is not None:
            raise FfnbenchError(f"{LIKE!r} takes the name of a form without experts, in {text!r}", "e.g. @like=swiglu")
    return Variant(
        label=label or "@".join([attr, *text.split("@")[1:]]),
        text=text.removeprefix(f"{label}=") if label else text,
        target=target,
        spec_keys={k: v for k, v in keys.items() if k in ours and k != LIKE},
        workload_keys={k: v for k, v in keys.items() if k in WORKLOAD_KEYS},
        arguments=tuple((k, v) for k, v in keys.items() if k not in ours and k not in WORKLOAD_KEYS),
        like=like,
    )


def form_like(like: Variant, d_model: int, d_ff: int) -> FFNSpec:
    """The form that a variant names, of those widths: its activation, its gate and its limits, and no more of it."""
    keys = like.spec_keys
    return FFNSpec(
        d_model=d_model,
        d_ff=d_ff,
        activation=like.activation,
        gate=like.gate,
        limit=limit_of(keys),
        up_offset=number(keys, "offset", 0.0, "gpt-oss has swiglu_oai@offset=1"),
    )


def as_activation_variant(variant: Variant, own: OwnActivation) -> Variant:
    """The form around an activation of the user's: classic, or gated where `@gate=` says so."""
    keys = variant.spec_keys | dict(variant.arguments)
    _check_keys(variant.text, [*keys, *[LIKE] * (variant.like is not None)])
    note = Note(text=f"{own.target} declares no cost: its element-wise FLOPs are unknown")
    return replace(
        variant, target="", arguments=(), activation=own.target, own=own, gate=_gate(keys, Gate.NONE), spec_keys=keys,
        notes=() if own.flops is not None else (note,),
    )  # fmt: skip


def module_spec(variant: Variant, d_model: int, d_ff: int) -> ImportedSpec:
    """The spec of a variant that names a module of somebody else's."""
    like = None if variant.like is None else form_like(variant.like, d_model, d_ff)
    return ImportedSpec(target=variant.target, d_model=d_model, d_ff=d_ff, arguments=variant.arguments, like=like)


ELSEWHERE = {
    LIKE: "it says what code of yours computes, as in mlp.py:MLP@like=swiglu; forms stand in a list: relu,swiglu",
    "d_model": "it is not of one variant but of all: --d-model 512,1024 makes a group of each",
}


def _unknown(key: str, text: str) -> FfnbenchError:
    known = sorted(SPEC_KEYS + WORKLOAD_KEYS + ARM_KEYS)
    hint = ELSEWHERE.get(key) or hint_for(key, known, "`ffnbench list keys` shows all keys")
    return FfnbenchError(f"unknown key {key!r} in {text!r}", hint)


def _check_keys(text: str, keys: Iterable[str]) -> None:
    for key in keys:
        if key not in SPEC_KEYS + WORKLOAD_KEYS:
            raise _unknown(key, text)


def _parse_keys(text: str, pairs: list[str]) -> tuple[Keys, Arm]:
    """What follows the name, but for what is said of its process: that is the arm."""
    keys: Keys = {}
    arm: dict[str, str] = {}
    env: list[str] = []
    for pair in pairs:
        key, _, value = (part.strip() for part in pair.partition("="))
        key = key.replace("-", "_")
        if not key or not value:
            raise FfnbenchError(f"cannot read {'@' + pair!r} in {text!r}", KEY_HINT)
        if key in keys or key in arm:
            raise FfnbenchError(f"key {key!r} stands twice in {text!r}", "give each key once")
        if key == "env":
            env += value.split(";")
        elif key in ARM_KEYS:
            arm[key] = value
        else:
            keys[key] = parse_scalar(value)
    return keys, Arm(env=parse_env(env), **arm)


def parse_scalar(text: str) -> Scalar:
    """`true`/`false`, `none`, an integer, a float, else the text itself."""
    words: dict[str, Scalar] = {"true": True, "yes": True, "false": False, "no": False, "none": None, "null": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            found = kind(text)
            float(found)  # a whole number beyond all floats is infinite, and is refused as such
        except (ValueError, OverflowError):
            continue
        return found
    return text


def parse_env(texts: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """`NAME:VALUE` of each text; a name that stands twice takes its last value."""
    found: dict[str, str] = {}
    for text in texts:
        match = _PAIR.fullmatch(text.strip())
        if match is None:
            raise FfnbenchError(f"cannot read the variable {text!r}", "write NAME:VALUE, for example OMP_NUM_THREADS:1")
        found[match["name"]] = match["value"]
    return tuple(found.items())


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
