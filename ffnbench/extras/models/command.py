"""The command `inspect`."""

from __future__ import annotations

from ffnbench.cli.commands import command, destination_of
from ffnbench.extras.models.request import InspectRequest
from ffnbench.report.flags import Kept


@command(
    "inspect",
    "ffnbench inspect deepseek-v3",
    "ffnbench inspect mixtral-8x7b --whole-model",
    "ffnbench inspect deepseek-v3 --length 32Ki",
    "ffnbench inspect path/to/config.json --json",
    docs="docs/inspect.md#the-whole-model",
)
def inspect(request: InspectRequest, output: Kept) -> int:
    """Show a model's FFNs in words and numbers, one row a kind of layer."""
    from ffnbench.extras.models.inspecting import model_answer
    from ffnbench.run.world import this_machine

    with destination_of(output, "inspect", request.model) as destination:
        destination.show(model_answer(request, this_machine()))
    return 0
