"""The command that sets an FFN beside the attention of its block."""

from __future__ import annotations

from dataclasses import fields

import typer

from ffnbench.cli.app import leave, refuse_idle
from ffnbench.cli.bundles import command
from ffnbench.cli.compare import ALL_SUFFIXES, WORDS
from ffnbench.report.output import Ending, Output
from ffnbench.report.store import inputs_of
from ffnbench.request import Apart, BlockRequest, Effort

MEASURED = (*(field.name for bundle in (Effort, Apart) for field in fields(bundle)), "device", "threads", "textbook")


@command(
    epilog="Examples: ffnbench block --preset bert-base --cost-only; "
    "ffnbench block --preset llama3-8b --seq-len 128,1024,8192 --cost-only; ffnbench block --d-model 512 --quick",
    words=WORDS,
)
def block(context: typer.Context, request: BlockRequest, output: Output) -> None:
    """Set an FFN beside the attention of its block: parameters, FLOPs, KV bytes, latency, and the share of each."""
    from ffnbench import api

    if request.cost_only or request.whole_model:
        refuse_idle(context, MEASURED, "nothing is measured")
    inputs = inputs_of(*vars(request).values())
    if request.whole_model:
        with Ending(output, "model", inputs=inputs) as ending:
            api.whole_model(request, ending)
    else:
        with Ending(output, "block", suffixes=ALL_SUFFIXES, inputs=inputs) as ending:
            api.block(request, ending)
    leave(ending.code)
