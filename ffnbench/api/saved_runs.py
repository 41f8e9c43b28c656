"""Reads saved runs: every figure is computed anew from the samples."""

from __future__ import annotations

from dataclasses import replace

from ffnbench.common.errors import Unfinished
from ffnbench.record.result import Estimate, Figures, Report, fields_of
from ffnbench.report.shown_report import ShownReport
from ffnbench.report.store import made_anew, read_report
from ffnbench.stats.figures import figures_of, with_figures


def load_shown(path: str) -> ShownReport:
    """Load a report that `-o run.json` wrote; raises FfnbenchError for a file that is
    none, or is of another schema.
    """
    return as_shown(read_report(path))


def load_recomputed(path: str) -> tuple[ShownReport, str]:
    """Load a saved run and compute its figures anew; gives with it a note where those
    in the file differ, "" where they do not.

    Raises Unfinished for a run that was interrupted before its first sample.
    """
    stored = load_shown(path)
    if stored.interrupted and not stored.samples:
        raise Unfinished(
            f"{path!r} was interrupted before anything was measured",
            made_anew(path, stored),
        )
    fresh = recompute(stored)
    return fresh, _stale_figures_note(stored, fresh)


def as_shown(report: Report) -> ShownReport:
    """The report as one that can show itself. Its figures are computed where it has
    samples and no figures, as when it was read from a file; every one of them where a
    killed run left that file.
    """
    is_unfinished = report.interrupted or report.cut_short
    if report.samples and is_unfinished and not report.measured:
        report = with_figures(report)
    elif report.samples and report.figures == Figures():
        report = replace(report, figures=figures_of(report))
    return ShownReport(**fields_of(Report, report))


def recompute(report: ShownReport) -> ShownReport:
    """The report with every figure computed anew, by today's method; as it is where
    nothing was measured.
    """
    if report.environment is None:
        return report
    return with_figures(report)


def _stale_figures_note(stored: Report, fresh: Report) -> str:
    """Why the figures of a file differ from those that its samples give now; "" where
    they do not differ.
    """
    if _compared_figures(stored) == _compared_figures(fresh):
        return ""
    return f"the figures are computed again from the samples: those in the file, by ffnbench {stored.version}, differ"


def _compared_figures(report: Report) -> list[tuple[str, str, str, str]]:
    """The figures that are compared, with nine digits: further digits may differ
    between machines, by the order in which floats are added.
    """
    figures = [
        (row.case, row.metric, _nine_digits(row.estimate), "")
        for row in report.measured
    ]
    figures += [
        (row.case, row.metric, _nine_digits(row.ratio), row.verdict.value)
        for row in report.comparisons
    ]
    return figures


def _nine_digits(estimate: Estimate | None) -> str:
    if estimate is None:
        return ""
    return f"{estimate.value:.9g}"
