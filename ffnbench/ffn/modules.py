"""The dense modules: one class a form, plain eager PyTorch, bias and widths exactly as
the spec says. And what they should compute: the same function in float64, by other
code.

Weights are named gate, up and down (w1, w3 and w2 in Llama's code).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import skip_init
from torch.utils.checkpoint import checkpoint

from ffnbench.common.choices import Init
from ffnbench.ffn.spec import UP, ActivationSpec, Applied, FFNSpec, Gate, Norm

Device: TypeAlias = torch.device | str | None
# (fan_in, fan_out, bias=, device=, dtype=) -> a linear layer, or one of every expert
MakeLinear = Callable[..., nn.Module]
# How many numbers of a large weight are drawn; the rest repeats them. It is a prime, so
# that no two rows are alike.
MOST_DRAWN = 4_194_301
EPSILON = 1e-5  # of the norm before down, as in BitNet b1.58


def default_linear(
    fan_in: int,
    fan_out: int,
    *,
    bias: bool,
    device: Device = None,
    dtype: torch.dtype | None = None,
) -> nn.Linear:
    """nn.Linear with its default init, U(-1, 1) / sqrt(fan_in). Of a large weight only
    MOST_DRAWN numbers are drawn, and repeated: to draw 45 million takes 0.3 s.
    """
    place = torch.device(device or torch.get_default_device())
    if fan_in * fan_out <= MOST_DRAWN or place.type == "meta":
        return nn.Linear(fan_in, fan_out, bias=bias, device=place, dtype=dtype)
    layer = skip_init(nn.Linear, fan_in, fan_out, bias=bias, device=place, dtype=dtype)
    bound = fan_in**-0.5
    with torch.no_grad():
        flat = layer.weight.view(-1)
        drawn = flat[:MOST_DRAWN].uniform_(-bound, bound)
        for block in flat[MOST_DRAWN:].split(MOST_DRAWN):
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
        self._act = Applied(spec.act)
        self._up_act = None if spec.up is None else Applied(spec.up, UP)
        for name, (fan_out, fan_in) in spec.matrices.items():
            setattr(
                self,
                name,
                linear(fan_in, fan_out, bias=spec.bias, device=device, dtype=dtype),
            )
        for name, start in spec.learned.items():
            setattr(
                self,
                name,
                nn.Parameter(torch.tensor(start, device=device, dtype=dtype)),
            )
        self.drop = nn.Dropout(spec.dropout) if spec.dropout else None
        self.norm: Any = None
        if spec.subnorm is not None:
            kind = nn.RMSNorm if spec.subnorm is Norm.RMS else nn.LayerNorm
            self.norm = kind(spec.d_ff, eps=EPSILON, device=device, dtype=dtype)
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

    def learned(self, act: Applied) -> list[Tensor]:
        """The trained scalars of an activation."""
        return [getattr(self, name) for name in act.learned]

    def act(self, x: Tensor) -> Tensor:
        """The activation, element by element."""
        y: Tensor = self._act.of(F, x, self.learned(self._act))
        return y

    def hidden(self, x: Tensor) -> Tensor:
        """The hidden layer, (..., d_ff). The calls are nested so that no temporary
        outlives its use.
        """
        hidden: Tensor = self._act.of(F, self.up(x), self.learned(self._act))
        return hidden

    def project(self, hidden: Tensor) -> Tensor:
        """Dropout and a norm, where there are any, and the down projection."""
        # rebinding lets what is no longer used go before the projection
        if self.drop is not None:
            hidden = self.drop(hidden)
        if self.norm is not None:
            hidden = self.norm(hidden)
        return self.down(hidden)

    def compute(self, x: Tensor) -> Tensor:
        """What the form makes of x."""
        return self.project(self.hidden(x))

    def forward(self, x: Tensor) -> Tensor:
        """`compute` of x, or of its tiles one after another; computed again in the
        backward where the spec says so.
        """
        compute: Callable[[Tensor], Tensor] = self.compute
        if self.spec.checkpoint and torch.is_grad_enabled():
            random = self.drop is not None
            compute = partial(
                checkpoint, compute, use_reentrant=False, preserve_rng_state=random
            )
        if self.spec.tile <= 1:
            return compute(x)
        tiles = x.reshape(-1, x.shape[-1]).chunk(self.spec.tile)
        return torch.cat([compute(tile) for tile in tiles]).view(x.shape)

    def reference(self, x: Tensor, chosen: Tensor | None = None) -> Tensor:
        """As OwnForm says; a dense module has no experts to choose."""
        return dense_reference(self, x)

    def extra_repr(self) -> str:
        return self.spec.name


class GatedFeedForward(FeedForward):
    """The gated form: `down(act(gate(x)) * up(x))` (Shazeer 2020), with a second
    activation on up where the spec has one.
    """

    def up_act(self, u: Tensor) -> Tensor:
        """What the up branch gives of `up(x)`."""
        if self._up_act is None:
            return u
        y: Tensor = self._up_act.of(F, u, self.learned(self._up_act))
        return y

    def hidden(self, x: Tensor) -> Tensor:
        """The product of the two branches, (..., d_ff)."""
        act, up_act = self._act, self._up_act
        hidden: Tensor
        if up_act is None:
            hidden = act.of(F, self.gate(x), self.learned(act)) * self.up(x)
        else:
            hidden = act.of(F, self.gate(x), self.learned(act)) * up_act.of(
                F, self.up(x), self.learned(up_act)
            )
        return hidden


class OutputGatedFeedForward(FeedForward):
    """The output-gated form: `down(act(up(x))) * gate(x)` with a gate of d_model x
    d_model.
    """

    def compute(self, x: Tensor) -> Tensor:
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

    def activated(v: Tensor, act: ActivationSpec, prefix: str = "") -> Tensor:
        if act.limit is not None:
            v = torch.where(v > act.limit, act.limit, v)
        learned = [
            getattr(module, prefix + name).double() for name, _ in act.row.learned
        ]
        return act.row.apply(F, v, *act.values, *learned) + act.offset

    spec = module.spec
    if spec.gate is Gate.INNER:
        hidden = activated(linear("gate", x), spec.act)
        up = linear("up", x)
        hidden = hidden * (up if spec.up is None else activated(up, spec.up, UP))
    else:
        hidden = activated(linear("up", x), spec.act)
    if spec.subnorm is Norm.LAYER:
        hidden = hidden - hidden.mean(-1, keepdim=True)
    if module.norm is not None:
        squares = hidden.square().mean(-1, keepdim=True)
        hidden = hidden / (squares + EPSILON).sqrt() * module.norm.weight.double()
    if spec.subnorm is Norm.LAYER:
        hidden = hidden + module.norm.bias.double()
    y = linear("down", hidden)
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
