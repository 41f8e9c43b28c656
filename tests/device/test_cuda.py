"""The same promises on a GPU. Skips itself where there is none."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from shell import ffnbench
from torch import Tensor, nn

from ffnbench.device.environment import accelerator_of
from ffnbench.ffn.cost import cost
from ffnbench.ffn.spec import FFNSpec, Gate
from ffnbench.plan.plan import Workload
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
