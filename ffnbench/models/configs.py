"""Hugging Face's config.json -> ModelSpec, by the table of families.toml. Never a wrong number.

A key that a file leaves out has the default of transformers' class, by the data of defaults.json. A model type outside
the table, a key that is contradictory or of the wrong kind, an activation without a row, a switch that the table says
changes the form: each raises FfnbenchError that names what was looked for. `Unanswered` is the part of these that
transformers itself could answer: a missing key without a default, an unknown family.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from ffnbench import jsonable
from ffnbench.activations.table import ACTIVATIONS
from ffnbench.errors import FfnbenchError
from ffnbench.ffn.attention import AttentionSpec, MLASpec
from ffnbench.ffn.moe import MoESpec, Scores
from ffnbench.ffn.spec import LARGEST, FFNSpec, Gate
from ffnbench.ffn.variants import GATED
from ffnbench.files import content_of
from ffnbench.models.defaults import ClassDefaults, Part, defaults, defaults_of
from ffnbench.models.families import (
    Assumed,
    Blocks,
    Experts,
    Family,
    Head,
    Heads,
    Layout,
    Or,
    Outside,
    Stack,
    Widening,
    Width,
    families,
    keys_read,
)  # fmt: skip
from ffnbench.models.foreign import class_named, code_note, refuse_foreign_keys, said_by, shown
from ffnbench.models.model import Beside, LayerGroup, ModelSpec, Rest
from ffnbench.models.windows import View, sights, views
from ffnbench.names import did_you_mean

Config = dict[str, Any]
MOST_SHOWN = 8  # keys of a note
A_CONFIG = "give a config.json, or the folder that holds one"
ASK = "with transformers installed `ffnbench inspect` counts it"
MOST_LAYERS = 100_000  # a list with an element a layer is made
MOST_WIDTH = 10_000_000  # of a matrix, and the most experts; no model is near it
MOST_NESTED = 4  # configs within configs
HF_ACTIVATIONS = {name: row.name for row in ACTIVATIONS for name in row.names.hf.split(", ") if name}


class Unanswered(FfnbenchError):
    """Table and defaults have no answer; transformers may have one."""


class UnknownFamily(Unanswered):
    """The table does not know the model type, or not with these switches."""


def read_file(path: str) -> tuple[Config, str]:
    """The content of a config.json, given as its path or as its folder's, and the path; raises FfnbenchError."""
    file = Path(path)
    try:
        file = file.expanduser()
        file = file / "config.json" if file.is_dir() else file
        data = jsonable.parse(content_of(file, A_CONFIG), ours=False)
    except (OSError, RuntimeError) as problem:  # there is no such home, a name that is too long
        why = getattr(problem, "strerror", None) or str(problem)
        raise FfnbenchError(f"cannot read {str(file)!r}: {why}", A_CONFIG) from problem
    except ValueError as problem:
        raise FfnbenchError(f"{str(file)!r} is not JSON: {problem}", "give the config.json of a model") from problem
    if not isinstance(data, dict):
        raise FfnbenchError(f"{str(file)!r} holds no object", "a config.json begins with {")
    return data, str(file)


