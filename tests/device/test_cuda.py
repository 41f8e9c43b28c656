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
from ffnbench.worker import peak_memory, timing
from ffnbench.worker import subject as subjects
from ffnbench.worker.backends.building import build_module

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def subject_of(spec: FFNSpec, dtype: str, mode: str) -> subjects.Subject:
    work = Workload(
        batch=4, seq_len=256, dtype=dtype, device="cuda", mode=mode, threads=1
    )
    module = build_module(spec, device="cuda", dtype=getattr(torch, dtype))
    subject = subjects.subject_of(module, work, spec.d_model, seed=0)
    for _ in range(
        3
    ):  # the matrix library takes its workspace now, not during the count
        subject.clear()
        subject.call()
    return subject


@pytest.mark.parametrize("mode", ["forward", "train"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("gate", [Gate.NONE, Gate.INNER])
def test_bytes_are_the_closed_form(
    gate: Gate, bias: bool, dtype: str, mode: str
) -> None:
    spec = FFNSpec(d_model=512, d_ff=2048, activation="silu", gate=gate, bias=bias)
    subject = subject_of(spec, dtype, mode)
    predicted = cost(
        spec, tokens=1024, dtype=dtype, train=mode == "train", device="cuda"
    )
    assert predicted.peak_bytes is not None
    assert (
        peak_memory.peak_bytes(subject) == predicted.peak_bytes
    )  # in bytes as they were asked for, not in blocks
    if mode == "train":
        assert peak_memory.saved_bytes(subject) == predicted.saved_bytes


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("dispatch", list(Dispatch), ids=lambda d: d.value)
def test_experts_compute_the_float64_reference(dispatch: Dispatch, dtype: str) -> None:
    moe = MoESpec(experts=8, top_k=2, shared_d_ff=64, dispatch=dispatch)
    spec = FFNSpec(
        d_model=256, d_ff=128, activation="silu", gate=Gate.INNER, bias=True, moe=moe
    )
    try:
        subject = subject_of(spec, dtype, "train")
    except Unsupported as told:
        pytest.skip(told.message)
    y, expected = (
        subject.module(subject.x).detach().double(),
        reference_output(subject.module, subject.x),
    )
    assert (
        float((y - expected).norm() / expected.norm())
        < {"float32": 5e-3, "bfloat16": 3e-2}[dtype]
    )


LARGE = FFNSpec(d_model=4096, d_ff=11008, activation="silu", gate=Gate.INNER)
SMALL = FFNSpec(d_model=64, d_ff=128, activation="silu", gate=Gate.INNER)


def times_of(subject: subjects.Subject, calls: int) -> timing.Times:
    """The second of two samples: in the first kernels are loaded."""
    inputs = subject.pool.renew(7, calls)
    timing.time_calls(subject, inputs)
    return timing.time_calls(subject, subject.pool.renew(8, calls))


def events_around(call: Callable[[], object], calls: int) -> float:
    """Seconds of one of so many calls, by two events and nothing of ffnbench's."""
    start, end = (
        torch.cuda.Event(enable_timing=True),
        torch.cuda.Event(enable_timing=True),
    )
    torch.cuda.synchronize()
    start.record()
    for _ in range(calls):
        call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1e3 / calls


@pytest.mark.parametrize("mode", ["forward", "train"])
def test_large_products_take_what_two_bare_events_say_and_what_the_wall_says(
    mode: str,
) -> None:
    """So large that launching them is hidden: three ways to the same time."""
    subject = subject_of(LARGE, "bfloat16", mode)
    times = times_of(subject, 50)

    def call() -> None:
        subject.clear()
        subject.call()

    bare = events_around(call, 50)
    assert times.host < times.device
    assert times.device == pytest.approx(bare, rel=0.03)
    assert times.device == pytest.approx(times.wall, rel=0.05)


def test_a_cold_call_takes_what_triton_says() -> None:
    """do_bench flushes the cache before each call too."""
    testing = pytest.importorskip("triton.testing")
    work = Workload(
        batch=1,
        seq_len=16,
        dtype="bfloat16",
        device="cuda",
        mode="forward",
        threads=1,
        cache="cold",
    )
    module = build_module(LARGE, device="cuda", dtype=torch.bfloat16)
    subject = subjects.subject_of(module, work, LARGE.d_model, seed=0)
    with torch.inference_mode():
        by_triton = (
            testing.do_bench(
                lambda: module(subject.x), warmup=200, rep=500, return_mode="median"
            )
            / 1e3
        )
    assert times_of(subject, 50).device == pytest.approx(by_triton, rel=0.05)


class Sleeping(nn.Module):
    """One kernel that waits for so many cycles, on a stream of its own where there is
    one; then what `spoils` does.

    With a stream, `joined`: it waits for the current one, which waits for it.
    """

    def __init__(
        self,
        cycles: int,
        *,
        stream: torch.cuda.Stream | None = None,
        joined: bool = True,
        reads: bool = False,
    ) -> None:
        super().__init__()
        self.cycles, self.stream, self.joined, self.reads = (
            cycles,
            stream,
            joined,
            reads,
        )

    def forward(self, x: Tensor) -> Tensor:
        current = torch.cuda.current_stream()
        stream = self.stream or current
        if self.joined:
            stream.wait_stream(current)
        with torch.cuda.stream(stream):
            torch.cuda._sleep(self.cycles)
        if self.joined:
            current.wait_stream(stream)
        if self.reads:
            float(x[0, 0, 0])
        return x


def sleeping(seconds: float, **how: Any) -> tuple[subjects.Subject, float]:
    """A subject whose call takes about so long, and how long exactly: the clock by
    which it counts is calibrated over half a second, during which it also comes to
    rest.
    """
    cycle_s = events_around(lambda: torch.cuda._sleep(100_000_000), 10) / 100_000_000
    cycles = round(seconds / cycle_s)
    x = torch.randn(1, 8, 64, device="cuda")
    module = Sleeping(cycles, **how)
    return subjects.Subject(
        module, x, x.clone(), False, accelerator=accelerator_of("cuda")
    ), cycles * cycle_s


@pytest.mark.parametrize("seconds", [100e-6, 1e-3, 0.05])
@pytest.mark.parametrize("joined", [False, True], ids=["", "on a side stream"])
def test_a_kernel_of_known_duration_is_timed_to_two_percent(
    seconds: float, joined: bool
) -> None:
    subject, truth = sleeping(
        seconds, stream=torch.cuda.Stream() if joined else None, joined=joined
    )
    times = times_of(subject, 50 if seconds < 0.01 else 2)
    assert times.device == pytest.approx(
        truth, rel=0.02, abs=2e-6
    )  # the way from one kernel to the next is 1 to 2 us
    assert times.wall == pytest.approx(truth, rel=0.05, abs=20e-6)


@pytest.mark.parametrize(
    "how",
    [{"reads": True}, {"stream": True, "joined": False}],
    ids=["it waits", "beside"],
)
def test_what_can_not_be_told_apart_has_no_time_of_the_device(
    how: dict[str, Any],
) -> None:
    if how.get("stream"):
        how = how | {"stream": torch.cuda.Stream()}
    subject, _ = sleeping(1e-3, **how)
    assert times_of(subject, 10).device is None


class Taking(nn.Module):
    """Takes so many bytes for as long as it is called."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        torch.empty(self.size, dtype=torch.uint8, device=x.device)
        return x


@pytest.mark.parametrize("size", [512, 3 << 20, 1 << 30])
def test_a_known_allocation_is_the_peak_to_the_byte(size: int) -> None:
    """Of sizes that torch's allocator does not round, so that its own count is the
    same.
    """
    x = torch.randn(1, 8, 64, device="cuda")
    subject = subjects.Subject(
        Taking(size), x, x.clone(), False, accelerator=accelerator_of("cuda")
    )
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    subject.call()
    by_torch = torch.cuda.max_memory_allocated() - before
    assert peak_memory.peak_bytes(subject) == size == by_torch
    odd = subjects.Subject(
        Taking(size - 1), x, x.clone(), False, accelerator=accelerator_of("cuda")
    )
    assert peak_memory.peak_bytes(odd) == size - 1


def test_cold_calls_read_their_weights_from_memory() -> None:
    """Weights of 6 MiB: the last cache of every GPU since 2020 holds them."""
    work = Workload(
        batch=1,
        seq_len=1,
        dtype="bfloat16",
        device="cuda",
        mode="forward",
        threads=1,
        cache="cold",
    )
    spec = FFNSpec(d_model=1024, d_ff=1024, activation="silu", gate=Gate.INNER)
    found = {}
    for cache in ("hot", "cold"):
        module = build_module(spec, device="cuda", dtype=torch.bfloat16)
        subject = subjects.subject_of(
            module, replace(work, cache=cache), spec.d_model, seed=0
        )
        found[cache] = times_of(subject, 50).device
    assert found["cold"] > 1.1 * found["hot"]


def test_the_command_runs_on_the_gpu(tmp_path: Path) -> None:
    done = ffnbench(
        "compare",
        "--quick",
        "--device",
        "cuda",
        "--dtype",
        "bf16",
        "-o",
        str(tmp_path / "run.csv"),
    )
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader((tmp_path / "run.csv").read_text().splitlines()))
    assert [(row["device"], row["failure"]) for row in rows] == [("cuda", "")] * 3
