"""The Python function `train`."""

from __future__ import annotations

from ffnbench.api.preparing import prepare
from ffnbench.extras.train.measuring import measure
from ffnbench.extras.train.planning import plan_train
from ffnbench.extras.train.request import TrainRequest
from ffnbench.python.following import CalledHere
from ffnbench.python.public import asks
from ffnbench.report.shown_report import ShownReport as Report


@asks(TrainRequest, follows=True)
def train(request: TrainRequest, here: CalledHere) -> Report:
    """Train a small language model of bytes with each variant: held-out loss beside the time of a step and of a token.

    >>> ffnbench.train(["relu", "swiglu"], steps=200).frame()[["variant", "loss", "difference", "verdict"]]
    """
    return measure(prepare(request, here.world, plan_train), here.world, here.following)
