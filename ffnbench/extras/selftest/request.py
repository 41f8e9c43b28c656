"""What can be asked of a selftest."""

from __future__ import annotations

from dataclasses import dataclass

from ffnbench.request import Request, Seconds


@dataclass(frozen=True, kw_only=True)
class SelftestRequest(Request):
    """`ffnbench selftest`."""

    repeats: int = 10
    budget: Seconds = 15.0
    d_model: int = 256
    threads: int | None = None
    seed: int = 0
