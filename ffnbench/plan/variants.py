"""The text of variants: `[LABEL=]NAME[@KEY=VALUE]...`, which no shell needs quoted.

A text becomes a `Typed`, whose keys may have lists; `at` takes one value of each and
makes the `Variant`. Names and keys are checked here, widths are found later
(plan/widths.py). The table of keys is plan/keys.py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from ffnbench.common.errors import FfnbenchError
from ffnbench.common.names import hint_for, normalise
from ffnbench.ffn.activations import ACTIVATIONS
from ffnbench.ffn.spec import (
    GATED,
    LIKE,
    PARAMETERS,
    UP,
    FFNSpec,
    Gate,
    MoESpec,
    Scalar,
)
from ffnbench.plan.plan import Note, NoteKind, Probe, typed_as
from ffnbench.plan.reading import cut

if TYPE_CHECKING:
    from ffnbench.models.model import ModelSpec

DEFAULT_VARIANTS = "relu,gelu,swiglu"
PRESET = "preset"  # the name that the model of --preset has among the variants
# how a variant is compiled: one that has such a key and no backend is compiled
COMPILE_KEYS = ("compile", "freeze")
BACKEND_KEYS = {"backend", *COMPILE_KEYS}
# the fields of a form that keys of the same name do not set
OF_OTHER_KEYS = {"d_model", "d_ff", "activation", "parameters", "up", "moe", "own"}
# the fields of a form, and of its experts, that keys set
FORM_FIELDS = {field.name for field in fields(FFNSpec)} - OF_OTHER_KEYS
EXPERT_FIELDS = {"shared": "shared_d_ff", "experts": "dispatch"} | {
    name: name
    for name in (
        "latent",
        "zero",
        "capacity",
        "shared_gate",
        "router_bias",
        "scores",
        "normalised",
        "routed_scale",
    )
}
_TARGET = re.compile(r"[^:]+:(?P<attr>[A-Za-z_][\w.]*)")
Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One variant, with one value of each key.

    It has a `form`, whose widths are not yet those that it will have, or a `target`: a
    module of the user's. `like` is the form that `@like` names, which that module
    should compute; `arguments` are those of its constructor.
    """

    label: str = ""
    text: str
    form: FFNSpec | None = None
    target: str = ""
    keys: Values = field(default_factory=dict)
    arguments: tuple[tuple[str, Scalar], ...] = ()
    notes: tuple[Note, ...] = ()  # without a label
    like: FFNSpec | None = None

    @property
    def moe(self) -> MoESpec | None:
        """Its experts, as far as they are known."""
        form = self.form or self.like
        return None if form is None else form.moe


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """The text of a variant, taken apart: its keys, each with its value or with several
    where it has a list, and the model that the name stands for.
    """

    label: str
    name: str
    text: str  # without the label
    keys: dict[str, tuple[Any, ...]]
    model: ModelSpec | None = None

    @property
    def is_target(self) -> bool:
        """Whether it names code of the user's."""
        return self.model is None and _TARGET.fullmatch(self.name) is not None

    @property
    def lists(self) -> dict[str, tuple[Any, ...]]:
        """The keys that have several values, which are axes."""
        return {name: values for name, values in self.keys.items() if len(values) > 1}

    def at(self, point: Values, probe: Probe) -> Variant:
        """The variant with the value that its keys with lists have at a point."""
        keys = {name: values[0] for name, values in self.keys.items()}
        listed = {name: point[f"@{name}"] for name in self.lists}
        variant = self._variant(self._text(listed), keys | listed, probe)
        return replace(variant, label=self.row)

    def _text(self, listed: Values) -> str:
        """The text with these values of keys that have lists; without such a key where
        it has no value.
        """
        text, *pairs = self.text.split("@")
        for pair, key in zip(pairs, self.keys, strict=True):
            if key in listed:
                text += f"@{key}={typed_as(listed[key])}"
            elif key not in self.lists:
                text += f"@{pair}"
        return text

    def _variant(self, text: str, keys: Values, probe: Probe) -> Variant:
        if self.model is not None:
            return _variant_of_model(text, self.model, keys)
        if not self.is_target:
            return _variant_of_form(text, self.name, keys)
        own = probe.describe(self.name)
        if own is None:
            return _variant_of_target(text, self.name, keys)
        from ffnbench.plan.keys import parse_keys

        keys = {name: one for name, (one,) in parse_keys(text, own_code=False).items()}
        form = FFNSpec(d_model=1, d_ff=1, activation=own.target, own=own)
        notes: tuple[Note, ...] = ()
        if own.flops is None:
            why = f"{own.target} declares no cost: its element-wise FLOPs are unknown"
            notes = (Note(text=why),)
        form = with_keys(form, keys, text)
        return Variant(text=text, form=form, keys=keys, notes=notes)

    @property
    def row(self) -> str:
        """The name of its row: its label, or its text without keys that have lists, and
        without where its code stands.
        """
        text = self._text({})
        if self.label:
            return self.label
        if self.model is not None:
            keys = {name: one for name, (one, *more) in self.keys.items() if not more}
            form = with_keys(self.model.main.form, keys, text)
            return f"{text.replace(self.name, self.model.key, 1)} ({form.name})"
        if self.is_target:
            return text.replace(self.name, self.name.rpartition(":")[2], 1)
        return text


