"""A gated form with gate and up in one matrix product, as many published models have
it. Needs torch.

The joined weight has the rows of gate and then those of up (Phi-3's gate_up_proj), or
those of up first. Both orders compute the same function. The two halves of the
product's output are strided views.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from ffnbench.common.errors import FfnbenchError, Unsupported
from ffnbench.ffn.experts import ExpertLinear
from ffnbench.ffn.modules import (
    GatedFeedForward,
    OwnForm,
)
from ffnbench.ffn.proof import nearest_proof, proof_of_like, tolerance_of
from ffnbench.ffn.spec import ImportedSpec
from ffnbench.plan.plan import AnySpec


class JoinedFeedForward(GatedFeedForward):
    """A gated form with its own layers, gate and up joined: `down(act(g) * up_act(u))`
    where g and u are the halves of `gate_up(x)`. `gate_first` says which half is g.
    """

    gate_up: Any

    def __init__(self, form: GatedFeedForward, *, gate_first: bool) -> None:
        # on the meta device its layers take no memory; all of them are replaced
        super().__init__(form.spec, device="meta")
        del self._modules["gate"], self._modules["up"]
        self.gate_first = gate_first
        if gate_first:
            self.gate_up = _joined(form.gate, form.up)
        else:
            self.gate_up = _joined(form.up, form.gate)
        self.down = form.down
        self.drop, self.norm = form.drop, form.norm
        for name in self.spec.learned:
            setattr(self, name, getattr(form, name))
        self.train(form.training)

    def hidden(self, x: Tensor) -> Tensor:
        """What enters the down projection, (..., d_ff)."""
        first, second = self.gate_up(x).split(self.spec.d_ff, dim=-1)
        if self.gate_first:
            g, u = first, second
        else:
            u, g = first, second
        return self.act(g) * self.up_act(u)

    @property
    def gate(self) -> SimpleNamespace:
        """The rows of gate: weight and bias, views of the joined ones."""
        return self._half(first=self.gate_first)

    @property
    def up(self) -> SimpleNamespace:
        """The rows of up."""
        return self._half(first=not self.gate_first)

    def _half(self, *, first: bool) -> SimpleNamespace:
        half = 0 if first else 1
        weight, bias = self.gate_up.weight, self.gate_up.bias
        if bias is not None:
            bias = bias.chunk(2, dim=-1)[half]
        return SimpleNamespace(weight=weight.chunk(2, dim=-2)[half], bias=bias)


def pack_gate_and_up(module: nn.Module, ffn: AnySpec, *, gate_first: bool) -> nn.Module:
    """The module with gate and up in one product. A form of ffnbench's is changed in
    place; code of the user's that is said to be a form is replaced by that form.

    Raises Unsupported for a module without a gate, and where the user's code computes
    something else than the form.
    """
    if isinstance(ffn, ImportedSpec) and ffn.like is not None:
        module = own_form_of(module, ffn)
    return join(module, gate_first=gate_first)


def own_form_of(module: nn.Module, spec: ImportedSpec) -> nn.Module:
    """The module of the form that code of the user's is said to be, on the weights of
    the user's module; raises Unsupported where that one does not compute the same.
    """
    assert spec.like is not None
    try:
        proof = proof_of_like(module, spec)
    except FfnbenchError as problem:
        raise Unsupported(problem.message) from problem
    if any(isinstance(part, nn.Dropout) and part.p for part in module.modules()):
        raise Unsupported(
            f"{spec.target} has dropout, which {spec.like.name} would leave out"
        )
    _, error = nearest_proof(module, [spec.like])
    weight = next(module.parameters())
    if not error <= tolerance_of(weight.dtype):
        raise Unsupported(
            f"{spec.target} is not like {spec.like.name}: its output differs by {error:.1e}"
        )
    ours = proof.form_on({name: p.detach() for name, p in module.named_parameters()})
    return ours.requires_grad_()  # it may be trained, as any other


def join(module: nn.Module, *, gate_first: bool) -> nn.Module:
    """Join gate and up of a module in place, with the values of its weights, and return
    it; raises Unsupported for a module without a gate.
    """
    forms = [part for part in module.modules() if type(part) is GatedFeedForward]
    if not forms or not isinstance(module, OwnForm):
        raise Unsupported(
            "it has no gate beside its up projection that the two could be one product"
        )
    joined_forms = {
        form: JoinedFeedForward(form, gate_first=gate_first) for form in forms
    }
    return with_parts_replaced(module, joined_forms)


def with_parts_replaced(
    module: nn.Module, replacements: Mapping[Any, nn.Module]
) -> nn.Module:
    """Replace parts of a module in place, wherever they occur in it, and return it; or
    its own replacement, if it has one.
    """
    for parent in list(module.modules()):
        for name, part in list(parent._modules.items()):
            if part in replacements:
                setattr(parent, name, replacements[part])
    return replacements.get(module, module)


def _joined(first: Any, second: Any) -> Any:
    """One layer with the rows of two linear layers, those of `first` first."""
    more = {}
    if isinstance(first, ExpertLinear):
        more = {"experts": len(first.weight), "rows": first.rows}
    *_, fan_out, fan_in = first.weight.shape
    layer = type(first)(
        fan_in, 2 * fan_out, bias=first.bias is not None, device="meta", **more
    )
    layer.weight = nn.Parameter(
        torch.cat([first.weight.detach(), second.weight.detach()], dim=-2)
    )
    if first.bias is not None:
        layer.bias = nn.Parameter(
            torch.cat([first.bias.detach(), second.bias.detach()], dim=-1)
        )
    return layer
