"""From a spec to its nn.Module, and what that should compute: the same function in float64, written apart."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ffnbench.ffn.dense import Device, FeedForward, build_dense
from ffnbench.ffn.experts import MixtureOfExperts
from ffnbench.ffn.moe import MoESpec, Scores
from ffnbench.ffn.spec import ActivationSpec, FFNSpec, Gate

OwnForm = FeedForward | MixtureOfExperts


class Pointwise(nn.Module):
    """An activation by itself, element by element."""

    def __init__(self, spec: ActivationSpec) -> None:
        super().__init__()
        self._apply_activation = spec.row.apply
        self._beta = 1.0 if spec.beta is None else spec.beta

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self._apply_activation(F, x, self._beta)
        return y


def build_module(spec: FFNSpec, *, device: Device = None, dtype: torch.dtype | None = None) -> OwnForm:
    """The nn.Module of a spec, weights filled from torch's global generator."""
    build = build_dense if spec.moe is None else MixtureOfExperts
    return build(spec, device=device, dtype=dtype)


def reference_output(module: OwnForm, x: Tensor) -> Tensor:
    """What a module of ours should give for x (..., d_model), in float64 and written apart from `forward`.

    With experts, a token goes to those that the module itself chose where a choice is a tie to the module's own
    precision, and to the best by float64 everywhere else.
    """
    with torch.no_grad():
        return reference(module, x.detach().double())


def reference(module: OwnForm, x: Tensor, chosen: Tensor | None = None) -> Tensor:
    """What a module of ours should give for an x in float64, with a graph where one is wanted. `chosen` (tokens, top_k)
    are the experts that the module itself took, where x is a part of what it was called with.
    """
    if isinstance(module, MixtureOfExperts):
        return _mixture(module, x.reshape(-1, x.shape[-1]), chosen).view(x.shape)
    return _dense(module, x)


def _dense(module: FeedForward, x: Tensor, expert: int | None = None) -> Tensor:
    """One network, or one expert of a stack of them."""

    def linear(name: str, v: Tensor) -> Tensor:
        layer = getattr(module, name)
        weight, bias = layer.weight, layer.bias
        if expert is not None:
            weight, bias = weight[expert], None if bias is None else bias[expert]
        y = v @ weight.double().T
        return y if bias is None else y + bias.double()

    spec, act = module.spec, module.act
    if spec.gate is Gate.INNER:
        g, u = linear("gate", x), linear("up", x)
        if (limit := spec.limit) is not None:
            g, u = torch.where(g > limit, limit, g), torch.where(u.abs() > limit, limit * u.sign(), u)
        return linear("down", act(g) * (u + spec.up_offset))
    y = linear("down", act(linear("up", x)))
    return y * linear("gate", x) if spec.gate is Gate.OUTPUT else y


def _mixture(module: MixtureOfExperts, x: Tensor, chosen: Tensor | None) -> Tensor:
    """Every expert that is asked, on every token, weighted by zero where it was not chosen. x is (tokens, d_model)."""
    moe = module.moe
    logits = x @ module.router.weight.double().T
    if module.router.bias is not None:
        logits = logits + module.router.bias.double()
    scores = _scores(moe, logits)
    weights = scores * _chosen(module, x, logits.detach(), chosen)
    if moe.normalised:
        weights = weights / weights.sum(-1, keepdim=True)
    weights = weights * moe.routed_scale
    asked = weights.any(0).nonzero().flatten().tolist()
    y = sum(weights[:, e, None] * _dense(module.experts, x, e) for e in asked)
    if module.shared is not None:
        shared = _dense(module.shared, x)
        if module.shared_gate is not None:
            shared = shared * (x @ module.shared_gate.weight.double().T).sigmoid()
        y = y + shared
    return y


def _scores(moe: MoESpec, logits: Tensor) -> Tensor:
    return logits.softmax(-1) if moe.scores is Scores.SOFTMAX else 1 / (1 + (-logits).exp())


def _chosen(module: MixtureOfExperts, x: Tensor, logits: Tensor, taken: Tensor | None) -> Tensor:
    """1 where a token goes to an expert, else 0; both as float64 of (tokens, experts)."""
    none = torch.zeros_like(logits)
    dtype = module.router.weight.dtype
    taken = module.choose(x.detach().to(dtype)) if taken is None else taken
    theirs = none.scatter(1, taken, 1.0)
    if module.imposed is not None:
        return theirs
    if module.moe.groups > 1:
        logits = logits.masked_fill(~_open_groups(module.moe, logits, theirs, dtype), float("-inf"))
    ours = none.scatter(1, logits.topk(module.moe.top_k).indices, 1.0)
    logits = logits.clamp_min(-1e30)
    lost = (logits * (ours - theirs)).sum(-1, keepdim=True)  # how far theirs are from the best
    rounding = 8 * torch.finfo(dtype).eps * logits.abs().amax(-1, keepdim=True) * module.moe.top_k
    return torch.where(lost <= rounding, theirs, ours)


def _open_groups(moe: MoESpec, logits: Tensor, theirs: Tensor, dtype: torch.dtype) -> Tensor:
    """Where experts may be chosen, (tokens, experts): the token's best groups; where rounding may have swapped two of
    them, those that were taken."""
    size = moe.experts // moe.groups
    of_group = _scores(moe, logits).unflatten(-1, (moe.groups, size)).topk(2).values.sum(-1)
    best = torch.zeros_like(of_group).scatter(1, of_group.topk(moe.top_groups).indices, 1.0).bool()
    last = of_group.topk(moe.top_groups).values[:, -1:]
    near = (of_group - last).abs() <= 16 * torch.finfo(dtype).eps * logits.abs().amax(-1, keepdim=True)
    taken = theirs.unflatten(-1, (moe.groups, size)).amax(-1) > 0
    swapped = (taken & ~best & near).any(-1, keepdim=True)
    return torch.where(swapped, (best & ~near) | taken, best).repeat_interleave(size, dim=-1)
