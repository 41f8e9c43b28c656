"""A classic ReLU network whose units are pushed towards silence (docs/claims.md)."""

import torch
from torch import nn


class Shifted(nn.Module):
    """down(relu(up(x))) with every bias of up at `shift` standard deviations of its
    pre-activation.
    """

    def __init__(self, d_model: int, d_ff: int, shift: float = -3.0) -> None:
        super().__init__()
        self.up, self.down = (
            nn.Linear(d_model, d_ff),
            nn.Linear(d_ff, d_model, bias=False),
        )
        with torch.no_grad():
            self.up.bias.fill_(
                shift / 3**0.5
            )  # weights U(+-1/sqrt(d_model)), x ~ N(0, 1): variance 1/3

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(x)))
