"""The command that shows saved runs again."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from ffnbench.cli.commands import command, sink_of
from ffnbench.features import function_of
from ffnbench.report.flags import Reported
from ffnbench.request import ARGUMENTS, flag


@dataclass(frozen=True, kw_only=True)
class Saved:
    """Runs in files."""

    paths: tuple[str, ...] = flag(
        (), "A .json that `compare`, `block` or `activations --time` wrote with -o; several: side by side.", ARGUMENTS,
        place="FILE...",
    )  # fmt: skip


@command(
    "report",
    "ffnbench report run.json -v",
    "ffnbench report run.json -o run.md -o run.png",
    "ffnbench report old.json new.json",
    docs="docs/methodology.md#counts",
)
def report(saved: Saved, output: Reported) -> int:
    """Show a saved run again, every figure computed anew; or several side by side: old, new, change, its interval."""
    from ffnbench import api
    from ffnbench.streams import visible

    paths, differs = saved.paths, ""
    with sink_of(output, "report", *paths, pictures=len(paths) == 1, features=True) as sink:
        if len(paths) > 1:
            function_of("gate.saved_runs:reports")(paths, sink)
        else:
            _, differs = api.report(paths[0], sink)
    if differs:
        print(visible(f"note: {differs}"), file=sys.stderr)
    return sink.code
