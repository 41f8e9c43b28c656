"""The commands that read saved runs: every figure is computed anew from the samples."""

from __future__ import annotations

from ffnbench.common.errors import Unfinished
from ffnbench.report.files.store import load as load_report
from ffnbench.report.files.store import made_anew
from ffnbench.report.shown_report import ShownReport, as_shown, difference, recompute


def load(path: str) -> ShownReport:
    """A report that `-o run.json` wrote; raises FfnbenchError for a file that is none, or is of another schema."""
    return as_shown(load_report(path))


def report_of(path: str) -> tuple[ShownReport, str]:
    """A saved run again; and what to say where the file's own figures are others."""
    stored = load(path)
    if stored.interrupted and not stored.samples:
        raise Unfinished(f"{path!r} was interrupted before anything was measured", made_anew(path, stored))
    fresh = recompute(stored)
    return fresh, difference(stored, fresh)
