"""A mixture of experts: a router, experts of one form with their weights in 3-D tensors, and shared experts.

The experts are run in one of two ways. Eager: one after another over those that are hit, as Hugging Face's eager
path does. Grouped: tokens sorted by expert, one grouped matrix product for each weight. `mixture_reference` is what
both should compute, in float64 and written apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ffnbench.choices import Init, Routing
from ffnbench.common.errors import Unsupported
from ffnbench.ffn.modules import Device, OwnForm, build_dense, dense_reference
from ffnbench.ffn.spec import Dispatch, FFNSpec, MoESpec, Scores, shared_expert

HALVES = (torch.bfloat16, torch.float16)
GROUPED_MM: Callable[..., Tensor] | None = getattr(F, "grouped_mm", None) or getattr(torch, "_grouped_mm", None)


@dataclass(slots=True)
class Turn:
    """Whose rows come next: one expert's; or all, sorted by expert, with `ids` of each row and `ends` of each group."""

    expert: int = 0
    ids: Tensor | None = None
    ends: Tensor | None = None


class ExpertLinear(nn.Module):
    """One linear layer of every expert: weight (experts, out, in), bias (experts, out). `turn` says whose rows come.

    Filled as nn.Linear fills its own: U(+-1/sqrt(fan_in)).
    """

    def __init__(
        self,
        fan_in: int,
        fan_out: int,
        *,
        experts: int,
        turn: Turn,
        bias: bool,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.turn = turn
        self._parts: tuple[tuple[Tensor, ...], tuple[Tensor | None, ...]] = ((), ())
        self.weight = nn.Parameter(torch.empty(experts, fan_out, fan_in, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(experts, fan_out, device=device, dtype=dtype)) if bias else None
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in))

    def open(self) -> None:
        """Take the experts apart, once a call: the gradients of a weight then come together in one step."""
        biases = (None,) * len(self.weight) if self.bias is None else self.bias.unbind(0)
        self._parts = self.weight.unbind(0), biases

    def close(self) -> None:
        """Let go of what `open` took, and of the graph with it."""
        self._parts = ((), ())

    def forward(self, x: Tensor) -> Tensor:
        if self.turn.ends is None:
            weights, biases = self._parts
            return F.linear(x, weights[self.turn.expert], biases[self.turn.expert])
        assert GROUPED_MM is not None
        y = GROUPED_MM(x, self.weight.transpose(-2, -1), offs=self.turn.ends)
        return y if self.bias is None else y + self.bias[self.turn.ids]


