"""How a command ends: its answer on stdout, its files written, and what the exit code follows from."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console

from ffnbench.errors import EXIT_INTERRUPTED, FfnbenchError, Interrupted, Unfinished
from ffnbench.registry import hint_for
from ffnbench.report import listing
from ffnbench.report.store import FORMATS, WRITERS, Outputs, Writer
from ffnbench.report.table import Table
from ffnbench.report.text import markdown, show
from ffnbench.result import Report

Records = list[dict[str, Any]]


def check_format(name: str) -> None:
    """Raise FfnbenchError for a format that stdout does not speak."""
    if name not in FORMATS:
        raise FfnbenchError(f"unknown format {name!r}", hint_for(name, FORMATS, "formats: " + ", ".join(FORMATS)))


def finish(
    report: Report,
    table_of: Callable[[Any], Table],
    outputs: Outputs,
    format_: str,
    wide: bool,
    writers: Mapping[str, Writer] = WRITERS,
) -> int:
    """Show the answer and write the files; gives the exit code, or raises Unfinished where the answer is not whole."""
    if report.interrupted and not report.samples:
        raise Interrupted("interrupted before anything was measured")
    try:
        if format_ == "table":
            show(table_of(report), Console(), wide=wide)
        else:
            sys.stdout.write(str(writers[FORMATS[format_]](report, table_of)))
        sys.stdout.flush()
    finally:  # a stdout that is closed or full must not cost the files

        def written(suffix: str) -> bytes:
            found = writers[suffix](report, table_of)
            return found.encode() if isinstance(found, str) else found

        rescue = (lambda: written(".json")) if report.samples else None
        if paths := outputs.write(written, rescue):
            print("wrote " + ", ".join(map(str, paths)), file=sys.stderr)
    if report.interrupted:
        return EXIT_INTERRUPTED
    if report.stopped:
        raise Unfinished(report.stopped, "the table holds what was measured by then")
    if report.failures and {f.case for f in report.failures} >= {case.label for case in report.plan.shown}:
        raise Unfinished("nothing could be measured: every case failed", "the footnotes of the table say why")
    return 0


def show_records(records: Records, format_: str, wide: bool, footnotes: Sequence[str] = ()) -> None:
    """Records as one table, or as they are for machines."""
    if format_ == "table":
        show(listing.table(records, footnotes), Console(), wide=wide)
    else:
        sys.stdout.write(listing.machine_readable(records, format_))


def show_tables(records: Records, tables: Sequence[Table], format_: str, wide: bool) -> None:
    """Tables for people, the records behind them for machines."""
    if format_ == "markdown":
        sys.stdout.write("\n".join(markdown(table, every=True) for table in tables))
        return
    if format_ != "table":
        sys.stdout.write(listing.machine_readable(records, format_))
        return
    for i, table in enumerate(tables):
        if i:
            print()
        show(table, Console(), wide=wide)
