"""A kind of plan -> how its report reads. A new kind is one row of VIEWS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ffnbench.errors import EXIT_INTERRUPTED, Interrupted, Unfinished
from ffnbench.plan import Kind
from ffnbench.report.activations import timing_records, timing_tables
from ffnbench.report.arrangement import (
    Arrangement,
    chosen_records,
    in_order,
    records_in_order,
    rows_in_order,
    with_columns,
)
from ffnbench.report.block import block_tables
from ffnbench.report.block_records import block_records
from ffnbench.report.compare import compare_records, compare_table
from ffnbench.report.formats import ROOFLINE, View, view_of
from ffnbench.report.records import Record
from ffnbench.report.store import report_text
from ffnbench.report.table import Table
from ffnbench.request import Apart
from ffnbench.result import Environment, Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SOMEWHERE = Environment(
    fingerprint="", cpu="", cpus=1, usable_cpus=1, memory_bytes=None, system="", python="", ffnbench=""
)
AS_IT_COMES = Arrangement()
ENDED_EARLY = "the table holds what was measured by then"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How the reports of a kind read; `picture` gives the bytes for a suffix."""

    table: Callable[[Report], Table]
    records: Callable[[Report], list[Record]]
    picture: Callable[[Report, str], bytes]


def _ratios(report: Report, suffix: str) -> bytes:
    from ffnbench.report.ratio_picture import ratio_picture

    return ratio_picture(report, suffix)


def _forest(report: Report, suffix: str) -> bytes:
    from ffnbench.report.forest_picture import forest_picture

    return forest_picture(report, suffix)


def _block(report: Report, suffix: str) -> bytes:
    from ffnbench.report.block_picture import block_picture

    return block_picture(report, suffix)


def _roofline(report: Report, suffix: str) -> bytes:
    from ffnbench.report.roofline_picture import roofline_picture

    return roofline_picture(report, suffix)


NAMED_PICTURES = {ROOFLINE: _roofline}  # for files with that in their name, of every kind
VIEWS = {
    Kind.COMPARE: Reading(table=compare_table, records=compare_records, picture=_forest),
    Kind.SIDES: Reading(table=compare_table, records=compare_records, picture=_forest),
    Kind.BLOCK: Reading(table=block_tables, records=block_records, picture=_block),
    Kind.ACTIVATIONS: Reading(table=timing_tables, records=timing_records, picture=_ratios),
}


def reading_of(report: Report) -> Reading:
    """How this report reads, by the kind of its plan."""
    return VIEWS[Kind(report.plan.kind)]


def picture_of(report: Report, suffix: str, *, roofline: bool = False) -> bytes:
    """The picture of this report as bytes of that format."""
    return _roofline(report, suffix) if roofline else reading_of(report).picture(report, suffix)


def figure_of(report: Report, *, roofline: bool = False) -> Figure:
    """The same picture as a figure, to be changed and drawn elsewhere; raises FfnbenchError as the picture does."""
    if roofline:
        from ffnbench.report.roofline_picture import roofline_figure

        return roofline_figure(report)
    if Kind(report.plan.kind) is Kind.BLOCK:
        from ffnbench.report.block_picture import block_figure

        return block_figure(report)
    if Kind(report.plan.kind) is Kind.ACTIVATIONS:
        from ffnbench.report.ratio_picture import ratio_figure

        return ratio_figure(report)[0]
    from ffnbench.report.forest_picture import forest_figure

    return forest_figure(report)[0]


def refuse_unknown_columns(report: Report, how: Arrangement) -> None:
    """Raise FfnbenchError for a column that no answer to this plan has; nothing need be measured yet."""
    reading = reading_of(report)
    as_measured = replace(report, environment=report.environment or SOMEWHERE)  # with the headings that it will have
    how.refuse_unknown(reading.table(as_measured), reading.records(report))


def report_view(report: Report, how: Arrangement = AS_IT_COMES) -> View:
    """A report as the end of a command; raises Interrupted where there is nothing to show."""
    if report.interrupted and not report.samples:
        raise Interrupted("interrupted before anything was measured")
    reading = reading_of(report)
    table, records, ordered = _arranged(report, how)
    view = view_of(
        table,
        records,
        json=lambda: report_text(report),
        pictures={
            begin: lambda suffix, draw=draw: draw(ordered, suffix)  # type: ignore[misc]
            for begin, draw in {"": reading.picture, **NAMED_PICTURES}.items()
        },
        every=False,
        rescue=(lambda: report_text(report)) if report.samples else None,
    )
    view = replace(view, arranged=lambda how: report_view(report, how))
    if report.interrupted or report.cut_short:
        return view.ending(EXIT_INTERRUPTED)
    if report.stopped:
        return view.ending(0, Unfinished(report.stopped, ENDED_EARLY))
    if report.failed_wholly:
        why = Unfinished("nothing could be measured: every case failed", "the footnotes of the table say why")
        return view.ending(0, why)
    wanted = report.plan.request.runs if isinstance(report.plan.request, Apart) else 1
    if report.samples and len(report.runs) < wanted:
        lost = Unfinished(f"{len(report.runs)} of {wanted} runs could be kept", "wait until the machine is quiet")
        return view.ending(0, lost)
    return view


def _arranged(report: Report, how: Arrangement) -> tuple[Table, Callable[[], list[Record]], Report]:
    """The table and the records in the order and with the columns that were asked for, and the report for pictures."""
    reading = reading_of(report)
    if not how:
        return reading.table(report), lambda: reading.records(report), report
    by_case = reading.records is compare_records  # a row a case: the cases themselves are sorted
    table, records = reading.table(report), reading.records(report)
    ordered = in_order(report, how, table, records) if by_case else report
    if by_case:
        table, records = reading.table(ordered), reading.records(ordered)
    else:
        table, records = rows_in_order(table, how, records), records_in_order(records, how, table)
    shown = with_columns(table, how, records, aligned=by_case)
    return shown, lambda: chosen_records(records, how, table), ordered
