"""The Python function `estimate`."""

from __future__ import annotations

from ffnbench.extras.estimate.estimating import bounds
from ffnbench.extras.estimate.request import EstimateRequest
from ffnbench.python.calls import answer_of
from ffnbench.python.following import Following
from ffnbench.python.public import asks
from ffnbench.report.answers import Answer


@asks(EstimateRequest)
def estimate(request: EstimateRequest, sink: Following) -> Answer:
    """Bound the time of variants on machines that are not here, by published peaks; nothing is measured.

    >>> ffnbench.estimate(["relu", "swiglu"], hardware="h100,a100", dtype="bf16").frame()
    """
    bounds(request, sink)
    return answer_of(sink, "estimate")
