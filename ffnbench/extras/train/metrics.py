"""What can be known of a model that is trained."""

from __future__ import annotations

from ffnbench.metrics import Metric

LOSS, CHOOSING, CURVE, HELD_OUT = "loss", "choosing_loss", "training_loss", "held_out_loss"
# fmt: off
METRICS = (
    # held out at the end, and by then; on what rates are chosen by; of the steps of a point
    Metric(name=LOSS, unit="nats", job="train", exact=False, less_is_better=True),
    Metric(name=HELD_OUT, unit="nats", job="train", exact=False, less_is_better=True),
    Metric(name=CHOOSING, unit="nats", job="train", exact=False, less_is_better=True),
    Metric(name=CURVE, unit="nats", job="train", exact=False, less_is_better=True),
    Metric(name="training_s", unit="s", job="train", exact=False, less_is_better=True),  # by then, in older files
)
# fmt: on
