"""The Python function `selftest`."""

from __future__ import annotations

from ffnbench.extras.selftest import measuring
from ffnbench.extras.selftest.request import SelftestRequest
from ffnbench.python.calls import answer_of
from ffnbench.python.following import Following
from ffnbench.python.public import asks
from ffnbench.report.answers import Answer


@asks(SelftestRequest, follows=True)
def selftest(request: SelftestRequest, sink: Following) -> Answer:
    """How often ffnbench is wrong on this machine, by runs whose true ratios are known.

    >>> ffnbench.selftest(repeats=4)
    """
    measuring.selftest(request, sink)
    return answer_of(sink, "selftest")
