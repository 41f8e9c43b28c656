"""A kind of plan -> how its report reads. A new kind is one row of VIEWS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ffnbench.errors import EXIT_INTERRUPTED, Interrupted, Unfinished
from ffnbench.plan import Kind
from ffnbench.report.activations import timing_records, timing_tables
from ffnbench.report.block import block_tables
from ffnbench.report.block_records import block_records
from ffnbench.report.compare import compare_records, compare_table
from ffnbench.report.formats import ROOFLINE, View, view_of
from ffnbench.report.records import Record
from ffnbench.report.store import report_text
from ffnbench.report.table import Table
from ffnbench.result import Report

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


def _block(report: Report, suffix: str) -> bytes:
    from ffnbench.report.block_picture import block_picture

    return block_picture(report, suffix)


def _roofline(report: Report, suffix: str) -> bytes:
    from ffnbench.report.roofline_picture import roofline_picture

    return roofline_picture(report, suffix)


NAMED_PICTURES = {ROOFLINE: _roofline}  # for files with that in their name, of every kind
VIEWS = {
    Kind.COMPARE: Reading(table=compare_table, records=compare_records, picture=_ratios),
    Kind.SIDES: Reading(table=compare_table, records=compare_records, picture=_ratios),
    Kind.BLOCK: Reading(table=block_tables, records=block_records, picture=_block),
    Kind.ACTIVATIONS: Reading(table=timing_tables, records=timing_records, picture=_ratios),
}


def reading_of(report: Report) -> Reading:
    """How this report reads, by the kind of its plan."""
    return VIEWS[Kind(report.plan.kind)]


def report_view(report: Report) -> View:
    """A report as the end of a command; raises Interrupted where there is nothing to show."""
    if report.interrupted and not report.samples:
        raise Interrupted("interrupted before anything was measured")
    reading = reading_of(report)
    view = view_of(
        reading.table(report),
        lambda: reading.records(report),
        json=lambda: report_text(report),
        pictures={
            begin: lambda suffix, draw=draw: draw(report, suffix)  # type: ignore[misc]
            for begin, draw in {"": reading.picture, **NAMED_PICTURES}.items()
        },
        every=False,
        rescue=(lambda: report_text(report)) if report.samples else None,
    )
    if report.interrupted or report.cut_short:
        return view.ending(EXIT_INTERRUPTED)
    if report.stopped:
        return view.ending(0, Unfinished(report.stopped, ENDED_EARLY))
    if report.failed_wholly:
        why = Unfinished("nothing could be measured: every case failed", "the footnotes of the table say why")
        return view.ending(0, why)
    return view
