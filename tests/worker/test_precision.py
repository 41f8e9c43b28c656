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
from fake_machine import planned
from torch import Tensor, nn

from ffnbench.ffn.proof import relative_error
from ffnbench.plan.plan import Workload
from ffnbench.worker.jobs import Jobs
from ffnbench.worker.probe_jobs import InProcess
from ffnbench.worker.subject import set_precision

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
    return relative_error(scale * y, ffn(torch.matmul, torch.float64))


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
    request = dict(variants="mine=switching:Switches,exact=relu,fast=relu@matmul_precision=high", d_model=16, d_ff=32, seq_len=4, threads=torch.get_num_threads(), device="cpu", match="none")  # fmt: skip
    jobs = Jobs(planned(**request, probe=InProcess()))
    for label in ("mine", "exact", "fast"):
        jobs.open(label=label, calls=2)
    FOUND.clear()
    for _ in range(2):
        for label, leaves in (
            ("mine", "medium"),
            ("exact", "highest"),
            ("fast", "high"),
        ):
            jobs.sample(label=label, calls=1)
            assert torch.get_float32_matmul_precision() == leaves
    assert FOUND == ["highest"] * 2
    jobs.sample(label="mine", calls=1)
    jobs.memory(label="exact")
    assert torch.get_float32_matmul_precision() == "highest"
