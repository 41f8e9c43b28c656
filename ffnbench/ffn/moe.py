"""Mixture of experts: which experts there are and how a token finds its own. Pure data, validated on construction.

A token goes to the `top_k` experts of the highest score; each is a network of FFNSpec's form with d_ff per expert
(Shazeer et al. 2017; Mixtral, Jiang et al. 2024). A shared expert sees every token (DeepSeekMoE, Dai et al. 2024).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ffnbench.errors import FfnbenchError


class Scores(Enum):
    """How router logits become weights: softmax over all experts, or a sigmoid each (DeepSeek-V3)."""

    SOFTMAX = "softmax"
    SIGMOID = "sigmoid"


@dataclass(frozen=True, slots=True, kw_only=True)
class MoESpec:
    """The experts around one FFN form. Widths are per branch, as d_ff is.

    `shared_d_ff` is the width of all shared experts together, 0 for none; `shared_gate` multiplies their output by
    sigmoid(w x), one number a token (Qwen2-MoE). `router_bias` is a trained bias of the logits (gpt-oss).
    `normalised` divides the chosen weights by their sum (Mixtral; Qwen's norm_topk_prob).
    """

    experts: int
    top_k: int
    shared_d_ff: int = 0
    shared_gate: bool = False
    router_bias: bool = False
    scores: Scores = Scores.SOFTMAX
    normalised: bool = True

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
        if self.shared_gate and not self.shared_d_ff:
            raise FfnbenchError("a shared gate needs a shared expert", "for example @shared=2048")

    def router_params(self, d_model: int) -> int:
        """Elements of the router, and of the shared expert's gate."""
        gate = d_model if self.shared_gate else 0
        return self.experts * (d_model + self.router_bias) + gate

    def distinct(self, tokens: int) -> float:
        """Expected number of experts that are hit by so many tokens, where each chooses uniformly and by itself."""
        return self.experts * (1.0 - (1.0 - self.top_k / self.experts) ** tokens)
