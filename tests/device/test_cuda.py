"""The same promises on a GPU. Skips itself where there is none."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from shell import ffnbench
from torch import Tensor, nn

from ffnbench.common.errors import Unsupported
from ffnbench.device.environment import accelerator_of
from ffnbench.ffn.cost import cost
from ffnbench.ffn.modules import reference_output
from ffnbench.ffn.spec import Dispatch, FFNSpec, Gate, MoESpec
from ffnbench.plan import Workload
from ffnbench.worker import meters, peak_memory
from ffnbench.worker import subject as subjects
from ffnbench.worker.backends.building import build

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


def subject_of(spec: FFNSpec, dtype: str, mode: str) -> subjects.Subject:
    work = Workload(batch=4, seq_len=256, dtype=dtype, device="cuda", mode=mode, threads=1)
    module = build(spec, device="cuda", dtype=getattr(torch, dtype))
    subject = subjects.subject_of(module, work, spec.d_model, seed=0)
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
    assert peak_memory.peak_bytes(subject) == predicted.peak_bytes  # in bytes as they were asked for, not in blocks
    if mode == "train":
        assert peak_memory.saved_bytes(subject) == predicted.saved_bytes


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


LARGE = FFNSpec(d_model=4096, d_ff=11008, activation="silu", gate=Gate.INNER)
SMALL = FFNSpec(d_model=64, d_ff=128, activation="silu", gate=Gate.INNER)


def times_of(subject: subjects.Subject, calls: int) -> meters.Times:
    """The second of two samples: in the first kernels are loaded."""
    inputs = subject.pool.renew(7, calls)
    meters.sample(subject, inputs)
    return meters.sample(subject, subject.pool.renew(8, calls))


@pytest.mark.parametrize("mode", ["forward", "train"])
def test_what_the_device_works_agrees_with_the_wall(mode: str) -> None:
    subject = subject_of(LARGE, "bfloat16", mode)
    found = times_of(subject, 20)
    assert found.host < found.device
    assert found.device == pytest.approx(found.wall, rel=0.05)


class Spinning(nn.Module):
    """Keeps the device busy for so long; what `spoils` does comes first."""

    def __init__(self, seconds: float, spoils: Callable[[Tensor], object] = lambda x: None) -> None:
        super().__init__()
        self.seconds, self.spoils = seconds, spoils

    def forward(self, x: Tensor) -> Tensor:
        self.spoils(x)
        accelerator_of("cuda").spin(self.seconds)
        return x * 2


def spinning(seconds: float, **how: Any) -> subjects.Subject:
    x = torch.randn(1, 8, 64, device="cuda")
    where = accelerator_of("cuda")
    where.spin(1e-3)  # calibrated now
    return subjects.Subject(Spinning(seconds, **how), x, x.clone(), False, accelerator=where)


@pytest.mark.parametrize("seconds", [50e-6, 1e-3, 0.1])
def test_a_known_time_of_the_device_is_found(seconds: float) -> None:
    found = times_of(spinning(seconds), 50 if seconds < 0.01 else 2)
    assert found.device == pytest.approx(seconds + 5e-6, rel=0.1)


def test_a_call_that_waits_is_timed_by_the_wall_alone() -> None:
    subject = spinning(50e-6, spoils=lambda x: float(x[0, 0, 0]))
    found = times_of(subject, 10)
    assert found.device is None


def test_cold_calls_read_their_weights_from_memory() -> None:
    """Weights of 6 MiB: the last cache of every GPU since 2020 holds them."""
    work = Workload(batch=1, seq_len=1, dtype="bfloat16", device="cuda", mode="forward", threads=1, cache="cold")
    spec = FFNSpec(d_model=1024, d_ff=1024, activation="silu", gate=Gate.INNER)
    found = {}
    for cache in ("hot", "cold"):
        module = build(spec, device="cuda", dtype=torch.bfloat16)
        subject = subjects.subject_of(module, replace(work, cache=cache), spec.d_model, seed=0)
        found[cache] = times_of(subject, 50).device
    assert found["cold"] > 1.1 * found["hot"]


def test_the_command_runs_on_the_gpu(tmp_path: Path) -> None:
    done = ffnbench("compare", "--quick", "--device", "cuda", "--dtype", "bf16", "-o", str(tmp_path / "run.csv"))
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader((tmp_path / "run.csv").read_text().splitlines()))
    assert [(row["device"], row["failure"]) for row in rows] == [("cuda", "")] * 3
