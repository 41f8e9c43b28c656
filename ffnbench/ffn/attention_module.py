"""Attention as modules: q, k, v and o of any grouping, latent attention, and the textbook's way of computing both.

Plain eager PyTorch, biases as the spec says. No position encoding and no norm, as the FFN beside it has none; latent
attention keeps the element that its position encoding would turn (`rope`), and leaves it as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ffnbench.ffn.modules import Device, OwnModule
from ffnbench.ffn.spec import AttentionForm, AttentionSpec


class Attention(OwnModule):
    """Self-attention through torch's scaled_dot_product_attention. x and the result are (batch, seq_len, d_model)."""

    def __init__(self, spec: AttentionSpec, *, device: Device = None, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.spec = spec
        for name, (rows, columns) in spec.matrices.items():
            setattr(self, name, nn.Linear(columns, rows, bias=name in spec.biases, device=device, dtype=dtype))

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of x, each (batch, heads, seq_len, dim); keys and values of kv_heads heads."""
        if self.spec.mla is not None:
            return self._latent_heads(x)
        q, k, v = (self._split(getattr(self, name)(x), self.spec.head_dim) for name in "qkv")
        return q, k, v

    def _latent_heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mla = self.spec.mla
        assert mla is not None
        q = self.q(x) if mla.q_lora is None else self.q_up(self.q_down(x))
        latent, shared = self.kv_down(x).split((mla.kv_lora, mla.rope), dim=-1)
        k, v = self._split(self.kv_up(latent), mla.nope + mla.v).split((mla.nope, mla.v), dim=-1)
        shared = shared.unsqueeze(1).expand(-1, self.spec.heads, -1, -1)
        return self._split(q, mla.nope + mla.rope), torch.cat((k, shared), dim=-1), v

    @staticmethod
    def _split(y: Tensor, dim: int) -> Tensor:
        return y.unflatten(-1, (-1, dim)).transpose(1, 2)

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Each token's values, weighted by softmax of its scores: (batch, heads, seq_len, dim).

        torch has no window: it is a mask, of the whole square, as transformers has it for this function.
        """
        if self.spec.windowed(q.shape[2]):
            return F.scaled_dot_product_attention(q, *_for_each_head(q, k, v), attn_mask=_seen(self.spec, q))
        grouped = q.shape[1] != k.shape[1]
        return F.scaled_dot_product_attention(q, k, v, is_causal=self.spec.causal, enable_gqa=grouped)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.o(self.mix(*self.heads(x)).transpose(1, 2).flatten(2))
        return y

    def extra_repr(self) -> str:
        return f"{self.spec.name}, causal={self.spec.causal}"


class TextbookAttention(Attention):
    """Attention as a textbook writes it: every score is computed and kept, masked, normalised, multiplied.

    The mask is the lowest number of the dtype: -1e9, as it is often written, does not fit into float16.
    """

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Scores, mask, softmax, values: (batch, heads, seq_len, dim)."""
        k, v = _for_each_head(q, k, v)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        if self.spec.causal or self.spec.windowed(q.shape[2]):
            scores = scores.masked_fill(~_seen(self.spec, q), torch.finfo(scores.dtype).min)
        return F.softmax(scores, dim=-1) @ v


def _for_each_head(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values, those of a group once for each of its query heads."""
    group = q.shape[1] // k.shape[1]
    return (k, v) if group == 1 else (k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1))


def _seen(spec: AttentionSpec, q: Tensor) -> Tensor:
    """Which keys each query sees, (seq_len, seq_len)."""
    seen = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool, device=q.device)
    if spec.causal:
        seen = seen.tril()
    if spec.window is None:
        return seen
    return seen.triu(1 - spec.window) if spec.causal else seen.triu(-spec.window).tril(spec.window)


_FORMS = {AttentionForm.SDPA: Attention, AttentionForm.TEXTBOOK: TextbookAttention}


def build_attention(spec: AttentionSpec, *, device: Device = None, dtype: torch.dtype | None = None) -> Attention:
    """The nn.Module of a spec, weights filled from torch's global generator: the same for both forms."""
    return _FORMS[spec.form](spec, device=device, dtype=dtype)


def attention_reference(module: Attention, x: Tensor) -> Tensor:
    """What a module should give for x (batch, seq_len, d_model), in float64, one head after another."""
    spec, x = module.spec, x.detach().double()
    place = torch.arange(x.shape[-2], device=x.device)
    ago = place[:, None] - place
    near = ago.abs() < (len(place) if spec.window is None else spec.window + (not spec.causal))
    seen = (near & (ago >= 0) if spec.causal else near).double()
    mixed = []
    for q, k, v in _reference_heads(module, x):
        scores = torch.einsum("bqd,bkd->bqk", q, k) / math.sqrt(spec.key_dim)
        weights = (scores - scores.amax(-1, keepdim=True)).exp() * seen
        mixed.append(torch.einsum("bqk,bkd->bqd", weights / weights.sum(-1, keepdim=True), v))
    return _linear(module, "o", torch.cat(mixed, dim=-1))


def _reference_heads(module: Attention, x: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Query, key and value of each head, cut out of the projections by position."""
    spec, mla = module.spec, module.spec.mla
    if mla is None:
        projected = [_linear(module, name, x) for name in "qkv"]
        for head in range(spec.heads):
            group = head // (spec.heads // spec.kv_heads)
            q, k, v = (
                y.narrow(-1, place * spec.head_dim, spec.head_dim)
                for y, place in zip(projected, (head, group, group), strict=True)
            )
            yield q, k, v
        return
    queries = _linear(module, "q", x) if mla.q_lora is None else _linear(module, "q_up", _linear(module, "q_down", x))
    down = _linear(module, "kv_down", x)
    up = _linear(module, "kv_up", down[..., : mla.kv_lora])
    for head in range(spec.heads):
        own = up.narrow(-1, head * (mla.nope + mla.v), mla.nope + mla.v)
        key = torch.cat((own[..., : mla.nope], down[..., mla.kv_lora :]), dim=-1)
        yield queries.narrow(-1, head * spec.key_dim, spec.key_dim), key, own[..., mla.nope :]


def _linear(module: Attention, name: str, v: Tensor) -> Tensor:
    layer = getattr(module, name)
    y = v @ layer.weight.detach().double().T
    return y if layer.bias is None else y + layer.bias.detach().double()
