"""Saved runs side by side: the runs of `ffnbench report old.json new.json`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from ffnbench.api.saved import load
from ffnbench.errors import FfnbenchError
from ffnbench.gate.side_by_side_table import side_by_side_view
from ffnbench.plan import added_kind
from ffnbench.report.formats import View
from ffnbench.report.shown_report import recompute
from ffnbench.report.views import report_view
from ffnbench.result import Report
from ffnbench.stats.cells import of_shards


def runs_view(paths: Sequence[str]) -> View:
    """Saved runs beside the first of them, row by row: old, new and the change with its interval; nothing is judged.
    The shards of a sweep are one run.
    """
    found = [recompute(load(path)) for path in paths]
    for path, one in zip(paths, found, strict=True):
        _refuse_added(path, one)
    if all(one.plan.shard for one in found):
        whole = recompute(of_shards(found))
        return report_view(whole).ending(0)
    return side_by_side_view(paths, found)


def _refuse_added(path: str, report: Report) -> None:
    """Raise FfnbenchError for a run of a kind that has a table and a picture of its own alone."""
    if added := added_kind(report.plan.kind):
        hint = f"ffnbench report {shlex.quote(path)} -o {report.plan.kind}.png"
        raise FfnbenchError(f"{path!r} says {added.says}, and here times are shown", hint)
