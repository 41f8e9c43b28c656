"""What a model has beside its FFNs and the matrices of its attentions, in numbers of parameters."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ffnbench.ffn.spec import AttentionSpec


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
