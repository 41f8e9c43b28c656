"""Saved runs side by side: the runs of `ffnbench report old.json new.json`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from ffnbench.api.saved import load
from ffnbench.common.errors import FfnbenchError
from ffnbench.gate.side_by_side import compare_runs
from ffnbench.gate.side_by_side_table import names_of, side_by_side_frame
from ffnbench.plan import added_kind
from ffnbench.report.formats import View
from ffnbench.report.shown_report import recompute
from ffnbench.report.words import listed
from ffnbench.result import Report


def runs_view(paths: Sequence[str]) -> View:
    """Saved runs beside the first of them, row by row: old, new and the change with its interval; nothing is judged."""
    runs = [recompute(load(path)) for path in paths]
    for path, run in zip(paths, runs, strict=True):
        _refuse_added(path, run)
    return side_by_side_view(paths, runs)


def side_by_side_view(paths: Sequence[str], runs: Sequence[Report]) -> View:
    """The first run beside all others; raises FfnbenchError where they have no row in common."""
    names, kinds = names_of(paths), {run.plan.kind for run in runs}
    if len(kinds) > 1:
        commands = listed(sorted(kinds))
        raise FfnbenchError(f"these are runs of different commands: {commands}", "give runs of one command")
    compared = compare_runs(runs)
    if not compared.common:
        rows = ", ".join(f"{run.plan.shown[0].label} ({name})" for name, run in zip(names, runs, strict=True))
        raise FfnbenchError(f"these runs have no row in common: {rows}", f"one alone: `ffnbench report {paths[0]}`")
    frame = side_by_side_frame(names, runs, compared)
    return View(frame=lambda: frame, reports=runs, title=f"report: {', '.join(names)}")


def _refuse_added(path: str, report: Report) -> None:
    """Raise FfnbenchError for a run of a kind that has a table and a picture of its own alone."""
    added = added_kind(report.plan.kind)
    if added:
        hint = f"ffnbench report {shlex.quote(path)} -o {report.plan.kind}.png"
        raise FfnbenchError(f"{path!r} says {added.says}, and here times are shown", hint)