def typed_variants(text: str, preset: ModelSpec | None = None) -> list[Typed]:
    """Read a comma separated list of variants. `preset` is the model that has that name
    among them. Raises FfnbenchError for what is no variant, and where two
    lists of one key differ.
    """
    variants = [_typed(part, preset) for part in parts_of(text)]
    lists: dict[str, tuple[Any, ...]] = {}
    for typed in variants:
        for name, values in typed.lists.items():
            if lists.setdefault(name, values) != values:
                shown = ",".join(map(typed_as, values))
                raise FfnbenchError(
                    f"two variants have different lists of {name}, but an axis has only one",
                    f"give both the same @{name}={shown}",
                )
    return variants


def parts_of(text: str) -> list[str]:
    """The texts of the variants of a list. A comma divides two variants, or two values
    of a key: a part that begins like a number belongs to the key before it.
    """
    variants: list[str] = []
    for part in cut("", text):
        head = part.partition("@")[0]
        # no name of a variant begins like a number; a label or a path has = or :
        is_number = head.lstrip("-.")[:1].isdigit() and not {"=", ":"} & {*head}
        if is_number and variants and "@" in variants[-1]:
            variants[-1] += f",{part}"
        else:
            variants.append(part)
    return variants


def _typed(text: str, preset: ModelSpec | None) -> Typed:
    """Read one variant; raises FfnbenchError for what is none."""
    head, *pairs = text.split("@")
    label, _, name = head.rpartition("=")
    if "(" in label:  # keys in brackets: the error names all of it
        label, name = "", head
    model = preset if name == PRESET else None
    is_target = _TARGET.fullmatch(name) is not None
    if model is None and not is_target and not _is_form(name):
        from ffnbench.models.presets import PRESETS

        if name not in PRESETS:
            names = ACTIVATIONS.spellings() + GATED.spellings() + PRESETS.names()
            where = "`ffnbench list variants` shows all; your own code is package.module:Attr or path/to/file.py:Attr"
            hint = hint_for(name, names, where)
            is_folder = name != "" and os.path.isfile(f"{name}/config.json")
            if is_folder or name.endswith("config.json"):
                hint = f"--preset {name} reads it, and `preset` is its FFN"
            if pairs and "/" in pairs[0].partition("=")[0]:
                hint = "an @ begins a key; of a folder with an @ in its name, cd into it and name the file alone"
            raise FfnbenchError(f"unknown variant {name!r}", hint)
        model = PRESETS.get(name)
    keys: dict[str, tuple[Any, ...]] = {}
    if pairs:
        from ffnbench.plan.keys import parse_keys

        keys = parse_keys(text, own_code=model is None and is_target)
    without_label = "@".join((name, *pairs))
    return Typed(label=label, name=name, text=without_label, keys=keys, model=model)


def _is_form(name: str) -> bool:
    """Whether a name is that of one of ffnbench's own forms."""
    return (
        name in GATED
        or name in ACTIVATIONS
        or normalise(name).removesuffix("_glu") in ACTIVATIONS
    )


def _variant_of_form(text: str, name: str, keys: Values) -> Variant:
    """The variant of one of ffnbench's own forms."""
    form, note = _form_and_note(name)
    if {"up", *PARAMETERS} & keys.keys():
        note = ""  # it explains the name with its own parameters
    return Variant(
        text=text,
        form=with_keys(form, keys, text),
        keys=keys,
        notes=(Note(text=note, kind=NoteKind.NAME),) if note else (),
    )


def _form_and_note(name: str) -> tuple[FFNSpec, str]:
    """The form of a gated name, of an activation, or of an activation with `_glu`
    behind it, which is gated; and what the name means, where that is not plain.
    """
    if name in GATED:
        gated = GATED.get(name)
        return gated.form, gated.note
    gate, alias = Gate.NONE, name
    if name not in ACTIVATIONS:
        gate, alias = Gate.INNER, normalise(name).removesuffix("_glu")
    row = ACTIVATIONS.get(alias)
    note = row.note
    if not note and normalise(alias) != row.name:
        note = f"{alias} is {row.name}: {row.formula}"
    # swish without a beta is silu, which has a kernel of its own
    activation = "silu" if row.name == "swish" else row.name
    return FFNSpec(d_model=1, d_ff=1, activation=activation, gate=gate), note


