"""The command `inspect`."""

from __future__ import annotations

from ffnbench.cli.commands import command, sink_of
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
    from ffnbench.extras.models.inspecting import show_model

    with sink_of(output, "inspect", request.model) as sink:
        show_model(request, sink)
    return 0
