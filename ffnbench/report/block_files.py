"""The files that `block` writes: those of any report, its own csv, and its picture."""

from __future__ import annotations

from ffnbench.report.block_records import records
from ffnbench.report.listing import machine_readable
from ffnbench.report.store import WRITERS, TableOf, Writer
from ffnbench.result import Report


def _csv(report: Report) -> str:
    """One row a length."""
    return machine_readable(records(report), "csv")


def _picture(suffix: str) -> Writer:
    def write(report: Report, _: TableOf) -> bytes:
        from ffnbench.report.block_picture import block_picture

        return block_picture(report, suffix)

    return write


BLOCK_WRITERS: dict[str, Writer] = {
    **WRITERS,
    ".csv": lambda report, _: _csv(report),
    **{suffix: _picture(suffix) for suffix in (".png", ".svg", ".pdf")},
}
