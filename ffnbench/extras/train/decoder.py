"""The modules of a language model of bytes: its blocks, and all of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ffnbench.ffn.attention_module import Attention
from ffnbench.ffn.spec import AttentionSpec

VOCABULARY = 256  # a token is a byte
BASE, EPSILON = 10_000.0, 1e-6  # of rotary positions, and of norms
SPREAD = 0.02  # standard deviation of the vectors of bytes


class RotaryAttention(Attention):
    """Causal self-attention whose queries and keys are turned by their place, halves of
    a head by halves.
    """

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """As Attention's, turned."""
        q, k, v = super().heads(x)
        head_dim = q.shape[-1]
        steps = BASE ** -(
            torch.arange(0, head_dim, 2, device=x.device, dtype=torch.float32)
            / head_dim
        )
        angles = (
            torch.arange(x.shape[1], device=x.device, dtype=torch.float32)[:, None]
            * steps
        )
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
        return F.rms_norm(x, self.weight.shape, self.weight, EPSILON)


class Block(nn.Module):
    """Attention and FFN, each with a norm before it and a sum behind it."""

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

    `make` gives an FFN. What all variants share draws its weights first, and the FFNs
    after that: so the same seed gives all variants the same attention.
    """

    def __init__(
        self,
        attention: AttentionSpec,
        layers: int,
        make: Callable[[], nn.Module],
        **where: Any,
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(attention, **where) for _ in range(layers))
        self.norm = Norm(attention.d_model, **where)
        for block in self.blocks:
            block.ffn = make()

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        y: Tensor = self.norm(x)
        return y


class LanguageModel(nn.Module):
    """Bytes (batch, seq_len) to the logits of the next ones (batch, seq_len, 256).
    `make` gives its blocks, whose weights are drawn last.
    """

    def __init__(
        self, d_model: int, make: Callable[[], nn.Module], **where: Any
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, d_model, **where)
        nn.init.normal_(self.embed.weight, std=SPREAD)
        self.head = nn.Linear(d_model, VOCABULARY, bias=False, **where)
        self.decoder = make()

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.head(self.decoder(self.embed(tokens)))
        return logits
