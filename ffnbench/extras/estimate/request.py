"""What can be asked of bounds."""

from __future__ import annotations

from dataclasses import dataclass

from ffnbench.request import WORKLOAD, CostRequest, flag


# fmt: off
@dataclass(frozen=True, kw_only=True)
class EstimateRequest(CostRequest):
    """`ffnbench estimate`."""

    hardware: str = flag(
        "h100", "Machines by name, or a .toml with some of your own: `ffnbench list hardware`.", WORKLOAD, "LIST")
    tensor_parallel: int = flag(
        1, "Split d_ff over so many devices, whose outputs are added by a ring.", WORKLOAD, "INT", also=("--tp",))
# fmt: on
