"""A gated form with gate and up in one matrix product, as many published models have it. Needs torch.

The joined weight has the rows of gate and then those of up (Phi-3's gate_up_proj), or those of up first: both orders
are the same function, and the halves of the product's output are strided.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from ffnbench.common.errors import FfnbenchError, Unsupported
from ffnbench.ffn.experts import ExpertLinear
from ffnbench.ffn.like import layout_as_said, on_weights, output_of, relative_error, tolerance_of
from ffnbench.ffn.modules import ClampedFeedForward, GatedFeedForward, OwnForm, reference_output
from ffnbench.ffn.spec import ImportedSpec
from ffnbench.plan import AnySpec


class JoinedFeedForward(ClampedFeedForward):
    """`down(act(g) * u)` where g and u are the halves of `gate_up(x)`; `gate_first` says which is the first."""

    gate_up: Any
    gate_first: bool

    def hidden(self, x: Tensor) -> Tensor:
        """What enters the down projection, (..., d_ff)."""
        halves = self.gate_up(x).split(self.spec.d_ff, dim=-1)
        g, u = halves if self.gate_first else reversed(halves)
        return self.act(self._limited_gate(g)) * self._limited_up(u)

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


def joined(module: nn.Module, ffn: AnySpec, *, gate_first: bool) -> nn.Module:
    """The module with gate and up in one product, in place but for code of the user's that is said to be a form, which
    that form takes the place of; raises Unsupported without a gate, or where that code computes something else.
    """
    if isinstance(ffn, ImportedSpec) and ffn.like is not None:
        module = _own(module, ffn)
    return join(module, gate_first=gate_first)


def _own(module: nn.Module, spec: ImportedSpec) -> nn.Module:
    """Our module on the weights of theirs; raises Unsupported where theirs does not compute the same."""
    weight = next(module.parameters(), torch.empty(0))
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 16, spec.d_model, generator=generator).to(weight.device, weight.dtype)
    try:
        ours = on_weights(layout_as_said(module, spec, x), module)
    except FfnbenchError as problem:
        raise Unsupported(problem.message) from problem
    assert spec.like is not None
    if any(isinstance(part, nn.Dropout) and part.p for part in module.modules()):
        raise Unsupported(f"{spec.target} has dropout, which {spec.like.name} would leave out")
    error = relative_error(output_of(module, x.clone()), reference_output(ours, x))
    if not error <= tolerance_of(x.dtype):
        raise Unsupported(f"{spec.target} is not like {spec.like.name}: its output differs by {error:.1e}")
    return ours.requires_grad_()  # to be trained as any other


def join(module: nn.Module, *, gate_first: bool) -> nn.Module:
    """The module with gate and up joined, in place, its weights as they were; raises Unsupported without a gate."""
    forms = [part for part in module.modules() if type(part) in (GatedFeedForward, ClampedFeedForward)]
    if not forms or not isinstance(module, OwnForm):
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
        more = {"experts": len(first.weight), "rows": first.rows}
    *_, fan_out, fan_in = first.weight.shape
    layer: nn.Module = type(first)(fan_in, 2 * fan_out, bias=first.bias is not None, device="meta", **more)
    for name, dim in (("weight", -2), ("bias", -1)):
        if getattr(first, name) is not None:
            rows = torch.cat([getattr(first, name).detach(), getattr(second, name).detach()], dim)
            setattr(layer, name, nn.Parameter(rows))
    return layer
