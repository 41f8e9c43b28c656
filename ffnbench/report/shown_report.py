"""How a report reads: its frame and its picture by the kind of its plan, all that writes it, and what shows itself.

A new kind of the core is one row of VIEWS.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from ffnbench.common.errors import EXIT_INTERRUPTED, Interrupted, Unfinished
from ffnbench.features import function_of
from ffnbench.plan import Kind, added_kind
from ffnbench.report.answers import Shows, as_displayed, origin_record, written_to
from ffnbench.report.formats import NOT_ALL, PICTURES, ROOFLINE, View
from ffnbench.report.frame import Frame
from ffnbench.result import Environment, Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ffnbench.report.arrangement import Arrangement

SOMEWHERE = Environment(fingerprint="", cpu="", usable_cpus=1)
RATIOS = "report.pictures.ratios:ratio_figure"
ROOFS, SWEEP = "report.pictures.roofline:roofline_figure", "report.pictures.sweeps:sweep_figure"
# the frame and the picture of a report, each as `file:name`, loaded where it is called: questions stand above this room
VIEWS = {
    Kind.COMPARE: ("compare.table:compare_frame", RATIOS),
    Kind.SIDES: ("compare.table:compare_frame", RATIOS),
    Kind.BLOCK: ("block.table:block_frame", "block.picture:block_figure"),
    Kind.ACTIVATIONS: ("activations.table:timing_frame", RATIOS),
}


def _functions_of(report: Report) -> tuple[str, str]:
    """What makes the frame and the picture of this report, by the kind of its plan."""
    if added := added_kind(report.plan.kind):
        return added.frame, added.picture
    return VIEWS[Kind(report.plan.kind)]


def frame_of(report: Report) -> Frame:
    """The frame of this report."""
    frame: Frame = function_of(_functions_of(report)[0])(report)
    return frame


def figure_of(report: Report, *, roofline: bool = False) -> Figure:
    """The picture of this report; raises FfnbenchError where there is nothing to draw. matplotlib is loaded for it."""
    picture = ROOFS if roofline else _functions_of(report)[1]
    if picture == RATIOS and report.comparisons and report.plan.axes:
        picture = SWEEP
    figure: Figure = function_of(picture)(report)
    return figure


def picture_of(report: Report, suffix: str, *, roofline: bool = False) -> bytes:
    """The picture as bytes of that format."""
    figure = figure_of(report, roofline=roofline)
    from ffnbench.report.pictures.canvas import render

    return render(figure, suffix)


def refuse_unknown_columns(report: Report, how: Arrangement) -> None:
    """Raise FfnbenchError for a column that no answer to this plan has; nothing need be measured yet."""
    from ffnbench.report.arrangement import key_of

    as_measured = replace(report, environment=report.environment or SOMEWHERE)  # with the headings that it will have
    frame = frame_of(as_measured)
    for name in filter(None, (how.sorted_by, *how.chosen)):
        key_of(name, frame)


def _saved_text(report: Report) -> str:
    """The text of a file that `load` reads again."""
    from ffnbench.report.files.store import report_text

    return report_text(report)


def report_view(report: Report) -> View:
    """A report as the end of a command; raises Interrupted where there is nothing to show."""
    if report.interrupted and not report.samples:
        raise Interrupted("interrupted before anything was measured")
    view = View(
        frame=cache(lambda: frame_of(report)),
        json=lambda: _saved_text(report),
        pictures={"": partial(picture_of, report), ROOFLINE: partial(picture_of, report, roofline=True)},
        reports=[report],
        rescue=(lambda: _saved_text(report)) if report.samples else None,
    )
    wanted, problem = report.plan.protocol.runs, None
    if report.interrupted or report.cut_short:
        return view.ending(EXIT_INTERRUPTED)
    if report.stopped:
        problem = Unfinished(report.stopped, NOT_ALL)
    elif report.failed_wholly:
        problem = Unfinished("nothing could be measured: every case failed", "the lines below the table say why")
    elif report.samples and len(report.runs) < wanted:
        problem = Unfinished(f"{len(report.runs)} of {wanted} runs could be kept", "wait until the machine is quiet")
    return view.ending(0, problem)


@dataclass(frozen=True, kw_only=True, repr=False)
class ShownReport(Shows, Report):
    """What was asked, counted and measured, with every sample. It shows, saves and draws itself.

    Public as `ffnbench.Report`. `samples`, `measured` and `comparisons` are what the rows are made of; `interrupted` is
    whether it was ended by hand.
    """

    READ = (
        "comparisons", "costs", "created", "environment", "failures", "interrupted", "measured", "plan", "plot",
        "runs", "samples", "version", "warnings",
    )  # fmt: skip

    @property
    def _stem(self) -> str:
        return self.plan.kind

    @property
    def _origin(self) -> dict[str, Any]:
        return origin_record(self)

    @property
    def table(self) -> Frame:
        """The table that belongs to this report, by the kind of its plan."""
        return frame_of(self)

    def view(self) -> View:
        """The report with all that writes it; raises Interrupted where nothing was measured."""
        return report_view(self)

    def rows(self) -> list[dict[str, Any]]:
        """One flat record a row, in the order and with the names of the CSV contract."""
        return frame_of(self).records()

    @overload
    def plot(self, path: None = None, *, roofline: bool = False) -> Figure: ...

    @overload
    def plot(self, path: str | os.PathLike[str], *, roofline: bool = False) -> Path: ...

    def plot(self, path: str | os.PathLike[str] | None = None, *, roofline: bool = False) -> Figure | Path:
        """The report as a matplotlib Figure, or written to a file (.png, .svg, .pdf), whose path is given back.

        Ratios with their intervals; `roofline` draws the rows below what this machine can do, where `ceilings` were
        measured. Raises FfnbenchError where there is nothing to draw.
        """
        if path is None:
            figure = figure_of(self, roofline=roofline)
            as_displayed(figure)
            return figure
        picture = {end: lambda end=end: picture_of(self, end, roofline=roofline) for end in PICTURES}  # type: ignore[misc]
        return written_to(path, picture, self._stem)
