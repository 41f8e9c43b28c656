"""ffnbench in Python: build, cost, compare."""

from __future__ import annotations

import pytest
import torch
from conftest import FACTS, FakeLaunch, FakeWorker

import ffnbench
from ffnbench.api import measure, prepare
from ffnbench.errors import FfnbenchError
from ffnbench.ffn.cost import cost
from ffnbench.request import CompareRequest


def test_build_gives_a_module_of_the_matched_width() -> None:
    module = ffnbench.build("swiglu", d_model=768)
    assert isinstance(module, torch.nn.Module)
    assert module.up.weight.shape == (2048, 768)
    assert sum(p.numel() for p in module.parameters()) == 4_718_592


@pytest.mark.parametrize(
    ("variant", "options", "d_ff"),
    [
        ("relu", {}, 256),
        ("swiglu", {"match": "none"}, 256),
        ("swiglu", {"d_ff": 96}, 96),
        ("swiglu@rule=llama", {}, 256),
        ("silu@gate=output", {}, 224),
    ],
)
def test_build_follows_the_rules_of_compare(variant: str, options: dict, d_ff: int) -> None:
    module = ffnbench.build(variant, d_model=64, dtype=torch.bfloat16, **options)
    assert module.down.in_features == d_ff
    assert module(torch.randn(2, 64, dtype=torch.bfloat16)).shape == (2, 64)


def test_build_takes_user_code() -> None:
    module = ffnbench.build("tests/hostile.py:Plain", d_model=16, d_ff=32)
    assert module(torch.randn(2, 16)).shape == (2, 16)


def test_build_takes_dtypes_in_every_form() -> None:
    for options in ({"dtype": "bf16"}, {"dtype": torch.bfloat16}):
        assert ffnbench.build("relu", d_model=8, **options).up.weight.dtype is torch.bfloat16
    assert ffnbench.build("relu@dtype=bf16", d_model=8).up.weight.dtype is torch.bfloat16
    assert ffnbench.cost("relu", d_model=8, dtype=torch.float16).frame()["weight_bytes"].tolist() == [2 * 2 * 8 * 32]


def test_cost_counts_without_measuring() -> None:
    report = ffnbench.cost(["relu", "swiglu"], d_model=768)
    assert isinstance(report, ffnbench.Report)
    assert report.frame()["params"].tolist() == [4_718_592, 4_718_592]
    assert report.frame()["latency_s"].isna().all()


def test_costs_are_counted_anew_once_the_device_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dropout's mask is smaller on a GPU, and `auto` is one where there is one."""
    monkeypatch.setattr(FakeWorker, "greeting", lambda self: {**FACTS, "gpus": 1})
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


def test_mistakes_are_exceptions_with_a_hint() -> None:
    with pytest.raises(FfnbenchError, match="unknown variant") as caught:
        ffnbench.build("swigul", d_model=8)
    assert "swiglu" in caught.value.hint
    with pytest.raises(TypeError, match="did you mean 'd_model'"):
        ffnbench.cost("relu", dmodel=8)
    with pytest.raises(FfnbenchError, match="names 2 variants"):
        ffnbench.build("relu,gelu", d_model=8)
    with pytest.raises(AttributeError, match="no attribute 'comprae'"):
        ffnbench.comprae  # noqa: B018
