"""The Python function `estimate`."""

from __future__ import annotations

from ffnbench.extras.estimate.estimating import bounds
from ffnbench.extras.estimate.request import EstimateRequest
from ffnbench.python.following import CalledHere
from ffnbench.python.public import asks
from ffnbench.report.answers import Answer


@asks(EstimateRequest)
def estimate(request: EstimateRequest, here: CalledHere) -> Answer:
    """Bound the time of variants on machines that are not here, by published peaks; nothing is measured.

    >>> ffnbench.estimate(["relu", "swiglu"], hardware="h100,a100", dtype="bf16").frame()
    """
    return Answer(shown=bounds(request, here.world), name="estimate")
