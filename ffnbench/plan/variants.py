"""The text of variants: `[LABEL=]NAME[@KEY=VALUE]...`, which no shell needs quoted.

A text becomes a `Typed`, whose keys may have lists; `at` takes one value of each and
makes the `Variant`. Names and keys are checked here, widths are found later
(plan/widths.py). The table of keys is plan/keys.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ffnbench.common.errors import FfnbenchError
from ffnbench.common.names import hint_for, normalise
from ffnbench.ffn.activations import ACTIVATIONS, OwnActivation
from ffnbench.ffn.spec import (
    GATED,
    LIKE,
    FFNSpec,
    Gate,
    ImportedSpec,
    MoESpec,
    Scalar,
)
from ffnbench.plan.plan import THIS_INTERPRETER, Arm, Note, NoteKind, Probe, typed_as
from ffnbench.plan.reading import cut, spelling

if TYPE_CHECKING:
    from ffnbench.models.model import ModelSpec

DEFAULT_VARIANTS = "relu,gelu,swiglu"
# the names that the model of --preset has among the variants
NAMES_OF_MODEL = ("preset", "config", "model")
# how a variant is compiled: one that has such a key and no backend is compiled
COMPILE_KEYS = ("compile", "freeze")
BACKEND_KEYS = {"backend", *COMPILE_KEYS}
_TARGET = re.compile(r"[^:]+:(?P<attr>[A-Za-z_][\w.]*)")
Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of a variant: the value of each, or where it has a list, its values. The
    keys about its process are the arm.
    """

    values: dict[str, Any] = field(default_factory=dict)
    lists: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    arm: Arm = THIS_INTERPRETER


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One variant, with one value of each key. `activation` and `gate` are set for
    ffnbench's own forms, `target` for user code.

    A target that is found to be an activation becomes one of our forms, with `own` set.
    `d_model` is that of the model that the variant names, if any. `like` is the variant
    that `@like` names: the form that a module of the user's should compute. `arguments`
    are those of the constructor of user code.
    """

    label: str
    text: str
    activation: str = ""
    gate: Gate = Gate.NONE
    target: str = ""
    own: OwnActivation | None = None
    keys: Values = field(default_factory=dict)
    arguments: tuple[tuple[str, Scalar], ...] = ()
    notes: tuple[Note, ...] = ()  # without a label
    d_model: int | None = None
    like: Variant | None = None
    arm: Arm = THIS_INTERPRETER


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """The text of a variant, taken apart: `pairs` are the texts of its keys, and
    `model` is the model that the name stands for.
    """

    label: str
    name: str
    pairs: tuple[str, ...]
    keys: Keys
    model: ModelSpec | None = None

    @property
    def is_target(self) -> bool:
        """Whether it names code of the user's."""
        return self.model is None and _TARGET.fullmatch(self.name) is not None

    def at(self, point: Values, probe: Probe) -> Variant:
        """The variant with the value that its keys with lists have at a point."""
        listed = {name: point[f"@{name}"] for name in self.keys.lists}
        variant = self._variant(self._text(listed), self.keys.values | listed, probe)
        return replace(variant, label=self.row, arm=self.keys.arm)

    @property
    def text(self) -> str:
        """The text as it was typed, without the label."""
        return "@".join((self.name, *self.pairs))

    def _text(self, listed: Values) -> str:
        """The text without the label, and with these values of keys that have lists;
        without such a key where it has no value.
        """
        text = self.name
        for pair in self.pairs:
            key = pair.partition("=")[0].strip().replace("-", "_")
            if key in listed:
                text += f"@{key}={typed_as(listed[key])}"
            elif key not in self.keys.lists:
                text += f"@{pair}"
        return text

    def _variant(self, text: str, keys: Values, probe: Probe) -> Variant:
        if self.model is not None:
            return _variant_of_model(text, self.model, keys)
        if self.is_target:
            own = probe.within(self.keys.arm).describe(self.name)
            if own is not None:
                return _variant_of_activation(text, own)
            return _variant_of_target(text, self.name, keys)
        return _variant_of_form(text, self.name, keys)

    @property
    def row(self) -> str:
        """The name of its row: its label, or its text without keys that have lists, and
        without where its code stands.
        """
        if self.label:
            return self.label
        text = self._text({})
        if self.model is not None:
            variant = _variant_of_model(text, self.model, self.keys.values)
            form = replace(
                self.model.main.form,
                activation=variant.activation,
                gate=variant.gate,
            )
            return f"{text.replace(self.name, self.model.key, 1)} ({form.name})"
        if self.is_target:
            return text.replace(self.name, self.name.rpartition(":")[2], 1)
        return text


