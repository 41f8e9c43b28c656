"""The picture of error against time, a panel for each group of rows: a marker for each
backend, a colour for each weight format, which its error tells in a grey print, and a
line through the Pareto front with a ring around each of its rows. What was only seen is
hollow.
"""

from __future__ import annotations

from itertools import cycle

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from ffnbench.common.choices import Weights
from ffnbench.common.errors import FfnbenchError
from ffnbench.plan.metrics import ERROR
from ffnbench.plan.plan import Workload
from ffnbench.record.result import Report
from ffnbench.report.columns import case_rows
from ffnbench.report.header import heading
from ffnbench.report.pictures.canvas import (
    COLOURS,
    GREY,
    MARKERS,
    about,
    drawing,
    finish,
    interval_bar,
    panels,
    scale_axis,
)
from ffnbench.report.table import Row
from ffnbench.report.words import backend_text, error_text, way_text

HEIGHT = 2.1  # inches, of a row of panels
LEAST_ERROR = 1e-7  # smaller errors are drawn at this one
COLOUR_OF = dict(zip(Weights, COLOURS, strict=False))


@drawing()
def trade_off_figure(report: Report) -> Figure:
    """Error against time; raises FfnbenchError where no rows differ in precision."""
    trade_offs = report.figures.trade_offs
    if not trade_offs:
        raise FfnbenchError(
            "no rows with a time and an error differ in precision",
            "for example --weights none,int8",
        )
    plan = report.plan
    heading_of = {group.reference: heading(group) for group in plan.groups}
    rows = [
        row
        for row in case_rows(report)
        if row["latency_s"] and row[ERROR] is not None and not row["failure"]
    ]
    backends = dict.fromkeys(backend_text(case.workload) for case in plan.shown)
    markers = dict(zip(backends, cycle(MARKERS), strict=False))
    figure, grid = panels(len(trade_offs), HEIGHT)
    handles = []
    for axes, trade_off in zip(grid, trade_offs, strict=True):
        front = []
        for row in rows:
            if plan.reference_of(row["label"]) != trade_off.reference:
                continue
            work = plan.case(row["label"]).workload
            _draw_row(axes, row, work, markers[backend_text(work)])
            if row["label"] in trade_off.front:
                front.append((row["latency_s"], max(row[ERROR], LEAST_ERROR)))
        axes.plot(
            *zip(*sorted(front), strict=True),
            "o:",
            color=GREY,
            markersize=7,
            markerfacecolor="none",
            drawstyle="steps-post",
            zorder=1,
            label="Pareto front",
        )
        scale_axis(axes.xaxis, EngFormatter("s"))
        axes.set(xlabel="latency", ylabel="error", yscale="log")
        axes.yaxis.set_major_formatter(lambda error, _: error_text(error))
        axes.set_title(heading_of[trade_off.reference])
        handles += axes.get_legend_handles_labels()[0]
    names = {case.variant.partition("@")[0] for case in plan.shown}
    name = f"{names.pop()}, " if len(names) == 1 else ""
    title = (
        f"{name}{about(report)}\nerror: relative, to float64 of the original weights"
    )
    finish(figure, title, handles)
    return figure


def _draw_row(axes: Axes, row: Row, work: Workload, marker: str) -> None:
    """Draw a row with the interval of its time."""
    bar = interval_bar(row, "latency_s")
    drawn = axes.errorbar(
        row["latency_s"],
        max(row[ERROR], LEAST_ERROR),
        xerr=bar,
        color=COLOUR_OF[work.weights],
        marker=marker,
        markerfacecolor="white" if bar is None else None,
        linestyle="",
    )
    drawn.lines[0].set_label(way_text(work))  # in the legend without intervals
