"""The command `bisect`."""

from __future__ import annotations

from ffnbench.cli.commands import command, destination_of
from ffnbench.extras.bisect.request import BisectRequest
from ffnbench.report.flags import Output


@command(
    "bisect",
    "ffnbench bisect mypkg.mlp:SwiGLU --good v1.0 --bad HEAD --fail-above 3%",
    "ffnbench bisect mypkg/mlp.py:SwiGLU --good HEAD~40 --d-model 1024 --budget 20m",
    "ffnbench bisect mypkg.mlp:SwiGLU --good v1.0 -o bisect.json",
    docs="docs/bisect.md#which-commit",
)
def bisect(request: BisectRequest, output: Output) -> int:
    """Find the commit that made a module slower: each is measured beside the good one, as in `ab`.

    A commit that can't be imported or built is skipped. What was measured is kept in git's own folder, so that the
    same command goes on where it ended.
    """
    from ffnbench.extras.bisect.search import search
    from ffnbench.extras.bisect.table import bisect_view
    from ffnbench.run.world import this_machine

    with destination_of(output, "bisect") as destination:
        bisected = search(request, this_machine(wait=output.wait), destination.progress)
        destination.show(bisect_view(bisected))
    return destination.code
