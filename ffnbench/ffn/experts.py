"""A mixture of experts: a router, experts of one form with their weights in 3-D
tensors, and shared experts.

The experts are run in one of three ways. Eager: one after another over those that are
hit, as Hugging Face's eager path does. Grouped: tokens sorted by expert, one grouped
matrix product for each weight. Batched: one batched product for each weight, over rows
padded to the capacity of an expert. `mixture_reference` is what all should compute, in
float64 and by other code.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ffnbench.common.choices import Init, Routing
from ffnbench.common.errors import Unsupported
from ffnbench.ffn.modules import (
    Device,
    OwnForm,
    build_dense,
    dense_reference,
    linear_reference,
)
from ffnbench.ffn.routing import shares
from ffnbench.ffn.spec import Dispatch, FFNSpec, MoESpec, Scores, shared_expert

HALVES = (torch.bfloat16, torch.float16)
# by so many roundings a logit of the module's router may differ from float64
ROUNDINGS_OF_A_LOGIT = 8
GROUPED_MM: Callable[..., Tensor] | None = getattr(F, "grouped_mm", None) or getattr(
    torch, "_grouped_mm", None
)


@dataclass(slots=True)
class RowsOfExperts:
    """Tells the layers of the experts which expert each row of their next input
    belongs to. The mixture sets it before it calls them.

    Eager: all rows are those of one `expert`. Grouped: they are sorted by expert,
    `experts` has the expert of each row, and `ends` where the rows of each expert end.
    """

    expert: int = 0
    experts: Tensor | None = None
    ends: Tensor | None = None


class ExpertLinear(nn.Module):
    """One linear layer of every expert: weight (experts, out, in), bias (experts, out).
    `rows`, which all layers share, says before a call whose rows come.

    Its weights are drawn as nn.Linear draws its own: U(-1, 1) / sqrt(fan_in).
    """

    def __init__(
        self,
        fan_in: int,
        fan_out: int,
        *,
        experts: int,
        rows: RowsOfExperts,
        bias: bool,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.rows = rows
        self._weights: tuple[Tensor, ...] = ()
        self._biases: tuple[Tensor | None, ...] = ()
        self.weight = nn.Parameter(
            torch.empty(experts, fan_out, fan_in, device=device, dtype=dtype)
        )
        self.bias = None
        if bias:
            self.bias = nn.Parameter(
                torch.empty(experts, fan_out, device=device, dtype=dtype)
            )
        bound = 1 / math.sqrt(fan_in)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def unbind(self) -> None:
        """Split weight and bias by expert, once for each call of the mixture: the
        experts' gradients of a weight are then stacked in one step.
        """
        self._weights = self.weight.unbind(0)
        self._biases = (None,) * len(self.weight)
        if self.bias is not None:
            self._biases = self.bias.unbind(0)

    def of_experts(self) -> list[SimpleNamespace]:
        """The layer of each expert: its weight (out, in), and its bias (out) or
        None.
        """
        biases = [None] * len(self.weight) if self.bias is None else self.bias.detach()
        return [
            SimpleNamespace(weight=weight, bias=bias)
            for weight, bias in zip(self.weight.detach(), biases, strict=True)
        ]

    def release(self) -> None:
        """Drop the tensors of `unbind`, and the graph that they hold."""
        self._weights = self._biases = ()

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim == 3:  # rows of each expert, as many for each
            y = x.bmm(self.weight.transpose(-2, -1))
            return y if self.bias is None else y + self.bias[:, None]
        if self.rows.ends is None:
            expert = self.rows.expert
            return F.linear(x, self._weights[expert], self._biases[expert])
        assert GROUPED_MM is not None
        y = GROUPED_MM(x, self.weight.transpose(-2, -1), offs=self.rows.ends)
        if self.bias is None:
            return y
        return y + self.bias[self.rows.experts]


class MixtureOfExperts(OwnForm):
    """Sum of weight_e * expert_e(x) over the chosen experts, plus the shared expert. x
    and the result are (..., d_model).

    `imposed`, (tokens, top_k), holds the numbers of the experts that replace the
    router's choice; the router still does all of its work.
    """

    imposed: Tensor | None

    def __init__(
        self, spec: FFNSpec, *, device: Device = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        assert spec.moe is not None
        self.spec = spec
        self.moe = spec.moe
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self._rows = RowsOfExperts()
        self.router = nn.Linear(
            spec.d_model, self.moe.outputs, bias=self.moe.router_bias, **place
        )
        expert_linear = partial(ExpertLinear, experts=self.moe.experts, rows=self._rows)
        expert = replace(spec, moe=None, d_model=spec.expert_width)
        self.experts = build_dense(expert, linear=expert_linear, **place)
        self.to_latent = self.from_latent = None
        if self.moe.latent:
            shape = (spec.d_model, self.moe.latent)
            self.to_latent = nn.Linear(*shape, bias=False, **place)
            self.from_latent = nn.Linear(*shape[::-1], bias=False, **place)
        shared = shared_expert(spec)
        self.shared = None if shared is None else build_dense(shared, **place)
        self.shared_gate = None
        if self.moe.shared_gate:
            self.shared_gate = nn.Linear(spec.d_model, 1, bias=False, **place)
        self.register_buffer("imposed", None, persistent=False)
        self.reset_parameters()
        if self.moe.dispatch is Dispatch.GROUPED:
            check_grouped(spec, self.router.weight.device, self.router.weight.dtype)

    def reset_parameters(self) -> None:
        """Fill the router, the projections to and from the latent width and the shared
        expert's gate by N(0, 0.02), where that is the init; nn.Linear has filled them
        by its own default.
        """
        if self.spec.init is Init.NORMAL:
            nn.init.normal_(self.router.weight, std=0.02)
            for layer in (self.to_latent, self.from_latent):
                if layer is not None:
                    nn.init.normal_(layer.weight, std=0.02)
            if self.shared_gate is not None:
                nn.init.normal_(self.shared_gate.weight, std=0.02)
        if self.spec.init is not Init.TORCH and self.router.bias is not None:
            nn.init.zeros_(self.router.bias)

    def scores(self, x: Tensor) -> Tensor:
        """The router's scores of each expert, (tokens, experts): in x's dtype, or in
        float32 where that is of 16 bits.
        """
        logits = self.router(x)
        dtype = torch.float32 if logits.dtype in HALVES else logits.dtype
        if self.moe.scores is Scores.SOFTMAX:
            return logits.softmax(-1, dtype=dtype)
        return logits.to(dtype).sigmoid()

    def choose(self, x: Tensor) -> Tensor:
        """The experts of each token, (tokens, top_k); ~e where the choice of e is
        dropped.
        """
        return self._kept(self._chosen(self.scores(x)))

    def _chosen(self, scores: Tensor) -> Tensor:
        """The experts of each token by their scores, or the imposed ones: (tokens,
        top_k).
        """
        if self.moe.groups > 1:
            scores = scores.masked_fill(
                ~in_chosen_groups(scores, self.moe), float("-inf")
            )
        chosen = scores.topk(self.moe.top_k, dim=-1).indices
        if self.imposed is None:
            return chosen
        return self.imposed[: len(chosen)]

    def _kept(self, chosen: Tensor) -> Tensor:
        """The experts of each token, with ~e for an e that has enough tokens before:
        (tokens, top_k).
        """
        if self.moe.capacity is None:
            return chosen
        experts, order = chosen.reshape(-1).sort(stable=True)
        full = rank_of(experts) >= self.moe.most_rows(len(chosen))
        full &= experts < self.moe.experts
        experts = torch.where(full, ~experts, experts)
        return torch.empty_like(order).scatter_(0, order, experts).view_as(chosen)

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The experts of each token, as `choose` has them, and their weights, both
        (tokens, top_k); the weights in x's dtype.
        """
        scores = self.scores(x)
        chosen = self._chosen(scores)
        weights = scores.gather(1, chosen)
        if self.moe.normalised:
            weights = weights / weights.sum(-1, keepdim=True)
        if self.moe.routed_scale != 1:
            weights = weights * self.moe.routed_scale
        return self._kept(chosen), weights.to(x.dtype)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.reshape(-1, x.shape[-1])
        chosen, weights = self.route(tokens)
        routed = tokens if self.to_latent is None else self.to_latent(tokens)
        if self.moe.dispatch is Dispatch.EAGER:
            y = self._eager(routed, chosen, weights)
        elif self.moe.partial:
            y = self._sorted(routed, chosen, weights)
        else:
            y = self._grouped(routed, chosen, weights)
        if self.from_latent is not None:
            y = self.from_latent(y)
        if self.shared is not None:
            shared = self.shared(tokens)
            if self.shared_gate is not None:
                shared = self.shared_gate(tokens).sigmoid() * shared
            y = y + shared
        return y.view(x.shape)

    def reference(self, x: Tensor, chosen: Tensor | None = None) -> Tensor:
        """As OwnForm says."""
        return mixture_reference(self, x.reshape(-1, x.shape[-1]), chosen).view(x.shape)

    def _unweighed(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """What the experts without weights give."""
        if not self.moe.zero:
            return torch.zeros_like(x)
        share = weights.masked_fill(chosen < self.moe.experts, 0).sum(-1, keepdim=True)
        return x * share

    def _eager(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """The sum over one expert after another: its tokens are gathered, and its
        results added at their places.
        """
        y = self._unweighed(x, chosen, weights)
        layers = [
            layer
            for layer in self.experts.children()
            if isinstance(layer, ExpertLinear)
        ]
        for layer in layers:
            layer.unbind()
        for expert in chosen.unique().tolist():
            if not 0 <= expert < self.moe.experts:
                continue
            token, choice = torch.where(chosen == expert)
            self._rows.expert = expert
            y.index_add_(
                0, token, self.experts(x[token]) * weights[token, choice, None]
            )
        for layer in layers:
            layer.release()
        return y

    def _grouped(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """The sum with all experts at once: a row for each choice, sorted by expert,
        and brought back to its token at the end.
        """
        top_k = self.moe.top_k
        experts, order = chosen.reshape(-1).sort()
        every_expert = torch.arange(self.moe.experts, device=x.device)
        self._rows.experts = experts
        self._rows.ends = torch.searchsorted(
            experts, every_expert, right=True, out_int32=True
        )
        y = self.experts(x[order // top_k]) * weights.reshape(-1)[order, None]
        self._rows.experts = self._rows.ends = None
        return y[order.argsort()].view(-1, top_k, x.shape[-1]).sum(1)

    def _sorted(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """The sum with all experts at once, of the choices that are computed."""
        experts, order = chosen.reshape(-1).sort()
        computed = (experts >= 0) & (experts < self.moe.experts)
        experts, order = experts[computed], order[computed]
        every_expert = torch.arange(self.moe.experts, device=x.device)
        self._rows.experts = experts
        self._rows.ends = torch.searchsorted(
            experts, every_expert, right=True, out_int32=True
        )
        token = order // self.moe.top_k
        given = x[token]
        if self.moe.dispatch is Dispatch.BATCHED:
            y = self._batched(given, experts, self.moe.most_rows(len(x)))
        else:
            y = self.experts(given)
        y = y * weights.reshape(-1)[order, None]
        self._rows.experts = self._rows.ends = None
        return self._unweighed(x, chosen, weights).index_add_(0, token, y)

    def _batched(self, x: Tensor, experts: Tensor, most: int) -> Tensor:
        """What the experts give for rows that are sorted by them: each is given `most`
        rows, of which those that nobody asks for are zero.
        """
        place = experts * most + rank_of(experts)
        padded = x.new_zeros(self.moe.experts * most, x.shape[-1])
        padded = padded.index_copy(0, place, x)
        y = self.experts(padded.view(self.moe.experts, most, -1))
        return y.flatten(0, 1)[place]

    def extra_repr(self) -> str:
        return self.spec.name


def rank_of(experts: Tensor) -> Tensor:
    """How many choices of the same expert stand before each, in a sorted list."""
    first = torch.searchsorted(experts, experts)
    return torch.arange(len(experts), device=experts.device) - first


def impose(
    module: MixtureOfExperts, routing: Routing, *, tokens: int, seed: int
) -> None:
    """Set `module.imposed`: for every token experts drawn by `shares` without
    replacement, from a generator of that seed.

    The k smallest of exponential variables with the shares as rates are such a draw
    (Efraimidis & Spirakis 2006).
    """
    rates = torch.tensor(shares(routing, module.moe.outputs), dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    times = torch.empty(tokens, module.moe.outputs, dtype=torch.float64)
    times.exponential_(generator=generator).div_(rates)
    chosen = times.topk(module.moe.top_k, largest=False).indices
    module.imposed = chosen.to(module.router.weight.device)


def in_chosen_groups(scores: Tensor, moe: MoESpec) -> Tensor:
    """Whether each expert is in a chosen group of each token, (tokens, experts). The
    chosen groups are those whose two best scores have the largest sum.
    """
    sums = scores.unflatten(-1, (moe.groups, -1)).topk(2, dim=-1).values.sum(-1)
    best = sums.topk(moe.top_groups).indices
    chosen = torch.zeros_like(sums, dtype=torch.bool).scatter(1, best, True)
    return chosen.repeat_interleave(moe.outputs // moe.groups, dim=-1)


def check_grouped(spec: FFNSpec, device: torch.device, dtype: torch.dtype) -> None:
    """Raise Unsupported where torch has no grouped matrix product, forward and
    backward, for that device, dtype and these widths.
    """
    name = str(dtype).removeprefix("torch.")
    lacking = f"torch {torch.__version__} has no grouped matrix product for {name} on {device}"
    hint = "use @experts=eager"
    if GROUPED_MM is None:
        raise Unsupported(lacking, hint)
    if device.type == "meta":
        return
    # rows must be whole multiples of 16 bytes
    if spec.expert_width * dtype.itemsize % 16 or spec.d_ff * dtype.itemsize % 16:
        raise Unsupported(
            f"grouped matrix products need d_ff and the width of the experts' input in multiples of {16 // dtype.itemsize}"
        )
    x = torch.zeros(16, 16, device=device, dtype=dtype, requires_grad=True)
    weight = torch.zeros(2, 16, 16, device=device, dtype=dtype, requires_grad=True)
    ends = torch.tensor([8, 16], device=device, dtype=torch.int32)
    try:
        with torch.enable_grad():
            y = GROUPED_MM(x, weight.transpose(-2, -1), offs=ends)
            y.backward(torch.zeros_like(y))
    except (RuntimeError, NotImplementedError) as problem:
        reason = " ".join(str(problem).split())
        raise Unsupported(f"{lacking}: {reason[:120]}", hint) from problem


def mixture_reference(
    module: MixtureOfExperts,
    x: Tensor,
    chosen: Tensor | None,
    product: Callable[..., Tensor] = linear_reference,
) -> Tensor:
    """What a mixture should give for x (tokens, d_model) in float64: the sum of every
    expert that has a token. `product` is that of `dense_reference`, in its experts.

    `chosen` (tokens, top_k) are the experts that the module itself chose; None stands
    for those that it chooses for this x.
    """
    moe, router = module.moe, module.router
    logits = linear_reference(x, router.weight, router.bias)
    given = chosen
    if chosen is None:
        chosen = module.choose(x.detach().to(router.weight.dtype))
    raw = torch.where(chosen < 0, ~chosen, chosen)
    choice = _reference_choice(module, logits.detach(), raw)
    weights = _reference_scores(moe, logits) * choice
    if moe.normalised:
        weights = weights / weights.sum(-1, keepdim=True)
    weights = weights * moe.routed_scale
    if moe.capacity is not None:
        # a choice is dropped by its place among those of its expert
        taken = choice.cumsum(0) <= moe.most_rows(len(x))
        if given is not None:
            taken = torch.zeros_like(taken).scatter(1, raw, given >= 0)
        taken[:, moe.experts :] = True
        weights = weights * taken
    routed = x
    if module.to_latent is not None:
        routed = product(x, module.to_latent.weight, None)
    y = routed * weights[:, moe.experts :].sum(1, keepdim=True)
    hit = weights[:, : moe.experts].any(0).nonzero().flatten()
    for expert in hit.tolist():
        tokens = weights[:, expert].nonzero().flatten()
        of_expert = dense_reference(module.experts, routed[tokens], expert, product)
        y = y.index_add(0, tokens, weights[tokens, expert, None] * of_expert)
    if module.from_latent is not None:
        y = product(y, module.from_latent.weight, None)
    if module.shared is not None:
        shared = dense_reference(module.shared, x, product=product)
        if module.shared_gate is not None:
            gate = linear_reference(x, module.shared_gate.weight, None)
            shared = shared * gate.sigmoid()
        y = y + shared
    return y


def _reference_scores(moe: MoESpec, logits: Tensor) -> Tensor:
    if moe.scores is Scores.SOFTMAX:
        return logits.softmax(-1)
    return 1 / (1 + (-logits).exp())


def _reference_choice(
    module: MixtureOfExperts, logits: Tensor, chosen: Tensor
) -> Tensor:
    """1 where a token goes to an expert, else 0; float64 of (tokens, experts), as the
    logits are.

    A token goes to the experts of the highest logits. It goes to those that the module
    itself chose where their logits are as high to the precision of its router, or where
    the router is not free to choose: with an imposed routing, or with groups.
    """
    moe = module.moe
    module_choice = torch.zeros_like(logits).scatter(1, chosen, 1.0)
    if module.imposed is not None or moe.groups > 1:
        return module_choice
    best_choice = torch.zeros_like(logits).scatter(
        1, logits.topk(moe.top_k).indices, 1.0
    )
    lost = (logits * (best_choice - module_choice)).sum(-1, keepdim=True)
    rounding = torch.finfo(module.router.weight.dtype).eps
    largest = logits.abs().amax(-1, keepdim=True)
    allowed = ROUNDINGS_OF_A_LOGIT * moe.top_k * rounding * largest
    return torch.where(lost <= allowed, module_choice, best_choice)


def expert_load(module: MixtureOfExperts, x: Tensor) -> tuple[float, int]:
    """For an input, the busiest expert's tokens over the mean of all experts, and how
    many experts have any token.
    """
    with torch.inference_mode():
        chosen = module.choose(x.detach().reshape(-1, x.shape[-1]))
    computed = chosen[(chosen >= 0) & (chosen < module.moe.experts)]
    tokens = torch.bincount(computed, minlength=module.moe.experts)
    busiest = float(tokens.max() / tokens.double().mean())
    hit = int((tokens > 0).sum())
    return busiest, hit
