"""What can be asked of a bisect."""

from __future__ import annotations

from dataclasses import dataclass

from ffnbench.request import (
    ARGUMENTS,
    EFFORT,
    LIMITS,
    SIDES,
    Conditions,
    Device,
    Repeatable,
    Request,
    Shape,
    Sizes,
    flag,
)


# fmt: off
@dataclass(frozen=True, kw_only=True)
class BisectRequest(Repeatable, Conditions, Device, Shape, Sizes, Request):
    """`ffnbench bisect`: commits between a good and a bad one, each beside the good one."""

    variant: str = flag("", "package.module:Attr, or path/to/file.py:Attr.", ARGUMENTS, place="VARIANT")
    good: str = flag("", "A revision that is fast enough.", SIDES, "REV")
    bad: str = flag("HEAD", "A later one that is slow.", SIDES, "REV")
    fail_above: str = flag("5%", "How much slower is too slow.", LIMITS, "PCT%")
    probes: int = flag(20, "Measure at most so many commits now; one may be measured again.", EFFORT, "INT")
    budget: float = flag(3600.0, "Measure for so long at most, in all.", EFFORT, "TIME")
# fmt: on
