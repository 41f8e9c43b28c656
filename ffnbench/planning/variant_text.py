"""The text of a variant: `[LABEL=]NAME[@KEY=VALUE]...`, which no shell needs quoted.

Text in, `Variant` out: names and keys are checked here, widths are found later
(planning/widths.py). The table of keys is planning/keys.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ffnbench.common.errors import FfnbenchError
from ffnbench.common.names import choose, hint_for, normalise
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

# how a variant is compiled: one that has such a key and no backend is compiled
COMPILE_KEYS = ("compile", "freeze")
BACKEND_KEYS = {"backend", *COMPILE_KEYS}
_TARGET = re.compile(r"^(?P<module>[^:]+):(?P<attr>[A-Za-z_][\w.]*)$")
# 8x2: how many experts, or groups of them, there are and how many a token has
_EXPERTS = re.compile(r"^(?P<all>\d{1,9})[xX](?P<chosen>\d{1,9})$")
Keys = dict[str, Scalar]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One parsed variant. `activation` and `gate` are set for ffnbench's own forms,
    `target` for user code.

    A target that is found to be an activation becomes one of our forms, with `own` set.
    `d_model` is that of the model that the variant names, if any. `like` is the variant
    that `@like` names: the form that a module of the user's should compute. `also` are
    other names for the label, that of the model alone first: `llama3-8b` for `llama3-8b
    (swiglu)`. `arguments` are those of the constructor of user code.
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
    notes: tuple[Note, ...] = ()  # without a label, which a sweep makes longer
    d_model: int | None = None
    like: Variant | None = None
    arm: Arm = THIS_INTERPRETER
    also: tuple[str, ...] = ()


def parse_variants(
    text: str, models: Mapping[str, ModelSpec] | None = None
) -> list[Variant]:
    """Parse a comma separated list of variants whose keys have no lists; raises
    FfnbenchError for what is none. `models` is as for `parse_variant`.
    """
    return [parse_variant(part, models) for part in cut("", text, DEFAULT_VARIANTS)]


def parse_variant(text: str, models: Mapping[str, ModelSpec] | None = None) -> Variant:
    """Parse one `[LABEL=]NAME[@KEY=VALUE]...`; raises FfnbenchError for what is none.
    `models` are by name the models that may be named beside the presets.
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
            names = ACTIVATIONS.spellings() + GATED.spellings() + PRESETS.names()
            where = "`ffnbench list variants` shows all; your own code is package.module:Attr or path/to/file.py:Attr"
            raise FfnbenchError(
                f"unknown variant {name!r}", hint_for(name, names, where)
            )
        variant = _variant_of_model(text, label, PRESETS.get(name), keys)
    return replace(variant, arm=arm)


def is_variant(text: str) -> bool:
    """Whether a text can be read as a variant."""
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
    """A variant of one of our forms with these keys; raises FfnbenchError for a key
    that a form does not have.
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
    """Whether a name is that of one of ffnbench's own forms."""
    return (
        name in GATED
        or name in ACTIVATIONS
        or normalise(name).removesuffix("_glu") in ACTIVATIONS
    )


