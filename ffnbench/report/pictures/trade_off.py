"""The picture of error against time, a panel for each group of rows: a marker for each
backend, a colour for each weight format, which its error tells in a grey print, and a
line through the Pareto front, whose rows have their names. What was only seen is
hollow.
"""

from __future__ import annotations

from itertools import chain, cycle, zip_longest
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter

from ffnbench.common.choices import Weights
from ffnbench.plan.backends import BACKENDS
from ffnbench.plan.metrics import ERROR
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
    label_points,
    panels,
    scale_axis,
)
from ffnbench.report.words import backend_text, error_text, way_text

HEIGHT = 2.2  # inches, of a row of panels
COLUMNS = 2  # of panels, which have room for names
LEAST_ERROR = 1e-7  # smaller errors are drawn at this one
COLOUR_OF = dict(zip(Weights, COLOURS, strict=False))
FORMAT_OF = dict(zip(Weights, Weights, strict=True)) | {Weights.NONE: "not quantised"}
ROOM_FOR_NAMES = 0.45  # left of the points, in parts of their width
BEST = "the lower left is best (bars: 95% intervals; hollow: no interval)"
FRONT = dict(
    color=GREY,
    markersize=7,
    markerfacecolor="none",
    label="Pareto front: no other row is both faster and more exact",
)


@drawing()
def trade_off_figure(report: Report) -> Figure:
    """Error against time, of a report whose rows differ in precision."""
    plan, trade_offs = report.plan, report.figures.trade_offs
    heading_of = {group.reference: heading(group) for group in plan.groups}
    rows = [
        row
        for row in case_rows(report)
        if row["latency_s"] and row[ERROR] is not None and not row["failure"]
    ]
    works = [case.workload for case in plan.shown]
    backends = list(map(backend_text, works))
    # a backend has its marker in all pictures
    markers = dict(zip(dict.fromkeys(chain(BACKENDS, backends)), cycle(MARKERS)))
    figure, grid = panels(len(trade_offs), HEIGHT, COLUMNS, sharey=True)
    names_of = []
    for axes, trade_off in zip(grid, trade_offs, strict=True):
        front, names = [], []
        for row in rows:
            if plan.reference_of(row["label"]) != trade_off.reference:
                continue
            work = plan.case(row["label"]).workload
            at = row["latency_s"], max(row[ERROR], LEAST_ERROR)
            bar = interval_bar(row, "latency_s")
            axes.errorbar(
                *at,
                xerr=bar,
                color=COLOUR_OF[work.weights],
                marker=markers[backend_text(work)],
                markerfacecolor="white" if bar is None else None,
            )
            if row["label"] in trade_off.front:
                front.append(at)
                left = row["latency_low_s"] or at[0]
                names.append((left, at[1], way_text(work)))
        names_of.append(names)
        line = zip(*sorted(front), strict=True)
        [drawn] = axes.plot(*line, "o:", drawstyle="steps-post", zorder=1, **FRONT)
        scale_axis(axes.xaxis, EngFormatter("s"))
        low, high = axes.get_xlim()
        axes.set_xlim(low * (low / high) ** ROOM_FOR_NAMES)
        axes.set(xlabel="latency of a call", title=heading_of[trade_off.reference])
    for axes in grid[::COLUMNS]:
        axes.set_ylabel("relative error (to float64)")
    scale_axis(grid[0].yaxis, lambda error, _: error_text(error))
    for axes, names in zip(grid, names_of, strict=True):
        label_points(axes, names)
    by_marker = [
        Line2D([], [], color=GREY, linestyle="", marker=marker, label=backend)
        for backend, marker in markers.items()
        if backend in backends
    ]
    by_colour = [
        Patch(color=COLOUR_OF[weights], label=FORMAT_OF[weights])
        for weights in dict.fromkeys(work.weights for work in works)
    ]
    keys: Any = by_marker, [*by_colour, drawn]
    columns = max(map(len, keys))
    if len(grid) > 1:  # wide enough for a row of each
        keys = zip_longest(*keys)
    forms = {case.variant.partition("@")[0] for case in plan.shown}
    what = f" of {forms.pop()}" if len(forms) == 1 else ""
    title = f"Error and latency{what}: {BEST}\n{about(report)}"
    finish(figure, title, filter(None, chain(*keys)), columns)
    return figure
