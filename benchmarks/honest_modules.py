"""Modules of users as they are written in earnest, none of which may be accused: for benchmarks/honest_rows.py.

Each takes `d_model, d_ff`. They keep buffers and caches, mix tokens, draw random numbers, give views, have routers.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint


class Plain(nn.Module):
    """SwiGLU; the others begin with it."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.gate = nn.Linear(d_model, d_ff, bias=False)
        self.up = nn.Linear(d_model, d_ff, bias=False)
        self.down = nn.Linear(d_ff, d_model, bias=False)

    def mlp(self, x: Tensor) -> Tensor:
        """The SwiGLU."""
        return self.down(F.silu(self.gate(x)) * self.up(x))

    def forward(self, x: Tensor) -> Tensor:
        return self.mlp(x)


class RunningMean(Plain):
    """A batch norm before it: running statistics move in train mode."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__(d_model, d_ff)
        self.norm = nn.BatchNorm1d(d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.mlp(self.norm(x.reshape(-1, x.shape[-1])).view(x.shape))


class Spectral(Plain):
    """Spectral norm: a power iteration in each call of train mode."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__(d_model, d_ff)
        parametrizations.spectral_norm(self.up)


class Counted(Plain):
    """Counts its calls in a buffer of integers."""

    seen: Tensor

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__(d_model, d_ff)
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        self.seen += 1
        return self.mlp(x)


class Rotary(Plain):
    """Turns its input by position, with a table that is made at the first call for a length."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__(d_model, d_ff)
        self.tables: dict[tuple[int, torch.dtype], tuple[Tensor, Tensor]] = {}

    def forward(self, x: Tensor) -> Tensor:
        length, half = x.shape[1], x.shape[-1] // 2
        if (length, x.dtype) not in self.tables:
            turns = torch.outer(torch.arange(length).double(), 10000 ** -(torch.arange(half).double() / half))
            self.tables[length, x.dtype] = (turns.cos().to(x.dtype), turns.sin().to(x.dtype))
        cos, sin = self.tables[length, x.dtype]
        a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
        return self.mlp(torch.cat([a * cos - b * sin, a * sin + b * cos, rest], -1))


class Packed(nn.Module):
    """Packs gate and up into one weight at its first call in eval mode, and keeps that."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.plain = Plain(d_model, d_ff)
        self.joined: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            return self.plain(x)
        if self.joined is None or self.joined.dtype != x.dtype:
            self.joined = torch.cat([self.plain.gate.weight, self.plain.up.weight]).detach()
        g, u = F.linear(x, self.joined).chunk(2, -1)
        return self.plain.down(F.silu(g) * u)


class ShortConvolution(Plain):
    """A causal depthwise convolution over the tokens before it."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__(d_model, d_ff)
        self.mix = nn.Conv1d(d_model, d_model, 4, groups=d_model, padding=3)

    def forward(self, x: Tensor) -> Tensor:
        return self.mlp(self.mix(x.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))


class Lazy(nn.Module):
    """Weights that are made at the first call."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.up, self.down = nn.LazyLinear(d_ff), nn.LazyLinear(d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)))


class ViewGiven(nn.Module):
    """Its output is a view of something larger."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.d_model, self.up, self.down = d_model, nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model + 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.relu(self.up(x)))[..., : self.d_model]


class ChannelsFirst(nn.Module):
    """Convolutions of width 1: its output is turned, and not contiguous."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.up, self.down = nn.Conv1d(d_model, d_ff, 1), nn.Conv1d(d_ff, d_model, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x.transpose(1, 2)))).transpose(1, 2)


class InPlace(Plain):
    """Works in place on what it has made itself."""

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.silu(self.gate(x), inplace=not torch.is_grad_enabled())
        return self.down(hidden.mul_(self.up(x)) if not torch.is_grad_enabled() else hidden * self.up(x))


class MovingScalar(Plain):
    """A mean in a buffer of no dimension, which training moves and the output does not depend on."""

    mean: Tensor

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__(d_model, d_ff)
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.mean.lerp_(x.detach().mean().to(self.mean.dtype), 0.1)
        return self.mlp(x)


class OwnRouter(nn.Module):
    """Four experts of which each token asks two, by scores of its own."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.router = nn.Linear(d_model, 4, bias=False)
        self.experts = nn.ModuleList(Plain(d_model, max(1, d_ff // 4)) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        weights, chosen = self.router(flat).softmax(-1).topk(2, -1)
        y = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            token, place = (chosen == number).nonzero(as_tuple=True)
            if len(token):
                y = y.index_add(0, token, weights[token, place, None] * expert(flat[token]))
        return y.view(x.shape)


class Dropped(Plain):
    """Dropout on the hidden layer and on the output, in train mode."""

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.dropout(F.silu(self.gate(x)) * self.up(x), 0.2, self.training)
        return F.dropout(self.down(hidden), 0.1, self.training)


class Noisy(Plain):
    """Draws noise in each call, in eval mode as well."""

    def forward(self, x: Tensor) -> Tensor:
        return self.mlp(x + 0.1 * torch.randn_like(x))


class Recomputed(Plain):
    """Its hidden layer is computed again in backward."""

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.mlp, x, use_reentrant=False) if torch.is_grad_enabled() else self.mlp(x)


class RootMean(Plain):
    """An RMS norm that is computed in float32 at least, as Llama has it."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__(d_model, d_ff)
        self.scale = nn.Parameter(torch.ones(d_model))

    def forward(self, x: Tensor) -> Tensor:
        v = x if x.dtype == torch.float64 else x.float()
        return self.mlp(self.scale * (v * (v.square().mean(-1, keepdim=True) + 1e-6).rsqrt()).to(x.dtype))


class Tied(Plain):
    """One weight for gate and up."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__(d_model, d_ff)
        self.up.weight = self.gate.weight


class LowRankAdapter(Plain):
    """A frozen weight beside an adapter that begins with zeros."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__(d_model, d_ff)
        self.down.weight.requires_grad_(False)
        self.a, self.b = nn.Linear(d_ff, 8, bias=False), nn.Linear(8, d_model, bias=False)
        nn.init.zeros_(self.b.weight)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.silu(self.gate(x)) * self.up(x)
        return self.down(hidden) + self.b(self.a(hidden))


class ZeroAtFirst(Plain):
    """Its output is zero at its declared init, as residual branches begin."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__(d_model, d_ff)
        nn.init.zeros_(self.down.weight)


class Skipping(Plain):
    """Skips sequences that are padding."""

    def forward(self, x: Tensor) -> Tensor:
        full = (x != 0).any(-1).any(-1)
        return self.mlp(x) if bool(full.all()) else x


class Quantised(Plain):
    """Rounds its input to a grid, straight through: an honest one that says so."""

    def forward(self, x: Tensor) -> Tensor:
        rounded = (x * 16).round() / 16
        return self.mlp(x + (rounded - x).detach())
