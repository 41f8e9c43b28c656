"""Where the time of an eager SwiGLU goes, and what other paths make of one of its
products: `python benchmarks/linear_layers.py`, half a minute.

A profile of the form by itself, then the fastest of many calls of one linear layer in
one process: a look at causes, not a measurement to compare by. `ffnbench compare
--backend eager,onednn` measures.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

SIZES = ((768, 2048), (4096, 11008))
TOKENS = (1, 16, 512)
LOOK_S = 1.0
MOST_FLOPS = 1e10


def swiglu(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """The form by its formula."""
    return F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)


def fastest(call: Callable[[], Tensor]) -> float:
    """Milliseconds of the fastest call."""
    call()
    best, end = float("inf"), time.perf_counter() + LOOK_S
    while time.perf_counter() < end:
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return 1e3 * best


def share_of_products(form: Callable[[], Tensor]) -> float:
    """The share of the operations' own time that matrix products take."""
    form()
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        for _ in range(5):
            form()
    own = {event.key: event.self_cpu_time_total for event in recorded.key_averages()}
    return sum(
        time for name, time in own.items() if name in ("aten::mm", "aten::addmm")
    ) / sum(own.values())


def paths(x: Tensor, weight: Tensor) -> dict[str, Callable[[], Tensor]]:
    """One linear layer by every path of torch's own that this machine has."""
    tokens, mkldnn, mkl = len(x), torch.ops.mkldnn, torch.ops.mkl
    found = {"nn.Linear": lambda: F.linear(x, weight)}
    if torch.backends.mkl.is_available():
        ready = mkl._mkl_reorder_linear_weight(weight, tokens)
        found["MKL, packed"] = lambda: mkl._mkl_linear(x, ready, weight, None, tokens)
    if torch.backends.mkldnn.is_available():
        packed = mkldnn._reorder_linear_weight(weight, tokens)
        found["oneDNN"] = lambda: mkldnn._linear_pointwise(
            x, weight, None, "none", [], ""
        )
        found["oneDNN, packed"] = lambda: mkldnn._linear_pointwise(
            x, packed, None, "none", [], ""
        )
    return found


def main() -> None:
    """Print a line a size and number of tokens."""
    for d_model, d_ff in SIZES:
        gate, up = (0.02 * torch.randn(d_ff, d_model) for _ in range(2))
        weights = (gate, up, 0.02 * torch.randn(d_model, d_ff))
        for tokens in (
            count for count in TOKENS if 2 * count * d_model * d_ff <= MOST_FLOPS
        ):
            x = torch.randn(tokens, d_model)
            with torch.inference_mode():
                share = share_of_products(partial(swiglu, x, *weights))
                took = {name: fastest(call) for name, call in paths(x, gate).items()}
            told = ", ".join(f"{name} {ms:.3f}" for name, ms in took.items())
            what = f"{d_model} / {d_ff}, {tokens} token{'s' * (tokens > 1)}"
            print(
                f"{what}: products take {share:.1%} of eager; one product, ms: {told}"
            )


if __name__ == "__main__":
    main()
