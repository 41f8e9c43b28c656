"""The text of a variant: `[LABEL=]NAME[@KEY=VALUE]...`, comma separated, no quoting
needed in any shell.

Text in, `Variant` out: names and keys are checked here, widths are found later
(planning/widths.py). The table of keys is planning/keys.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ffnbench.common.errors import FfnbenchError
from ffnbench.common.names import choose, normalise
from ffnbench.ffn.activations import ACTIVATIONS, OwnActivation
from ffnbench.ffn.spec import (
    GATED,
    LARGEST_SIZE,
    LIKE,
    Dispatch,
    FFNSpec,
    Gate,
    ImportedSpec,
    MoESpec,
    Scalar,
    Scores,
)
from ffnbench.plan import THIS_INTERPRETER, Arm, Note, NoteKind
from ffnbench.planning.fields import cut
from ffnbench.request import DEFAULT_VARIANTS

if TYPE_CHECKING:
    from ffnbench.models.model import ModelSpec

# how it is compiled: where no backend is named, that is what they mean
COMPILE_KEYS = ("compile", "freeze")
BACKEND_KEYS = {"backend", *COMPILE_KEYS}
_TARGET = re.compile(r"^(?P<module>[^:]+):(?P<attr>[A-Za-z_][\w.]*)$")
_EXPERTS = re.compile(r"^(?P<experts>\d{1,9})[xX](?P<top_k>\d{1,9})$")
Keys = dict[str, Scalar]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One parsed variant. `activation` and `gate` are set for ffnbench's own forms,
    `target` for user code.

    A target that turns out to be an activation becomes one of our forms with `own` set.
    `d_model` is that of a model, where the variant names one. `like` is the variant
    that `@like` names: the form that a module of the user's is said to be. `also` are
    other names for its label, and the name of the model alone comes first: `llama3-8b`
    of `llama3-8b (swiglu)`.
    """

    label: str
    text: str
    activation: str = ""
    gate: Gate = Gate.NONE
    target: str = ""
    own: OwnActivation | None = None
    spec_keys: Keys = field(default_factory=dict)
    workload_keys: Keys = field(default_factory=dict)
    arguments: tuple[tuple[str, Scalar], ...] = ()
    notes: tuple[Note, ...] = ()  # their label is not known yet
    d_model: int | None = None
    like: Variant | None = None
    arm: Arm = THIS_INTERPRETER
    also: tuple[str, ...] = ()


def parse_variants(text: str) -> list[Variant]:
    """Parse a comma separated list; raises FfnbenchError for an empty name."""
    return [parse_variant(part) for part in cut("", text, DEFAULT_VARIANTS)]


def parse_variant(text: str, models: Mapping[str, ModelSpec] | None = None) -> Variant:
    """Parse one `[LABEL=]NAME[@KEY=VALUE]...`. `models` are names beside those of the
    presets: `preset` and `config`, where these were given.
    """
    head = text.partition("@")[0]
    label, _, name = head.rpartition("=")
    if "(" in label:  # keys in brackets: the error names all of it
        label, name = "", head
    keys: Keys = {}
    arm = THIS_INTERPRETER
    if "@" in text:
        from ffnbench.planning.keys import parse_keys

        keys, arm = parse_keys(text)
    if models and name in models:
        variant = _variant_of_model(text, label, models[name], keys)
    elif _TARGET.match(name):
        variant = _variant_of_target(text, label, name, keys)
    elif _is_form(name):
        variant = _variant_of_form(text, label, name, keys)
    else:
        from ffnbench.models.presets import PRESETS

        if name not in PRESETS:
            from ffnbench.planning.unknown_names import unknown_name

            raise unknown_name(name, _is_form)
        variant = _variant_of_model(text, label, PRESETS.get(name), keys)
    return replace(variant, arm=arm)


def is_variant(text: str) -> bool:
    """Whether it is read as a variant, whatever stands in it."""
    try:
        parse_variant(text)
    except FfnbenchError:
        return False
    return True


def _without_label(text: str, label: str) -> str:
    if not label:
        return text
    return text.removeprefix(f"{label}=")


def _with_keys(variant: Variant, keys: Keys) -> Variant:
    """A variant of one of our forms with these keys; raises FfnbenchError for one that
    a form does not have.
    """
    if not keys:
        return variant
    from ffnbench.planning.keys import SPEC_KEYS, WORKLOAD_KEYS, check_keys, keys_named

    check_keys(variant.text, keys)
    if "gate" in keys:
        variant = replace(variant, gate=choose(Gate, "gate", keys["gate"]))
    return replace(
        variant,
        spec_keys=keys_named(SPEC_KEYS, keys),
        workload_keys=keys_named(WORKLOAD_KEYS, keys),
    )


