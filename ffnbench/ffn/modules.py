"""The dense modules: one class a form, plain eager PyTorch, bias and widths exactly as
the spec says. And what they should compute: the same function in float64, by other
code.

Weights are named gate, up and down (w1, w3 and w2 in Llama's code).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import skip_init

from ffnbench.common.choices import Init
from ffnbench.ffn.spec import ActivationSpec, FFNSpec, Gate

Device: TypeAlias = torch.device | str | None
# (fan_in, fan_out, bias=, device=, dtype=) -> a linear layer, or one of every expert
MakeLinear = Callable[..., nn.Module]
# How many numbers of a large weight are drawn; the rest repeats them. It is a prime, so
# that no two rows are alike.
DRAWN = 4_194_301


def default_linear(
    fan_in: int,
    fan_out: int,
    *,
    bias: bool,
    device: Device = None,
    dtype: torch.dtype | None = None,
) -> nn.Linear:
    """nn.Linear with its default init, U(-1, 1) / sqrt(fan_in). Of a large weight only
    DRAWN numbers are drawn, and repeated: to draw 45 million takes 0.3 s.
    """
    place = torch.device(device or torch.get_default_device())
    if fan_in * fan_out <= DRAWN or place.type == "meta":
        return nn.Linear(fan_in, fan_out, bias=bias, device=place, dtype=dtype)
    layer = skip_init(nn.Linear, fan_in, fan_out, bias=bias, device=place, dtype=dtype)
    bound = fan_in**-0.5
    with torch.no_grad():
        flat = layer.weight.view(-1)
        drawn = flat[:DRAWN].uniform_(-bound, bound)
        for block in flat[DRAWN:].split(DRAWN):
            block.copy_(drawn[: len(block)])
        if layer.bias is not None:
            layer.bias.uniform_(-bound, bound)
    return layer


class OwnModule(nn.Module):
    """A module of ffnbench's own, the one that `spec` describes."""

    spec: Any


class OwnForm(OwnModule):
    """The module of a form of FFN, or of experts of one form. x and the result are
    (..., d_model).
    """

    def reference(self, x: Tensor, chosen: Tensor | None = None) -> Tensor:
        """What the module should give for an x in float64; with a graph where autograd
        is on. `chosen` (tokens, top_k) are the experts that the module itself chose: to
        be given where x is a part of what it was called with.
        """
        raise NotImplementedError


