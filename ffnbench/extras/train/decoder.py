"""The modules of a language model of bytes: its blocks, and all of it. `where` is the
device and the dtype of weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ffnbench.ffn.attention_module import Attention
from ffnbench.ffn.spec import AttentionSpec

VOCABULARY = 256  # a token is a byte
ROTARY_BASE = 10_000.0
NORM_EPSILON = 1e-6
EMBEDDING_STD = 0.02  # of the vectors of bytes, before they are trained


class RotaryAttention(Attention):
    """Causal self-attention with rotary positions: in the queries and keys of a head,
    each element of the first half is rotated together with that of the second half.
    """

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values by head, the first two rotated by position."""
        q, k, v = super().heads(x)
        seq_len, head_dim = x.shape[1], q.shape[-1]
        where: dict[str, Any] = {"device": x.device, "dtype": torch.float32}
        exponents = torch.arange(0, head_dim, 2, **where) / head_dim
        positions = torch.arange(seq_len, **where)
        angles = positions[:, None] * ROTARY_BASE**-exponents
        angles = torch.cat((angles, angles), dim=-1)
        cos, sin = angles.cos().to(q.dtype), angles.sin().to(q.dtype)
        return _rotated(q, cos, sin), _rotated(k, cos, sin), v


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Norm(nn.Module):
    """RMSNorm with a weight."""

    def __init__(self, width: int, **where: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width, **where))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, NORM_EPSILON)


class Block(nn.Module):
    """Attention and FFN, each with a norm before it, and added to what it was given."""

    def __init__(self, attention: AttentionSpec, **where: Any) -> None:
        super().__init__()
        self.norms = nn.ModuleList(Norm(attention.d_model, **where) for _ in range(2))
        self.attention = RotaryAttention(attention, **where)
        self.ffn: nn.Module = nn.Identity()  # until Decoder gives it its own

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norms[0](x))
        y: Tensor = x + self.ffn(self.norms[1](x))
        return y


class Decoder(nn.Module):
    """All blocks, and a norm behind them. x and the result are (batch, seq_len,
    d_model).

    `make_ffn` gives an FFN. What all variants share draws its weights first, and the
    FFNs after that: so the same seed gives all variants the same attention.
    """

    def __init__(
        self,
        attention: AttentionSpec,
        layers: int,
        make_ffn: Callable[[], nn.Module],
        **where: Any,
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(attention, **where) for _ in range(layers))
        self.norm = Norm(attention.d_model, **where)
        for block in self.blocks:
            block.ffn = make_ffn()

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        y: Tensor = self.norm(x)
        return y


class LanguageModel(nn.Module):
    """A model from bytes (batch, seq_len) to the logits of the next ones (batch,
    seq_len, 256). `make_decoder` gives its blocks, whose weights are drawn last.
    """

    def __init__(
        self, d_model: int, make_decoder: Callable[[], nn.Module], **where: Any
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, d_model, **where)
        nn.init.normal_(self.embed.weight, std=EMBEDDING_STD)
        self.head = nn.Linear(d_model, VOCABULARY, bias=False, **where)
        self.decoder = make_decoder()

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.head(self.decoder(self.embed(tokens)))
        return logits
