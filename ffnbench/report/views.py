"""A kind of plan -> how its report reads. A new kind of the core is one row of VIEWS."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ffnbench.common.errors import EXIT_INTERRUPTED, FfnbenchError, Interrupted, Unfinished
from ffnbench.features import function_of
from ffnbench.plan import Kind, added_kind
from ffnbench.report.arrangement import Arrangement, arranged, key_of
from ffnbench.report.files.store import report_text
from ffnbench.report.formats import NOT_ALL, ROOFLINE, View, view_of
from ffnbench.report.frame import Frame
from ffnbench.result import Environment, Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SOMEWHERE = Environment(
    fingerprint="", cpu="", cpus=1, usable_cpus=1, memory_bytes=None, system="", python="", ffnbench=""
)
AS_IT_COMES = Arrangement()


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
    as_measured = replace(report, environment=report.environment or SOMEWHERE)  # with the headings that it will have
    frame = frame_of(as_measured)
    for name in filter(None, (how.sorted_by, *how.chosen)):
        key_of(name, frame)


def arranged_frame(report: Report, how: Arrangement) -> Frame:
    """The frame as it was asked for; raises FfnbenchError for a sort by what is not known."""
    frame = frame_of(report)
    if how.sort and report.environment is None:
        key = key_of(how.sorted_by, frame)
        if all(row.get(key) is None for part in frame.parts for row in part.rows):
            message = f"--sort {how.sort}: nothing here has that, as it is counted and not measured"
            hint = "`ffnbench compare` measures; `ffnbench cost --sort params` sorts by a count"
            raise FfnbenchError(message, hint)
    return arranged(frame, how) if how else frame


def report_view(report: Report, how: Arrangement = AS_IT_COMES) -> View:
    """A report as the end of a command; raises Interrupted where there is nothing to show."""
    if report.interrupted and not report.samples:
        raise Interrupted("interrupted before anything was measured")
    view = view_of(
        partial(arranged_frame, report, how),
        json=lambda: report_text(report),
        pictures={"": partial(picture_of, report), ROOFLINE: partial(picture_of, report, roofline=True)},
        reports=[report],
        every=False,
        rescue=(lambda: report_text(report)) if report.samples else None,
    )
    if how:
        _ = view.table  # what is wrong with it is told before anything is written
    view = replace(view, arranged=lambda how: report_view(report, how))
    if report.interrupted or report.cut_short:
        return view.ending(EXIT_INTERRUPTED)
    if report.stopped:
        return view.ending(0, Unfinished(report.stopped, NOT_ALL))
    if report.failed_wholly:
        why = Unfinished("nothing could be measured: every case failed", "the lines below the table say why")
        return view.ending(0, why)
    wanted = report.plan.protocol.runs
    if report.samples and len(report.runs) < wanted:
        lost = Unfinished(f"{len(report.runs)} of {wanted} runs could be kept", "wait until the machine is quiet")
        return view.ending(0, lost)
    return view
