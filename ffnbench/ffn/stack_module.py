"""The modules of a stack of pre-norm blocks: attention of any grouping, latent
attention, and the block with its norms around attention and FFN.

Plain eager PyTorch, biases as the spec says. There is no position encoding; latent
attention keeps the element that it would turn (`rope`), and leaves it as it is.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ffnbench.ffn.modules import Device, OwnModule
from ffnbench.ffn.spec import AttentionSpec, MLASpec, Norm


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


class Trunk(nn.Module):
    """A layer without its FFN: attention, and the norms before it and before the FFN.
    Stacks with different FFNs share it.
    """

    def __init__(
        self,
        attention: AttentionSpec,
        norm: Norm,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        kind = nn.LayerNorm if norm is Norm.LAYER else nn.RMSNorm
        width = attention.d_model
        self.attention = Attention(attention, device=device, dtype=dtype)
        self.attention_norm = kind(width, device=device, dtype=dtype)
        self.ffn_norm = kind(width, device=device, dtype=dtype)


class Block(nn.Module):
    """A pre-norm block. x and the result are (batch, seq_len, d_model)."""

    def __init__(self, trunk: Trunk, ffn: nn.Module) -> None:
        super().__init__()
        self.trunk, self.ffn = trunk, ffn

    def forward(self, x: Tensor) -> Tensor:
        trunk = self.trunk
        x = x + trunk.attention(trunk.attention_norm(x))
        y: Tensor = x + self.ffn(trunk.ffn_norm(x))
        return y


class Stack(nn.Sequential):
    """Blocks one after another."""
