"""The rest of a model: the parameters besides its FFNs and the matrices of its
attentions, by rest.toml.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from ffnbench.ffn.spec import AttentionSpec
from ffnbench.models.configs import readers, repeats_of_stacks, type_of
from ffnbench.models.family_reader import FamilyRow, Reader, by_stack, by_type
from ffnbench.models.model import LayerGroup, ModelSpec

REST_FILE = Path(__file__).with_name("rest.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class RestTable:
    """rest.toml. By model type and by the key of a preset it has a row for each stack
    of layers; `notes` are on presets.
    """

    types: Mapping[str, tuple[FamilyRow, ...]]
    presets: Mapping[str, tuple[FamilyRow, ...]]
    notes: Mapping[str, str]


@cache
def table() -> RestTable:
    """The table, read at the first call."""
    import tomllib  # not before it is needed

    data = tomllib.loads(REST_FILE.read_text(encoding="utf-8"))
    return RestTable(
        types=by_type("rest", data["rest"], data),
        presets={
            key: by_stack("rest", row, data) for key, row in data["preset"].items()
        },
        notes=data["note"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """Parameters of a stack of layers by part; those of `attention` are sinks and
    relative positions.
    """

    embeddings: int
    attention: int
    norms: int
    head: int


def note_on(model: ModelSpec) -> str:
    """What is odd in the rest of a preset; "" where nothing is."""
    if model.config is not None:
        return ""
    return table().notes.get(model.key, "")


def rest_of(model: ModelSpec) -> list[Rest] | None:
    """The rest of each stack of layers; None where the table has no row for one, or the
    config does not have the numbers.
    """
    rests = []
    for reader, row, groups in _stacks_of(model):
        rest = reader.read_or_none(row, partial(_rest, reader, groups))
        if rest is None:
            return None
        rests.append(rest)
    return rests or None


def _stacks_of(
    model: ModelSpec,
) -> list[tuple[Reader, FamilyRow, Sequence[LayerGroup]]]:
    """A reader for each stack of layers, its row and its kinds of layers; none where
    the table has no row.
    """
    if model.config is not None:
        return _stacks_of_config(model)
    rows = table().presets[model.key]
    # several stacks (an encoder and a decoder) have one kind of layers each
    groups_of_stacks: list[Sequence[LayerGroup]] = [[group] for group in model.groups]
    if len(rows) == 1:
        groups_of_stacks = [model.groups]
    width = {"d_model": model.main.ffn.d_model}
    stacks: list[tuple[Reader, FamilyRow, Sequence[LayerGroup]]] = []
    for row, groups in zip(rows, groups_of_stacks, strict=True):
        reader = Reader(config=row.get("config", {}), model_type=model.key, stack=width)
        stacks.append((reader, row, groups))
    return stacks


def _stacks_of_config(
    model: ModelSpec,
) -> list[tuple[Reader, FamilyRow, Sequence[LayerGroup]]]:
    config = dict(model.config or {})
    model_type = type_of(config)
    rows = table().types.get(model_type)
    # a class that has other parts than its type's
    if rows is None or repeats_of_stacks(config, model_type):
        return []
    stacks: list[tuple[Reader, FamilyRow, Sequence[LayerGroup]]] = []
    first = 0
    for reader, row in zip(readers(config, model_type), rows, strict=True):
        end = first + len(reader.groups())
        stacks.append((reader, row, model.groups[first:end]))
        first = end
    return stacks


def _rest(reader: Reader, groups: Sequence[LayerGroup], row: FamilyRow) -> Rest | None:
    """The rest of one stack; None where its form is not that of the table's row."""
    width = reader.count(reader.stack["d_model"])
    for key in row.get("equal", ()):
        if reader.get(key) not in (None, width):
            return None
    vocab = reader.count(row["vocab"], least=0)
    head = 0
    if row["head"] == "output" and not reader.switch(row["tied"]):
        head = vocab * width
    elif row["head"] == "pooler":
        head = width * (width + 1)

    norm = 2 * width if row["norm_bias"] else width
    norms = row["outer_norms"] * norm
    attention = 0
    head_norms = row["head_norms"] if reader.switch(row["head_normed"]) else "none"
    buckets = reader.count(row["buckets"], least=0)
    for group in groups:
        spec = group.attention
        if spec is None:
            return None
        norms += group.count * (row["norms"] * norm + _norms_inside(head_norms, spec))
        if row["sinks"]:
            attention += group.count * spec.heads
        if row["buckets_in_each"]:
            attention += group.count * spec.heads * buckets
        else:
            attention += spec.heads * buckets
    return Rest(
        embeddings=_embeddings(reader, row, vocab, width),
        attention=attention,
        norms=norms,
        head=head,
    )


def _embeddings(reader: Reader, row: FamilyRow, vocab: int, width: int) -> int:
    """The parameters that embed tokens, positions, types of tokens and patches of a
    picture.
    """
    positions = reader.count(row["positions"], least=0) + row["more_positions"]
    vectors: int = vocab + positions + reader.count(row["token_types"], least=0)
    if not row["patches"]:
        return vectors * width
    patch = reader.count("patch_size")
    patches = (reader.count("image_size") // patch) ** 2
    vectors += patches + 2 * row["tokens"]  # the vectors of tokens and the positions
    inputs = reader.count("num_channels") * patch**2
    if row["patch_bias"]:
        inputs += 1
    return (vectors + inputs) * width


def _norms_inside(kind: str, spec: AttentionSpec) -> int:
    """Elements of the RMSNorms inside an attention, by `head_norms` of rest.toml."""
    match kind:
        case "head":  # a norm of the query and one of the key, which all heads share
            return 2 * spec.head_dim
        case "heads":  # norms over the queries, and over the keys, of all heads
            return (spec.heads + spec.kv_heads) * spec.head_dim
        # likewise, with heads of d_model / heads elements, whatever head_dim is
        case "width":
            return spec.d_model + spec.kv_heads * (spec.d_model // spec.heads)
        case "latent":  # norms of DeepSeek's compressed query, and key and value
            if spec.mla is None:
                return 0
            return (spec.mla.q_lora or 0) + spec.mla.kv_lora
        case _:
            return 0
