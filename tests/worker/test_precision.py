"""How exactly matrices are multiplied: set as asked whatever user code does;
tolerances, held against emulated bits.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ffnbench.ffn.proof import tolerance_of
from ffnbench.ffn.spec import DTYPES
from ffnbench.messages import MeasureMemory, Open, TakeSample
from ffnbench.plan import Workload
from ffnbench.planning.compare import plan_compare
from ffnbench.request import CompareRequest
from ffnbench.worker.correctness import row_error
from ffnbench.worker.jobs import Jobs
from ffnbench.worker.probe_jobs import InProcess
from ffnbench.worker.subject import set_precision

BACKENDS: Any = torch.backends
BITS = {
    "high": 10,
    "medium": 7,
}  # of the significand of TF32 and of bfloat16 that are kept


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    set_precision("highest")


def to_nearest(x: Tensor, bits: int) -> Tensor:
    """float32 with so many explicit bits of the significand, ties to even."""
    whole, drop = x.view(torch.int32), 23 - bits
    up = (1 << (drop - 1)) - 1 + ((whole >> drop) & 1)
    return ((whole + up) & -(1 << drop)).view(torch.float32)


def cut_off(x: Tensor, bits: int) -> Tensor:
    """The same with the rest cut off, as hardware that ignores it does."""
    return (x.view(torch.int32) & -(1 << (23 - bits))).view(torch.float32)


def error_of(
    rounded: Callable[[Tensor], Tensor],
    act: Callable[[Tensor], Tensor],
    *,
    gated: bool,
    width: int,
    scale: float = 1.0,
) -> float:
    """The largest error of a row of an FFN whose products round their factors, against
    float64.
    """
    g = torch.Generator().manual_seed(width)
    d, d_ff = width, 8 * width // 3
    gate, up = (torch.randn(d, d_ff, generator=g) / math.sqrt(3 * d) for _ in range(2))
    down, x = (
        torch.randn(d_ff, d, generator=g) / math.sqrt(3 * d_ff),
        torch.randn(32, d, generator=g),
    )

    def ffn(product: Callable[[Tensor, Tensor], Tensor], dtype: torch.dtype) -> Tensor:
        a, b, c, z = (one.to(dtype) for one in (gate, up, down, x))
        h = act(product(z, a)) * product(z, b) if gated else act(product(z, a))
        return product(h, c)

    y = ffn(
        lambda a, b: (rounded(a).double() @ rounded(b).double()).float(), torch.float32
    )
    return row_error(scale * y, ffn(torch.matmul, torch.float64))


def work(asked: str, dtype: str = "float32") -> Workload:
    return Workload(
        batch=1, seq_len=1, dtype=dtype, device="cpu", mode="forward", threads=1, matmul_precision=asked
    )  # fmt: skip


@pytest.mark.parametrize("asked", BITS)
@pytest.mark.parametrize(
    ("act", "gated"), [(F.silu, True), (lambda x: F.relu(x) ** 2, False)]
)
def test_rounding_of_factors_stays_within_the_tolerance_with_room(
    asked: str, gated: bool, act: Any
) -> None:
    tolerance = work(asked).tolerance
    for width in (48, 384):
        near, cut = (
            error_of(lambda x, r=r: r(x, BITS[asked]), act, gated=gated, width=width)
            for r in (to_nearest, cut_off)
        )
        assert tolerance / 20 < near < tolerance / 4
        assert near < cut < tolerance / 1.3


def test_a_module_that_is_one_percent_off_is_found_at_high_and_tf32_at_highest() -> (
    None
):
    off = error_of(
        lambda x: to_nearest(x, 10), F.silu, gated=True, width=96, scale=1.01
    )
    assert off > 1.5 * work("high").tolerance
    assert (
        error_of(lambda x: to_nearest(x, 10), F.silu, gated=True, width=96)
        > 2 * work("highest").tolerance
    )


def test_precision_is_float32s_alone() -> None:
    assert {work(name, "bfloat16").tolerance for name in BITS} == {
        DTYPES.get("bfloat16").tolerance
    }
    assert tolerance_of(torch.float32) == DTYPES.get("float32").tolerance
    torch.set_float32_matmul_precision("high")
    assert tolerance_of(torch.float32) > 10 * DTYPES.get("float32").tolerance
    set_precision("highest")
    BACKENDS.cuda.matmul.fp32_precision = (
        "tf32"  # both ways are mixed: torch refuses to say
    )
    assert tolerance_of(torch.float32) == DTYPES.get("float32").tolerance


DIRT = (  # what user code may do, one way or the other
    lambda: torch.set_float32_matmul_precision("medium"),
    lambda: setattr(BACKENDS.cuda.matmul, "allow_tf32", True),
    lambda: setattr(BACKENDS.cuda.matmul, "fp32_precision", "tf32"),
    lambda: setattr(BACKENDS, "fp32_precision", "tf32"),
    lambda: setattr(BACKENDS.cudnn, "fp32_precision", "tf32"),
    lambda: setattr(BACKENDS.mkldnn, "fp32_precision", "bf16"),
    lambda: setattr(BACKENDS.mkldnn.matmul, "fp32_precision", "bf16"),
    lambda: setattr(BACKENDS.mkldnn.conv, "fp32_precision", "bf16"),
    lambda: setattr(BACKENDS.cudnn, "allow_tf32", True),
    lambda: setattr(BACKENDS.cuda.matmul, "allow_fp16_accumulation", True),
    lambda: setattr(
        BACKENDS.cuda.matmul, "allow_fp16_reduced_precision_reduction", False
    ),
    lambda: setattr(
        BACKENDS.cuda.matmul, "allow_bf16_reduced_precision_reduction", (False, False)
    ),
)


def in_force() -> list[Any]:
    """All that torch says of it, in both of its ways."""
    cublas = BACKENDS.cuda.matmul
    return [
        torch.get_float32_matmul_precision(), cublas.allow_tf32, cublas.fp32_precision, BACKENDS.cudnn.allow_tf32,
        BACKENDS.cudnn.conv.fp32_precision, BACKENDS.mkldnn.matmul.fp32_precision,
        BACKENDS.mkldnn.conv.fp32_precision, cublas.allow_fp16_reduced_precision_reduction,
        cublas.allow_bf16_reduced_precision_reduction, cublas.allow_fp16_accumulation,
    ]  # fmt: skip


@pytest.mark.parametrize("asked", ["highest", "high", "medium"])
def test_whatever_was_set_before_it_is_as_asked_after(asked: str) -> None:
    set_precision(asked)
    clean = in_force()
    assert clean[0] == asked
    assert clean[1] is (asked != "highest")
    assert clean[-3:] == [True, True, False]
    for spoil in DIRT:
        spoil()
        set_precision(asked)
        assert in_force() == clean
    set_precision(asked, reduced_reductions=False)
    assert in_force()[-3:-1] == [False, False]


class Switches(nn.Module):
    """Switches TF32 on whenever it is called, and remembers what it found."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.up, self.down = (
            nn.Linear(d_model, d_ff, bias=False),
            nn.Linear(d_ff, d_model, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        FOUND.append(torch.get_float32_matmul_precision())
        y: Tensor = self.down(torch.relu(self.up(x)))
        torch.set_float32_matmul_precision("medium")
        return y


FOUND: list[str] = []


def test_a_module_that_switches_tf32_on_leaves_the_next_sample_as_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "switching", sys.modules[__name__])
    request = CompareRequest(
        variants="mine=switching:Switches,exact=relu,fast=relu@matmul_precision=high", d_model=16, d_ff=32, seq_len=4,
        threads=torch.get_num_threads(), device="cpu", match="none",
    )  # fmt: skip
    jobs = Jobs(plan_compare(request, InProcess()))
    for label in ("mine", "exact", "fast"):
        jobs.open(Open(label=label, calls=2))
    FOUND.clear()
    for _ in range(2):
        for label, leaves in (
            ("mine", "medium"),
            ("exact", "highest"),
            ("fast", "high"),
        ):
            jobs.take_sample(TakeSample(label=label, calls=1))
            assert torch.get_float32_matmul_precision() == leaves
    assert FOUND == ["highest"] * 2
    jobs.take_sample(TakeSample(label="mine", calls=1))
    jobs.measure_memory(MeasureMemory(label="exact"))
    assert torch.get_float32_matmul_precision() == "highest"


def test_keys_reach_what_they_are_about() -> None:
    def work(variant: str, **flags: Any) -> Workload:
        request = CompareRequest(variants=variant, threads=1, **flags)
        return plan_compare(request).cases[0].workload

    halves = "swiglu@dtype=bf16@reduced_reductions=false"
    assert work("swiglu@matmul_precision=high").matmul_precision == "high"
    assert not work(halves).reduced_reductions
    assert work(halves, device="cpu").reduced_reductions
