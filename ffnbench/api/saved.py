"""The commands that read saved runs: every figure is computed anew from the samples."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from ffnbench.api.preparing import NULL_SINK
from ffnbench.errors import FfnbenchError, Unfinished
from ffnbench.gate.baseline import made_anew
from ffnbench.plan import added_kind
from ffnbench.report.files.store import load as load_report
from ffnbench.report.output import NullSink
from ffnbench.report.shown_report import ShownReport, as_shown, difference, recompute
from ffnbench.report.views import report_view
from ffnbench.result import Report
from ffnbench.stats.cells import of_shards


def load(path: str) -> ShownReport:
    """A report that `-o run.json` wrote; raises FfnbenchError for a file that is none, or is of another schema."""
    return as_shown(load_report(path))


def report(path: str, sink: NullSink = NULL_SINK) -> tuple[ShownReport, str]:
    """A saved run again; and what to say where the file's own figures are others."""
    stored = load(path)
    sink.known(stored)
    if stored.interrupted and not stored.samples:
        raise Unfinished(f"{path!r} was interrupted before anything was measured", made_anew(path, stored))
    fresh = recompute(stored)
    sink.show(lambda: report_view(fresh).ending(0))  # whatever it ended with: it can be shown
    return fresh, difference(stored, fresh)


def _refuse_added(path: str, report: Report) -> None:
    """Raise FfnbenchError for a run of a kind that has a table and a picture of its own alone."""
    if added := added_kind(report.plan.kind):
        hint = f"ffnbench report {shlex.quote(path)} -o {report.plan.kind}.png"
        raise FfnbenchError(f"{path!r} says {added.says}, and here times are shown", hint)


def reports(paths: Sequence[str], sink: NullSink = NULL_SINK) -> list[ShownReport]:
    """Saved runs beside the first of them, row by row: old, new and the change with its interval; nothing is judged.
    The shards of a sweep are one run.
    """
    from ffnbench.report.tables.side_by_side import side_by_side_view

    found = [recompute(load(path)) for path in paths]
    for path, one in zip(paths, found, strict=True):
        _refuse_added(path, one)
    if all(one.plan.shard for one in found):
        whole = recompute(of_shards(found))
        sink.show(lambda: report_view(whole).ending(0))
        return [whole]
    view = side_by_side_view(paths, found)
    sink.show(lambda: view)
    return found
