"""A whole model as ffnbench sees it: kinds of layers, how many of each, the FFN in it and the attention beside it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from ffnbench.ffn.attention import AttentionSpec
from ffnbench.ffn.cost import params, params_active
from ffnbench.ffn.spec import FFNSpec


class HeadNorms(StrEnum):
    """The norms inside an attention: of one head's query and key, of all heads', of the compressed ones.

    WIDTH is HEADS for heads that share the model's width, whatever theirs is.
    """

    NONE = "none"
    HEAD = "head"
    HEADS = "heads"
    WIDTH = "width"
    LATENT = "latent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What a layer has beside its FFN and the matrices of its attention.

    `norms` are of the model's width: one vector each, two with `norm_bias`. `sinks`: one number a head. `buckets`:
    relative positions, one number a head for each, in the first layer of a kind, or in every one.
    """

    norms: int = 2
    norm_bias: bool = False
    head_norms: HeadNorms = HeadNorms.NONE
    sinks: bool = False
    buckets: int = 0
    buckets_in_each: bool = False

    def norm_params(self, d_model: int, attention: AttentionSpec) -> int:
        """Elements of all norms of one layer."""
        return self.norms * d_model * (1 + self.norm_bias) + self._in_attention(attention)

    def _in_attention(self, spec: AttentionSpec) -> int:
        """Of the norms of queries and keys: RMSNorm, one vector each."""
        match self.head_norms:
            case HeadNorms.NONE:
                return 0
            case HeadNorms.HEAD:
                return 2 * spec.head_dim
            case HeadNorms.HEADS:
                return (spec.heads + spec.kv_heads) * spec.head_dim
            case HeadNorms.WIDTH:
                return spec.d_model + spec.kv_heads * (spec.d_model // spec.heads)
            case HeadNorms.LATENT:
                return 0 if spec.mla is None else (spec.mla.q_lora or 0) + spec.mla.kv_lora

    def attention_params(self, layers: int, attention: AttentionSpec) -> int:
        """Elements that the attentions of so many layers have beside their matrices."""
        positions = self.buckets * (layers if self.buckets_in_each else 1)
        return attention.heads * (layers * self.sinks + positions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """What a model, or one of its stacks, has beside its layers.

    `vocab` and `rows` are the tokens and the further rows (learned positions, token types) that are embedded, each of
    `width`. `patches` are the elements of a projection of patches. `norms` are of that width, two vectors each with
    `norm_bias`. `output` is a matrix of the vocabulary that is not the embedding's own; `pooler` a square layer with a
    bias on the first token; `other` are elements of what stands between the parts of a model.
    """

    width: int
    vocab: int = 0
    rows: int = 0
    patches: int = 0
    norms: int = 1
    norm_bias: bool = False
    output: bool = False
    pooler: bool = False
    other: int = 0

    @property
    def embedding_params(self) -> int:
        """Elements of all that makes tokens into vectors."""
        return (self.vocab + self.rows) * self.width + self.patches

    @property
    def norm_params(self) -> int:
        """Elements of the norms outside layers."""
        return self.norms * self.width * (1 + self.norm_bias)

    @property
    def head_params(self) -> int:
        """Elements of what makes vectors into an answer; a tied matrix is the embedding's."""
        pooler = self.width * (self.width + 1) if self.pooler else 0
        return self.output * self.vocab * self.width + pooler


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """`count` layers in which a token attends to the last `window` ones, None for all.

    `other` names what they have in place of that, which is not counted: chunked attention, linear attention.
    """

    count: int
    window: int | None = None
    other: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGroup:
    """`count` equal layers: dense, moe, encoder, decoder, vision ... `attention` None is not known or not there.

    `sights` are their attentions, where not every one is to all tokens. `beside` None is not known.
    """

    kind: str
    count: int
    ffn: FFNSpec
    attention: AttentionSpec | None = None
    sights: tuple[Sight, ...] = ()
    beside: Beside | None = None

    @property
    def seen(self) -> tuple[Sight, ...]:
        """All of its layers, by how far a token sees."""
        return self.sights or (Sight(count=self.count),)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A published or configured model. `source` is where its numbers were read.

    `rest` is what each of its stacks has beside its layers; None is not known. `rest_note` says what is odd in it.
    `defaults` names the numbers that are its class's, since its file does not set them.
    """

    key: str
    name: str
    groups: tuple[LayerGroup, ...]
    source: str
    note: str = ""
    rest: tuple[Rest, ...] | None = None
    rest_note: str = ""
    defaults: str = ""

    @property
    def main(self) -> LayerGroup:
        """The kind of layer that the model is known by: the one with the most layers, the later of equals; of
        the language model where there is one beside a tower that sees.
        """
        return max(reversed(self.groups), key=lambda group: (not group.kind.startswith("vision"), group.count))


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedLayers:
    """`count` equal layers and the parameters of one of their FFNs. `spec` None is a form that nobody declared."""

    kind: str
    count: int
    params: int
    params_active: int | None
    spec: FFNSpec | None = None
    name: str = ""  # of the class, where there is no spec


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedModel:
    """The FFNs of a model in numbers. `counted_by` tells a closed form from a count of built modules."""

    name: str
    source: str
    layers: tuple[CountedLayers, ...]
    counted_by: str
    note: str = ""
    defaults: str = ""


def count_model(model: ModelSpec) -> CountedModel:
    """The numbers of a model whose forms are known."""
    return CountedModel(
        name=model.name,
        source=model.source,
        counted_by="closed form",
        note=model.note,
        defaults=model.defaults,
        layers=tuple(
            CountedLayers(
                kind=group.kind,
                count=group.count,
                params=params(group.ffn),
                params_active=params_active(group.ffn),
                spec=group.ffn,
            )
            for group in model.groups
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeModel:
    """All parameters of a model by part, each counted once; None is not known.

    `ffn` are the FFNs of all layers without `router`, which is theirs too, and without norms that stand inside of one:
    these are under `norms`. `active` are those of a token: all but the experts that it does not go to.
    """

    name: str
    source: str
    counted_by: str
    note: str = ""
    defaults: str = ""
    embeddings: int | None
    attention: int | None
    ffn: int
    router: int
    norms: int | None
    head: int | None
    other: int | None = 0
    idle: int | None  # parameters of experts that a token does not go to

    @property
    def parts(self) -> dict[str, int | None]:
        """Name -> parameters, in the order of a token's way."""
        names = ("embeddings", "attention", "ffn", "router", "norms", "head", "other")
        return {name: getattr(self, name) for name in names}

    @property
    def params(self) -> int | None:
        """The sum; None where a part is not known."""
        known = [part for part in self.parts.values() if part is not None]
        return sum(known) if len(known) == len(self.parts) else None

    @property
    def active(self) -> int | None:
        """Those that a token meets."""
        return None if self.params is None or self.idle is None else self.params - self.idle


def crosses(model: ModelSpec, group: LayerGroup) -> bool:
    """Whether a kind of layer has a second attention, to the encoder's tokens."""
    return group.kind == "decoder" and any(other.kind == "encoder" for other in model.groups)


def whole_model(model: ModelSpec) -> WholeModel:
    """All parameters of a model in closed form."""
    router = ffn = idle = 0
    for group in model.groups:
        routing = group.ffn.moe.router_params(group.ffn.d_model) if group.ffn.moe else 0
        router += group.count * routing
        ffn += group.count * (params(group.ffn) - routing)
        idle += group.count * (params(group.ffn) - params_active(group.ffn))
    rest = model.rest
    return WholeModel(
        name=model.name,
        source=model.source,
        counted_by="closed form",
        note="; ".join(filter(None, (model.note, model.rest_note))),
        defaults=model.defaults,
        embeddings=None if rest is None else sum(part.embedding_params for part in rest),
        attention=_sum(_attention(model, group) for group in model.groups),
        ffn=ffn,
        router=router,
        norms=_sum((*map(_norms, model.groups), None if rest is None else sum(part.norm_params for part in rest))),
        head=None if rest is None else sum(part.head_params for part in rest),
        other=sum(part.other for part in rest or ()),
        idle=idle,
    )


def _attention(model: ModelSpec, group: LayerGroup) -> int | None:
    if group.attention is None or group.beside is None:
        return None
    each = group.attention.params * (2 if crosses(model, group) else 1)
    return group.count * each + group.beside.attention_params(group.count, group.attention)


def _norms(group: LayerGroup) -> int | None:
    if group.attention is None or group.beside is None:
        return None
    return group.count * group.beside.norm_params(group.ffn.d_model, group.attention)


def _sum(numbers: Iterable[int | None]) -> int | None:
    found = list(numbers)
    return None if None in found else sum(number for number in found if number is not None)