def read_config(path: str) -> ModelSpec:
    """The model of a config.json or of the folder that holds one."""
    config, file = read_file(path)
    left_out = LeftOut()
    try:
        groups = tuple(read_groups(config, left_out))
        rest = read_rest(config)
    except RecursionError as problem:
        raise FfnbenchError(f"{file!r} is nested too deep", "give the config.json of a model") from problem
    name = str(config.get("model_type"))
    notes = (left_out.note(), code_note(config, _built_of(config)[1]))
    return ModelSpec(key=name, name=name, groups=groups, source=file, note="; ".join(filter(None, notes)), rest=rest)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The keys that a file leaves out and whose defaults were read, in the order of reading."""

    keys: dict[str, None] = field(default_factory=dict)
    at: str = ""  # the nested config, with a dot

    def add(self, key: str) -> None:
        """One more key of this config."""
        self.keys[self.at + key] = None

    def within(self, part: str) -> LeftOut:
        """The same list, for a nested config."""
        return LeftOut(self.keys, f"{self.at}{part}.")

    def note(self) -> str:
        """One line, or nothing."""
        if not self.keys:
            return ""
        shown, more = list(self.keys)[:MOST_SHOWN], len(self.keys) - MOST_SHOWN
        named = ", ".join(shown) + (f" and {more} more" if more > 0 else "")
        return f"left out and read as the defaults of transformers {defaults().version}: {named}"


def read_groups(config: Config, left_out: LeftOut | None = None) -> list[LayerGroup]:
    """The kinds of layers of a config, equal ones together, in the order of the table. `left_out` is added to."""
    left_out, model_type = left_out or LeftOut(), config.get("model_type")
    if left_out.at.count(".") > MOST_NESTED:
        raise FfnbenchError(f"{left_out.at[:-1]} is nested too deep", "give the config.json of a model")
    if not isinstance(model_type, str):
        raise UnknownFamily(
            "the config has no model_type",
            "a family is known by it; looked for: model_type, e.g. llama, with hidden_size and intermediate_size",
        )
    times, model_type = _built_of(config) if not left_out.at else (None, families().alias.get(model_type, model_type))
    family, known = families().by_type.get(model_type), defaults_of(model_type)
    if family is None:
        near = did_you_mean(model_type, families().by_type)
        looked = "looked for model_type in the table of families"
        raise UnknownFamily(
            f"the model type {model_type!r} is not in the table, so its keys are not known",
            " ".join(
                filter(None, (near, f"{looked}; keys of families: hidden_size, d_model, n_embd, intermediate_size, "
                "ffn_dim, n_inner, d_ff; with transformers installed `ffnbench inspect` counts it"))
            ),
        )  # fmt: skip
    config = _renamed(config, model_type, known)
    if family.parts:
        _refuse_other_settings(config, model_type, family.assumes)
        _refuse_other_parts(config, model_type, family)
    reader, found = _reader(config, model_type, known, left_out), []
    outside = families().outside.get(model_type) or [None] * len(family.stacks)
    for stack, keys in zip(family.stacks, outside, strict=True):
        groups, attention, beside = reader.groups(stack), reader.attention(stack), reader.beside(keys)
        found.append([
            replace(group, attention=attention, beside=beside, more=stack.last_bias * group.ffn.d_model)
            for group in groups
        ])  # fmt: skip
    found += [_part(config, model_type, part, left_out) for part in family.parts]
    every = [group for groups in found for group in groups]
    refuse_foreign_keys(config, model_type, _own_keys(config, model_type, family, known), said_by(every))
    if times is None:
        return every
    return [
        replace(group, count=n * group.count) for n, groups in zip(times, found, strict=True) for group in groups if n
    ]


def _built_of(config: Config) -> tuple[tuple[int, ...] | None, str]:
    """How often the class that a file names has each stack and part, None for once, and the model type that it is."""
    told = str(config.get("model_type"))
    model_type = families().alias.get(told, told)
    name = class_named(config, model_type, defaults_of(model_type).classes)
    built = families().classes[name] if name else None
    if isinstance(built, str):
        return None, built
    if built == ():
        raise Unanswered(
            f"the {model_type} config is of the class {name}, which has other layers than the bare model",
            f"looked for the keys: architectures; {ASK}",
        )
    return built, model_type


def _own_keys(config: Config, model_type: str, family: Family, known: ClassDefaults) -> set[str]:
    """The keys of a file that are its class's, read here or not."""
    instead = {part.instead for part in known.parts.values() if part.instead}
    own = {*keys_read(model_type), *known.also, *known.names, *known.asks, *known.parts, *instead, *family.parts}
    if known.flat and config.get(known.flat) is None:
        own |= defaults_of(known.parts[known.flat].type).values.keys()
    return own


def _reader(config: Config, model_type: str, known: ClassDefaults, left_out: LeftOut) -> _Reader:
    """The reader of a config, with the defaults of its class under it."""
    return _Reader({**known.values, **config}, model_type, frozenset(known.values) - config.keys(), left_out)


def read_rest(config: Config) -> tuple[Rest, ...] | None:
    """What the stacks of a config that `read_groups` takes have beside their layers; None where it is not known."""
    times, model_type = _built_of(config)
    outside = families().outside.get(model_type)
    if outside is None or times is not None:
        return None
    known = defaults_of(model_type)
    reader, found = _reader(_renamed(config, model_type, known), model_type, known, LeftOut()), []
    for stack, keys in zip(families().by_type[model_type].stacks, outside, strict=True):
        rest = reader.rest(stack, keys)
        if rest is None:
            return None
        found.append(rest)
    return tuple(found)


