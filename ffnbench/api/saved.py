"""The commands that read saved runs: every figure is computed anew from the samples."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from ffnbench.api.preparing import NULL_SINK
from ffnbench.errors import FfnbenchError, Unfinished
from ffnbench.gate.baseline import made_anew
from ffnbench.gate.side_by_side import FLOPS, PARAMS, RATIO, common_rows
from ffnbench.gate.steps import refuse_without_ruptures
from ffnbench.gate.timeline import Timeline, timeline_of
from ffnbench.metrics import LATENCY, PEAK
from ffnbench.report.files.store import load as load_report
from ffnbench.report.formats import PICTURES
from ffnbench.report.output import NullSink, OutputSink
from ffnbench.report.shown_report import ShownReport, as_shown, difference, recompute
from ffnbench.report.views import plot_of, report_view
from ffnbench.stats.cells import of_shards
from ffnbench.stats.verdict import with_figures

METRIC_NAMES = {"": "", "latency": LATENCY, "ratio": RATIO, "params": PARAMS, "flops": FLOPS, "peak": PEAK}


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


def history(paths: Sequence[str], sink: NullSink = NULL_SINK, *, metric: str = "") -> Timeline:
    """The rows of saved runs over time, with the steps that are found. A folder is read for what it has of runs."""
    from ffnbench.report.tables.timeline import history_view

    refuse_without_ruptures()
    files = [(file, run) for path in paths for file, run in _runs_in(path, sink)]
    if not files:
        write = f"ffnbench compare relu swiglu -o {shlex.quote(os.path.join(paths[0], 'run.json'))}"
        raise FfnbenchError(f"no run of ffnbench is in {paths[0]!r}", f"`{write}` writes one")
    more = f"`ffnbench check {shlex.quote(files[0][0])} --append` adds a run of the same plan to its file"
    if len(files) < 2:
        raise FfnbenchError("one run alone has no history", more)
    runs = [with_figures(run) if run.environment else run for _, run in files]
    found = timeline_of(runs, METRIC_NAMES[metric])
    if not found.rows:
        if metric and timeline_of(runs).rows:
            raise FfnbenchError(f"no two runs have a {metric} of the same row", "leave --metric out: rows show what they have")
        kinds = "on one kind of machine" if common_rows(runs) else "in common"
        raise FfnbenchError(f"these runs have no row {kinds}", more)
    sink.show(lambda: history_view(found))
    return found


def _runs_in(path: str, sink: NullSink) -> Iterator[tuple[str, Report]]:
    """The runs of a file, or of all files of a folder; what is there and no run is told in a line."""
    if not os.path.isdir(path):
        yield from ((path, run) for run in load_report(path).runs)
        return
    others = []
    for file in sorted(Path(path).glob("*.json")):
        try:
            yield from ((str(file), run) for run in load_report(file).runs)
        except FfnbenchError:
            others.append(file.name)
    if others:
        sink.tell(f"note: left out, as they are no runs: {', '.join(others)}")

