"""What can be asked of bounds."""

from __future__ import annotations

from dataclasses import dataclass

from ffnbench.request import CostRequest, Texts


@dataclass(frozen=True, kw_only=True)
class EstimateRequest(CostRequest):
    """`ffnbench estimate`."""

    hardware: Texts = "h100"
    tensor_parallel: int = 1
