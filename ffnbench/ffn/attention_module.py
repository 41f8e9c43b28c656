"""Attention as modules: q, k, v and o of any grouping, latent attention, and the
textbook's way of computing both.

Plain eager PyTorch, biases as the spec says. No position encoding and no norm, as the
FFN beside it has none; latent attention keeps the element that its position encoding
would turn (`rope`), and leaves it as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ffnbench.ffn.modules import Device, OwnModule, linear_reference
from ffnbench.ffn.spec import AttentionForm, AttentionSpec, MLASpec


class Attention(OwnModule):
    """Self-attention through torch's scaled_dot_product_attention. x and the result are
    (batch, seq_len, d_model).
    """

    def __init__(
        self,
        spec: AttentionSpec,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.spec = spec
        for name, (rows, columns) in spec.matrices.items():
            setattr(
                self,
                name,
                nn.Linear(
                    columns, rows, bias=name in spec.biases, device=device, dtype=dtype
                ),
            )

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of x, each (batch, heads, seq_len, dim); keys and
        values of kv_heads heads.
        """
        if self.spec.mla is not None:
            return self._latent_heads(x, self.spec.mla)
        q = self._split(self.q(x), self.spec.head_dim)
        k = self._split(self.k(x), self.spec.head_dim)
        v = self._split(self.v(x), self.spec.head_dim)
        return q, k, v

    def _latent_heads(self, x: Tensor, mla: MLASpec) -> tuple[Tensor, Tensor, Tensor]:
        """As `heads`, of latent attention: keys and values of all heads."""
        if mla.q_lora is None:
            q = self.q(x)
        else:
            q = self.q_up(self.q_down(x))
        q = self._split(q, mla.nope + mla.rope)
        latent, shared_key = self.kv_down(x).split((mla.kv_lora, mla.rope), dim=-1)
        keys_and_values = self._split(self.kv_up(latent), mla.nope + mla.v)
        own_key, v = keys_and_values.split((mla.nope, mla.v), dim=-1)
        shared_key = shared_key.unsqueeze(1).expand(-1, self.spec.heads, -1, -1)
        return q, torch.cat((own_key, shared_key), dim=-1), v

    @staticmethod
    def _split(y: Tensor, dim: int) -> Tensor:
        """y (batch, seq_len, heads * dim) by heads: (batch, heads, seq_len, dim)."""
        return y.unflatten(-1, (-1, dim)).transpose(1, 2)

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Each token's mean of the values, weighted by softmax of its scores: (batch,
        heads, seq_len, dim).

        torch's function has no window: here it is a mask of seq_len x seq_len, as in
        transformers.
        """
        if self.spec.windowed(q.shape[2]):
            k, v = _for_each_query_head(q, k, v)
            return F.scaled_dot_product_attention(
                q, k, v, attn_mask=_visible(self.spec, q)
            )
        grouped = q.shape[1] != k.shape[1]
        return F.scaled_dot_product_attention(
            q, k, v, is_causal=self.spec.causal, enable_gqa=grouped
        )

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        mixed = self.mix(q, k, v).transpose(1, 2).flatten(2)
        y: Tensor = self.o(mixed)
        return y

    def extra_repr(self) -> str:
        return f"{self.spec.name}, causal={self.spec.causal}"


class TextbookAttention(Attention):
    """Attention as a textbook writes it: every score is computed and kept, masked,
    normalised, multiplied.

    The mask is the lowest number of the dtype: -1e9, as it is often written, does not
    fit into float16.
    """

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """As Attention's, one step after another."""
        k, v = _for_each_query_head(q, k, v)
        dim = q.shape[-1]
        scores = q @ k.transpose(-2, -1) / math.sqrt(dim)
        if self.spec.causal or self.spec.windowed(q.shape[2]):
            lowest = torch.finfo(scores.dtype).min
            scores = scores.masked_fill(~_visible(self.spec, q), lowest)
        return F.softmax(scores, dim=-1) @ v