def _renamed(config: Config, model_type: str, known: ClassDefaults) -> Config:
    """The config under the names that the table reads; what the class makes of older names is not known here."""
    for name in known.asks:
        if config.get(name) is not None:
            raise Unanswered(
                f"the {model_type} config has {name}, from which transformers derives other keys",
                f"looked for the keys: {name}; {ASK}",
            )
    for name in sorted(known.names.keys() & config.keys()):
        key = known.names[name]
        if key in config and json.dumps(config[key]) != json.dumps(config[name]):
            _contradicts(model_type, {name: config[name], key: config[key]})
        config = {other: value for other, value in config.items() if other != name} | {key: config[name]}
    return config


def _part(config: Config, model_type: str, key: str, left_out: LeftOut) -> list[LayerGroup]:
    """The layers of a nested config, named after it: text_config keeps its own kinds."""
    known = defaults_of(model_type)
    part, nested = known.parts.get(key), config.get(key)
    if part is not None and part.instead is not None and config.get(part.instead) is not None:
        nested = config[part.instead]
    if nested is None:
        if part is None:
            raise Unanswered(f"the {model_type} config has no {key}", f"looked for the keys: {key}; {ASK}")
        if part.optional:
            return []
        nested = _whole_part(config, model_type, key, part, left_out)
    if not isinstance(nested, dict):
        raise FfnbenchError(
            f"the {model_type} config has a {key} that is no object: {shown(nested)}", f"looked for the keys: {key}"
        )
    if part is not None:
        nested = (dict(part.init) if part.beneath else {}) | nested | {"model_type": part.type_of(nested)}
    name = key.partition("_config")[0]
    groups = read_groups(nested, left_out.within(key))
    if name in ("text", "decoder", "encoder", "llm"):
        return groups
    return [replace(group, kind=name + (" moe" if group.ffn.moe else "")) for group in groups]


def _whole_part(config: Config, model_type: str, key: str, part: Part, left_out: LeftOut) -> Config:
    """A nested config that the file leaves out whole: its keys stand at the top, or it is the class's default."""
    at_top = {name: config[name] for name in defaults_of(part.type).values if name in config}
    if at_top and defaults_of(model_type).flat == key:
        return at_top
    left_out.add(key)
    return dict(part.init)


def _refuse_other_parts(config: Config, model_type: str, family: Family) -> None:
    """A part that the table does not name may hold FFNs too."""
    parts = defaults_of(model_type).parts
    for key in [key for key in {**parts, **config} if key not in family.parts]:
        nested, part = config.get(key), parts.get(key)
        if not isinstance(nested, dict):
            inner = None if part is None or part.optional else part.type
        else:
            inner = part.type_of(nested) if part else nested.get("model_type")
        if inner is not None and not (isinstance(inner, str) and inner in families().without_ffn):
            raise UnknownFamily(
                f"the {model_type} config has a {key} of type {inner!r}, which the table does not know there",
                "looked for the keys: " + ", ".join(family.parts),
            )


def _refuse_other_settings(config: Config, model_type: str, known: Assumed) -> None:
    for key, value in known:
        if config.get(key, value) != value:
            raise UnknownFamily(
                f"the table knows {model_type} with {key} {json.dumps(value)} only, not {json.dumps(config[key])}",
                f"looked for the keys: {key}",
            )


def _contradicts(model_type: str, given: Config) -> NoReturn:
    both = " and ".join(f"{name} {shown(value)}" for name, value in given.items())
    raise FfnbenchError(f"the {model_type} config contradicts itself: {both}", "keep the one that is meant")


