"""A report that shows itself, and one whose figures are computed anew from its samples."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from ffnbench.plan import METHOD
from ffnbench.report.answers import Shows, as_displayed, origin_record, written_to
from ffnbench.report.formats import PICTURES, View
from ffnbench.report.frame import Frame
from ffnbench.report.views import figure_of, frame_of, picture_of, report_view
from ffnbench.result import Figures, Report
from ffnbench.stats.figures import figures_of, with_figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True, repr=False)
class ShownReport(Shows, Report):
    """What was asked, counted and measured, with every sample. It shows, saves and draws itself.

    Public as `ffnbench.Report`. `samples`, `measured` and `comparisons` are what the rows are made of; `interrupted` is
    whether it was ended by hand.
    """

    READ = (
        "comparisons", "costs", "created", "environment", "failures", "interrupted", "measured", "plan", "plot",
        "runs", "samples", "version", "warnings",
    )  # fmt: skip

    @property
    def _stem(self) -> str:
        return self.plan.kind

    @property
    def _origin(self) -> dict[str, Any]:
        return origin_record(self)

    @property
    def table(self) -> Frame:
        """The table that belongs to this report, by the kind of its plan."""
        return frame_of(self)

    def view(self) -> View:
        """The report with all that writes it; raises Interrupted where nothing was measured."""
        return report_view(self)

    def rows(self) -> list[dict[str, Any]]:
        """One flat record a row, in the order and with the names of the CSV contract."""
        return frame_of(self).records()

    @overload
    def plot(self, path: None = None, *, roofline: bool = False) -> Figure: ...

    @overload
    def plot(self, path: str | os.PathLike[str], *, roofline: bool = False) -> Path: ...

    def plot(self, path: str | os.PathLike[str] | None = None, *, roofline: bool = False) -> Figure | Path:
        """The report as a matplotlib Figure, or written to a file (.png, .svg, .pdf), whose path is given back.

        Ratios with their intervals; `roofline` draws the rows below what this machine can do, where `ceilings` were
        measured. Raises FfnbenchError where there is nothing to draw.
        """
        if path is None:
            figure = figure_of(self, roofline=roofline)
            as_displayed(figure)
            return figure
        picture = {end: lambda end=end: picture_of(self, end, roofline=roofline) for end in PICTURES}  # type: ignore[misc]
        return written_to(path, picture, self._stem)


def as_shown(found: Report) -> ShownReport:
    """A report that can show itself, with its figures: a file has none."""
    if found.samples and found.figures == Figures():
        found = replace(found, figures=figures_of(found))
    return ShownReport(**{field.name: getattr(found, field.name) for field in fields(Report)})


def recompute(found: ShownReport) -> ShownReport:
    """The report with every figure computed anew from its samples, by today's method."""
    return found if found.environment is None else with_figures(found)


def difference(stored: Report, fresh: Report) -> str:
    """What to say where the figures of a file are not those that its samples give now; nothing where they are."""
    if _figures(stored) == _figures(fresh):
        return ""
    if stored.plan.protocol.method != METHOD:
        old = stored.plan.protocol.method
        return f"measured with method {old}, now it is {METHOD}: the figures are computed again from the samples"
    return f"the figures are computed again from the samples: those in the file, by ffnbench {stored.version}, differ"


def _figures(found: Report) -> list[tuple[str, str, str, str]]:
    """What is compared, to nine digits: sums of floats may differ in the last ones between machines."""
    figures = [(m.case, m.metric, f"{m.estimate.value:.9g}", "") for m in found.measured]
    for c in found.comparisons:
        figures.append((c.case, c.metric, f"{c.ratio.value:.9g}" if c.ratio else "", c.verdict.value))
    figures += [(s.case, s.roof, f"{s.share.value:.9g}", s.bound.value) for s in found.shares]
    return figures
