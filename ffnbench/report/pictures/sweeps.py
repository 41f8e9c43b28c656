"""The picture of a sweep: lines with bands along its longest axis, and a panel for each
combination of values on the other axes.

A row that failed is a gap in its line and a cross; a time without an interval is a
hollow point beside the line. A dotted line in a band marks each crossing, which the
sentence in the title tells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from ffnbench.plan.plan import Axis
from ffnbench.record.result import SAME_WITHIN, Report
from ffnbench.report.columns import case_rows
from ffnbench.report.header import heading_of
from ffnbench.report.pictures.canvas import (
    BAND,
    BLACK,
    GREY,
    MOST_IN_ROW,
    about,
    draw_crossings,
    drawing,
    finish,
    label_axis,
    nothing_to_draw,
    panels,
    pens,
    scale_axis,
    shown_name,
)
from ffnbench.report.sentences import crossing_texts
from ffnbench.report.table import interval_keys
from ffnbench.report.words import WITHIN

if TYPE_CHECKING:
    from pandas import DataFrame

HEIGHT = 2.1  # inches, of a panel with its axis


@drawing()
def sweep_figure(report: Report) -> Figure:
    """The picture of a sweep: where its groups have several rows, the ratios of all but
    the references; else latencies. Raises FfnbenchError where no row has a number.
    """
    plan = report.plan
    axis = plan.axes[0]
    has_ratios = any(len(group.cases) > 1 for group in plan.groups)
    points = _points(report, axis, "ratio" if has_ratios else "latency_s")
    if points["value"].isna().all():
        raise nothing_to_draw("ratio" if has_ratios else "time")
    pens_of = pens(points["name"].unique())
    by_panel = points.groupby("panel", sort=False)
    figure, grid = panels(len(by_panel), HEIGHT, sharey=True)
    handles = []
    for axes, (title, panel) in zip(grid, by_panel, strict=True):
        for name, curve in panel.groupby("name", sort=False):
            _draw_curve(axes, curve, shown_name(name), pens_of[name])
        _draw_points_apart(axes, panel)
        if has_ratios:
            axes.axhspan(
                1 - SAME_WITHIN,
                1 + SAME_WITHIN,
                color=BAND,
                linewidth=0,
                zorder=0,
                label=f"same: within {WITHIN}",
            )
            axes.axhline(1, color=BLACK, linewidth=0.6, zorder=1)
        draw_crossings(axes, report, title)
        label_axis(axes, axis)
        axes.set_title(shown_name(title))
        handles += axes.get_legend_handles_labels()[0]
    references = {plan.name_of(group.reference) for group in plan.groups}
    reference = references.pop() if len(references) == 1 else "the reference"
    for axes in grid[::MOST_IN_ROW]:
        axes.set_ylabel(f"time vs {shown_name(reference)}" if has_ratios else "latency")
    if has_ratios:
        scale_axis(grid[0].yaxis)
    else:
        scale_axis(grid[0].yaxis, EngFormatter("s"))
    crossings = "; ".join(crossing_texts(report.figures.crossings))
    finish(figure, "\n".join(filter(None, (about(report), crossings))), handles)
    return figure


def _points(report: Report, axis: Axis, key: str) -> DataFrame:
    """The points of all curves in the order of the axis: `panel`, `name`, `x` and
    `value` with the ends of its interval, which are NaN where there is no figure.
    """
    from pandas import DataFrame

    keys = interval_keys(key)
    points = []
    for row in case_rows(report):
        case = report.plan.case(row["label"])
        if key == "ratio" and report.plan.is_reference(case.label):
            continue
        at = dict(case.point)
        x = at.pop(axis.name)
        numbers = [None if row["failure"] else row[each] for each in keys]
        points.append((heading_of(at), case.row, x, *numbers))
    columns = ["panel", "name", "x", "value", "low", "high"]
    frame = DataFrame(points, columns=columns).sort_values("x", kind="stable")
    # so that None is NaN where no row has a number
    return frame.astype(dict.fromkeys(columns[3:], float))


def _draw_curve(axes: Axes, curve: DataFrame, name: str, pen: dict[str, Any]) -> None:
    """Draw the line of a variant with its intervals, as a band and as bars."""
    known = curve.where(curve["low"].notna())
    low, value, high = known["low"], known["value"], known["high"]
    axes.fill_between(curve["x"], low, high, color=pen["color"], alpha=0.16, lw=0)
    bars = [value - low, high - value]
    axes.errorbar(
        curve["x"], value, yerr=bars, elinewidth=0.6, zorder=3, label=name, **pen
    )
    without_interval = curve[curve["low"].isna() & curve["value"].notna()]
    if len(without_interval):
        hollow = pen | {"markerfacecolor": "white", "linestyle": ""}
        axes.plot(without_interval["x"], without_interval["value"], **hollow)


def _draw_points_apart(axes: Axes, panel: DataFrame) -> None:
    """Mark the rows that have no figure, and say what hollow points are."""
    failed = panel["x"][panel["value"].isna()]
    if len(failed):  # matplotlib leaves room even for a line without points
        axes.plot(
            failed,
            [0] * len(failed),
            "x",
            color=GREY,
            transform=axes.get_xaxis_transform(),
            clip_on=False,
            label="no time",
        )
    if (panel["low"].isna() & panel["value"].notna()).any():
        axes.plot([], [], "o", color=GREY, markerfacecolor="white", label="no interval")
