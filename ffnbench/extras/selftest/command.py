"""The command `selftest`."""

from __future__ import annotations

from ffnbench.cli.commands import command, destination_of
from ffnbench.extras.selftest.request import SelftestRequest
from ffnbench.report.flags import Output


@command(
    "selftest",
    "ffnbench selftest",
    "ffnbench selftest --threads 1 --budget 30s",
    "ffnbench selftest --repeats 40 --d-model 256 -o selftest.json",
    docs="docs/selftest.md#how-often-is-it-wrong-here",
)
def selftest(request: SelftestRequest, output: Output) -> int:
    """Count how often ffnbench is wrong on this machine, where the truth is known."""
    from ffnbench.extras.selftest import measuring
    from ffnbench.run.world import this_machine

    with destination_of(output, "selftest") as destination:
        view = measuring.selftest(request, this_machine(wait=output.wait), destination.progress)
        destination.show(view)
    return destination.code
