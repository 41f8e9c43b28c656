"""Families of models: under which keys of config.json the numbers of their layers stand. The data are families.toml.

That file explains every field. The annotation of a field is what a row may say: `str` is the name of a key (`kind`,
`acts_as` and `name` are words), `Or` a key with a default, a tuple several keys for one number, the rest values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar

from ffnbench.jsonable import decode
from ffnbench.models.model import HeadNorms
from ffnbench.names import did_you_mean

FILE = Path(__file__).with_name("families.toml")
Value = TypeVar("Value", covariant=True)
Assumed = tuple[tuple[str, object], ...]  # keys of config.json, and the value that each must have where it is there
Row = dict[str, Any]  # a table of families.toml
Templates = dict[str, dict[str, Row]]  # kind -> name -> row


@dataclass(frozen=True, slots=True)
class Or(Generic[Value]):
    """A key, and what its absence or null means."""

    key: str
    default: Value


class Widening(StrEnum):
    """Which layers are wider than the others; configs.py reads each."""

    SHARED_KV = "use_double_wide_mlp"


class Width(StrEnum):
    """How a width that config.json does not say outright is found; configs.py reads each."""

    ADJUSTED = "block_auto_adjust_ff_dim"


class Blocks(StrEnum):
    """Which layers have an FFN at all; configs.py reads each."""

    NAMED = "layers_block_type"


class Layout(StrEnum):
    """Which layers have experts; configs.py reads each."""

    ALL = "all"
    FIRST_DENSE = "first_k_dense_replace"
    SPARSE_STEP = "decoder_sparse_step"
    TYPED = "mlp_layer_types"
    PERIODIC = "expert_layer_period"
    LISTED = "moe_layers"
    BETWEEN = "moe_layer_interval"
    SPARSE_ENCODER = "num_sparse_encoder_layers"
    SPARSE_DECODER = "num_sparse_decoder_layers"
    ENCODER_STEP = "encoder_sparse_step"


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """The experts of a stack's layers, or of some of them."""

    experts: str | tuple[str, ...]
    top_k: str | int
    d_ff: str
    shared: str | Or[int] | int
    shared_d_ff: str | Or[int] | None = None
    shared_gate: bool
    router_bias: bool | str | Or[bool]
    sigmoid: bool
    normalised: bool | str | Or[bool]
    routed_scale: float | Or[float]
    groups: int | Or[int]
    top_groups: int | Or[int]
    bias: bool | str | Or[bool]
    limit: Or[float] | None = None
    up_offset: float
    layout: Layout
    when: bool | Or[bool]
    least: int
    first_dense: str | int | Or[int] = "first_k_dense_replace"
    nonzero: tuple[str, ...]
    listed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """The attention of a stack's layers."""

    heads: str
    kv_heads: str | Or[int | None] | None = None
    head_dim: str | Or[int | None] | None = None
    qkv_bias: bool | str | Or[bool]
    out_bias: bool | str | Or[bool]
    latent: bool
    assumes: Assumed = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """Layers that differ at most in having experts."""

    kind: str
    layers: str | tuple[str, ...] | Or[int] | int
    stages: str | None = None
    doubling: bool
    d_model: str | tuple[str, ...]
    d_ff: str | tuple[str, ...] | Or[int] | None = None
    ratio: str | int | float | Or[float] | None = None
    activation: str | Or[str]
    acts_as: str | None = None
    learned: bool
    widened: Widening | None = None
    width: Width | None = None
    per_layer: bool
    split: int | None = None
    shrunk: Or[int] | None = None
    times: str | Or[int] | None = None
    blocks: Blocks | None = None
    gated: bool | str | Or[bool]
    bias: bool | str | Or[bool]
    last_bias: bool
    limit: Or[float] | None = None
    assumes: Assumed = ()
    absent: tuple[str, ...] = ()
    nonzero: tuple[str, ...] = ()
    up_offset: float
    experts: Experts | None = None
    attention: Heads | None = None