def _is_form(name: str) -> bool:
    """Whether it names one of ffnbench's own forms."""
    return (
        name in GATED
        or name in ACTIVATIONS
        or normalise(name).removesuffix("_glu") in ACTIVATIONS
    )


def _variant_of_form(text: str, label: str, name: str, keys: Keys) -> Variant:
    """One of ffnbench's own forms."""
    limits: Keys = {}
    if name in GATED:
        gated = GATED.get(name)
        activation, gate, note = gated.activation, Gate.INNER, gated.note
        if gated.limit is not None:
            limits = {"limit": gated.limit, "offset": gated.offset}
    else:
        gate, alias = Gate.NONE, name
        if name not in ACTIVATIONS:
            gate, alias = Gate.INNER, normalise(name).removesuffix("_glu")
        row = ACTIVATIONS.get(alias)
        activation, note = row.name, row.note
        if not note and normalise(alias) != activation:
            note = f"{alias} is {activation}: {row.formula}"
    if keys.get("beta", 1) != 1 or "limit" in keys or "offset" in keys:
        note = ""  # what is said of a name holds for its own beta and its own limits
    activation, keys = _with_beta(activation, limits | keys, text)
    variant = Variant(
        label=label or text,
        text=_without_label(text, label),
        activation=activation,
        gate=gate,
        notes=(Note(text=note, kind=NoteKind.NAME),) if note else (),
    )
    return _with_keys(variant, keys)


def _variant_of_model(text: str, label: str, model: ModelSpec, keys: Keys) -> Variant:
    """The main FFN of a model; keys of the user's own win over the model's."""
    from ffnbench.models.presets import PRESETS, as_text, variant_keys

    spec = model.main.ffn
    of_model = variant_keys(spec)
    if "rule" in keys or "ratio" in keys:
        del of_model["d_ff"]
    activation, all_keys = _with_beta(spec.activation, of_model | keys, text)
    named = "@".join([model.key, *text.split("@")[1:]])
    notes = [
        Note(text=f"the FFN of {model.name} ({model.source})", kind=NoteKind.MODEL)
    ]
    towers = {group.kind.partition(" ")[0] for group in model.groups}
    if {"vision"} < towers:
        notes.append(
            Note(text=f"the language model of {model.name}, not its vision tower")
        )
    if model.defaults:
        notes.append(Note(text=model.defaults))
    variant = Variant(
        label=label,
        text=named if model.key in PRESETS else as_text(spec, all_keys),
        activation=activation,
        gate=spec.gate,
        notes=tuple(notes),
        d_model=spec.d_model,
        also=(model.key,),
    )
    variant = _with_keys(variant, all_keys)
    if label:
        return variant
    form = replace(spec, activation=activation, gate=variant.gate).name
    names = dict.fromkeys((model.key, named, text))
    return replace(variant, label=f"{named} ({form})", also=tuple(names))


def _with_beta(activation: str, keys: Keys, text: str) -> tuple[str, Keys]:
    """@beta= turns silu into swish, and swish with beta 1 back into silu, which has a
    kernel of its own.
    """
    if "beta" not in keys:
        if activation == "swish":
            activation = "silu"
        return activation, keys
    row = ACTIVATIONS.get(activation)
    if row.beta is None and not row.with_beta:
        raise FfnbenchError(
            f"{activation} has no beta, in {text!r}", "swish has one: swish@beta=0.5"
        )
    if number(keys, "beta", 1.0, "for example swish@beta=0.5") == 1:
        return "silu", {key: value for key, value in keys.items() if key != "beta"}
    return row.with_beta or activation, keys


def _variant_of_target(text: str, label: str, target: str, keys: Keys) -> Variant:
    """User code: keys of the workload and the width are ours, all others go to its
    constructor.
    """
    attr = target.rpartition(":")[2]
    variant = Variant(
        label=label or "@".join([attr, *text.split("@")[1:]]),
        text=_without_label(text, label),
        target=target,
    )
    if not keys:
        return variant
    from ffnbench.planning.keys import WORKLOAD_KEYS, keys_named

    like = None
    if LIKE in keys:
        like = parse_variant(str(keys[LIKE]))
        if like.target or like.spec_keys.get("moe") is not None:
            raise FfnbenchError(
                f"{LIKE!r} takes the name of a form without experts, in {text!r}",
                "e.g. @like=swiglu",
            )
    ours = {"d_ff", "ratio", LIKE, *WORKLOAD_KEYS}
    return replace(
        variant,
        spec_keys=keys_named(("d_ff", "ratio"), keys),
        workload_keys=keys_named(WORKLOAD_KEYS, keys),
        arguments=tuple((key, value) for key, value in keys.items() if key not in ours),
        like=like,
    )


