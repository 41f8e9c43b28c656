"""The blocks of a decoder-only language model around an FFN, and what they cost. Exact integers, no torch.

A block is x + attention(norm(x)), then x + FFN(norm(x)), with RMSNorm (Zhang and Sennrich 2019), causal attention with
rotary positions (Su et al. 2021), and no biases but the FFN's. Bytes are its tokens: a table of 256 vectors stands
before the blocks and a matrix of 256 rows behind them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ffnbench.errors import FfnbenchError
from ffnbench.ffn.attention import AttentionSpec, attention_flops
from ffnbench.ffn.cost import Cost
from ffnbench.ffn.dtypes import item_bytes
from ffnbench.ffn.spec import NetworkSpec, require_positive

VOCABULARY = 256
HEAD_DIM = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderSpec:
    """So many blocks around this FFN, each with weights of its own; heads of HEAD_DIM elements."""

    around: NetworkSpec
    layers: int

    def __post_init__(self) -> None:
        require_positive("layers", self.layers)
        if self.d_model % HEAD_DIM:
            near = max(1, round(self.d_model / HEAD_DIM)) * HEAD_DIM
            told = f"--d-model {self.d_model:,} can't be cut into heads of {HEAD_DIM}"
            raise FfnbenchError(told, f"give a multiple: --d-model {near}")

    @property
    def d_model(self) -> int:
        """Width of the model."""
        return self.around.d_model

    @property
    def d_ff(self) -> int | None:
        """Of its FFN."""
        return self.around.d_ff

    @property
    def attention(self) -> AttentionSpec:
        """That of each block."""
        heads = self.d_model // HEAD_DIM
        return AttentionSpec(d_model=self.d_model, heads=heads, kv_heads=heads, head_dim=HEAD_DIM, causal=True)


def decoder_cost(spec: DecoderSpec, inner: Cost, *, seq_len: int, dtype: str) -> Cost:
    """That of all blocks, by the cost of their FFN. FLOPs are those of matrix products, per token; its bytes at work
    are not known.
    """
    attention = attention_flops(spec.attention, seq_len)
    params = spec.layers * (spec.attention.params + 2 * spec.d_model) + spec.d_model
    forward, backward = (
        None if flops is None else spec.layers * (flops + times * attention)
        for flops, times in ((inner.flops_forward, 1), (inner.flops_backward, 2))
    )
    total = params + spec.layers * inner.params
    return replace(
        inner, params=total, params_active=params + spec.layers * inner.params_active, params_formula=None,
        flops_forward=forward, flops_backward=backward, flops_elementwise=None, flops_elementwise_backward=None,
        weight_bytes=total * item_bytes(dtype), weight_bytes_touched=None, peak_bytes=None, saved_bytes=None,
    )  # fmt: skip