class Head(StrEnum):
    """What makes vectors into an answer."""

    OUTPUT = "output"
    POOLER = "pooler"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """What a stack has beside its FFNs and its attentions' matrices, in its layers and beside them."""

    vocab: str | int
    positions: str | int
    more_positions: int
    token_types: str | int
    patches: bool
    patch_bias: bool
    tokens: int
    norms: int
    outer_norms: int
    norm_bias: bool
    head_norms: HeadNorms
    sinks: bool
    buckets: str | int
    buckets_in_each: bool
    head: Head
    tied: bool | str | Or[bool]
    output_bias: bool
    assumes: Assumed = ()
    equal: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Model types with one description: stacks of layers, or parts, the keys of nested configs."""

    name: str
    types: tuple[str, ...]
    stacks: tuple[Stack, ...] = ()
    parts: tuple[str, ...] = ()
    assumes: Assumed = ()  # of the parts; a stack has its own


LATENT = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
LAYOUT_KEYS: dict[Layout, tuple[str, ...]] = {  # beside `first_dense`
    Layout.ALL: (),
    Layout.FIRST_DENSE: (),
    Layout.SPARSE_STEP: ("decoder_sparse_step", "mlp_only_layers"),
    Layout.TYPED: ("mlp_layer_types",),
    Layout.PERIODIC: ("expert_layer_period", "expert_layer_offset"),
    Layout.LISTED: ("moe_layers", "interleave_moe_layer_step"),
    Layout.BETWEEN: ("moe_layer_interval", "moe_layer_start_index", "moe_layer_end_index"),
    Layout.SPARSE_ENCODER: ("num_sparse_encoder_layers", "encoder_sparse_step"),
    Layout.SPARSE_DECODER: ("num_sparse_decoder_layers", "decoder_sparse_step"),
    Layout.ENCODER_STEP: ("encoder_sparse_step",),
}
RULE_KEYS: dict[StrEnum, tuple[str, ...]] = {  # of the other rules that have names
    Widening.SHARED_KV: ("num_kv_shared_layers", "use_double_wide_mlp"),
    Width.ADJUSTED: ("block_auto_adjust_ff_dim", "block_ffn_dim_multiplier", "block_multiple_of"),
    Blocks.NAMED: ("layers_block_type", "hybrid_override_pattern"),
}
SWITCHED = {"latent": LATENT, "patches": ("image_size", "patch_size", "num_channels")}  # by a field that is true
# fields whose keys say something about width, layers, experts or gating
SPEAKING = frozenset({
    "d_model", "d_ff", "shared_d_ff", "ratio", "layers", "stages", "times", "shrunk", "gated", "bias", "experts",
    "top_k", "shared", "first_dense", "when", "layout", "blocks", "width", "router_bias",
})  # fmt: skip
WORDS = ("kind", "acts_as", "layout", "head", "head_norms")  # fields whose text is no key


def named(row: Stack | Experts | Heads | Outside) -> Iterator[tuple[str, str]]:
    """Every field of a row that names keys of config.json, with each key; those of its experts and attention too."""
    computed = {"activation": "acts_as", "layers": "blocks"}  # not read where the other field says it
    for name in row.__dataclass_fields__:
        value: Any = getattr(row, name) if getattr(row, computed.get(name, ""), None) is None else None
        if isinstance(value, Experts | Heads):
            yield from named(value)
        elif isinstance(value, Or):
            yield name, value.key
        elif isinstance(value, Widening | Width | Blocks):
            yield from ((name, key) for key in RULE_KEYS[value])
        elif isinstance(value, Layout):
            yield from ((name, key) for key in LAYOUT_KEYS[value])
        elif name == "assumes":
            yield from ((name, key) for key, _ in value)
        elif isinstance(value, tuple):
            yield from ((name, key) for key in value if isinstance(key, str))
        elif isinstance(value, str) and name not in WORDS:
            unasked = name == "first_dense" and row.layout not in (Layout.FIRST_DENSE, Layout.TYPED)  # type: ignore[union-attr]
            yield from () if unasked else ((name, value),)
        elif value is True and name in SWITCHED:
            yield from ((name, key) for key in SWITCHED[name])


def keys_of(row: Stack | Experts | Heads | Outside) -> frozenset[str]:
    """Every key of config.json that a row names, those of its experts and its attention included."""
    found = {key.partition(".")[0] for _, key in named(row)}
    return frozenset(found | ({"is_gated_act"} if "feed_forward_proj" in found else set()))


def keys_read(model_type: str) -> frozenset[str]:
    """Every key that the rows of a model type name: of its stacks, and of what they have beside their layers."""
    table = families()
    rows: list[Stack | Outside] = [*table.by_type[model_type].stacks, *table.outside.get(model_type, ())]
    return frozenset(key for row in rows for key in keys_of(row))


TABLES = ("family", "without_ffn", "rest", "harmless", "harmless_for", "alias", "classes", "speaking")
KINDS: dict[str, type] = {"experts": Experts, "attention": Heads, "stack": Stack}  # of templates


@dataclass(frozen=True, slots=True, kw_only=True)
class Families:
    """The whole table: the family of each model type, the model types that have no FFN, and what stands beside layers.

    `outside` has one row a stack of the family.
    """

    by_type: dict[str, Family]
    without_ffn: frozenset[str]
    outside: dict[str, tuple[Outside, ...]]
    harmless: frozenset[str] = frozenset()  # keys that no FFN of any type depends on
    harmless_for: Mapping[str, frozenset[str]] = field(default_factory=dict)  # model type -> more of them
    alias: Mapping[str, str] = field(default_factory=dict)  # published model type -> transformers' name for it
    classes: Mapping[str, tuple[int, ...] | str] = field(default_factory=dict)  # class -> what it is built of
    speaking: Mapping[str, frozenset[str]] = field(
        default_factory=dict
    )  # key of any family -> the fields it stands for

    def harmless_in(self, model_type: str) -> frozenset[str]:
        """The keys that a model type's FFNs don't depend on."""
        return self.harmless | self.harmless_for.get(model_type, frozenset())


@cache
def families() -> Families:
    """The table of families.toml, read at the first call."""
    return parse(FILE.read_text(encoding="utf-8"))


def parse(text: str) -> Families:
    """The table that a text says; raises ValueError for a wrong row, naming the family and the key."""
    import tomllib  # not before it is needed

    data = tomllib.loads(text)
    if unknown := sorted(data.keys() - {*KINDS, *TABLES}):
        raise ValueError(f"unknown key {unknown[0]!r}")
    templates = _templates(data)
    by_type: dict[str, Family] = {}
    for name, row in _rows(data, "family"):
        with _named(f"family {name!r}"):
            family = _family(name, row, templates)
            if not family.types or not (family.stacks or family.parts):
                raise ValueError("it is empty")
            for model_type in family.types:
                if other := by_type.get(model_type):
                    raise ValueError(f"types: {model_type!r} stands in family {other.name!r} already")
                by_type[model_type] = family
    with _named("without_ffn"):
        without_ffn = frozenset(decode(tuple[str, ...], data.get("without_ffn", [])))
        if twice := sorted(without_ffn & by_type.keys()):
            raise ValueError(f"{twice[0]!r} stands in family {by_type[twice[0]].name!r} already")
    harmless, harmless_for = _harmless(data, by_type)
    return Families(
        by_type=by_type,
        without_ffn=without_ffn,
        outside=_outside(data, by_type),
        harmless=harmless,
        harmless_for=harmless_for,
        alias=_decoded(data, "alias", str),
        classes=_decoded(data, "classes", tuple[int, ...], str),
        speaking=_speaking(_decoded(data, "speaking", tuple[str, ...]), by_type.values()),
    )


def _decoded(data: Row, name: str, *kinds: Any) -> dict[str, Any]:
    """The rows of a table of the file; a text is of the last kind, all else of the first."""
    found = {}
    for key, value in _rows(data, name):
        with _named(f"{name}: {key}"):
            found[key] = decode(kinds[-isinstance(value, str)], value)
    return found


def _speaking(more: Mapping[str, tuple[str, ...]], known: Iterable[Family]) -> dict[str, frozenset[str]]:
    """The keys of all families that say something about width, layers, experts or gating, with the fields they are."""
    pairs = {pair for family in known for stack in family.stacks for pair in named(stack) if pair[0] in SPEAKING}
    found: dict[str, frozenset[str]] = {}
    for name, key in pairs | {(name, key) for name, keys in more.items() for key in keys}:
        last = key.rpartition(".")[2]
        if not last.startswith("attention"):  # which may have biases by the same switch
            found[last] = found.get(last, frozenset()) | {name}
    return found


def _harmless(data: Row, by_type: dict[str, Family]) -> tuple[frozenset[str], dict[str, frozenset[str]]]:
    """The keys that no FFN depends on, and those on which the FFNs of single model types don't."""
    with _named("harmless"):
        harmless = frozenset(decode(tuple[str, ...], data.get("harmless", [])))
    found: dict[str, frozenset[str]] = {}
    for key, names in _decoded(data, "harmless_for", tuple[str, ...]).items():
        for name in names:
            if name not in by_type:
                raise ValueError(f"harmless_for: {key}: {name!r} is no model type of the table")
            found[name] = found.get(name, frozenset()) | {key}
    return harmless, found


