"""Modules of the usual notes on FFNs, which docs/student.md measures."""

import torch
import torch.nn.functional as F
from torch import nn


class SwiGLU(nn.Module):
    """The gated form of Shazeer (2020), as Llama's code names its matrices."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.w1 = nn.Linear(d_model, d_ff, bias=False)
        self.w2 = nn.Linear(d_ff, d_model, bias=False)
        self.w3 = nn.Linear(d_model, d_ff, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Misplaced(SwiGLU):
    """The same with a parenthesis in the wrong place, as some notes print it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w2(F.silu(self.w1(x))) * self.w3(x)


class Shifted(nn.Module):
    """A classic FFN whose ReLUs hardly ever fire: every bias of the first layer is
    `shift` standard deviations of its pre-activation.
    """

    def __init__(self, d_model: int, d_ff: int, shift: float = -3.0) -> None:
        super().__init__()
        self.up = nn.Linear(d_model, d_ff)
        self.down = nn.Linear(d_ff, d_model, bias=False)
        # weights U(-1/sqrt(d_model), 1/sqrt(d_model)) and x ~ N(0, 1): variance 1/3
        with torch.no_grad():
            self.up.bias.fill_(shift / 3**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(x)))


class FeedForward(nn.Module):
    """A classic FFN that takes ReLU for any name but "gelu", as some notes print it."""

    def __init__(self, d_model: int, d_ff: int, activation: str = "gelu") -> None:
        super().__init__()
        self.linear1 = nn.Linear(d_model, d_ff)
        self.linear2 = nn.Linear(d_ff, d_model)
        self.activation = F.gelu if activation == "gelu" else F.relu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear2(self.activation(self.linear1(x)))