@dataclass(frozen=True, slots=True)
class _Reader:
    """A config with its class's defaults in it; `absent` are the keys that come from there."""

    config: Config
    model_type: str
    absent: frozenset[str]
    left_out: LeftOut

    def groups(self, stack: Stack) -> list[LayerGroup]:
        """The layers of one stack: all alike, or dense ones and those with experts."""
        if stack.stages:
            return self.stages(stack, stack.stages)
        _refuse_other_settings(self.config, self.model_type, (*stack.assumes, *((key, None) for key in stack.absent)))
        for key in stack.nonzero:
            self.count(key)
        self._refuse_layers_of_their_own(stack)
        named = {True: "moe" if stack.kind == "dense" else f"{stack.kind} moe", False: stack.kind}
        if stack.blocks:
            return [
                LayerGroup(kind=named[moe], count=count, ffn=self.ffn(stack, stack.experts if moe else None))
                for moe, count in sorted(Counter(BLOCKS[stack.blocks](self)).items())
            ]
        layers = self.count(stack.layers, least=0, most=MOST_LAYERS)
        experts = stack.experts if stack.experts and self.has_experts(stack.experts) else None
        sparse = self.layout(experts, layers) if experts else [False] * layers
        times = WIDENINGS[stack.widened](self, layers) if stack.widened else [1] * layers
        widths = self.widths(stack, layers)
        alike, seen = list(zip(sparse, times, widths, strict=True)), self.views(stack, layers)
        kinds = sorted(Counter(alike).items())
        each = 1 if stack.times is None else self.count(stack.times, most=MOST_LAYERS)
        return [
            LayerGroup(
                kind=named[moe],
                count=count * each,
                ffn=self.ffn(stack, experts if moe else None, wider, width or None),
                sights=sights(
                    (view for view, own in zip(seen, alike, strict=True) if own == (moe, wider, width)), each
                ),
            )
            for (moe, wider, width), count in kinds
        ]

    def views(self, stack: Stack, layers: int) -> list[View]:
        """How far each layer sees: all tokens where the keys don't tell it, and then `attention` is not known."""
        try:
            return views(self.config, self.model_type, stack.kind, layers, known=stack.attention is not None)
        except (FfnbenchError, TypeError, LookupError):
            return [(None, "")] * layers

    def stages(self, stack: Stack, key: str) -> list[LayerGroup]:
        """The layers of each stage, as of a model that has no other."""
        depths = self.layer_numbers(key)
        number = len(depths) if self.config.get(str(stack.layers)) is None else self.count(stack.layers)
        own = {name: self.value(name) for name in (stack.d_model, stack.ratio) if isinstance(name, str)}
        if any(len(value) != len(depths) for value in own.values() if isinstance(value, list)) or number != len(depths):
            raise FfnbenchError(
                f"the {self.model_type} config has {len(depths)} stages by {key}, and others by another key",
                f"looked for the keys: {', '.join([*own, str(stack.layers)])}",
            )
        found = []
        for i, depth in enumerate(depths):
            stage = {name: value[i] if isinstance(value, list) else value for name, value in own.items()} | {key: depth}
            if stack.doubling and isinstance(stack.d_model, str):
                stage[stack.d_model] = self.count(stack.d_model) * 2**i
            found += replace(self, config=self.config | stage).groups(replace(stack, stages=None, layers=key))
        return found

    def widths(self, stack: Stack, layers: int) -> list[int]:
        """The width of each layer where its key holds a list and may; else zeros."""
        value = self.config.get(stack.d_ff) if stack.per_layer and isinstance(stack.d_ff, str) else None
        if not isinstance(value, list):
            return [0] * layers
        if len(value) != layers:
            raise FfnbenchError(
                f"the {self.model_type} config has {len(value)} {stack.d_ff} for {layers} layers", "one a layer"
            )
        return [replace(self, config={"width": width}).count("width") for width in value]

    def has_experts(self, experts: Experts) -> bool:
        """Whether any layer has experts: where fewer than `least` are none, their number tells."""
        few = experts.least > 0 and self.count(experts.experts, least=0) < experts.least
        return self.switch(experts.when) and not few

    def _refuse_layers_of_their_own(self, stack: Stack) -> None:
        """per_layer_config changes keys for single layers; unless no FFN depends on them, the layers are not alike."""
        per_layer = self.config.get("per_layer_config") or {}
        layers: list[Any] = list(per_layer.values()) if isinstance(per_layer, dict) else [None]
        if not all(isinstance(layer, dict) for layer in layers):
            raise FfnbenchError(
                f"the {self.model_type} config has a per_layer_config that is no table of tables", "one table a layer"
            )
        changed = {key for layer in layers for key in layer} - families().harmless_in(self.model_type)
        if changed:
            raise UnknownFamily(
                f"the {self.model_type} config changes {', '.join(sorted(changed))} for single layers",
                "looked for the keys: per_layer_config",
            )

    def attention(self, stack: Stack) -> AttentionSpec | None:
        """The attention of a stack's layers; None where the config does not tell it."""
        keys = stack.attention
        if keys is None or self.config.get("per_layer_config"):
            return None
        if any(self.config.get(key, value) != value for key, value in keys.assumes):
            return None
        try:
            views(self.config, self.model_type, stack.kind, self.count(stack.layers, least=0), known=True)
            return self.heads(keys, self.count(stack.d_model))
        except (FfnbenchError, TypeError, LookupError, ZeroDivisionError):
            return None

    def heads(self, keys: Heads, d_model: int) -> AttentionSpec:
        """What the keys say; raises FfnbenchError where one is missing or the numbers are those of no attention."""
        heads = self.value(keys.heads)
        kv_heads, head_dim = (None if key is None else self.value(key) for key in (keys.kv_heads, keys.head_dim))
        mla = None
        if keys.latent:
            mla = MLASpec(
                q_lora=self.value(Or("q_lora_rank", None)), kv_lora=self.value("kv_lora_rank"),
                nope=self.value("qk_nope_head_dim"), rope=self.value("qk_rope_head_dim"), v=self.value("v_head_dim"),
            )  # fmt: skip
        return AttentionSpec(
            d_model=d_model,
            heads=heads,
            kv_heads=heads if kv_heads is None else kv_heads,
            head_dim=d_model // heads if head_dim is None else head_dim,
            qkv_bias=self.switch(keys.qkv_bias),
            out_bias=self.switch(keys.out_bias),
            mla=mla,
        )

    def beside(self, keys: Outside | None) -> Beside | None:
        """What a stack's layers have beside FFN and attention; None where the config does not tell it."""
        if keys is None or any(self.config.get(key, value) != value for key, value in keys.assumes):
            return None
        try:
            buckets = self.count(keys.buckets, least=0)
        except FfnbenchError:
            return None
        return Beside(
            norms=keys.norms, norm_bias=keys.norm_bias, head_norms=keys.head_norms, sinks=keys.sinks,
            buckets=buckets, buckets_in_each=keys.buckets_in_each,
        )  # fmt: skip

    def rest(self, stack: Stack, keys: Outside) -> Rest | None:
        """What a stack has beside its layers; None where the config does not tell it."""
        if any(self.config.get(key, value) != value for key, value in keys.assumes):
            return None
        try:
            width = self.count(stack.d_model)
            if any(self.config.get(key) not in (None, width) for key in keys.equal):
                return None
            positions, rows = self.count(keys.positions, least=0), self.count(keys.token_types, least=0)
            patch = self.count("patch_size") if keys.patches else 0
            squares = (self.count("image_size") // patch) ** 2 if patch else 0
            return Rest(
                width=width,
                vocab=self.count(keys.vocab, least=0),
                rows=squares + positions + keys.more_positions + rows + 2 * keys.tokens,
                patches=(self.count("num_channels") * patch**2 + keys.patch_bias) * width if patch else 0,
                norms=keys.outer_norms,
                norm_bias=keys.norm_bias,
                output=keys.head is Head.OUTPUT and not self.switch(keys.tied),
                output_bias=keys.head is Head.OUTPUT and keys.output_bias,
                pooler=keys.head is Head.POOLER,
            )
        except FfnbenchError:
            return None

    def ffn(self, stack: Stack, experts: Experts | None = None, wider: int = 1, width: int | None = None) -> FFNSpec:
        """The FFN of a stack's layers, `width` wide where the layer says its own.

        `wider` multiplies the width of what every token goes to.
        """
        d_model, shrunk = self.count(stack.d_model), 1 if stack.shrunk is None else self.count(stack.shrunk)
        gated, activation = self.form(stack)
        limit = experts.limit if experts else stack.limit
        spec = FFNSpec(
            d_model=d_model // shrunk,
            d_ff=self.count(experts.d_ff) if experts else wider * (width or self.d_ff(stack, d_model)) // shrunk,
            activation=activation,
            gate=Gate.INNER if gated else Gate.NONE,
            bias=bool(self.switch(stack.bias if experts is None else experts.bias)),
            moe=self.moe(experts, wider) if experts else None,
            limit=self.number(limit) if limit else None,
            up_offset=experts.up_offset if experts else stack.up_offset,
        )
        if spec.row.learned and not stack.learned:
            raise UnknownFamily(
                f"the {self.model_type} config has a learned activation, {activation}, whose parameters are not known",
                f"looked for the keys: {self._named(stack.activation)}",
            )
        if experts and experts.shared and spec.moe and not spec.moe.shared_d_ff and spec.row.learned:
            raise UnknownFamily(
                f"the {self.model_type} config has no shared experts, whose {activation} stays",
                f"looked for the keys: {self._named(experts.shared)}, {self._named(stack.activation)}",
            )
        return spec

    def d_ff(self, stack: Stack, d_model: int) -> int:
        """The width per branch: its key, or a ratio of d_model where the key is absent or null."""
        if stack.width:
            return WIDTHS[stack.width](self, stack)
        if stack.split:
            both = self.count(stack.d_ff)
            if both % stack.split:
                raise UnknownFamily(
                    f"the {self.model_type} config has {self._named(stack.d_ff)} {both}, which {stack.split} "
                    "branches can't share",
                    f"looked for the keys: {self._named(stack.d_ff)}",
                )
            return both // stack.split
        if stack.ratio is None or (isinstance(stack.d_ff, str) and self.get(stack.d_ff) is not None):
            return self.count(stack.d_ff)
        return int(self.number(stack.ratio) * d_model)

    def form(self, stack: Stack) -> tuple[bool, str]:
        """Gated or not, and the activation. T5's feed_forward_proj says both: `gated-gelu` means gelu_new."""
        if stack.acts_as is not None:
            return bool(self.switch(stack.gated)), stack.acts_as
        name = self.value(stack.activation)
        gated = stack.gated
        if self._named(stack.activation) == "feed_forward_type" and isinstance(name, str) and name in GATED:
            gated, name = True, GATED.get(name).activation
        if self._named(stack.activation) == "feed_forward_proj" and isinstance(name, str):
            gated, name = name.startswith("gated-"), name.removeprefix("gated-")
            name = "gelu_new" if gated and name == "gelu" else name
            for key, meant in (("is_gated_act", gated), ("dense_act_fn", name)):
                if self.config.get(key, meant) != meant:
                    raise FfnbenchError(
                        f"the {self.model_type} config contradicts itself: feed_forward_proj "
                        f"{self.value(stack.activation)} and {key} {self.config[key]}",
                        "keep the one that is meant",
                    )
        if not isinstance(name, str) or name not in HF_ACTIVATIONS:  # as strict as transformers: ReLU is no name
            raise FfnbenchError(
                f"the {self.model_type} config has the activation {name!r}, a name that transformers does not know",
                _near_activation(str(name)),
            )
        return bool(self.switch(gated)), HF_ACTIVATIONS[name]

    def moe(self, experts: Experts, wider: int = 1) -> MoESpec:
        """The experts of a layer."""
        for key in experts.nonzero:
            self.count(key)
        shared = wider * self.count(experts.shared_d_ff, least=0) if experts.shared_d_ff else 0
        if experts.shared:
            each = shared if experts.shared_d_ff else self.count(experts.d_ff)
            shared = each * self.count(experts.shared, least=0)
        if experts.shared_gate and not shared:
            raise UnknownFamily(
                f"the {self.model_type} config has a shared expert of no width, whose gate stays",
                f"looked for the keys: {self._named(experts.shared_d_ff)}",
            )
        number = self.count(experts.experts)
        top_k = self.count(self.alike(experts.top_k) if experts.listed else experts.top_k)
        if top_k > number:
            raise FfnbenchError(
                f"the {self.model_type} config sends a token to {top_k} of {number} experts: "
                "top_k is above the number of experts",
                f"looked for the keys: {self._named(experts.top_k)}, {self._named(experts.experts)}",
            )
        spec = MoESpec(
            experts=number,
            top_k=top_k,
            shared_d_ff=shared,
            shared_gate=experts.shared_gate,
            router_bias=self.switch(experts.router_bias),
            scores=Scores.SIGMOID if experts.sigmoid else Scores.SOFTMAX,
            normalised=bool(self.switch(experts.normalised)),
            routed_scale=self.number(experts.routed_scale),
        )
        groups, top_groups = self.count(experts.groups), self.count(experts.top_groups)
        try:
            return replace(spec, groups=groups, top_groups=top_groups)
        except FfnbenchError as problem:  # transformers builds such a model, which no token can pass
            raise UnknownFamily(
                f"the {self.model_type} config has groups of experts that do not fit: {problem.message}",
                f"looked for the keys: {self._named(experts.groups)}, {self._named(experts.top_groups)}",
            ) from problem

    def layout(self, experts: Experts, layers: int) -> list[bool]:
        """Which layers have experts."""
        return LAYOUTS[experts.layout](self, layers, experts)

    def get(self, key: str) -> Any:
        """What the file says, or the class where the file leaves it out; None for null and for what nobody says."""
        value: Any = self.config
        for name in key.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        if key in self.absent and value is not None:
            self.left_out.add(key)
        return value

    def value(self, key: Any) -> Any:
        """What stands under a key; a number or a truth value is itself."""
        if isinstance(key, Or):
            found = self.get(key.key)
            return key.default if found is None else found
        if isinstance(key, tuple):
            return self.value(next((name for name in key if self.get(name) is not None), " or ".join(key)))
        if not isinstance(key, str):
            return key
        found = self.get(key)
        if found is None:
            raise Unanswered(f"the {self.model_type} config has no {key}", f"looked for the keys: {key}; {ASK}")
        return found

    def alike(self, key: Any) -> Any:
        """The key itself, or the number that a list with one a layer repeats."""
        value = self.value(key)
        return value[0] if isinstance(value, list) and value and all(each == value[0] for each in value) else key

    def count(self, key: Any, least: int = 1, most: int = MOST_WIDTH) -> int:
        """A whole number of at least `least` and at most `most`."""
        value = self.value(key)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise FfnbenchError(
                f"the {self.model_type} config has {self._named(key)} {value!r}",
                f"it must be a whole number of at least {least}, and at most {most:,}",
            )
        return value

    def number(self, key: Any) -> float:
        """A positive number of a bearable size."""
        value = self.value(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= LARGEST:
            raise FfnbenchError(f"{self._named(key)} must be a positive number, not {value!r}", "for example 4")
        return value

    def layer_numbers(self, key: Any) -> list[Any]:
        """A list of layers."""
        value = self.value(key)
        if not isinstance(value, list):
            raise FfnbenchError(
                f"the {self.model_type} config has {self._named(key)} {value!r}", "a list of layer numbers"
            )
        return value

    def switch(self, key: Any) -> bool:
        """A truth value."""
        value = self.value(key)
        if not isinstance(value, bool):
            raise FfnbenchError(f"the {self.model_type} config has {self._named(key)} {value!r}", "true or false")
        return value

    @staticmethod
    def _named(key: Any) -> str:
        return key.key if isinstance(key, Or) else " or ".join(key) if isinstance(key, tuple) else str(key)


def _near_activation(name: str) -> str:
    """The name that transformers has for what somebody else calls so, the names of its spelling, or all."""
    hf = ACTIVATIONS.get(name).names.hf if name in ACTIVATIONS else ""
    if hf:
        return f"transformers calls it {hf.split(', ')[0]!r}"
    return did_you_mean(name, HF_ACTIVATIONS) or "it has " + ", ".join(HF_ACTIVATIONS)


def _all(reader: _Reader, layers: int, experts: Experts) -> list[bool]:
    return [True] * layers


def _first_dense(reader: _Reader, layers: int, experts: Experts) -> list[bool]:
    first = reader.count(experts.first_dense, least=0)
    return [i >= first for i in range(layers)]


def _sparse_step(reader: _Reader, layers: int, experts: Experts) -> list[bool]:
    """Qwen-MoE: every `decoder_sparse_step`-th layer, but for those of `mlp_only_layers`; without it the first ones."""
    first = list(range(experts.first_dense)) if isinstance(experts.first_dense, int) else []
    step, dense = reader.count(Or("decoder_sparse_step", 1)), reader.layer_numbers(Or("mlp_only_layers", first))
    return [i not in dense and (i + 1) % step == 0 for i in range(layers)]


def _typed(reader: _Reader, layers: int, experts: Experts) -> list[bool]:
    """A list with one word a layer, sparse or dense; without it the first ones are dense."""
    words = reader.value(Or("mlp_layer_types", None))
    if words is None:
        return _first_dense(reader, layers, experts)
    if not isinstance(words, list) or len(words) != layers or any(word not in ("sparse", "dense") for word in words):
        raise FfnbenchError(
            f"the {reader.model_type} config has mlp_layer_types that are not {layers} times sparse or dense",
            "looked for the keys: mlp_layer_types, num_hidden_layers",
        )
    return [word == "sparse" for word in words]


def _periodic(reader: _Reader, layers: int, experts: Experts) -> list[bool]:
    """Jamba: one layer of each period, at an offset."""
    period, offset = reader.count("expert_layer_period"), reader.count("expert_layer_offset", least=0)
    return [i % period == offset for i in range(layers)]


def _listed(reader: _Reader, layers: int, experts: Experts) -> list[bool]:
    """Llama 4: the numbers of the layers with experts; without them every n-th."""
    numbers = reader.value(Or("moe_layers", None))
    if numbers is None:
        step = reader.count("interleave_moe_layer_step")
        return [(i + 1) % step == 0 for i in range(layers)]
    numbers = reader.layer_numbers("moe_layers")
    return [i in numbers for i in range(layers)]


def _shared_kv(reader: _Reader, layers: int) -> list[int]:
    """Gemma 4: the last layers, which take keys and values of earlier ones, are twice as wide by a switch."""
    last = reader.count(Or("num_kv_shared_layers", 0), least=0, most=layers)
    wide = reader.switch(Or("use_double_wide_mlp", False))
    return [2 if wide and i >= layers - last else 1 for i in range(layers)]


def _between(reader: _Reader, layers: int, experts: Experts) -> list[bool]:
    """ERNIE 4.5: every n-th layer from one number to another, -1 for the last."""
    step, start = reader.count("moe_layer_interval"), reader.count("moe_layer_start_index", least=0)
    end = reader.count("moe_layer_end_index", least=-1)
    end = layers - 1 if end == -1 else end
    return [(i + 1) % step == 0 and start <= i <= end for i in range(layers)]


def _switched(stack: str) -> Callable[[_Reader, int, Experts], list[bool]]:
    """Switch: every n-th layer from the second on, or as many as are asked for, evenly; a written step wins."""

    def layout(reader: _Reader, layers: int, experts: Experts) -> list[bool]:
        sparse = reader.count(f"num_sparse_{stack}_layers", least=0, most=layers)
        step = reader.count(Or(f"{stack}_sparse_step", layers // sparse if sparse else layers), least=0)
        return [step > 0 and (step == 1 or i % step == 1) for i in range(layers)]

    return layout


def _encoder_step(reader: _Reader, layers: int, experts: Experts) -> list[bool]:
    """NLLB: every n-th layer of the encoder."""
    step = reader.count("encoder_sparse_step")
    return [(i + 1) % step == 0 for i in range(layers)]


WORDS = {"mlp": False, "moe": True} | dict.fromkeys(("mamba", "attention", "linear_attention", "full_attention"))
SIGNS = {"-": False, "E": True, "M": None, "*": None}


def _named_blocks(reader: _Reader) -> list[bool]:
    """Nemotron-H: each layer is one thing, by a list of words or the older string of signs."""
    listed = reader.config.get("layers_block_type")
    key, known = ("hybrid_override_pattern", SIGNS) if listed is None else ("layers_block_type", WORDS)
    words = reader.value(key)
    if not isinstance(words, list | str) or not all(isinstance(word, str) and word in known for word in words):
        raise UnknownFamily(
            f"the {reader.model_type} config has a {key} that says more than {', '.join(known)}",
            f"looked for the keys: {key}",
        )
    return [moe for word in words if (moe := known[word]) is not None]


def _adjusted(reader: _Reader, stack: Stack) -> int:
    """LFM2: two thirds of what is written, times a factor, rounded up; by a switch that is on."""
    width = reader.count(stack.d_ff)
    if not reader.switch(Or("block_auto_adjust_ff_dim", True)):
        return width
    width = int(2 * width / 3)
    if reader.config.get("block_ffn_dim_multiplier", 1.0) is None:
        return width
    width = int(reader.number(Or("block_ffn_dim_multiplier", 1.0)) * width)
    multiple = reader.count(Or("block_multiple_of", 256))
    return multiple * ((width + multiple - 1) // multiple)


WIDTHS: dict[Width, Callable[[_Reader, Stack], int]] = {Width.ADJUSTED: _adjusted}
BLOCKS: dict[Blocks, Callable[[_Reader], list[bool]]] = {Blocks.NAMED: _named_blocks}
WIDENINGS: dict[Widening, Callable[[_Reader, int], list[int]]] = {Widening.SHARED_KV: _shared_kv}
LAYOUTS: dict[Layout, Callable[[_Reader, int, Experts], list[bool]]] = {
    Layout.ALL: _all,
    Layout.FIRST_DENSE: _first_dense,
    Layout.SPARSE_STEP: _sparse_step,
    Layout.TYPED: _typed,
    Layout.PERIODIC: _periodic,
    Layout.LISTED: _listed,
    Layout.BETWEEN: _between,
    Layout.SPARSE_ENCODER: _switched("encoder"),
    Layout.SPARSE_DECODER: _switched("decoder"),
    Layout.ENCODER_STEP: _encoder_step,
}
