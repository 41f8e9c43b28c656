"""What the command does: it reads runs from files and folders, and follows their rows."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from ffnbench.common.errors import FfnbenchError
from ffnbench.extras.history.table import annotated, history_frame
from ffnbench.extras.history.timeline import Timeline, timeline_of
from ffnbench.gate.side_by_side import case_differences, common_rows
from ffnbench.report.files.store import load as load_report
from ffnbench.report.formats import View
from ffnbench.result import Report
from ffnbench.stats.figures import with_figures


def history(paths: Sequence[str], tell: Callable[[str], None], *, metric: str = "") -> Timeline:
    """The rows of saved runs over time, with the steps that are found.

    A folder is read for what it has of runs; what else it has is reported by `tell`.
    """
    if find_spec("ruptures") is None:
        raise FfnbenchError("steps are found by ruptures, which is not installed", "pip install 'ffnbench[history]'")
    runs = [(file, with_figures(run) if run.environment else run) for path in paths for file, run in _runs(path, tell)]
    if not runs:
        write = f"ffnbench compare relu swiglu -o {shlex.quote(os.path.join(paths[0], 'run.json'))}"
        raise FfnbenchError(f"no run of ffnbench is in {paths[0]!r}", f"`{write}` writes one")
    timeline = timeline_of([run for _, run in runs], metric)
    if timeline.rows:
        return timeline
    if timeline.runs == 1:
        problem = "one run alone has no history"
    elif metric:
        problem = f"no two of these {len(runs)} runs have a {metric} of the same row"
    else:
        problem = f"no two of these {len(runs)} runs have the same row on the same kind of machine{_unlike(runs)}"
    more = f"`ffnbench check {shlex.quote(runs[0][0])} --append` adds a run of the same plan to its file"
    raise FfnbenchError(problem, more)


def _unlike(runs: Sequence[tuple[str, Report]]) -> str:
    """The first thing that is not the same about the first run and the last one, where that is in their plans."""
    (first, old), (last, new) = runs[0], runs[-1]
    common = common_rows([old, new])
    if common:
        differences = case_differences(old.plan.case(common[0]), new.plan.case(common[0]))
    else:
        differences = [("the first row", old.plan.shown[0].label, new.plan.shown[0].label)]
    if not differences:
        return ""
    name, then, now = differences[0]
    return f": {name} is {then} in {first!r}, {now} in {last!r}"


def _runs(path: str, tell: Callable[[str], None]) -> Iterator[tuple[str, Report]]:
    """The runs of a file, or of all files of a folder, each with the path of its file."""
    if not os.path.isdir(path):
        yield from ((path, run) for run in load_report(path).runs)
        return
    others = []
    for file in sorted(Path(path).glob("*.json")):
        try:
            if not file.is_file():  # a pipe would be waited for
                raise FfnbenchError(f"{str(file)!r} is no file")
            yield from ((str(file), run) for run in load_report(file).runs)
        except FfnbenchError:
            others.append(file.name)
    if others:
        tell(f"note: left out, as they are no runs: {', '.join(others)}")


def history_view(timeline: Timeline) -> View:
    """Rows over time as the end of a command."""

    def picture(suffix: str) -> bytes:
        from ffnbench.extras.history.picture import history_figure
        from ffnbench.report.pictures.canvas import render

        return render(history_figure(timeline), suffix)

    newest = max((point.run for row in timeline.rows for point in row.points), key=lambda run: run.created)
    title = f"history: {', '.join(dict.fromkeys(row.case.label for row in timeline.rows))}"
    return View(
        frame=lambda: history_frame(timeline),
        pictures={"": picture},
        reports=[newest],
        title=title,
        more_formats={"github": lambda: annotated(timeline)},
    )
