"""Mixture of experts: which experts there are and how a token finds its own. Pure data, validated on construction.

A token goes to the `top_k` experts of the highest score; each is a network of FFNSpec's form with d_ff per expert
(Shazeer et al. 2017; Mixtral, Jiang et al. 2024). A shared expert sees every token (DeepSeekMoE, Dai et al. 2024).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import isfinite

from ffnbench.common.errors import FfnbenchError


class Scores(StrEnum):
    """How router logits become weights: softmax over all experts, or a sigmoid each (DeepSeek-V3)."""

    SOFTMAX = "softmax"
    SIGMOID = "sigmoid"


class Dispatch(StrEnum):
    """How the experts are run: one after another over those that are hit, or all in one grouped matrix product."""

    EAGER = "eager"
    GROUPED = "grouped"


class Routing(StrEnum):
    """How often each expert is asked while it is measured: imposed, because a router that was never trained says
    nothing of one that was. Each token draws its experts by itself, in proportion to `shares`, no expert twice."""

    UNIFORM = "uniform"
    SKEWED = "skewed"
    TRAINED_LIKE = "trained-like"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class MoESpec:
    """The experts around one FFN form. Widths are per branch, as d_ff is.

    `shared_d_ff` is the width of all shared experts together, 0 for none; `shared_gate` multiplies their output by
    sigmoid(w x), one number a token (Qwen2-MoE). `router_bias` is a trained bias of the logits (gpt-oss).
    `normalised` divides the chosen weights by their sum (Mixtral; Qwen's norm_topk_prob), and `routed_scale`
    multiplies them (DeepSeek-V3's routed_scaling_factor). With `groups` a token's experts come from the `top_groups`
    groups of neighbouring experts whose two best scores have the largest sum (DeepSeek-V3's n_group and topk_group).
    """

    experts: int
    top_k: int
    shared_d_ff: int = 0
    shared_gate: bool = False
    router_bias: bool = False
    scores: Scores = Scores.SOFTMAX
    normalised: bool = True
    routed_scale: float = 1.0
    groups: int = 1
    top_groups: int = 1
    dispatch: Dispatch = Dispatch.EAGER

    def __post_init__(self) -> None:
        for name, value, least in (
            ("experts", self.experts, 1), ("top_k", self.top_k, 1), ("shared_d_ff", self.shared_d_ff, 0)
        ):  # fmt: skip
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise FfnbenchError(f"{name} must be a whole number of at least {least}, not {value!r}", "e.g. moe=8x2")
        if self.top_k > self.experts:
            raise FfnbenchError(
                f"top_k {self.top_k} is above the number of experts, {self.experts}", "moe=8x2 is 8 experts, 2 a token"
            )
        self._check_groups()
        if self.shared_gate and not self.shared_d_ff:
            raise FfnbenchError("a shared gate needs a shared expert", "for example @shared=2048")
        if not (isfinite(self.routed_scale) and self.routed_scale > 0):
            raise FfnbenchError(f"routed_scale {self.routed_scale:g} is not positive", "DeepSeek-V3 has 2.5")

    def _check_groups(self) -> None:
        """A group needs two experts, and those of the chosen groups must do for a token."""
        size, rest = divmod(self.experts, self.groups) if self.groups > 0 else (0, 0)
        fits = 0 < self.top_groups <= self.groups and not rest and size * self.top_groups >= self.top_k
        if not fits or (self.groups > 1 and size < 2):
            raise FfnbenchError(
                f"{self.top_k} of {self.experts} experts can't come from {self.top_groups} of {self.groups} groups",
                "groups=8x4 is 8 groups of equal size, of at least two experts, and 4 of them for each token",
            )

    def router_params(self, d_model: int) -> int:
        """Elements of the router, and of the shared expert's gate."""
        return self.router_matrix_params(d_model) + self.router_bias * self.experts

    def router_matrix_params(self, d_model: int) -> int:
        """Parameters of the router without its bias: one MAC each for every token."""
        return (self.experts + self.shared_gate) * d_model

    def distinct(self, tokens: int) -> float:
        """Expected number of experts that are hit by so many tokens, where each chooses uniformly and by itself."""
        return self.experts * (1.0 - (1.0 - self.top_k / self.experts) ** tokens)
