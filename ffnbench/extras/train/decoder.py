"""The blocks of a decoder-only language model around an FFN, and what they cost. Exact integers, no torch.

A block is x + attention(norm(x)), then x + FFN(norm(x)), with RMSNorm (Zhang and Sennrich 2019), causal attention with
rotary positions (Su et al. 2021), and no biases but the FFN's. Bytes are its tokens: a table of 256 vectors stands
before the blocks and a matrix of 256 rows behind them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ffnbench.common.errors import FfnbenchError
from ffnbench.common.jsonable import LATER
from ffnbench.extras.train.metrics import LOSS
from ffnbench.extras.train.text import Training
from ffnbench.ffn.attention import attention_flops
from ffnbench.ffn.cost import Cost
from ffnbench.ffn.spec import AttentionSpec, NetworkSpec, item_bytes, require_positive
from ffnbench.plan import AddedSpec, Case, NoProbe, Probe, cost_of

HEAD_DIM = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderSpec(AddedSpec):
    """So many blocks around this FFN, each with weights of its own; heads of HEAD_DIM elements."""

    around: NetworkSpec
    layers: int

    def __post_init__(self) -> None:
        require_positive("layers", self.layers)
        if self.d_model % HEAD_DIM:
            near = max(1, round(self.d_model / HEAD_DIM)) * HEAD_DIM
            raise FfnbenchError(
                f"--d-model {self.d_model:,} can't be cut into heads of {HEAD_DIM}",
                f"give a multiple: --d-model {near}",
            )

    @property
    def attention(self) -> AttentionSpec:
        """That of each block."""
        heads = self.d_model // HEAD_DIM
        return AttentionSpec(d_model=self.d_model, heads=heads, kv_heads=heads, head_dim=HEAD_DIM, causal=True)

    def cost(self, case: Case, probe: Probe) -> Cost:
        """That of all blocks."""
        inner = cost_of(replace(case, ffn=self.around), probe)
        return decoder_cost(self, inner, seq_len=case.workload.seq_len, dtype=case.workload.dtype)

    def bytes_held(self, case: Case) -> int:
        """Its weights in float32 and their gradients, and where it is trained the two moments of AdamW."""
        from ffnbench.run.resources import as_known

        params, known = self.attention.params, as_known(replace(case, ffn=self.around))
        if known is not None:
            params += cost_of(known, NoProbe()).params
        bytes_each = 16 if trained_by(case) else 8
        return self.layers * params * bytes_each

    def build(self, *, device: Any, dtype: Any) -> Any:
        """Its module."""
        from ffnbench.extras.train.module import Decoder
        from ffnbench.worker.backends.building import build

        make = partial(build, self.around, device=device, dtype=dtype)
        return Decoder(self.attention, self.layers, make, device=device, dtype=dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainCase(Case):
    """A case of `train`: with `training` a model is trained so, and else its blocks are timed."""

    ffn: DecoderSpec
    training: Training | None = field(default=None, metadata=LATER)

    @property
    def recipe(self) -> Training:
        """How a case that is trained is trained."""
        assert self.training is not None
        return self.training

    @property
    def ends_with(self) -> str:
        """A run is done when it has a loss."""
        return LOSS if self.training else ""


def trained_by(case: Case) -> Training | None:
    """How a case is trained; None for one that is timed."""
    return case.training if isinstance(case, TrainCase) else None


def decoder_cost(spec: DecoderSpec, inner: Cost, *, seq_len: int, dtype: str) -> Cost:
    """That of all blocks, by the cost of their FFN. FLOPs are those of matrix products, per token; its bytes at work
    are not known.
    """
    attention = attention_flops(spec.attention, seq_len)
    forward = backward = None
    if inner.flops_forward is not None:
        forward = spec.layers * (inner.flops_forward + attention)
    if inner.flops_backward is not None:
        backward = spec.layers * (inner.flops_backward + 2 * attention)
    others = spec.layers * (spec.attention.params + 2 * spec.d_model) + spec.d_model
    params = others + spec.layers * inner.params
    return replace(
        inner,
        params=params,
        params_active=others + spec.layers * inner.params_active,
        params_formula=None,
        flops_forward=forward,
        flops_backward=backward,
        flops_elementwise=None,
        flops_elementwise_backward=None,
        weight_bytes=params * item_bytes(dtype),
        weight_bytes_touched=None,
        peak_bytes=None,
        saved_bytes=None,
    )