def _for_each_query_head(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values of as many heads as q has: those of a group are repeated for each
    of its query heads.
    """
    group = q.shape[1] // k.shape[1]
    if group == 1:
        return k, v
    return k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)


def _visible(spec: AttentionSpec, q: Tensor) -> Tensor:
    """Which keys each query sees, (seq_len, seq_len)."""
    seq_len = q.shape[2]
    visible = torch.ones(seq_len, seq_len, dtype=torch.bool, device=q.device)
    if spec.causal:
        visible = visible.tril()
        if spec.window is not None:
            visible = visible.triu(1 - spec.window)
    elif spec.window is not None:
        visible = visible.triu(-spec.window).tril(spec.window)
    return visible


_FORMS = {AttentionForm.SDPA: Attention, AttentionForm.TEXTBOOK: TextbookAttention}


def build_attention(
    spec: AttentionSpec, *, device: Device = None, dtype: torch.dtype | None = None
) -> Attention:
    """The nn.Module of a spec. Its weights are drawn from torch's global generator, the
    same ones for both forms.
    """
    return _FORMS[spec.form](spec, device=device, dtype=dtype)


def attention_reference(
    module: Attention, x: Tensor, rows: Tensor | None = None
) -> Tensor:
    """What a module should give for x (batch, seq_len, d_model), computed in float64,
    one head after another, by code of its own. With `rows`, for the tokens of these
    numbers alone, as (batch, rows, d_model).
    """
    spec = module.spec
    x = x.detach().double()
    position = torch.arange(x.shape[1], device=x.device)
    if rows is None:
        rows = position
    distance = rows[:, None] - position  # how far back from its query a key is
    window = x.shape[1] if spec.window is None else spec.window
    if spec.causal:
        visible = (distance >= 0) & (distance < window)
    else:
        visible = distance.abs() <= window
    values = []
    for q, k, v in _reference_heads(module, x):
        scores = torch.einsum("bqd,bkd->bqk", q[:, rows], k) / math.sqrt(spec.key_dim)
        weights = (scores - scores.amax(-1, keepdim=True)).exp() * visible
        weights = weights / weights.sum(-1, keepdim=True)
        values.append(torch.einsum("bqk,bkd->bqd", weights, v))
    return _reference_linear(module, "o", torch.cat(values, dim=-1))


def _reference_heads(
    module: Attention, x: Tensor
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Query, key and value of each head, (batch, seq_len, dim), cut out of the
    projections by position.
    """
    spec = module.spec
    if spec.mla is not None:
        yield from _reference_latent_heads(module, spec.mla, x)
        return
    q, k, v = (_reference_linear(module, name, x) for name in "qkv")
    for head in range(spec.heads):
        group = head // (spec.heads // spec.kv_heads)
        yield (
            q.narrow(-1, head * spec.head_dim, spec.head_dim),
            k.narrow(-1, group * spec.head_dim, spec.head_dim),
            v.narrow(-1, group * spec.head_dim, spec.head_dim),
        )


def _reference_latent_heads(
    module: Attention, mla: MLASpec, x: Tensor
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """As `_reference_heads`, of latent attention."""
    if mla.q_lora is None:
        queries = _reference_linear(module, "q", x)
    else:
        queries = _reference_linear(
            module, "q_up", _reference_linear(module, "q_down", x)
        )
    down = _reference_linear(module, "kv_down", x)
    latent = down[..., : mla.kv_lora]
    shared_key = down[..., mla.kv_lora :]
    up = _reference_linear(module, "kv_up", latent)
    query_dim = mla.nope + mla.rope
    up_dim = mla.nope + mla.v
    for head in range(module.spec.heads):
        query = queries.narrow(-1, head * query_dim, query_dim)
        own_key = up.narrow(-1, head * up_dim, mla.nope)
        value = up.narrow(-1, head * up_dim + mla.nope, mla.v)
        yield query, torch.cat((own_key, shared_key), dim=-1), value


def _reference_linear(module: Attention, name: str, x: Tensor) -> Tensor:
    layer = getattr(module, name)
    return linear_reference(x, layer.weight, layer.bias).detach()