class MixtureOfExperts(OwnForm):
    """Sum of weight_e * expert_e(x) over the chosen experts, plus the shared expert. x and the result: (..., d_model).

    `imposed`, (tokens, top_k), replaces the router's choice by expert numbers; the router does all of its work still.
    """

    imposed: Tensor | None

    def __init__(self, spec: FFNSpec, *, device: Device = None, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        assert spec.moe is not None
        self.spec, self.moe = spec, spec.moe
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self._turn = Turn()
        self.router = nn.Linear(spec.d_model, self.moe.experts, bias=self.moe.router_bias, **place)
        stack = partial(ExpertLinear, experts=self.moe.experts, turn=self._turn)
        self.experts = build_dense(replace(spec, moe=None), linear=stack, **place)
        shared = shared_expert(spec)
        self.shared = build_dense(shared, **place) if shared else None
        self.shared_gate = nn.Linear(spec.d_model, 1, bias=False, **place) if self.moe.shared_gate else None
        self.register_buffer("imposed", None, persistent=False)
        self.reset_parameters()
        if self.moe.dispatch is Dispatch.GROUPED:
            check_grouped(spec, self.router.weight.device, self.router.weight.dtype)

    def reset_parameters(self) -> None:
        """The router and the shared expert's gate: N(0, 0.02) where that is the init, else nn.Linear's own."""
        if self.spec.init is Init.TORCH:
            return
        for layer in (self.router, self.shared_gate):
            if layer is not None and self.spec.init is Init.NORMAL:
                nn.init.normal_(layer.weight, std=0.02)
        if self.router.bias is not None:
            nn.init.zeros_(self.router.bias)

    def scores(self, x: Tensor) -> Tensor:
        """What the router gives each expert, (tokens, experts); in float32 where x has less."""
        logits = self.router(x)
        wide = torch.float32 if logits.dtype in HALVES else logits.dtype
        return logits.softmax(-1, dtype=wide) if self.moe.scores is Scores.SOFTMAX else logits.to(wide).sigmoid()

    def choose(self, x: Tensor) -> Tensor:
        """The experts of each token, (tokens, top_k)."""
        return self._chosen(self.scores(x))

    def _chosen(self, scores: Tensor) -> Tensor:
        if self.moe.groups > 1:
            scores = scores.masked_fill(~in_groups(scores, self.moe), float("-inf"))
        chosen = scores.topk(self.moe.top_k, dim=-1).indices
        return chosen if self.imposed is None else self.imposed[: len(chosen)]

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The experts of each token and their weights, both (tokens, top_k); the weights in x's dtype."""
        scores = self.scores(x)
        chosen = self._chosen(scores)
        weights = scores.gather(1, chosen)
        if self.moe.normalised:
            weights = weights / weights.sum(-1, keepdim=True)
        if self.moe.routed_scale != 1:
            weights = weights * self.moe.routed_scale
        return chosen, weights.to(x.dtype)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.reshape(-1, x.shape[-1])
        chosen, weights = self.route(tokens)
        run = self._grouped if self.moe.dispatch is Dispatch.GROUPED else self._eager
        y = run(tokens, chosen, weights)
        if self.shared is not None:
            shared = self.shared(tokens)
            y = y + (shared if self.shared_gate is None else self.shared_gate(tokens).sigmoid() * shared)
        return y.view(x.shape)

    def reference(self, x: Tensor, chosen: Tensor | None = None) -> Tensor:
        """As OwnForm says."""
        return mixture_reference(self, x.reshape(-1, x.shape[-1]), chosen).view(x.shape)

    def _eager(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """One expert after another: its tokens are gathered, and its results added where they belong."""
        y = torch.zeros_like(x)
        stacks = [layer for layer in self.experts.children() if isinstance(layer, ExpertLinear)]
        for stack in stacks:
            stack.open()
        for expert in chosen.unique().tolist():
            token, place = torch.where(chosen == expert)
            self._turn.expert = expert
            y.index_add_(0, token, self.experts(x[token]) * weights[token, place, None])
        for stack in stacks:
            stack.close()
        return y

    def _grouped(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """All experts at once: rows sorted by expert, and brought back to their tokens at the end."""
        k = self.moe.top_k
        ids, order = chosen.reshape(-1).sort()
        turn = self._turn
        every = torch.arange(self.moe.experts, device=x.device)
        turn.ids, turn.ends = ids, torch.searchsorted(ids, every, right=True, out_int32=True)
        rows = self.experts(x[order // k]) * weights.reshape(-1)[order, None]
        turn.ids = turn.ends = None
        return rows[order.argsort()].view(-1, k, x.shape[-1]).sum(1)

    def extra_repr(self) -> str:
        return self.spec.name


IMBALANCE = 0.5  # of trained-like routing: the busiest expert is asked so much more often than the mean one


def shares(routing: Routing, experts: int) -> list[float]:
    """How often each expert is drawn; the sum is 1.

    Uniform: all the same, as `distinct` assumes. Skewed: Zipf's law, 1, 1/2, 1/3 ... Trained-like: evenly from
    1 + IMBALANCE times the mean down to 1 - IMBALANCE; (max - mean) / mean is MaxVio (Wang et al. 2024).
    """
    weights = [1.0] * experts
    if routing is Routing.SKEWED:
        weights = [1.0 / rank for rank in range(1, experts + 1)]
    elif routing is Routing.TRAINED_LIKE and experts > 1:
        weights = [1 + IMBALANCE * (1 - 2 * place / (experts - 1)) for place in range(experts)]
    total = sum(weights)
    return [weight / total for weight in weights]


def impose(module: MixtureOfExperts, routing: Routing, *, tokens: int, seed: int) -> None:
    """Give every token its experts, drawn by `shares` without putting back, from a generator of that seed.

    The k smallest of exponential variables with the shares as rates are such a draw (Efraimidis & Spirakis 2006).
    """
    rates = torch.tensor(shares(routing, module.moe.experts), dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    waits = torch.empty(tokens, module.moe.experts, dtype=torch.float64).exponential_(generator=generator) / rates
    chosen = waits.topk(module.moe.top_k, largest=False).indices
    module.imposed = chosen.to(module.router.weight.device)


def in_groups(scores: Tensor, moe: MoESpec) -> Tensor:
    """Whether each expert is in one of its token's groups, (tokens, experts): those of the largest sum of two."""
    of_group = scores.unflatten(-1, (moe.groups, -1)).topk(2, dim=-1).values.sum(-1)
    chosen = torch.zeros_like(of_group, dtype=torch.bool).scatter(1, of_group.topk(moe.top_groups).indices, True)
    return chosen.repeat_interleave(moe.experts // moe.groups, dim=-1)


def check_grouped(spec: FFNSpec, device: torch.device, dtype: torch.dtype) -> None:
    """Raises Unsupported where torch has no grouped matrix product for that device, dtype and widths, backward too."""
    where = (
        f"torch {torch.__version__} has no grouped matrix product for {str(dtype).removeprefix('torch.')} on {device}"
    )
    if GROUPED_MM is None:
        raise Unsupported(where, "use @experts=eager")
    if device.type == "meta":
        return
    if spec.d_model * dtype.itemsize % 16 or spec.d_ff * dtype.itemsize % 16:
        raise Unsupported(f"grouped matrix products need d_model and d_ff in multiples of {16 // dtype.itemsize}")
    x, weight = (
        torch.zeros(*shape, device=device, dtype=dtype, requires_grad=True) for shape in ((16, 16), (2, 16, 16))
    )
    ends = torch.tensor([8, 16], device=device, dtype=torch.int32)
    try:
        with torch.enable_grad():
            y = GROUPED_MM(x, weight.transpose(-2, -1), offs=ends)
            y.backward(torch.zeros_like(y))
    except (RuntimeError, NotImplementedError) as problem:
        raise Unsupported(f"{where}: {' '.join(str(problem).split())[:120]}", "use @experts=eager") from problem


def mixture_reference(module: MixtureOfExperts, x: Tensor, chosen: Tensor | None) -> Tensor:
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
    y = sum(weights[:, e, None] * dense_reference(module.experts, x, e) for e in asked)
    if module.shared is not None:
        shared = dense_reference(module.shared, x)
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


def expert_load(module: MixtureOfExperts, x: Tensor) -> tuple[float, int]:
    """The busiest expert's tokens over the mean, and how many experts are asked at all, for an input."""
    with torch.inference_mode():
        chosen = module.choose(x.detach().reshape(-1, x.shape[-1]))
    asked = torch.bincount(chosen.reshape(-1), minlength=module.moe.experts)
    return float(asked.max() / asked.double().mean()), int((asked > 0).sum())
