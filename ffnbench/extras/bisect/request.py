"""What can be asked of a bisect."""

from __future__ import annotations

from dataclasses import dataclass

from ffnbench.plan import Cache, MatmulPrecision, Mode, Time
from ffnbench.request import Request, Seconds


@dataclass(frozen=True, kw_only=True)
class BisectRequest(Request):
    """`ffnbench bisect`: commits between a good and a bad one, each beside the good one."""

    PLACED = ("variant",)

    d_model: int | None = None
    d_ff: int | None = None
    bias: bool | None = None
    batch: int = 1
    seq_len: int | None = None
    dtype: str = "float32"
    mode: Mode = Mode.FORWARD
    device: str = "auto"
    threads: int | None = None
    time: Time | None = None
    cache: Cache = Cache.HOT
    matmul_precision: MatmulPrecision = MatmulPrecision.HIGHEST
    reduced_reductions: bool = True
    seed: int = 0
    timeout: Seconds = 300.0
    variant: str = ""
    good: str = ""
    bad: str = "HEAD"
    fail_above: str = "5%"
    probes: int = 20
    budget: Seconds = 3600.0
