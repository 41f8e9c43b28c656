"""The command that shows saved runs again."""

from __future__ import annotations

from dataclasses import dataclass

from ffnbench.cli.commands import command, destination_of
from ffnbench.features import function_of
from ffnbench.report.flags import Reported
from ffnbench.request import ARGUMENTS, flag
from ffnbench.streams import say


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
    from ffnbench.api.saved import report_of
    from ffnbench.report.views import report_view

    paths, difference = saved.paths, ""
    with destination_of(output, "report", *paths, pictures=len(paths) == 1, features=True) as destination:
        if len(paths) > 1:
            view = function_of("gate.saved_runs:runs_view")(paths)
        else:
            report, difference = report_of(paths[0])
            destination.expect(report)
            view = report_view(report).ending(0)  # whatever it ended with: it can be shown
        destination.show(view)
    if difference:
        say(f"note: {difference}")
    return destination.code