def _outside(data: Row, by_type: dict[str, Family]) -> dict[str, tuple[Outside, ...]]:
    """What stands beside the layers of each model type that a row of `rest` names, stack by stack."""
    known: Templates = {"rest": {"default": {}}}
    found: dict[str, tuple[Outside, ...]] = {}
    for name, row in _rows(data, "rest"):
        with _named(f"rest {name!r}"):
            shared = {key: value for key, value in _table(row).items() if key not in ("types", "stacks")}
            known["rest"][name] = _full("rest", shared, known)
            stacks = row.get("stacks", [{}])
            if not isinstance(stacks, list):
                raise ValueError(f"stacks: expected a list, found {stacks!r}")
            rows = tuple(decode(Outside, _full("rest", shared | _table(stack), known)) for stack in stacks)
            for model_type in decode(tuple[str, ...], row.get("types", [])):
                if model_type not in by_type or len(by_type[model_type].stacks) != len(rows):
                    raise ValueError(f"types: no family has {model_type!r} with {len(rows)} stacks")
                if model_type in found:
                    raise ValueError(f"types: {model_type!r} stands twice")
                found[model_type] = rows
    return found


def _templates(data: Row) -> Templates:
    """Every template on top of the one that it is like, checked, though no family may use it."""
    found: Templates = {kind: {"default": {}} for kind in KINDS}
    for kind, of in KINDS.items():
        for name, row in _rows(data, kind):
            with _named(f"{kind} {name!r}"):
                found[kind][name] = _full(kind, row, found)
                decode(of, found[kind][name])
    return found