def typed_variants(
    text: str, models: Mapping[str, ModelSpec] | None = None
) -> list[Typed]:
    """Read a comma separated list of variants. `models` are by name those that may be
    named beside the presets. Raises FfnbenchError for what is no variant, and where two
    lists of one key differ.
    """
    found = [_typed(part, models or {}) for part in _parts(text, models or {})]
    lists: dict[str, tuple[Any, ...]] = {}
    for typed in found:
        for name, values in typed.keys.lists.items():
            if lists.setdefault(name, values) != values:
                shown = ",".join(map(typed_as, values))
                raise FfnbenchError(
                    f"two variants have different lists of {name}, but an axis has only one",
                    f"give both the same @{name}={shown}",
                )
    return found


def _parts(text: str, models: Mapping[str, ModelSpec]) -> list[str]:
    """The texts of the variants of a list. A comma divides two variants, or two values
    of a key: a part that is a value of the key before it belongs to that.
    """
    variants: list[str] = []
    for part in cut("", text, DEFAULT_VARIANTS):
        head = part.partition("@")[0].strip()
        before, _, pair = variants[-1].rpartition("@") if variants else ("", "", "")
        if before and head not in models and _is_value_of(pair, head):
            variants[-1] += f",{part}"
        else:
            variants.append(part)
    return variants


def _is_value_of(pair: str, text: str) -> bool:
    """Whether a text is one more value of the key of `KEY=VALUE`, and no variant."""
    from ffnbench.plan.keys import KEY_OF, NO_AXES, WORDS, key_of

    name, _ = key_of(pair)
    if text.lstrip("-.")[:1].isdigit():  # no name of a variant begins like a number
        return name not in NO_AXES and ":" not in text and "=" not in text
    if name not in KEY_OF:
        return text.lower() in (*WORDS, "none") and not _is_name(text)
    if KEY_OF[name].any_word:
        return False
    try:
        KEY_OF[name].read(name, text)
    except FfnbenchError:
        return False
    if name in NO_AXES:
        raise FfnbenchError(
            f"@{name} takes one value: {text!r} is another one",
            f"{spelling(name)} takes a list, and makes a row of each",
        )
    return True


def _is_name(text: str) -> bool:
    """Whether a text is the name of a variant."""
    from ffnbench.models.presets import PRESETS

    name = text.rpartition("=")[2]
    return bool(_TARGET.fullmatch(name)) or _is_form(name) or name in PRESETS


def _typed(text: str, models: Mapping[str, ModelSpec]) -> Typed:
    """Read one variant; raises FfnbenchError for what is none."""
    head = text.partition("@")[0]
    label, _, name = head.rpartition("=")
    if "(" in label:  # keys in brackets: the error names all of it
        label, name = "", head
    model = models.get(name)
    is_target = _TARGET.fullmatch(name) is not None
    if model is None and not is_target and not _is_form(name):
        from ffnbench.models.presets import PRESETS

        if name not in PRESETS:
            names = ACTIVATIONS.spellings() + GATED.spellings() + PRESETS.names()
            where = "`ffnbench list variants` shows all; your own code is package.module:Attr or path/to/file.py:Attr"
            raise FfnbenchError(
                f"unknown variant {name!r}", hint_for(name, names, where)
            )
        model = PRESETS.get(name)
    keys = Keys()
    if "@" in text:
        from ffnbench.plan.keys import parse_keys

        keys = Keys(*parse_keys(text, own_code=model is None and is_target))
    pairs = tuple(text.split("@")[1:])
    return Typed(label=label, name=name, pairs=pairs, keys=keys, model=model)


def _is_form(name: str) -> bool:
    """Whether a name is that of one of ffnbench's own forms."""
    return (
        name in GATED
        or name in ACTIVATIONS
        or normalise(name).removesuffix("_glu") in ACTIVATIONS
    )


def _variant_of_form(text: str, name: str, keys: Values) -> Variant:
    """The variant of one of ffnbench's own forms: a gated name, an activation, or an
    activation with `_glu` behind it, which is gated.
    """
    limits: dict[str, float] = {}
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
    activation, keys = _with_beta(activation, {**limits, **keys}, text)
    return Variant(
        label="",
        text=text,
        activation=activation,
        gate=keys.get("gate", gate),
        keys=keys,
        notes=(Note(text=note, kind=NoteKind.NAME),) if note else (),
    )


def _variant_of_model(text: str, model: ModelSpec, keys: Values) -> Variant:
    """The variant of the main FFN of a model. The keys of the user take precedence over
    those of the model.
    """
    from ffnbench.models.presets import PRESETS, as_text, variant_keys

    spec = model.main.form
    of_model = variant_keys(spec)
    if "rule" in keys or "ratio" in keys:
        del of_model["d_ff"]
    activation, all_keys = _with_beta(spec.activation, {**of_model, **keys}, text)
    texts = [f"the FFN of {model.name} ({model.source})"]
    if not model.main_is_proven:
        texts.append(f"the form of {model.name}'s FFN is not proven")
    notes = [Note(text=line, kind=NoteKind.MODEL) for line in texts]
    if model.defaults:
        notes.append(Note(text=model.defaults))
    if model.key in PRESETS:
        text = "@".join([model.key, *text.split("@")[1:]])
    else:
        text = as_text(spec, all_keys)
    return Variant(
        label="",
        text=text,
        activation=activation,
        gate=all_keys.get("gate", spec.gate),
        keys=all_keys,
        notes=tuple(notes),
        d_model=spec.d_model,
    )


