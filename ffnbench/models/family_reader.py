"""The table of families, and a config.json by one of its rows: what its keys say about the layers of one stack.

The data are families.toml, which explains every key of a row, and defaults.json: what a class of transformers has where
a file is known to leave a key out. A key that the form needs and that neither file nor class has, and a switch that the
table says changes the form, raise Unanswered, since transformers itself may have the answer. What is of the wrong kind
raises FfnbenchError.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from ffnbench.common.errors import FfnbenchError
from ffnbench.common.names import did_you_mean
from ffnbench.ffn.activations import ACTIVATIONS
from ffnbench.ffn.spec import LARGEST, AttentionSpec, FFNSpec, Gate, MLASpec, MoESpec, Scores
from ffnbench.models.model import LayerGroup
from ffnbench.models.windows import FULL_VIEW, sights, views

FILE = Path(__file__).with_name("families.toml")
DEFAULTS = Path(__file__).with_name("defaults.json")
PARTS = ("text_config", "vision_config")  # of a composite model
Row = Mapping[str, Any]
T = TypeVar("T")
Config = dict[str, Any]
NOT_INSTALLED = "transformers is not installed"
INSTALL = "pip install 'ffnbench[hf]'"
ASK = "inspect counts it by transformers" + ("" if find_spec("transformers") else f": {INSTALL}")
MOST = 10_000_000  # of a width, of experts, of layers; no model is near it
HF_ACTIVATIONS = {name: row.name for row in ACTIVATIONS for name in row.names.hf.split(", ") if name}

AS_PUBLISHED = "give the config.json as it was published"
NO_SIZE = (None, 0, 1)  # of a key that switches something off, such as experts of a dense model


class Unanswered(FfnbenchError):
    """Table and defaults have no answer; transformers may have one."""


def key_name(told: Any) -> str:
    """What a value of the table looks for, in words."""
    return str(told["key"]) if isinstance(told, dict) else " or ".join(told) if isinstance(told, list) else str(told)


@dataclass(frozen=True, slots=True, kw_only=True)
class Families:
    """The whole table.

    stacks      model type -> the rows of its stacks of layers
    composites  model type -> the model types of its PARTS
    alias       published model type -> transformers' name for it
    stacks_of   end of a class's name -> how often it has each of two stacks
    classes     `other`: names of classes that have other layers than their model type's; `text_at_top`: composites
                whose text may have its keys at the top of a file
    defaults    model type -> key that the class of transformers reads -> what it has where the key is left out; None is
                not known here
    other_names  model type -> other name of a key -> the key, as the class of transformers has them
    sizes       kind of size -> the names that classes have for it
    """

    stacks: Mapping[str, tuple[Row, ...]]
    composites: Mapping[str, tuple[str, str]]
    alias: Mapping[str, str]
    stacks_of: Mapping[str, list[int]]
    classes: Mapping[str, list[str]]
    defaults: Mapping[str, Row]
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

    data = tomllib.loads(FILE.read_text(encoding="utf-8"))
    defaults = json.loads(DEFAULTS.read_text(encoding="utf-8"))
    return Families(
        stacks=by_type("stack", data["family"], data),
        composites={name: (text, vision) for name, (text, vision) in data["composite"].items()},
        alias=data["alias"],
        stacks_of=data["stacks_of"],
        classes=data["classes"],
        defaults=defaults["types"],
        other_names=defaults["other_names"],
        sizes=data["sizes"],
    )


def by_type(kind: str, rows: Row, data: Row) -> dict[str, tuple[Row, ...]]:
    """Model type -> its rows in full, one a stack."""
    found: dict[str, tuple[Row, ...]] = {}
    for row in rows.values():
        found |= dict.fromkeys(row.get("types", ()), by_stack(kind, row, data))
    return found


def by_stack(kind: str, row: Row, data: Row) -> tuple[Row, ...]:
    """A row in full, one a stack."""
    shared = {key: value for key, value in row.items() if key not in ("types", "stacks")}
    return tuple(_full(kind, shared | stack, data) for stack in row.get("stacks", [{}]))


def _full(kind: str, row: Row, data: Row) -> Row:
    """A row on top of the one that it is like; its experts and its attention too."""
    base = {} if row is data[kind]["default"] else _full(kind, data[kind][row.get("like", "default")], data)
    own = {key: value for key, value in row.items() if key not in ("like", "types", "stacks")}
    if kind == "stack":
        own |= {key: _full(key, own[key], data) for key in ("experts", "attention") if key in own}
    return {**base, **own}


def by_own_names(
    config: Config, model_type: str, own: Row, other_names: Mapping[str, str], known: Sequence[Row]
) -> tuple[Config, str]:
    """The config by its class's own names, and in words each default that the class takes since the file does not set
    it: a class ignores what it does not know, so that a size under another name would be counted as its default.

    `own` are the names that the class reads, each with its default where that is to be named, `other_names` further
    ones -> own name: of two the other one counts. `known` has the sizes that were read, those of parts too. Raises
    FfnbenchError for a size under a name that the class does not read, or beside the one that it reads, unless it
    repeats a known size of its kind.
    """
    for kind, names in families().sizes.items():
        values = [part[name] for part in known for name in names if name in part]
        for name in names:
            read = name in own or (name in other_names and other_names[name] not in config)
            if name in config and not read and config[name] not in (*NO_SIZE, *values):
                reads = ", ".join(each for each in names if each in own)
                raise FfnbenchError(
                    f"the {model_type} config has {name} {config[name]!r:.60}, not its class's name for the {kind}",
                    f"{model_type} reads: {reads}" if reads else "is its model_type right?",
                )
    given = {**config, **{own: config[other] for other, own in other_names.items() if other in config}}
    taken = [f"{key} {value:,}" for key, value in own.items() if key not in given and type(value) in (int, float)]
    return given, f"defaults of {model_type}, which the file does not set: {', '.join(taken)}" if taken else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """A config by the row of one of its stacks."""

    config: Config
    model_type: str
    stack: Row

    def groups(self) -> list[LayerGroup]:
        """The layers of the stack: all alike, or dense ones and those with experts."""
        stack, kind = self.stack, self.stack["kind"]
        if wrong := self.other_setting(stack):
            raise Unanswered(
                f"the table knows {self.model_type} with {wrong[0]} {wrong[1]!r} only",
                f"looked for the keys: {wrong[0]}; {ASK}",
            )
        layers = self.count(stack["layers"], least=0)
        experts = stack.get("experts")
        if experts and self.count(experts["experts"], least=0) < experts["least"]:
            experts = None
        sparse = LAYOUTS[experts["layout"]](self, layers, experts) if experts else [False] * layers
        heads = stack.get("attention")
        seen = self.known({}, lambda _: views(self.config, self.model_type, layers, known=heads is not None))
        attention = None if seen is None else self.known(heads, self._attention)
        return [
            LayerGroup(
                kind=("moe" if kind == "dense" else f"{kind} moe") if moe else kind,
                count=count,
                ffn=self.ffn(experts if moe else None),
                sights=sights(
                    view for view, own in zip(seen or [FULL_VIEW] * layers, sparse, strict=True) if own == moe
                ),
                attention=attention,
            )
            for moe, count in sorted(Counter(sparse).items())
        ]

    def known(self, keys: Row | None, read: Callable[[Row], T]) -> T | None:
        """What is read by the keys of a row; None where there is no row, or the config does not tell it."""
        if keys is None or self.other_setting(keys):
            return None
        try:
            return read(keys)
        except (FfnbenchError, TypeError, LookupError, ZeroDivisionError):
            return None

    def other_setting(self, row: Row) -> tuple[str, Any] | None:
        """The first key that is not as a row assumes it, with what is assumed; None where all are."""
        known = {**families().defaults.get(self.model_type, {}), **self.config}
        return next((pair for pair in row.get("assumes", {}).items() if known.get(*pair) != pair[1]), None)

    def _attention(self, keys: Row) -> AttentionSpec:
        """The attention of the stack's layers; raises FfnbenchError where a key is missing or the numbers are those of
        no attention.
        """
        d_model, heads = self.count(self.stack["d_model"]), self.value(keys["heads"])
        kv_heads, head_dim = (self.value(keys[key]) if key in keys else None for key in ("kv_heads", "head_dim"))
        mla = None
        if keys["latent"]:
            mla = MLASpec(
                q_lora=self.get("q_lora_rank"), kv_lora=self.value("kv_lora_rank"),
                nope=self.value("qk_nope_head_dim"), rope=self.value("qk_rope_head_dim"), v=self.value("v_head_dim"),
            )  # fmt: skip
        return AttentionSpec(
            d_model=d_model,
            heads=heads,
            kv_heads=heads if kv_heads is None else kv_heads,
            head_dim=d_model // heads if head_dim is None else head_dim,
            qkv_bias=self.switch(keys["qkv_bias"]),
            out_bias=self.switch(keys["out_bias"]),
            mla=mla,
        )

    def ffn(self, experts: Row | None) -> FFNSpec:
        """The FFN of the stack's layers, or of those with experts."""
        d_model = self.count(self.stack["d_model"])
        gated, activation = self.form()
        row = experts or self.stack
        return FFNSpec(
            d_model=d_model,
            d_ff=self.count(experts["d_ff"]) if experts else self.d_ff(d_model),
            activation=activation,
            gate=Gate.INNER if gated else Gate.NONE,
            bias=self.switch(row["bias"]),
            moe=self.moe(experts) if experts else None,
            limit=self.number(row["limit"]) if "limit" in row else None,
            up_offset=row.get("up_offset", 0.0),
        )

    def d_ff(self, d_model: int) -> int:
        """The width per branch: its key, or a ratio of d_model where there is none or it is null."""
        key, ratio = self.stack["d_ff"], self.stack.get("ratio")
        by_ratio = ratio is not None and (not key or self.get(key) is None)
        return int(self.number(ratio) * d_model) if by_ratio else self.count(key)

    def form(self) -> tuple[bool, str]:
        """Gated or not, and the activation. T5's feed_forward_proj says both: `gated-gelu` means gelu_new."""
        stack = self.stack
        gated = stack["gated"]
        if "acts_as" in stack:
            return self.switch(gated), stack["acts_as"]
        name = self.value(stack["activation"])
        if key_name(stack["activation"]) == "feed_forward_proj" and isinstance(name, str):
            gated, name = name.startswith("gated-"), name.removeprefix("gated-")
            name = "gelu_new" if gated and name == "gelu" else name
            # the class writes the two that it made of it, and takes what a file has for them
            gated, name = self.config.get("is_gated_act", gated), self.config.get("dense_act_fn", name)
        if not isinstance(name, str) or name not in HF_ACTIVATIONS:  # as strict as transformers: ReLU is no name
            raise FfnbenchError(
                f"the {self.model_type} config has the activation {name!r}, no name of transformers for one of ours",
                _near_activation(str(name)),
            )
        return self.switch(gated), HF_ACTIVATIONS[name]

    def moe(self, experts: Row) -> MoESpec:
        """The experts of a layer."""
        if "shared_d_ff" in experts:
            shared = self.count(experts["shared_d_ff"], least=0)
        else:
            shared = self.count(experts["d_ff"]) * self.count(experts["shared"], least=0)
        keys: dict[str, Any] = {
            "experts": self.count(experts["experts"]),
            "top_k": self.count(experts["top_k"]),
            "router_bias": self.switch(experts["router_bias"]),
            "scores": Scores.SIGMOID if experts["sigmoid"] else Scores.SOFTMAX,
            "normalised": self.switch(experts["normalised"]),
            "routed_scale": self.number(experts["routed_scale"]),
            "groups": self.count(experts["groups"]),
            "top_groups": self.count(experts["top_groups"]),
        }
        try:
            return MoESpec(shared_d_ff=shared, shared_gate=experts["shared_gate"], **keys)
        except FfnbenchError as problem:
            raise FfnbenchError(
                f"the {self.model_type} config has odd experts: {problem.message}", AS_PUBLISHED
            ) from problem

    def get(self, key: str) -> Any:
        """What the file says, or the class where the file leaves it out; None for null and for what nobody says."""
        if key in self.config:
            return self.config[key]
        return families().defaults.get(self.model_type, {}).get(key)

    def value(self, told: Any) -> Any:
        """What stands where a value of the table says; a number or a truth value is itself."""
        if isinstance(told, dict):
            found = self.get(told["key"])
            return told.get("default") if found is None else found
        if isinstance(told, list):  # a name that the file has comes before the class's default
            told = next((key for key in told if self.config.get(key) is not None), told[-1])
        if not isinstance(told, str):
            return told
        found = self.get(told)
        if found is None:
            raise Unanswered(f"the {self.model_type} config has no {told}", f"looked for the keys: {told}; {ASK}")
        return found

    def count(self, told: Any, least: int = 1) -> int:
        """A whole number of at least `least` and at most MOST."""
        value = self.value(told)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
            raise FfnbenchError(
                f"the {self.model_type} config has {key_name(told)} {value!r:.60}",
                f"it must be a whole number of at least {least}, and at most {MOST:,}",
            )
        return value

    def number(self, told: Any) -> float:
        """A positive number of a bearable size."""
        value = self.value(told)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= LARGEST:
            raise FfnbenchError(f"{key_name(told)} must be a positive number, not {value!r:.60}", "for example 4")
        return value

    def listed(self, key: str) -> list[Any] | None:
        """A list, or None where there is none."""
        value = self.get(key)
        if value is not None and not isinstance(value, list):
            raise FfnbenchError(f"the {self.model_type} config has {key} {value!r:.60}", "it must be a list of layers")
        return value

    def switch(self, told: Any) -> bool:
        """A truth value."""
        value = self.value(told)
        if not isinstance(value, bool):
            raise FfnbenchError(f"the {self.model_type} config has {key_name(told)} {value!r:.60}", "true or false")
        return value


