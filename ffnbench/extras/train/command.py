"""The command `train`."""

from __future__ import annotations

from ffnbench.cli.commands import command, sink_of
from ffnbench.extras.train.request import TrainRequest
from ffnbench.report.flags import MeasuredOutput


@command(
    "train",
    "ffnbench train relu gelu swiglu relu2 -o learnt.json -o learnt.png",
    "ffnbench train relu mine=mypkg.mlp:Mlp --steps 200 --text book.txt",
    "ffnbench train relu swiglu --lr 1e-3,3e-3,6e-3 --budget 30m -o learnt.json",
    docs="docs/training.md#what-is-told",
)
def train(request: TrainRequest, output: MeasuredOutput) -> int:
    """Train a small language model with each variant: held-out loss, beside the time of a step and of a token."""
    from ffnbench.extras.train import training

    with sink_of(output, "train", *vars(request).values(), pictures=True) as sink:
        training.train(request, sink, output.measure)
    return sink.code
