"""The modules: one class a form, plain eager PyTorch, bias and widths exactly as the spec says.

Weights are named gate, up and down (w1, w3 and w2 in Llama's code). Both factors of a product are asserted to
have one shape: the line `down(silu(up(x))) * gate(x)` with a misplaced parenthesis, seen in the wild, would
otherwise broadcast or run in silence when d_ff equals d_model.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ffnbench.errors import FfnbenchError
from ffnbench.ffn.spec import ActivationSpec, FFNSpec, Gate, Init


class FeedForward(nn.Module):
    """The classic form: `down(act(up(x)))`. x and the result are (..., d_model)."""

    def __init__(
        self, spec: FFNSpec, *, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        self.spec = spec
        self._apply_activation = spec.row.apply
        self._beta = 1.0 if spec.beta is None else spec.beta
        for name, fan_out, fan_in in self.matrices(spec):
            setattr(self, name, nn.Linear(fan_in, fan_out, bias=spec.bias, device=device, dtype=dtype))
        self.drop = nn.Dropout(spec.dropout) if spec.dropout else None
        self.reset_parameters()

    @staticmethod
    def matrices(spec: FFNSpec) -> list[tuple[str, int, int]]:
        """Name, rows and columns of each weight."""
        return [("up", spec.d_ff, spec.d_model), ("down", spec.d_model, spec.d_ff)]

    def reset_parameters(self) -> None:
        """Fill the weights as spec.init says; nn.Linear's own default needs nothing more."""
        if self.spec.init is Init.TORCH:
            return
        for name, _, _ in self.matrices(self.spec):
            layer = getattr(self, name)
            if self.spec.init is Init.NORMAL:
                nn.init.normal_(layer.weight, std=0.02)
            elif name == "down":
                nn.init.xavier_normal_(layer.weight, gain=0.02)
            else:
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)

    def act(self, x: Tensor) -> Tensor:
        """The activation, element by element."""
        return self._apply_activation(F, x, self._beta)

    def hidden(self, x: Tensor) -> Tensor:
        """What enters the down projection, (..., d_ff). Nested so that no temporary outlives its use."""
        return self.act(self.up(x))

    def project(self, hidden: Tensor) -> Tensor:
        """Dropout, where there is any, and the down projection."""
        if self.drop is not None:
            hidden = self.drop(hidden)  # rebinding lets the undropped tensor go before the projection
        return self.down(hidden)

    def forward(self, x: Tensor) -> Tensor:
        return self.project(self.hidden(x))

    def extra_repr(self) -> str:
        return self.spec.name


class GatedFeedForward(FeedForward):
    """The gated form: `down(act(gate(x)) * up(x))` (Shazeer 2020)."""

    @staticmethod
    def matrices(spec: FFNSpec) -> list[tuple[str, int, int]]:
        """Name, rows and columns of each weight."""
        d, h = spec.d_model, spec.d_ff
        return [("gate", h, d), ("up", h, d), ("down", d, h)]

    def hidden(self, x: Tensor) -> Tensor:
        return product(self.act(self.gate(x)), self.up(x))


class OutputGatedFeedForward(FeedForward):
    """The output-gated form: `down(act(up(x))) * gate(x)` with a gate of d_model x d_model."""

    @staticmethod
    def matrices(spec: FFNSpec) -> list[tuple[str, int, int]]:
        """Name, rows and columns of each weight."""
        d, h = spec.d_model, spec.d_ff
        return [("up", h, d), ("down", d, h), ("gate", d, d)]

    def forward(self, x: Tensor) -> Tensor:
        return product(self.project(self.hidden(x)), self.gate(x))


class Pointwise(nn.Module):
    """An activation by itself, element by element."""

    def __init__(self, spec: ActivationSpec) -> None:
        super().__init__()
        self._apply_activation = spec.row.apply
        self._beta = 1.0 if spec.beta is None else spec.beta

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self._apply_activation(F, x, self._beta)
        return y


_FORMS = {Gate.NONE: FeedForward, Gate.INNER: GatedFeedForward, Gate.OUTPUT: OutputGatedFeedForward}


def product(a: Tensor, b: Tensor) -> Tensor:
    """Element-wise product that never broadcasts; raises FfnbenchError naming the misplaced parenthesis."""
    if a.shape != b.shape:
        raise FfnbenchError(
            f"the two factors of a gated FFN have shapes {tuple(a.shape)} and {tuple(b.shape)}",
            "is a parenthesis misplaced? The standard form is down(act(gate(x)) * up(x))",
        )
    return a * b


def build_module(
    spec: FFNSpec, *, device: torch.device | str | None = None, dtype: torch.dtype | None = None
) -> FeedForward:
    """The nn.Module of a spec, weights filled from torch's global generator."""
    return _FORMS[spec.gate](spec, device=device, dtype=dtype)


def reference_output(module: FeedForward, x: Tensor) -> Tensor:
    """The same function in float64, written apart from `forward`: plain matrix products on float64 copies."""

    def linear(name: str, v: Tensor) -> Tensor:
        layer = getattr(module, name)
        y = v @ layer.weight.detach().double().T
        return y if layer.bias is None else y + layer.bias.detach().double()

    spec, x = module.spec, x.detach().double()
    act = module.act
    if spec.gate is Gate.INNER:
        return linear("down", act(linear("gate", x)) * linear("up", x))
    y = linear("down", act(linear("up", x)))
    return y * linear("gate", x) if spec.gate is Gate.OUTPUT else y
