"""The command `train`."""

from __future__ import annotations

from ffnbench.cli.commands import command, destination_of
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
    from ffnbench.api.measuring import measure_here_or_elsewhere
    from ffnbench.api.preparing import prepare
    from ffnbench.extras.train.measuring import measure
    from ffnbench.extras.train.planning import plan_train
    from ffnbench.report.views import report_view
    from ffnbench.run.world import this_machine

    with destination_of(output, "train", *vars(request).values(), pictures=True) as destination:
        world, elsewhere = this_machine(wait=output.wait), output.measure
        notes = destination.defaults
        prepared = prepare(request, world, plan_train, notes=notes, elsewhere=elsewhere is not None)
        destination.expect(prepared.priced())
        report = measure_here_or_elsewhere(prepared, world, destination, elsewhere, measure)
        destination.show(report_view(report))
    return destination.code
