"""The Python function `selftest`."""

from __future__ import annotations

from ffnbench.extras.selftest import measuring
from ffnbench.extras.selftest.request import SelftestRequest
from ffnbench.python.following import CalledHere
from ffnbench.python.public import asks
from ffnbench.report.answers import Answer


@asks(SelftestRequest, follows=True)
def selftest(request: SelftestRequest, here: CalledHere) -> Answer:
    """How often ffnbench is wrong on this machine, by runs whose true ratios are known.

    >>> ffnbench.selftest(repeats=4)
    """
    view = measuring.selftest(request, here.world, here.progress)
    return Answer(shown=view, name="selftest")