def as_activation_variant(variant: Variant, own: OwnActivation) -> Variant:
    """The form around an activation of the user's: classic, or gated where `@gate=`
    says so.
    """
    keys = variant.spec_keys | variant.workload_keys | dict(variant.arguments)
    if variant.like is not None:
        # which is no key of a form, and is refused as such
        keys[LIKE] = variant.like.text
    notes: tuple[Note, ...] = ()
    if own.flops is None:
        notes = (
            Note(
                text=f"{own.target} declares no cost: its element-wise FLOPs are unknown"
            ),
        )
    plain = replace(
        variant,
        target="",
        arguments=(),
        like=None,
        activation=own.target,
        own=own,
        notes=notes,
    )
    return _with_keys(plain, keys)


def module_spec(variant: Variant, d_model: int, d_ff: int) -> ImportedSpec:
    """The spec of a variant that names a module of somebody else's. Of the form that it
    is like, only the activation, the gate and its limits matter.
    """
    like = None
    if variant.like is not None:
        like = FFNSpec(
            d_model=d_model,
            d_ff=d_ff,
            activation=variant.like.activation,
            gate=variant.like.gate,
            limit=limit_of(variant.like.spec_keys),
            up_offset=offset_of(variant.like.spec_keys),
        )
    return ImportedSpec(
        target=variant.target,
        d_model=d_model,
        d_ff=d_ff,
        arguments=variant.arguments,
        like=like,
    )


# What the values of keys mean


def flag(keys: Keys, name: str, default: bool) -> bool:
    """A key that is true or false."""
    value = keys.get(name, default)
    if not isinstance(value, bool):
        raise FfnbenchError(
            f"{name} must be true or false, not {value!r}",
            f"for example swiglu@{name}=true",
        )
    return value


def number(keys: Keys, name: str, default: float, hint: str) -> float:
    """A key that is a number."""
    value = keys.get(name, default)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise FfnbenchError(f"{name} must be a number, not {value!r}", hint)
    return float(value)


def offset_of(keys: Keys) -> float:
    """What is added to up in a gated form."""
    return number(keys, "offset", 0.0, "for example swiglu_oai@offset=1, as in gpt-oss")


def limit_of(keys: Keys) -> float | None:
    """The limit of a clamped gate; `none` takes away what a name brings along."""
    if keys.get("limit") is None:
        return None
    return number(keys, "limit", 0, "for example swiglu_oai@limit=7, as in gpt-oss")


def moe_of(keys: Keys, text: str) -> MoESpec | None:
    """The experts that a variant asks for; `text` is the variant as it was typed."""
    if not keys:
        return None
    from ffnbench.planning.keys import MOE_KEYS

    shape = keys.get("moe")
    if shape is None:
        lonely = [key for key in keys if key in MOE_KEYS and key != "moe"]
        if lonely:
            raise FfnbenchError(
                f"{lonely[0]!r} needs experts, in {text!r}",
                "add @moe=8x2: 8 experts, 2 of them for each token",
            )
        return None
    experts = _EXPERTS.match(str(shape))
    if not experts:
        raise FfnbenchError(
            f"cannot read moe={shape!s}, in {text!r}",
            "moe=8x2 is 8 experts, 2 of them for each token",
        )
    groups = _EXPERTS.match(str(keys.get("groups", "1x1")))
    if not groups:
        raise FfnbenchError(
            f"cannot read groups={keys['groups']!s}, in {text!r}",
            "groups=8x4 is 8 groups, 4 of them for each token",
        )
    shared = keys.get("shared") or 0
    if not isinstance(shared, int) or not 0 <= shared <= LARGEST_SIZE:
        raise FfnbenchError(
            f"shared must be the width of the shared experts, not {shared!r}",
            "e.g. @shared=2048",
        )
    return MoESpec(
        experts=int(experts["experts"]),
        top_k=int(experts["top_k"]),
        shared_d_ff=shared,
        shared_gate=flag(keys, "shared_gate", False),
        router_bias=flag(keys, "router_bias", False),
        scores=choose(Scores, "scores", keys.get("scores", Scores.SOFTMAX)),
        normalised=flag(keys, "normalised", True),
        routed_scale=number(
            keys, "routed_scale", 1.0, "DeepSeek-V3 has @routed_scale=2.5"
        ),
        groups=int(groups["experts"]),
        top_groups=int(groups["top_k"]),
        dispatch=choose(Dispatch, "experts", keys.get("experts", Dispatch.EAGER)),
    )
