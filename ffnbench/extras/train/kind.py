"""The kind of a plan of what is learnt: its cases, and how its reports read."""

from __future__ import annotations

from ffnbench.extras.train.decoder import TrainCase
from ffnbench.extras.train.metrics import METRICS
from ffnbench.plan import AddedKind

TRAIN = "train"
HERE = "extras.train"
KINDS = {
    TRAIN: AddedKind(
        frame=f"{HERE}.table:training_frame",
        picture=f"{HERE}.picture:training_figure",
        says="what is learnt",
        case=TrainCase,
        metrics=METRICS,
    )
}
