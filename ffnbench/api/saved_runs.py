"""Reads saved runs: every figure is computed anew from the samples."""

from __future__ import annotations

from ffnbench.common.errors import Unfinished
from ffnbench.record.result import Estimate, Report, fields_of
from ffnbench.report.shown_report import ShownReport
from ffnbench.report.store import made_anew, read_report
from ffnbench.stats.figures import with_figures


def load_shown(path: str) -> ShownReport:
    """Load a report that `-o run.json` wrote; raises FfnbenchError for a file that is
    none, or is of another schema.
    """
    return as_shown(read_report(path))


def load_to_show(path: str) -> tuple[ShownReport, str]:
    """Load a saved run; gives with it a note where the figures in the file are others,
    "" where they are not.

    Raises Unfinished for a run that was interrupted before its first sample.
    """
    stored = read_report(path)
    if stored.interrupted and not stored.samples:
        raise Unfinished(
            f"{path!r} was interrupted before anything was measured",
            made_anew(path, stored),
        )
    shown = as_shown(stored)
    # the file of a killed run has no figures
    is_other = stored.measured and _figures_in(stored) != _figures_in(shown)
    note = f"the figures are computed again from the samples: those in the file, by ffnbench {stored.version}, differ"
    return shown, note if is_other else ""


def as_shown(report: Report) -> ShownReport:
    """The report as one that can show itself, with every figure where something was
    measured.
    """
    if report.environment is not None:
        report = with_figures(report)
    return ShownReport(**fields_of(Report, report))


def _figures_in(report: Report) -> set[tuple[str, str, str, str]]:
    """The figures that are compared, with nine digits: further digits may differ
    between machines, by the order in which floats are added.
    """
    measured = {
        (row.case, row.metric, _nine_digits(row.estimate), "")
        for row in report.measured
    }
    return measured | {
        (row.case, row.metric, _nine_digits(row.ratio), row.verdict.value)
        for row in report.comparisons
    }


def _nine_digits(estimate: Estimate | None) -> str:
    if estimate is None:
        return ""
    return f"{estimate.value:.9g}"
