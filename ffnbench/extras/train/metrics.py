"""What can be known of a model that is trained."""

from __future__ import annotations

from ffnbench.metrics import Metric

LOSS = "loss"  # held out, at the end
HELD_OUT = "held_out_loss"  # after so many steps
CHOOSING = "choosing_loss"  # at the end, of the part that rates are chosen by
CURVE, SECONDS = "training_loss", "training_s"  # in files of earlier versions: of the steps of a point, and by then
UNITS = {LOSS: "nats", HELD_OUT: "nats", CHOOSING: "nats", CURVE: "nats", SECONDS: "s"}
METRICS = tuple(
    Metric(name=name, unit=unit, job="train", exact=False, less_is_better=True) for name, unit in UNITS.items()
)
