"""The same promises on a GPU. Skips itself where there is none."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch
from conftest import ffnbench

from ffnbench.bench import meters
from ffnbench.errors import Unsupported
from ffnbench.ffn.cost import cost
from ffnbench.ffn.modules import build_module, reference_output
from ffnbench.ffn.moe import Dispatch, MoESpec
from ffnbench.ffn.spec import FFNSpec, Gate
from ffnbench.plan import Workload

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


def subject_of(spec: FFNSpec, dtype: str, mode: str) -> meters.Subject:
    work = Workload(batch=4, seq_len=256, dtype=dtype, device="cuda", mode=mode, threads=1)
    module = build_module(spec, device="cuda", dtype=getattr(torch, dtype))
    subject = meters.subject_of(module, work, spec.d_model, seed=0)
    for _ in range(3):  # the matrix library takes its workspace now, not during the count
        subject.clear()
        subject.call()
    return subject


@pytest.mark.parametrize("mode", ["forward", "train"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("gate", [Gate.NONE, Gate.INNER])
def test_bytes_are_the_closed_form(gate: Gate, bias: bool, dtype: str, mode: str) -> None:
    spec = FFNSpec(d_model=512, d_ff=2048, activation="silu", gate=gate, bias=bias)
    subject = subject_of(spec, dtype, mode)
    predicted = cost(spec, tokens=1024, dtype=dtype, train=mode == "train", device="cuda")
    assert predicted.peak_bytes is not None
    assert (meters.workspace_bytes(subject) or 0) > 0
    assert meters.peak_bytes(subject) == predicted.peak_bytes  # in bytes as they were asked for, not in blocks
    if mode == "train":
        assert meters.saved_bytes(subject) == predicted.saved_bytes


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("dispatch", list(Dispatch), ids=lambda d: d.value)
def test_experts_compute_the_float64_reference(dispatch: Dispatch, dtype: str) -> None:
    moe = MoESpec(experts=8, top_k=2, shared_d_ff=64, dispatch=dispatch)
    spec = FFNSpec(d_model=256, d_ff=128, activation="silu", gate=Gate.INNER, bias=True, moe=moe)
    try:
        subject = subject_of(spec, dtype, "train")
    except Unsupported as told:
        pytest.skip(told.message)
    y, expected = subject.module(subject.x).detach().double(), reference_output(subject.module, subject.x)
    assert float((y - expected).norm() / expected.norm()) < {"float32": 5e-3, "bfloat16": 3e-2}[dtype]


@pytest.mark.parametrize("mode", ["forward", "train"])
def test_events_agree_with_the_wall(mode: str) -> None:
    from time import perf_counter

    spec = FFNSpec(d_model=4096, d_ff=11008, activation="silu", gate=Gate.INNER)
    subject = subject_of(spec, "bfloat16", mode)
    meters.sample(subject, subject.pool.renew(7, 20))
    start = perf_counter()
    per_call = meters.sample(subject, subject.pool.renew(7, 20))
    assert 0.5 * (perf_counter() - start) < 20 * per_call <= perf_counter() - start


def test_the_command_runs_on_the_gpu(tmp_path: Path) -> None:
    done = ffnbench("compare", "--quick", "--device", "cuda", "--dtype", "bf16", "-o", str(tmp_path / "run.csv"))
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader((tmp_path / "run.csv").read_text().splitlines()))
    assert [(row["device"], row["failure"]) for row in rows] == [("cuda", "")] * 3
