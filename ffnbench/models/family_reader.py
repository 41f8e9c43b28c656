"""The table of families, and a config.json by one of its rows: what its keys say about
the layers of one stack.

The data are families.toml, which explains every key of a row, and defaults.json: what a
class of transformers has where a file is known to leave a key out. A key that the form
needs and that neither file nor class has, and a switch that the table says changes the
form, raise Unanswered, since transformers itself may have the answer. What is of the
wrong kind raises FfnbenchError.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from ffnbench.common.errors import FfnbenchError
from ffnbench.common.names import did_you_mean
from ffnbench.ffn.activations import ACTIVATIONS
from ffnbench.ffn.spec import (
    LARGEST_SIZE,
    AttentionSpec,
    FFNSpec,
    Gate,
    MLASpec,
    MoESpec,
    Scores,
)
from ffnbench.models.model import LayerGroup
from ffnbench.models.windows import ALL_TOKENS, LayerWindow, grouped, layer_windows

FAMILIES_FILE = Path(__file__).with_name("families.toml")
DEFAULTS_FILE = Path(__file__).with_name("defaults.json")
PARTS = ("text_config", "vision_config")  # of a composite model
FamilyRow = Mapping[str, Any]
T = TypeVar("T")
Config = dict[str, Any]
TRANSFORMERS_NOT_INSTALLED = "transformers is not installed"
INSTALL = "pip install 'ffnbench[hf]'"
ASK = "inspect counts it by transformers" + (
    "" if find_spec("transformers") else f": {INSTALL}"
)
LARGEST_NUMBER = 10_000_000  # of a width, of experts, of layers; no model is near it
HF_ACTIVATIONS = {
    name: row.name for row in ACTIVATIONS for name in row.names.hf.split(", ") if name
}
AS_PUBLISHED = "give the config.json as it was published"
# values of a key for a size that mean there is no such thing, such as experts in a
# dense model
NO_SIZE = (None, 0, 1)
# what reading raises where a config has unusual values
READ_ERRORS = (FfnbenchError, TypeError, LookupError, ZeroDivisionError)


class Unanswered(FfnbenchError):
    """Table and defaults have no answer; transformers may have one."""


def key_name(entry: Any) -> str:
    """The keys in which an entry of the table looks, in words."""
    if isinstance(entry, dict):
        return str(entry["key"])
    if isinstance(entry, list):
        return " or ".join(entry)
    return str(entry)


@dataclass(frozen=True, slots=True, kw_only=True)
class Families:
    """The whole table.

    stacks       model type -> the rows of its stacks of layers
    composites   model type -> the model types of its PARTS
    alias        published model type -> transformers' name for it
    stacks_of    end of a class's name -> how often it has each of two stacks
    classes      `other`: names of classes that have other layers than their
                 model type's; `text_at_top`: composites whose text may have
                 its keys at the top of a file
    defaults     model type -> key that the class of transformers reads -> what it
                 has where the key is left out; None is not known here
    other_names  model type -> other name of a key -> the key, as the class of
                 transformers has them
    sizes        kind of size -> the names that classes have for it
    """

    stacks: Mapping[str, tuple[FamilyRow, ...]]
    composites: Mapping[str, tuple[str, str]]
    alias: Mapping[str, str]
    stacks_of: Mapping[str, list[int]]
    classes: Mapping[str, list[str]]
    defaults: Mapping[str, FamilyRow]
    other_names: Mapping[str, Mapping[str, str]]
    sizes: Mapping[str, list[str]]

    @property
    def types(self) -> list[str]:
        """Every model type that the table reads."""
        return [*self.stacks, *self.composites]


@cache
def families() -> Families:
    """The table, read at the first call."""
    import tomllib  # not before it is needed

    data = tomllib.loads(FAMILIES_FILE.read_text(encoding="utf-8"))
    defaults = json.loads(DEFAULTS_FILE.read_text(encoding="utf-8"))
    return Families(
        stacks=by_type("stack", data["family"], data),
        composites={
            name: (text, vision) for name, (text, vision) in data["composite"].items()
        },
        alias=data["alias"],
        stacks_of=data["stacks_of"],
        classes=data["classes"],
        defaults=defaults["types"],
        other_names=defaults["other_names"],
        sizes=data["sizes"],
    )


def by_type(
    section: str, rows: FamilyRow, data: FamilyRow
) -> dict[str, tuple[FamilyRow, ...]]:
    """Model type -> its rows in full, one for each stack. `section` is the section of
    the table whose rows they may be like: stack, or rest.
    """
    table: dict[str, tuple[FamilyRow, ...]] = {}
    for row in rows.values():
        for model_type in row.get("types", ()):
            table[model_type] = by_stack(section, row, data)
    return table


def by_stack(section: str, row: FamilyRow, data: FamilyRow) -> tuple[FamilyRow, ...]:
    """A row in full, one for each of its stacks; `section` as for `by_type`."""
    shared = {
        key: value for key, value in row.items() if key not in ("types", "stacks")
    }
    return tuple(
        _full(section, shared | stack, data) for stack in row.get("stacks", [{}])
    )


def _full(section: str, row: FamilyRow, data: FamilyRow) -> FamilyRow:
    """A row with the keys that it has from the row that it is like, and so its experts
    and its attention.
    """
    full: dict[str, Any] = {}
    if row is not data[section]["default"]:
        full.update(_full(section, data[section][row.get("like", "default")], data))
    for key, value in row.items():
        if section == "stack" and key in ("experts", "attention"):
            full[key] = _full(key, value, data)
        elif key not in ("like", "types", "stacks"):
            full[key] = value
    return full


def refuse_other_names(
    config: Config,
    model_type: str,
    own: FamilyRow,
    other_names: Mapping[str, str],
    parts: Sequence[FamilyRow],
) -> None:
    """Raise FfnbenchError for a size under a name that the class does not read, or
    under another name beside the one that it reads. The class would ignore it, so that
    its default would be counted in place of that size.

    A size is let pass where it repeats a size of its kind in `parts`. `own` are the
    names that the class reads, `other_names` further ones -> own name.
    """
    for kind, names in families().sizes.items():
        sizes_read = [part[name] for part in parts for name in names if name in part]
        for name in names:
            if name not in config or config[name] in (*NO_SIZE, *sizes_read):
                continue
            is_read = name in own or (
                name in other_names and other_names[name] not in config
            )
            if not is_read:
                own_names = [size for size in names if size in own]
                hint = "is its model_type right?"
                if own_names:
                    hint = f"{model_type} reads: {', '.join(own_names)}"
                raise FfnbenchError(
                    f"the {model_type} config has {name} {config[name]!r:.60}, not its class's name for the {kind}",
                    hint,
                )


def by_own_names(config: Config, other_names: Mapping[str, str]) -> Config:
    """The config by its class's own names. `other_names` are further names -> own name;
    where a config has both, the value under the further name counts.
    """
    renamed = {
        own: config[other] for other, own in other_names.items() if other in config
    }
    return {**config, **renamed}


def defaults_in_words(config: Config, model_type: str, own: FamilyRow) -> str:
    """The numbers that a config leaves to its class, in words; "" for none. The config
    has the class's own names, and `own` are the class's defaults.
    """
    defaults = [
        f"{key} {value:,}"
        for key, value in own.items()
        if key not in config and type(value) in (int, float)
    ]
    if not defaults:
        return ""
    return (
        f"defaults of {model_type}, which the file does not set: {', '.join(defaults)}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Reads a config by the row of one of its stacks.

    An `entry` of a row says where a value is, as the head of families.toml explains.
    """

    config: Config
    model_type: str
    stack: FamilyRow

    def groups(self) -> list[LayerGroup]:
        """The layers of the stack: all in one group, or those without experts in the
        first and those with experts in the second.
        """
        setting = self.other_setting(self.stack)
        if setting is not None:
            key, value = setting
            raise Unanswered(
                f"the table knows {self.model_type} with {key} {value!r} only",
                f"looked for the keys: {key}; {ASK}",
            )
        layers = self.count(self.stack["layers"], least=0)
        experts = self.stack.get("experts")
        if (
            experts is not None
            and self.count(experts["experts"], least=0) < experts["least"]
        ):
            experts = None
        with_experts = [False] * layers
        if experts is not None:
            with_experts = self.layers_with_experts(experts, layers)
        windows = self._windows(layers)
        attention = None
        if windows is None:
            windows = [ALL_TOKENS] * layers
        else:
            attention = self.read_or_none(self.stack.get("attention"), self._attention)
        # by whether the layers have experts
        windows_of: dict[bool, list[LayerWindow]] = defaultdict(list)
        for has_experts, window in zip(with_experts, windows, strict=True):
            windows_of[has_experts].append(window)
        groups = []
        for has_experts in sorted(windows_of):  # False comes first
            kind = self.stack["kind"]
            if experts is not None and has_experts:
                kind = "moe" if kind == "dense" else f"{kind} moe"
                ffn = self.expert_ffn(experts)
            else:
                ffn = self.ffn()
            group = LayerGroup(
                kind=kind,
                count=len(windows_of[has_experts]),
                ffn=ffn,
                windows=grouped(windows_of[has_experts]),
                attention=attention,
            )
            groups.append(group)
        return groups

    def layers_with_experts(self, experts: FamilyRow, layers: int) -> list[bool]:
        """Whether each layer has experts, by the layout that the table names."""
        match experts["layout"]:
            case "first_k_dense_replace":
                return self._all_but_first(experts, layers)
            case "decoder_sparse_step":  # Qwen
                step = self.count({"key": "decoder_sparse_step", "default": 1})
                dense = self.listed("mlp_only_layers") or ()
                return [
                    layer not in dense and (layer + 1) % step == 0
                    for layer in range(layers)
                ]
            case "mlp_layer_types":
                return self._by_words(experts, layers)
            case "expert_layer_period":  # Jamba
                period = self.count("expert_layer_period")
                offset = self.count("expert_layer_offset", least=0)
                return [layer % period == offset for layer in range(layers)]
            case "moe_layers":  # Llama 4
                numbers = self.listed("moe_layers")
                if numbers is not None:
                    return [layer in numbers for layer in range(layers)]
                step = self.count("interleave_moe_layer_step")
                return [(layer + 1) % step == 0 for layer in range(layers)]
            case _:
                return [True] * layers

    def _all_but_first(self, experts: FamilyRow, layers: int) -> list[bool]:
        """Whether each layer comes after the first ones, which are dense."""
        dense = self.count(experts["first_dense"], least=0)
        return [layer >= dense for layer in range(layers)]

    def _by_words(self, experts: FamilyRow, layers: int) -> list[bool]:
        """Whether each layer has experts by a list of one word a layer, sparse or
        dense; without the list the first layers are dense.
        """
        words = self.listed("mlp_layer_types")
        if words is None:
            return self._all_but_first(experts, layers)
        if len(words) != layers or any(
            word not in ("sparse", "dense") for word in words
        ):
            raise FfnbenchError(
                f"the {self.model_type} config has mlp_layer_types that are not {layers} times sparse or dense",
                "looked for the keys: mlp_layer_types, num_hidden_layers",
            )
        return [word == "sparse" for word in words]

    def read_or_none(
        self, keys: FamilyRow | None, read: Callable[[FamilyRow], T]
    ) -> T | None:
        """What `read` gives for a row; None where there is no row, or where the config
        is not as the row assumes it, or lacks something.
        """
        if keys is None or self.other_setting(keys) is not None:
            return None
        try:
            return read(keys)
        except READ_ERRORS:
            return None

    def other_setting(self, row: FamilyRow) -> tuple[str, Any] | None:
        """The first key whose value is not the one that a row assumes, with the assumed
        value; None where there is no such key.
        """
        for key, assumed in row.get("assumes", {}).items():
            is_set = key in self.config or key in self.defaults
            if is_set and self.get(key) != assumed:
                return key, assumed
        return None

    @property
    def defaults(self) -> FamilyRow:
        """What the class has where a file leaves a key out, as far as that is known."""
        return families().defaults.get(self.model_type, {})

    def _windows(self, layers: int) -> list[LayerWindow] | None:
        """How far the tokens of each layer see; None where the config does not tell."""
        attention_known = "attention" in self.stack
        try:
            return layer_windows(
                self.config, self.model_type, layers, attention_known=attention_known
            )
        except READ_ERRORS:
            return None

    def _attention(self, keys: FamilyRow) -> AttentionSpec:
        """The attention of the stack's layers; raises FfnbenchError where a key is
        missing or the numbers are those of no attention.
        """
        d_model = self.count(self.stack["d_model"])
        heads = self.value(keys["heads"])
        kv_heads = self.value(keys.get("kv_heads"))
        if kv_heads is None:
            kv_heads = heads
        head_dim = self.value(keys.get("head_dim"))
        if head_dim is None:
            head_dim = d_model // heads
        mla = None
        if keys["latent"]:
            mla = MLASpec(
                q_lora=self.get("q_lora_rank"),
                kv_lora=self.value("kv_lora_rank"),
                nope=self.value("qk_nope_head_dim"),
                rope=self.value("qk_rope_head_dim"),
                v=self.value("v_head_dim"),
            )
        return AttentionSpec(
            d_model=d_model,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            qkv_bias=self.switch(keys["qkv_bias"]),
            out_bias=self.switch(keys["out_bias"]),
            mla=mla,
        )

    def ffn(self) -> FFNSpec:
        """The FFN of the stack's layers without experts."""
        d_model = self.count(self.stack["d_model"])
        gate, activation = self.form()
        return FFNSpec(
            d_model=d_model,
            d_ff=self.d_ff(d_model),
            activation=activation,
            gate=gate,
            bias=self.switch(self.stack["bias"]),
        )

    def expert_ffn(self, experts: FamilyRow) -> FFNSpec:
        """The FFN of the stack's layers with experts."""
        gate, activation = self.form()
        limit = None
        if "limit" in experts:
            limit = self.number(experts["limit"])
        return FFNSpec(
            d_model=self.count(self.stack["d_model"]),
            d_ff=self.count(experts["d_ff"]),
            activation=activation,
            gate=gate,
            bias=self.switch(experts["bias"]),
            moe=self.moe(experts),
            limit=limit,
            up_offset=experts["up_offset"],
        )

    def d_ff(self, d_model: int) -> int:
        """The width per branch: its key, or a ratio of d_model where there is none or
        it is null.
        """
        key = self.stack["d_ff"]
        has_key = key and self.get(key) is not None
        if "ratio" in self.stack and not has_key:
            return int(self.number(self.stack["ratio"]) * d_model)
        return self.count(key)

    def form(self) -> tuple[Gate, str]:
        """The gate and the activation of the stack's FFNs. T5's feed_forward_proj says
        both, and its `gated-gelu` means gelu_new.
        """
        gated = self.stack["gated"]
        if "acts_as" in self.stack:
            return self._gate(gated), self.stack["acts_as"]
        name = self.value(self.stack["activation"])
        if key_name(self.stack["activation"]) == "feed_forward_proj":
            gated = str(name).startswith("gated-")
            name = str(name).removeprefix("gated-")
            if gated and name == "gelu":
                name = "gelu_new"
            # T5's class saves these two, which follow from feed_forward_proj, and reads
            # them back where a file has them
            gated = self.config.get("is_gated_act", gated)
            name = self.config.get("dense_act_fn", name)
        # capitals matter, as they do to transformers: ReLU is no name
        if not isinstance(name, str) or name not in HF_ACTIVATIONS:
            raise FfnbenchError(
                f"the {self.model_type} config has the activation {name!r}, no name of transformers for one of ours",
                did_you_mean(str(name), HF_ACTIVATIONS)
                or "it has " + ", ".join(HF_ACTIVATIONS),
            )
        return self._gate(gated), HF_ACTIVATIONS[name]

    def _gate(self, entry: Any) -> Gate:
        if self.switch(entry):
            return Gate.INNER
        return Gate.NONE

    def moe(self, experts: FamilyRow) -> MoESpec:
        """The experts of a layer."""
        if "shared_d_ff" in experts:
            shared_d_ff = self.count(experts["shared_d_ff"], least=0)
        else:
            shared_d_ff = self.count(experts["d_ff"]) * self.count(
                experts["shared"], least=0
            )
        fields: dict[str, Any] = {
            name: self.count(experts[name])
            for name in ("experts", "top_k", "groups", "top_groups")
        }
        for name in ("router_bias", "normalised"):
            fields[name] = self.switch(experts[name])
        fields["routed_scale"] = self.number(experts["routed_scale"])
        scores = Scores.SIGMOID if experts["sigmoid"] else Scores.SOFTMAX
        try:
            return MoESpec(
                shared_d_ff=shared_d_ff,
                shared_gate=experts["shared_gate"],
                scores=scores,
                **fields,
            )
        except FfnbenchError as problem:
            raise FfnbenchError(
                f"the {self.model_type} config has invalid experts: {problem.message}",
                AS_PUBLISHED,
            ) from problem

    def get(self, key: str) -> Any:
        """The value of a key in the file, or the default of the class where the file
        leaves it out; None for null, and where neither has it.
        """
        if key in self.config:
            return self.config[key]
        return self.defaults.get(key)

    def value(self, entry: Any) -> Any:
        """The value to which an entry of the table points; raises Unanswered where a
        key that must be there is not. A number, a truth value or None is its own value.
        """
        if isinstance(entry, dict):
            value = self.get(entry["key"])
            if value is None:
                return entry.get("default")
            return value
        if isinstance(entry, list):
            entry = self._first_given(entry)
        if not isinstance(entry, str):
            return entry
        value = self.get(entry)
        if value is None:
            raise Unanswered(
                f"the {self.model_type} config has no {entry}",
                f"looked for the keys: {entry}; {ASK}",
            )
        return value

    def _first_given(self, keys: list[str]) -> str:
        """The first of the keys that the file has; else the last one, for which the
        class may have a default.
        """
        for key in keys:
            if self.config.get(key) is not None:
                return key
        return keys[-1]

    def count(self, entry: Any, least: int = 1) -> int:
        """The value of an entry, a whole number of at least `least` and at most
        LARGEST_NUMBER; raises FfnbenchError.
        """
        value = self.value(entry)
        if type(value) is not int or not least <= value <= LARGEST_NUMBER:  # nor a bool
            raise FfnbenchError(
                f"the {self.model_type} config has {key_name(entry)} {value!r:.60}",
                f"it must be a whole number of at least {least}, and at most {LARGEST_NUMBER:,}",
            )
        return value

    def number(self, entry: Any) -> float:
        """The value of an entry, a positive number of at most LARGEST_SIZE; raises
        FfnbenchError.
        """
        value: float = self.value(entry)
        if type(value) not in (int, float) or not 0 < value <= LARGEST_SIZE:
            raise FfnbenchError(
                f"{key_name(entry)} must be a positive number, not {value!r:.60}",
                "for example 4",
            )
        return value

    def listed(self, key: str) -> list[Any] | None:
        """The value of a key that has a list; None where there is none. Raises
        FfnbenchError.
        """
        value = self.get(key)
        if value is not None and not isinstance(value, list):
            raise FfnbenchError(
                f"the {self.model_type} config has {key} {value!r:.60}",
                "it must be a list of layers",
            )
        return value

    def switch(self, entry: Any) -> bool:
        """The value of an entry, true or false; raises FfnbenchError."""
        value = self.value(entry)
        if not isinstance(value, bool):
            raise FfnbenchError(
                f"the {self.model_type} config has {key_name(entry)} {value!r:.60}",
                "it must be true or false",
            )
        return value
