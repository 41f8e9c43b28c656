"""FFNs of transformers that are no module of one input, as one. Imported in workers only."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn


class Projections(nn.Module):
    """The FFN of a layer that has no class for it (BERT, BART): maps (..., d_model) to (..., d_model).

    The layer's own projections with its activation between them; no dropout, no residual, no norm.
    """

    def __init__(self, fc1: nn.Module, act: Callable[[Tensor], Tensor], fc2: nn.Module) -> None:
        super().__init__()
        self.fc1, self.fc2, self.act = fc1, fc2, act

    def forward(self, x: Tensor) -> Tensor:
        """x: (..., d_model)."""
        return self.fc2(self.act(self.fc1(x)))


class WithoutResidual(nn.Module):
    """An MLP whose forward takes the residual as well and adds it (bloom, mpt): with zero for it."""

    def __init__(self, mlp: nn.Module) -> None:
        super().__init__()
        self.mlp = mlp

    def forward(self, x: Tensor) -> Tensor:
        """x: (..., d_model)."""
        return self.mlp(x, x.new_zeros(()))
