"""The commands that read saved runs: every figure is computed anew from the samples."""

from __future__ import annotations

from dataclasses import fields, replace

from ffnbench.common.errors import Unfinished
from ffnbench.plan import METHOD
from ffnbench.report.files.store import made_anew
from ffnbench.report.files.store import read_report as load_report
from ffnbench.report.shown_report import ShownReport
from ffnbench.result import Estimate, Figures, Report
from ffnbench.stats.figures import figures_of, with_figures


def load_shown(path: str) -> ShownReport:
    """A report that `-o run.json` wrote; raises FfnbenchError for a file that is none,
    or is of another schema.
    """
    return as_shown(load_report(path))


def load_and_compare(path: str) -> tuple[ShownReport, str]:
    """A saved run again; and what to say where the file's own figures are others."""
    stored = load_shown(path)
    if stored.interrupted and not stored.samples:
        raise Unfinished(
            f"{path!r} was interrupted before anything was measured",
            made_anew(path, stored),
        )
    fresh = recompute(stored)
    return fresh, stale_figures_note(stored, fresh)


def as_shown(report: Report) -> ShownReport:
    """A report that can show itself, with its figures: a file has none."""
    if report.samples and report.figures == Figures():
        report = replace(report, figures=figures_of(report))
    return ShownReport(
        **{field.name: getattr(report, field.name) for field in fields(Report)}
    )


def recompute(report: ShownReport) -> ShownReport:
    """The report with every figure computed anew from its samples, by today's
    method.
    """
    if report.environment is None:
        return report
    return with_figures(report)


def stale_figures_note(stored: Report, fresh: Report) -> str:
    """What to say where the figures of a file are not those that its samples give now;
    nothing where they are.
    """
    if _compared_figures(stored) == _compared_figures(fresh):
        return ""
    if stored.plan.protocol.method != METHOD:
        old = stored.plan.protocol.method
        return f"measured with method {old}, now it is {METHOD}: the figures are computed again from the samples"
    return f"the figures are computed again from the samples: those in the file, by ffnbench {stored.version}, differ"


def _compared_figures(report: Report) -> list[tuple[str, str, str, str]]:
    """What is compared, to nine digits: sums of floats may differ in the last ones
    between machines.
    """
    figures = [
        (row.case, row.metric, _nine_digits(row.estimate), "")
        for row in report.measured
    ]
    figures += [
        (row.case, row.metric, _nine_digits(row.ratio), row.verdict.value)
        for row in report.comparisons
    ]
    figures += [
        (row.case, row.roof, _nine_digits(row.share), row.bound.value)
        for row in report.shares
    ]
    return figures


def _nine_digits(estimate: Estimate | None) -> str:
    if estimate is None:
        return ""
    return f"{estimate.value:.9g}"
