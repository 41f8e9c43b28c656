"""The Python function `train`."""

from __future__ import annotations

from ffnbench.extras.train import training
from ffnbench.extras.train.request import TrainRequest
from ffnbench.python.following import Following
from ffnbench.python.public import asks
from ffnbench.report.shown_report import ShownReport as Report


@asks(TrainRequest, follows=True)
def train(request: TrainRequest, sink: Following) -> Report:
    """Train a small language model of bytes with each variant: held-out loss beside the time of a step and of a token.

    >>> ffnbench.train(["relu", "swiglu"], steps=200).frame()[["variant", "loss", "difference", "verdict"]]
    """
    return training.train(request, sink)
