"""FLOPs of a model for one token, by three conventions. The output layer is counted,
and the embedding, which is a look-up, is not. Exact integers, no torch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ffnbench.common.choices import Convention
from ffnbench.common.units import SI, quantity
from ffnbench.ffn.attention import attention_flops, projection_flops
from ffnbench.ffn.cost import flops_forward
from ffnbench.ffn.spec import AttentionSpec
from ffnbench.models.model import LayerGroup, ModelSpec

TRAINING = 3  # a backward takes as much as two forwards
SMALL = 1e-3  # a share of the active parameters that need not be told


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFlops:
    """FLOPs of one token's forward pass, None where they are not known; `missing` says
    why, or what is not in them.
    """

    forward: int | None
    missing: str = ""

    @property
    def training(self) -> int | None:
        """Those of forward and backward."""
        return None if self.forward is None else TRAINING * self.forward


def model_flops(model: ModelSpec, seq_len: int, convention: Convention) -> ModelFlops:
    """FLOPs of a token, the mean over a sequence of `seq_len` tokens.

    CAUSAL: those of the matrix products, where a token sees itself and those before it.
    SQUARE: 2 for each active parameter but those of the embedding, and attention among
    all tokens in a window (PaLM: Chowdhery et al. 2022, appendix B; torchtitan).
    MEGATRON: products without routers, and half of all pairs of tokens, whatever the
    window (Megatron-LM, num_floating_point_operations).
    """
    kinds = {group.kind.split()[0] for group in model.groups}
    active, parts = model.params_active, model.parts
    if {"encoder", "decoder"} <= kinds:
        return ModelFlops(
            forward=None, missing="an encoder's tokens are not a decoder's"
        )
    if active is None:
        return ModelFlops(forward=None, missing="active parameters are not known")
    scores = sum(score_flops(group, seq_len, convention) for group in model.groups)
    if convention is Convention.SQUARE:
        used = active - parts["embeddings"] + model.tied
        return ModelFlops(forward=2 * used + scores, missing=_missing(model))
    products = 2 * (parts["head"] or model.tied)
    for group in model.groups:
        of_layer = ffn_flops(group)
        if group.attention is not None:
            of_layer += projection_flops(group.attention)
        moe = None if group.ffn is None else group.ffn.moe
        if convention is Convention.MEGATRON and moe is not None:
            of_layer -= 2 * moe.router_matrix_params(group.form.d_model)
        products += group.count * of_layer
    return ModelFlops(forward=products + scores, missing=_missing(model))


def _missing(model: ModelSpec) -> str:
    """What is not counted: the scores of other kinds of attention, and parts that are
    no attention, FFN or output layer.
    """
    parts = []
    for group in model.groups:
        for window in group.all_windows:
            if window.other:
                parts.append(f"scores of {window.count} layers of {window.other}")
    other = model.parts["attention"] + model.parts["other"]
    for group in model.groups:
        if group.attention is not None:
            other -= group.count * group.attention.params
    if other > SMALL * (model.params_active or model.params):
        parts.append(f"{quantity(other, SI)} parameters of other parts")
    return f"without {', '.join(parts)}" if parts else ""


def ffn_flops(group: LayerGroup) -> int:
    """Matmul FLOPs of one layer's FFN: two for each active parameter of one that is
    none of ffnbench's forms.
    """
    if group.ffn is not None:
        return flops_forward(group.ffn)
    assert group.params_active is not None
    return 2 * group.params_active


def score_flops(group: LayerGroup, seq_len: int, convention: Convention) -> int:
    """FLOPs of scores and values in all layers of a kind."""
    attention = group.attention
    if attention is None:
        return 0
    total = 0
    for window in group.all_windows:
        if window.other:
            continue
        spec = replace(attention, causal=group.is_causal, window=window.tokens)
        if convention is Convention.CAUSAL:
            flops = attention_flops(spec, seq_len) - projection_flops(spec)
        elif convention is Convention.SQUARE:
            flops = pair_flops(spec) * min(window.tokens or seq_len, seq_len)
        else:
            flops = pair_flops(spec) * seq_len // 2
        total += window.count * flops
    return total


def pair_flops(spec: AttentionSpec) -> int:
    """FLOPs of the score of two tokens in all heads, and of its part of the values."""
    return 2 * spec.heads * (spec.key_dim + spec.value_dim)
