"""ffnbench in Python: build, cost, compare."""

from __future__ import annotations

import pytest
import torch

import ffnbench


@pytest.mark.parametrize(
    ("variant", "options", "d_ff", "dtype"),
    [
        ("relu", {}, 256, torch.float32),
        ("swiglu", {"match": "none", "dtype": "bf16"}, 256, torch.bfloat16),
        ("swiglu", {"d_ff": 96.0, "dtype": torch.bfloat16}, 96, torch.bfloat16),
        ("swiglu@rule=llama", {}, 256, torch.float32),
        ("silu@gate=output@dtype=bf16", {}, 224, torch.bfloat16),
        ("tests/hostile.py:Plain", {"d_ff": 32}, 32, torch.float32),
    ],
)
def test_build_follows_the_rules_of_compare(
    variant: str, options: dict, d_ff: int, dtype: torch.dtype
) -> None:
    module = ffnbench.build(variant, d_model=64, **options)
    assert module.down.in_features == d_ff
    assert module(torch.randn(2, 64, dtype=dtype)).shape == (2, 64)