def _family(name: str, row: Any, templates: Templates) -> Family:
    row = _table(row)
    own = {key: row[key] for key in ("types", "parts") if key in row}
    if "parts" in own and "assumes" in row:
        own["assumes"] = _value("family", "assumes", row["assumes"], templates)
    family = decode(Family, {"name": name} | own)
    if "parts" in own:
        if beside := sorted(row.keys() - own.keys() - {"stacks"}):
            raise ValueError(f"{beside[0]!r} stands beside parts, which are read by their own model types")
        if "stacks" not in row:
            return family
    shared = {key: value for key, value in row.items() if key not in ("types", "stacks", "parts")}
    stacks = row.get("stacks", [{}])
    if not isinstance(stacks, list):
        raise ValueError(f"stacks: expected a list, found {stacks!r}")
    full = [_full("stack", shared | _table(stack), templates) for stack in stacks]
    return replace(family, stacks=tuple(decode(Stack, stack) for stack in full))


def _full(kind: str, row: Any, templates: Templates) -> Row:
    """A row on top of the template that it is like, in the form that `decode` takes."""
    row = _table(row)
    like, known = str(row.get("like", "default")), templates[kind]
    if like not in known:
        raise ValueError(f"like: no {kind} {like!r} stands above; {did_you_mean(like, known)}".rstrip("; "))
    full = dict(known[like])
    if "ratio" in row:
        full.pop("d_ff", None)  # a ratio alone
    for key, value in row.items():
        with _named(key):
            full[key] = _value(kind, key, value, templates)
    full.pop("like", None)
    return full


def _value(kind: str, key: str, value: Any, templates: Templates) -> Any:
    """`assumes` as pairs, the tables of a stack in full, a key without a default with None."""
    if key == "assumes":
        return list(_table(value).items())
    if kind == "stack" and key in templates:
        return _full(key, value, templates)
    return {"default": None} | value if isinstance(value, dict) else value


def _rows(data: Row, kind: str) -> Iterable[tuple[str, Any]]:
    with _named(kind):
        return _table(data.get(kind, {})).items()


def _table(row: Any) -> Row:
    if not isinstance(row, dict):
        raise ValueError(f"expected a table, found {row!r}")
    return row


@contextmanager
def _named(place: str) -> Iterator[None]:
    """Errors say where."""
    try:
        yield
    except ValueError as problem:
        raise ValueError(f"{place}: {problem}") from problem