def _near_activation(name: str) -> str:
    """The name that transformers has for what somebody else calls so, the names of its spelling, or all."""
    hf = ACTIVATIONS.get(name).names.hf if name in ACTIVATIONS else ""
    if hf:
        return f"transformers calls it {hf.split(', ')[0]!r}"
    return did_you_mean(name, HF_ACTIVATIONS) or "it has " + ", ".join(HF_ACTIVATIONS)


def _first_dense(reader: Reader, layers: int, experts: Row) -> list[bool]:
    first = reader.count(experts["first_dense"], least=0)
    return [i >= first for i in range(layers)]


def _sparse_step(reader: Reader, layers: int, experts: Row) -> list[bool]:
    """Qwen-MoE: every `decoder_sparse_step`-th layer, but for those of `mlp_only_layers`."""
    step = reader.count({"key": "decoder_sparse_step", "default": 1})
    dense = reader.listed("mlp_only_layers") or ()
    return [i not in dense and (i + 1) % step == 0 for i in range(layers)]


def _typed(reader: Reader, layers: int, experts: Row) -> list[bool]:
    """A list with one word a layer, sparse or dense; without it the first ones are dense."""
    words = reader.listed("mlp_layer_types")
    if words is None:
        return _first_dense(reader, layers, experts)
    if len(words) != layers or any(word not in ("sparse", "dense") for word in words):
        raise FfnbenchError(
            f"the {reader.model_type} config has mlp_layer_types that are not {layers} times sparse or dense",
            "looked for the keys: mlp_layer_types, num_hidden_layers",
        )
    return [word == "sparse" for word in words]


def _periodic(reader: Reader, layers: int, experts: Row) -> list[bool]:
    """Jamba: one layer of each period, at an offset."""
    period, offset = reader.count("expert_layer_period"), reader.count("expert_layer_offset", least=0)
    return [i % period == offset for i in range(layers)]


def _listed(reader: Reader, layers: int, experts: Row) -> list[bool]:
    """Llama 4: the numbers of the layers with experts; without them every n-th."""
    numbers = reader.listed("moe_layers")
    if numbers is None:
        step = reader.count("interleave_moe_layer_step")
        return [(i + 1) % step == 0 for i in range(layers)]
    return [i in numbers for i in range(layers)]


# which layers have experts, by the word of the table
LAYOUTS: dict[str, Callable[[Reader, int, Row], list[bool]]] = {
    "all": lambda reader, layers, experts: [True] * layers,
    "first_k_dense_replace": _first_dense,
    "decoder_sparse_step": _sparse_step,
    "mlp_layer_types": _typed,
    "expert_layer_period": _periodic,
    "moe_layers": _listed,
}
