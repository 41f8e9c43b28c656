"""ffnbench in Python: build, cost, compare."""

from __future__ import annotations

import pytest
import torch
from conftest import FACTS, FakeLaunch, FakeWorker, measure, prepare

import ffnbench
from ffnbench.ffn.cost import cost
from ffnbench.request import CompareRequest


@pytest.mark.parametrize(
    ("variant", "options", "d_ff", "dtype"),
    [
        ("relu", {}, 256, torch.float32),
        ("swiglu", {"match": "none", "dtype": "bf16"}, 256, torch.bfloat16),
        ("swiglu", {"d_ff": 96, "dtype": torch.bfloat16}, 96, torch.bfloat16),
        ("swiglu@rule=llama", {}, 256, torch.float32),
        ("silu@gate=output@dtype=bf16", {}, 224, torch.bfloat16),
        ("tests/hostile.py:Plain", {"d_ff": 32}, 32, torch.float32),
    ],
)
def test_build_follows_the_rules_of_compare(variant: str, options: dict, d_ff: int, dtype: torch.dtype) -> None:
    module = ffnbench.build(variant, d_model=64, **options)
    assert module.down.in_features == d_ff
    assert module(torch.randn(2, 64, dtype=dtype)).shape == (2, 64)


def test_costs_are_counted_anew_once_the_device_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dropout's mask is smaller on a GPU, and `auto` is one where there is one."""
    monkeypatch.setattr(FakeWorker, "greeting", lambda self, timeout_s=0.0: {**FACTS, "gpus": 1})
    request = CompareRequest(
        variants="swiglu,relu@dropout=0.1", mode="train", device="auto", workers=3, rounds=1, threads=1
    )
    report = measure(prepare(request), launch=FakeLaunch())
    case = report.plan.case("relu@dropout=0.1")
    found = {c.case: (c.cost.saved_bytes, c.cost.peak_bytes) for c in report.costs}[case.label]
    cpu, cuda = (
        cost(case.ffn, tokens=case.workload.tokens, dtype="float32", train=True, device=device)
        for device in ("cpu", "cuda")
    )
    assert case.workload.device == "cuda"
    assert found == (cuda.saved_bytes, cuda.peak_bytes)
    assert cpu.saved_bytes - cuda.saved_bytes == cpu.peak_bytes - cuda.peak_bytes == (4 - 1) * 512 * 3072
