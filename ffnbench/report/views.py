"""A kind of plan -> how its report reads. A new kind of the core is one row of VIEWS."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from ffnbench.errors import EXIT_INTERRUPTED, FfnbenchError, Interrupted, Unfinished
from ffnbench.features import function_of
from ffnbench.plan import Kind, added_kind
from ffnbench.report.arrangement import Arrangement, arranged, key_of
from ffnbench.report.files.store import report_text
from ffnbench.report.formats import NOT_ALL, ROOFLINE, View, view_of
from ffnbench.report.frame import Frame, Row
from ffnbench.result import Environment, Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SOMEWHERE = Environment(
    fingerprint="", cpu="", cpus=1, usable_cpus=1, memory_bytes=None, system="", python="", ffnbench=""
)
AS_IT_COMES = Arrangement()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How the reports of a kind read: functions, each as `file:name`, loaded where they are called. A file is
    one of report/, or a feature's by its whole name.
    """

    tables: str
    rows: str
    picture: str

    def table(self, report: Report) -> Frame:
        """The table or tables for people."""
        frame: Frame = function_of(self.tables)(report)
        return frame

    def records(self, report: Report) -> list[Row]:
        """The rows for programs."""
        found: list[Row] = function_of(self.rows)(report)
        return found


RATIOS, OF_ROOFLINE = "report.pictures.ratios:ratio_figure", "report.pictures.roofline:roofline_figure"
OF_SWEEP = "report.pictures.sweeps:sweep_figure"
OF_CASES = Reading(tables="compare.table:compare_table", rows="report.columns:case_records", picture=RATIOS)
VIEWS = {
    Kind.COMPARE: OF_CASES,
    Kind.SIDES: OF_CASES,
    Kind.BLOCK: Reading(
        tables="block.table:block_frame",
        rows="block.rows:block_records",
        picture="block.picture:block_figure",
    ),
    Kind.ACTIVATIONS: Reading(
        tables="activations.table:timing_frame", rows="activations.table:timing_records", picture=RATIOS
    ),
}


def reading_of(report: Report) -> Reading:
    """How this report reads, by the kind of its plan."""
    if added := added_kind(report.plan.kind):
        return Reading(tables=added.tables, rows=added.rows, picture=added.picture)
    return VIEWS[Kind(report.plan.kind)]


def figure_of(report: Report, *, roofline: bool = False) -> Figure:
    """The picture of this report; raises FfnbenchError where there is nothing to draw. matplotlib is loaded for it."""
    picture = OF_ROOFLINE if roofline else reading_of(report).picture
    if picture == RATIOS and report.comparisons and report.plan.axes:
        picture = OF_SWEEP
    figure: Figure = function_of(picture)(report)
    return figure


def picture_of(report: Report, suffix: str, *, roofline: bool = False) -> bytes:
    """The picture as bytes of that format."""
    figure = figure_of(report, roofline=roofline)
    from ffnbench.report.pictures.canvas import render

    return render(figure, suffix, texts=True)


def refuse_unknown_columns(report: Report, how: Arrangement) -> None:
    """Raise FfnbenchError for a column that no answer to this plan has; nothing need be measured yet."""
    reading = reading_of(report)
    as_measured = replace(report, environment=report.environment or SOMEWHERE)  # with the headings that it will have
    table, records = reading.table(as_measured), reading.records(report)
    for name in filter(None, (how.sorted_by, *how.chosen)):
        key_of(name, table, records)


def _arranged(report: Report, how: Arrangement) -> tuple[Frame, list[Row]]:
    """The frame and the records as they were asked for; raises FfnbenchError for a sort by what is not known."""
    reading = reading_of(report)
    table, records = reading.table(report), reading.records(report)
    if how.sort and report.environment is None:
        key = key_of(how.sorted_by, table, records)
        if all(row.get(key, key) is None for row in records):
            message = f"--sort {how.sort}: nothing here has that, as it is counted and not measured"
            hint = "`ffnbench compare` measures; `ffnbench cost --sort params` sorts by a count"
            raise FfnbenchError(message, hint)
    return arranged(table, records, how)


def report_view(report: Report, how: Arrangement = AS_IT_COMES) -> View:
    """A report as the end of a command; raises Interrupted where there is nothing to show."""
    if report.interrupted and not report.samples:
        raise Interrupted("interrupted before anything was measured")
    reading = reading_of(report)
    table, records = (reading.table(report), None) if not how else _arranged(report, how)
    view = view_of(
        table,
        lambda: reading.records(report) if records is None else records,
        json=lambda: report_text(report),
        pictures={"": partial(picture_of, report), ROOFLINE: partial(picture_of, report, roofline=True)},
        reports=[report],
        every=False,
        rescue=(lambda: report_text(report)) if report.samples else None,
    )
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
