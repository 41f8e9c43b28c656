"""A gated form with gate and up in one matrix product, as many published models have it. Needs torch.

The joined weight has the rows of gate and then those of up (Phi-3's gate_up_proj), or those of up first: both orders
are the same function, and the halves of the product's output are strided.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from ffnbench.errors import Unsupported
from ffnbench.ffn.dense import ClampedFeedForward, FeedForward, GatedFeedForward
from ffnbench.ffn.experts import ExpertLinear, MixtureOfExperts


class JoinedFeedForward(ClampedFeedForward):
    """`down(act(g) * u)` where g and u are the halves of `gate_up(x)`; `gate_first` says which is the first."""

    gate_up: Any
    gate_first: bool

    def hidden(self, x: Tensor) -> Tensor:
        """What enters the down projection, (..., d_ff)."""
        halves = self.gate_up(x).split(self.spec.d_ff, dim=-1)
        g, u = halves if self.gate_first else reversed(halves)
        return self.act(self._limited(g)) * self._limited_up(u)

    @property
    def gate(self) -> Any:
        """The rows of gate: weight and bias, views of the joined ones."""
        return self._half(first=self.gate_first)

    @property
    def up(self) -> Any:
        """The rows of up."""
        return self._half(first=not self.gate_first)

    def _half(self, *, first: bool) -> SimpleNamespace:
        def rows(tensor: Tensor | None, dim: int) -> Tensor | None:
            return None if tensor is None else tensor.chunk(2, dim)[0 if first else 1]

        return SimpleNamespace(weight=rows(self.gate_up.weight, -2), bias=rows(self.gate_up.bias, -1))


def join(module: nn.Module, *, gate_first: bool) -> nn.Module:
    """The module with gate and up joined, in place, its weights as they were; raises Unsupported without a gate."""
    forms = [part for part in module.modules() if type(part) in (GatedFeedForward, ClampedFeedForward)]
    if not forms or not isinstance(module, FeedForward | MixtureOfExperts):
        raise Unsupported("it has no gate beside its up projection that the two could be one product")
    for form in forms:
        gate_up = _joined(*((form.gate, form.up) if gate_first else (form.up, form.gate)))
        del form.gate, form.up
        form.__class__ = JoinedFeedForward
        form.gate_up, form.gate_first = gate_up, gate_first
    return module


def _joined(first: Any, second: Any) -> nn.Module:
    """One layer with the rows of both."""
    more = {}
    if isinstance(first, ExpertLinear):
        more = {"experts": len(first.weight), "turn": first.turn}
    *_, fan_out, fan_in = first.weight.shape
    layer: nn.Module = type(first)(fan_in, 2 * fan_out, bias=first.bias is not None, device="meta", **more)
    for name, dim in (("weight", -2), ("bias", -1)):
        if getattr(first, name) is not None:
            rows = torch.cat([getattr(first, name).detach(), getattr(second, name).detach()], dim)
            setattr(layer, name, nn.Parameter(rows))
    return layer
