"""The commands that read saved runs: every figure is computed anew from the samples."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ffnbench.api.preparing import NULL_SINK
from ffnbench.errors import Unfinished
from ffnbench.gate.baseline import made_anew
from ffnbench.report.files.store import load as load_report
from ffnbench.report.formats import PICTURES
from ffnbench.report.output import NullSink, OutputSink
from ffnbench.report.shown_report import ShownReport, as_shown, difference, recompute
from ffnbench.report.views import plot_of, report_view
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


def plot(path: str, sink: OutputSink, **asked: str) -> None:
    """Any column of a saved run over any axis or column, into files; raises FfnbenchError for a name that is none."""
    figure = plot_of(recompute(load(path)), **asked)
    from ffnbench.report.pictures.canvas import render

    for written in sink.write({suffix: partial(render, figure, suffix, texts=True) for suffix in PICTURES}):
        sink.tell(f"wrote {written}")


def reports(paths: Sequence[str], sink: NullSink = NULL_SINK) -> list[ShownReport]:
    """Saved runs beside the first of them, row by row: old, new and the change with its interval; nothing is judged.
    The shards of a sweep are one run.
    """
    from ffnbench.report.tables.side_by_side import side_by_side_view

    found = [recompute(load(path)) for path in paths]
    if all(getattr(one.plan.request, "shard", None) for one in found):
        whole = recompute(of_shards(found))
        sink.show(lambda: report_view(whole).ending(0))
        return [whole]
    view = side_by_side_view(paths, found)
    sink.show(lambda: view)
    return found
