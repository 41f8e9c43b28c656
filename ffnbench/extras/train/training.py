"""What `train` does: what is asked is planned, trained and timed, and shown."""

from __future__ import annotations

from ffnbench.api.preparing import NULL_SINK, prepare
from ffnbench.api.variants import Elsewhere, measured
from ffnbench.extras.train.measuring import measure
from ffnbench.extras.train.planning import plan_train
from ffnbench.extras.train.request import TrainRequest
from ffnbench.report.output import NullSink
from ffnbench.report.shown_report import ShownReport


def train(request: TrainRequest, sink: NullSink = NULL_SINK, elsewhere: Elsewhere | None = None) -> ShownReport:
    """What a small model learns with each variant, beside what a step takes."""
    prepared = prepare(request, sink, plan_train, elsewhere=elsewhere is not None)
    return measured(prepared, sink, measure, elsewhere)