class FeedForward(OwnForm):
    """The classic form: `down(act(up(x)))`. x and the result are (..., d_model)."""

    def __init__(
        self,
        spec: FFNSpec,
        *,
        linear: MakeLinear = default_linear,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.spec = spec
        self._apply_activation = spec.row.apply
        self._beta = 1.0 if spec.beta is None else spec.beta
        for name, (fan_out, fan_in) in spec.matrices.items():
            setattr(
                self,
                name,
                linear(fan_in, fan_out, bias=spec.bias, device=device, dtype=dtype),
            )
        for name, start in spec.row.learned:
            setattr(
                self,
                name,
                nn.Parameter(torch.tensor(start, device=device, dtype=dtype)),
            )
        self.drop = nn.Dropout(spec.dropout) if spec.dropout else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Fill the weights as spec.init says, each expert's by itself; those of
        Init.TORCH are filled already.
        """
        if self.spec.init is Init.TORCH:
            return
        for name in self.spec.matrices:
            layer = getattr(self, name)
            for matrix in layer.weight.detach().view(-1, *layer.weight.shape[-2:]):
                fill(matrix, self.spec.init, down=name == "down")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)

    def act(self, x: Tensor) -> Tensor:
        """The activation, element by element."""
        learned = [getattr(self, name).to(x.dtype) for name, _ in self.spec.row.learned]
        return self._apply_activation(F, x, self._beta, *learned)

    def hidden(self, x: Tensor) -> Tensor:
        """What enters the down projection, (..., d_ff). The calls are nested so that no
        temporary outlives its use.
        """
        return self.act(self.up(x))

    def project(self, hidden: Tensor) -> Tensor:
        """Dropout, where there is any, and the down projection."""
        if self.drop is not None:
            # rebinding lets the undropped tensor go before the projection
            hidden = self.drop(hidden)
        return self.down(hidden)

    def forward(self, x: Tensor) -> Tensor:
        return self.project(self.hidden(x))

    def reference(self, x: Tensor, chosen: Tensor | None = None) -> Tensor:
        """As OwnForm says; a dense module has no experts to choose."""
        return dense_reference(self, x)

    def extra_repr(self) -> str:
        return self.spec.name


class GatedFeedForward(FeedForward):
    """The gated form: `down(act(gate(x)) * up(x))` (Shazeer 2020)."""

    def hidden(self, x: Tensor) -> Tensor:
        return self.act(self.gate(x)) * self.up(x)


class ClampedFeedForward(GatedFeedForward):
    """The gated form with limits: `down(act(min(gate(x), limit)) * (clamp(up(x),
    -limit, limit) + offset))`.
    """

    def hidden(self, x: Tensor) -> Tensor:
        return self.act(self._limited_gate(self.gate(x))) * self._limited_up(self.up(x))

    def _limited_gate(self, g: Tensor) -> Tensor:
        if self.spec.limit is None:
            return g
        return g.clamp(max=self.spec.limit)

    def _limited_up(self, u: Tensor) -> Tensor:
        if self.spec.limit is not None:
            u = u.clamp(-self.spec.limit, self.spec.limit)
        if self.spec.up_offset:
            u = u + self.spec.up_offset
        return u


class OutputGatedFeedForward(FeedForward):
    """The output-gated form: `down(act(up(x))) * gate(x)` with a gate of d_model x
    d_model.
    """

    def forward(self, x: Tensor) -> Tensor:
        return self.project(self.hidden(x)) * self.gate(x)


_FORMS = {
    Gate.NONE: FeedForward,
    Gate.INNER: GatedFeedForward,
    Gate.OUTPUT: OutputGatedFeedForward,
}


def build_dense(
    spec: FFNSpec,
    *,
    linear: MakeLinear = default_linear,
    device: Device = None,
    dtype: torch.dtype | None = None,
) -> FeedForward:
    """The module of a spec without experts. Its weights are drawn from torch's global
    generator.
    """
    form = _FORMS[spec.gate]
    if spec.limit is not None or spec.up_offset:
        form = ClampedFeedForward
    return form(spec, linear=linear, device=device, dtype=dtype)


def fill(matrix: Tensor, init: Init, *, down: bool) -> None:
    """Fill one weight matrix in place: by N(0, 0.02), or for Init.HE_XAVIER by He's
    init, and by Xavier's times 0.02 where it projects down.
    """
    if init is Init.NORMAL:
        nn.init.normal_(matrix, std=0.02)
    elif down:
        nn.init.xavier_normal_(matrix, gain=0.02)
    else:
        nn.init.kaiming_normal_(matrix, nonlinearity="relu")


def linear_reference(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """What a linear layer of these weights should give for an x in float64."""
    y = x @ weight.double().T
    if bias is None:
        return y
    return y + bias.double()


def dense_reference(
    module: FeedForward,
    x: Tensor,
    expert: int | None = None,
    product: Callable[..., Tensor] = linear_reference,
) -> Tensor:
    """What a dense module, or one expert of a module of experts, should give for an x
    in float64; by other code than `forward`. `product(x, weight, bias)` gives
    the output of a linear layer.
    """

    def linear(name: str, v: Tensor) -> Tensor:
        layer = getattr(module, name)
        weight, bias = layer.weight, layer.bias
        if expert is not None:
            weight = weight[expert]
            bias = None if bias is None else bias[expert]
        return product(v, weight, bias)

    spec = module.spec
    if spec.gate is Gate.INNER:
        g, u = linear("gate", x), linear("up", x)
        if spec.limit is not None:
            g = torch.where(g > spec.limit, spec.limit, g)
            u = torch.where(u.abs() > spec.limit, spec.limit * u.sign(), u)
        return linear("down", module.act(g) * (u + spec.up_offset))
    y = linear("down", module.act(linear("up", x)))
    if spec.gate is Gate.OUTPUT:
        return y * linear("gate", x)
    return y


def reference_output(module: OwnForm, x: Tensor) -> Tensor:
    """What a module of ours should give for x (..., d_model), in float64, without a
    graph and by other code than `forward`.

    With experts, a token goes to those that the module itself chose where a choice is a
    tie to the module's own precision, and to the best by float64 everywhere else.
    """
    with torch.no_grad():
        return module.reference(x.detach().double())


class Pointwise(nn.Module):
    """The module of an activation by itself, applied element by element."""

    def __init__(self, spec: ActivationSpec) -> None:
        super().__init__()
        self._apply_activation = spec.row.apply
        self._beta = 1.0 if spec.beta is None else spec.beta

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self._apply_activation(F, x, self._beta)
        return y
