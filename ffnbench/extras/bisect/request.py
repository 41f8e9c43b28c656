"""What can be asked of a bisect."""

from __future__ import annotations

from dataclasses import dataclass

from ffnbench.request import Conditions, Device, Repeatable, Request, Seconds, Shape, Sizes


@dataclass(frozen=True, kw_only=True)
class BisectRequest(Repeatable, Conditions, Device, Shape, Sizes, Request):
    """`ffnbench bisect`: commits between a good and a bad one, each beside the good one."""

    PLACED = ("variant",)

    variant: str = ""
    good: str = ""
    bad: str = "HEAD"
    fail_above: str = "5%"
    probes: int = 20
    budget: Seconds = 3600.0
