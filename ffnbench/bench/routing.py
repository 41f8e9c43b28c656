"""How tokens are spread over experts while a mixture is measured, and how uneven that is. Runs in a worker."""

from __future__ import annotations

import torch

from ffnbench.ffn.experts import MixtureOfExperts
from ffnbench.ffn.moe import Routing, shares


def impose(module: MixtureOfExperts, routing: Routing, *, tokens: int, seed: int) -> None:
    """Give every token its experts, drawn by `shares` without putting back, from a generator of that seed.

    The k smallest of exponential variables with the shares as rates are such a draw (Efraimidis & Spirakis 2006).
    """
    rates = torch.tensor(shares(routing, module.moe.experts), dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    waits = torch.empty(tokens, module.moe.experts, dtype=torch.float64).exponential_(generator=generator) / rates
    chosen = waits.topk(module.moe.top_k, largest=False).indices
    module.imposed = chosen.to(module.router.weight.device)


def load(module: MixtureOfExperts, x: torch.Tensor) -> tuple[float, int]:
    """The busiest expert's tokens over the mean, and how many experts are asked at all, for an input."""
    with torch.inference_mode():
        chosen = module.choose(x.detach().reshape(-1, x.shape[-1]))
    asked = torch.bincount(chosen.reshape(-1), minlength=module.moe.experts)
    return float(asked.max() / asked.double().mean()), int((asked > 0).sum())
