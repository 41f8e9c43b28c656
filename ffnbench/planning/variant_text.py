"""The text of a variant: `[LABEL=]NAME[@KEY=VALUE]...`, comma separated, no quoting needed in any shell.

Text in, `Variant` out: names and keys are checked here, widths are found later (planning/widths.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ffnbench.errors import FfnbenchError
from ffnbench.ffn.activations import ACTIVATIONS
from ffnbench.ffn.spec import LIKE, FFNSpec, Gate, ImportedSpec, Scalar
from ffnbench.ffn.user_activation import OwnActivation
from ffnbench.ffn.variants import GATED
from ffnbench.models.model import ModelSpec
from ffnbench.models.presets import PRESETS, as_text, variant_keys
from ffnbench.names import choose, hint_for, near, normalise
from ffnbench.plan import OWN, Arm, Backend, Note, NoteKind, values_of
from ffnbench.planning.keys import ARM_KEYS, KEYS, SPEC_KEYS, WORKLOAD_KEYS, Keys, limit_of, number
from ffnbench.planning.lists import cut
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