def _variant_of_form(text: str, label: str, name: str, keys: Keys) -> Variant:
    """The variant of one of ffnbench's own forms: a gated name, an activation, or an
    activation with `_glu` behind it, which is gated.
    """
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
        note = ""  # it explains the name with its own beta and its own limits
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
    """The variant of the main FFN of a model. The keys of the user take precedence over
    those of the model.
    """
    from ffnbench.models.presets import PRESETS, as_text, variant_keys

    spec = model.main.form
    of_model = variant_keys(spec)
    if "rule" in keys or "ratio" in keys:
        del of_model["d_ff"]
    activation, all_keys = _with_beta(spec.activation, of_model | keys, text)
    model_text = "@".join([model.key, *text.split("@")[1:]])
    notes = [
        Note(text=f"the FFN of {model.name} ({model.source})", kind=NoteKind.MODEL)
    ]
    if not model.main_is_proven:
        notes.append(
            Note(
                text=f"the form of {model.name}'s FFN is not proven",
                kind=NoteKind.MODEL,
            )
        )
    if model.defaults:
        notes.append(Note(text=model.defaults))
    variant = Variant(
        label=label,
        text=model_text if model.key in PRESETS else as_text(spec, all_keys),
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
    names = dict.fromkeys((model.key, model_text, text))
    return replace(variant, label=f"{model_text} ({form})", also=tuple(names))


def _with_beta(activation: str, keys: Keys, text: str) -> tuple[str, Keys]:
    """The activation that @beta makes of another one, and the keys that are left. With
    @beta, silu is swish; but swish with beta 1 is silu, which has a kernel of its own.
    Raises FfnbenchError for an activation without a beta, in the variant `text`.
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
    """The variant of user code. Keys of the workload, of the width and @like are read
    here, all others are arguments of its constructor.
    """
    attr = target.rpartition(":")[2]
    variant = Variant(
        label=label or "@".join([attr, *text.split("@")[1:]]),
        text=_without_label(text, label),
        target=target,
    )
    if not keys:
        return variant
    from ffnbench.planning.keys import MOE_KEYS, WORKLOAD_KEYS, keys_named

    like = None
    ours = {"d_ff", "ratio", LIKE, *WORKLOAD_KEYS}
    if LIKE in keys:
        of_experts = keys_named(MOE_KEYS, keys)
        ours |= of_experts.keys()
        like = _with_keys(parse_variant(str(keys[LIKE])), of_experts)
        if like.target:
            raise FfnbenchError(
                f"{LIKE!r} takes the name of a form, in {text!r}", "e.g. @like=swiglu"
            )
    return replace(
        variant,
        spec_keys=keys_named(("d_ff", "ratio"), keys),
        workload_keys=keys_named(WORKLOAD_KEYS, keys),
        arguments=tuple((key, value) for key, value in keys.items() if key not in ours),
        like=like,
    )


def as_activation_variant(variant: Variant, own: OwnActivation) -> Variant:
    """The variant of the form around an activation of the user's: classic, or gated
    where @gate says so.
    """
    keys = variant.spec_keys | variant.workload_keys | dict(variant.arguments)
    if variant.like is not None:
        # it is no key of a form, so that it is refused below
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
    """The spec of a variant whose target is a module. Of the form that it should
    compute, only the activation, the gate and its limits matter.
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
            moe=moe_of(variant.like.spec_keys, variant.text),
        )
    return ImportedSpec(
        target=variant.target,
        d_model=d_model,
        d_ff=d_ff,
        arguments=variant.arguments,
        like=like,
    )


# The values of keys, each with the type that its key must have


def boolean(keys: Keys, name: str, default: bool) -> bool:
    """The value of a key that is true or false; raises FfnbenchError for any other."""
    value = keys.get(name, default)
    if not isinstance(value, bool):
        raise FfnbenchError(
            f"{name} must be true or false, not {value!r}",
            f"for example swiglu@{name}=true",
        )
    return value


def number(keys: Keys, name: str, default: float, hint: str) -> float:
    """The value of a key that is a number; raises FfnbenchError for any other."""
    value = keys.get(name, default)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise FfnbenchError(f"{name} must be a number, not {value!r}", hint)
    return float(value)


def offset_of(keys: Keys) -> float:
    """The number that is added to up in a gated form."""
    return number(keys, "offset", 0.0, "for example swiglu_oai@offset=1, as in gpt-oss")


def limit_of(keys: Keys) -> float | None:
    """The limit of a clamped gate; None for none, also where @limit=none takes away
    the one of a name.
    """
    if keys.get("limit") is None:
        return None
    return number(keys, "limit", 0, "for example swiglu_oai@limit=7, as in gpt-oss")


def moe_of(keys: Keys, text: str) -> MoESpec | None:
    """The experts that a variant asks for, None where it asks for none. `text` is the
    variant as it was typed, for errors.
    """
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
        experts=int(experts["all"]),
        top_k=int(experts["chosen"]),
        shared_d_ff=shared,
        shared_gate=boolean(keys, "shared_gate", False),
        router_bias=boolean(keys, "router_bias", False),
        scores=choose(Scores, "scores", keys.get("scores", Scores.SOFTMAX)),
        normalised=boolean(keys, "normalised", True),
        routed_scale=number(
            keys, "routed_scale", 1.0, "DeepSeek-V3 has @routed_scale=2.5"
        ),
        groups=int(groups["all"]),
        top_groups=int(groups["chosen"]),
        dispatch=choose(Dispatch, "experts", keys.get("experts", Dispatch.EAGER)),
    )