def with_keys(form: FFNSpec, keys: Values, text: str) -> FFNSpec:
    """The form with what the keys of the variant `text` say of it. Raises FfnbenchError
    for a parameter that its activation does not have, and for keys of experts where
    there are none.
    """
    if not keys:
        return form
    changes = {key: keys[key] for key in FORM_FIELDS if key in keys}
    changes["moe"] = _experts_with(form.moe, keys, text)
    try:
        act, up = form.act, form.up
        act = act.with_parameters(_parameters("", keys))
        if "up" in keys:
            up = _form_and_note(keys["up"])[0].act
        if of_up := _parameters(UP, keys):
            if up is None:
                raise FfnbenchError(
                    "there is no activation on up", "name it: @up=clamp@up_limit=7"
                )
            up = up.with_parameters(of_up)
        changes |= {"activation": act.activation, "parameters": act.parameters}
        return replace(form, up=up, **changes)
    except FfnbenchError as problem:
        raise FfnbenchError(f"{problem.message}, in {text!r}", problem.hint) from None


def _parameters(prefix: str, keys: Values) -> dict[str, float]:
    """The parameters of an activation by their names, of keys with a prefix."""
    return {name: keys[prefix + name] for name in PARAMETERS if prefix + name in keys}


def _experts_with(moe: MoESpec | None, keys: Values, text: str) -> MoESpec | None:
    """The experts of a form with what keys say of them; None for no experts."""
    changes = {
        of_moe: keys[key] for key, of_moe in EXPERT_FIELDS.items() if key in keys
    }
    if "groups" in keys:
        changes["groups"], changes["top_groups"] = map(int, keys["groups"].split("x"))
    shape = keys.get("moe")
    if shape is not None:
        changes["experts"], changes["top_k"] = map(int, shape.split("x"))
        return MoESpec(**changes) if moe is None else replace(moe, **changes)
    if moe is not None and "moe" not in keys:
        return replace(moe, **changes)
    if changes:
        key = next(key for key in keys if key in (*EXPERT_FIELDS, "groups"))
        raise FfnbenchError(
            f"{key!r} needs experts, in {text!r}",
            "add @moe=8x2: 8 experts, 2 of them for each token",
        )
    return None


def _variant_of_model(text: str, model: ModelSpec, keys: Values) -> Variant:
    """The variant of the main FFN of a model. The keys of the user take precedence over
    those of the model.
    """
    from ffnbench.models.presets import PRESETS

    form = with_keys(model.main.form, keys, text)
    name, pairs = model.key, text.split("@")[1:]
    of_model: dict[str, Any] = {"bias": form.bias}
    if not {"rule", "ratio"} & keys.keys():
        of_model["d_ff"] = form.d_ff
    if model.key not in PRESETS:  # typed again, it is to be the same
        name = model.main.form.name
        unsaid = {key: of_model[key] for key in of_model if key not in keys}
        pairs += [f"{key}={typed_as(value)}" for key, value in unsaid.items() if value]
    keys = {**of_model, **keys}
    texts = [f"the FFN of {model.name} ({model.source})"]
    if not model.main.proven:
        texts.append(f"the form of {model.name}'s FFN is not proven")
    notes = [Note(text=line, kind=NoteKind.MODEL) for line in texts]
    if model.defaults:
        notes.append(Note(text=model.defaults))
    text = "@".join((name, *pairs))
    return Variant(text=text, form=form, keys=keys, notes=tuple(notes))


def _variant_of_target(text: str, target: str, keys: Values) -> Variant:
    """The variant of user code. Keys that ffnbench does not know are arguments of its
    constructor.
    """
    if not keys:
        return Variant(text=text, target=target)
    from ffnbench.plan.keys import LIKE_KEYS, OF_OWN_CODE

    known, like = OF_OWN_CODE, None
    if LIKE in keys:
        known = (*OF_OWN_CODE, *LIKE_KEYS)
        if not _is_form(keys[LIKE]):
            raise FfnbenchError(
                f"{LIKE!r} takes the name of a form, in {text!r}", "e.g. @like=swiglu"
            )
        of_form = {key: keys[key] for key in LIKE_KEYS if key in keys}
        like = with_keys(_form_and_note(keys[LIKE])[0], of_form, text)
    return Variant(
        text=text,
        target=target,
        keys={key: keys[key] for key in keys if key in known},
        arguments=tuple((key, keys[key]) for key in keys if key not in known),
        like=like,
    )