def _with_beta(activation: str, keys: Values, text: str) -> tuple[str, dict[str, Any]]:
    """The activation that @beta makes of another one, and the keys that are left. With
    @beta, silu is swish; but swish with beta 1 is silu, which has a kernel of its own.
    Raises FfnbenchError for an activation without a beta, in the variant `text`.
    """
    left = dict(keys)
    if "beta" not in keys:
        return ("silu" if activation == "swish" else activation), left
    row = ACTIVATIONS.get(activation)
    if row.beta is None and not row.with_beta:
        raise FfnbenchError(
            f"{activation} has no beta, in {text!r}", "swish has one: swish@beta=0.5"
        )
    if keys["beta"] == 1:
        del left["beta"]
        return "silu", left
    return row.with_beta or activation, left


def _variant_of_target(text: str, target: str, keys: Values) -> Variant:
    """The variant of user code. Keys that ffnbench does not know are arguments of its
    constructor.
    """
    if not keys:
        return Variant(label="", text=text, target=target)
    from ffnbench.plan.keys import MOE_KEYS, OF_OWN_CODE

    known = (*OF_OWN_CODE, *MOE_KEYS) if LIKE in keys else OF_OWN_CODE
    own = {key: value for key, value in keys.items() if key in known}
    like = None
    if LIKE in keys:
        if not _is_form(keys[LIKE]):
            raise FfnbenchError(
                f"{LIKE!r} takes the name of a form, in {text!r}", "e.g. @like=swiglu"
            )
        of_experts = {key: keys[key] for key in MOE_KEYS if key in keys}
        like = _variant_of_form(keys[LIKE], keys[LIKE], of_experts)
    return Variant(
        label="",
        text=text,
        target=target,
        keys=own,
        arguments=tuple((key, keys[key]) for key in keys if key not in own),
        like=like,
    )


def _variant_of_activation(text: str, own: OwnActivation) -> Variant:
    """The variant of the form around an activation of the user's: classic, or gated
    where @gate says so.
    """
    from ffnbench.plan.keys import parse_keys

    keys, _, _ = parse_keys(text, own_code=False)
    notes: tuple[Note, ...] = ()
    if own.flops is None:
        unknown = f"{own.target} declares no cost: its element-wise FLOPs are unknown"
        notes = (Note(text=unknown),)
    return Variant(
        label="",
        text=text,
        activation=own.target,
        gate=keys.get("gate", Gate.NONE),
        own=own,
        keys=keys,
        notes=notes,
    )


def moe_of(variant: Variant) -> MoESpec | None:
    """The experts that a variant asks for, None where it asks for none."""
    keys = variant.keys
    if not keys:
        return None
    shape = keys.get("moe")
    if shape is None:
        from ffnbench.plan.keys import MOE_KEYS

        lonely = [key for key in keys if key in MOE_KEYS and key != "moe"]
        if lonely:
            raise FfnbenchError(
                f"{lonely[0]!r} needs experts, in {variant.text!r}",
                "add @moe=8x2: 8 experts, 2 of them for each token",
            )
        return None
    experts, top_k = map(int, shape.split("x"))
    groups, top_groups = map(int, keys.get("groups", "1x1").split("x"))
    names = {"scores", "normalised", "routed_scale", "shared_gate", "router_bias"}
    return MoESpec(
        experts=experts,
        top_k=top_k,
        shared_d_ff=keys.get("shared", 0),
        groups=groups,
        top_groups=top_groups,
        **{name: keys[name] for name in names & keys.keys()},
        **({"dispatch": keys["experts"]} if "experts" in keys else {}),
    )


def spec_of(variant: Variant, d_model: int, d_ff: int, bias: bool) -> FFNSpec:
    """The form of a variant at a width; `bias` is used where no key says otherwise."""
    keys = variant.keys
    names = {"beta", "dropout", "init", "limit"}
    return FFNSpec(
        d_model=d_model,
        d_ff=d_ff,
        activation=variant.activation,
        gate=variant.gate,
        bias=keys.get("bias", bias),
        own=variant.own,
        moe=moe_of(variant),
        up_offset=keys.get("offset", 0.0),
        **{name: keys[name] for name in names & keys.keys()},
    )


def module_spec(variant: Variant, d_model: int, d_ff: int) -> ImportedSpec:
    """The spec of a variant whose target is a module."""
    like = variant.like
    return ImportedSpec(
        target=variant.target,
        d_model=d_model,
        d_ff=d_ff,
        arguments=variant.arguments,
        like=None if like is None else spec_of(like, d_model, d_ff, bias=False),
    )
