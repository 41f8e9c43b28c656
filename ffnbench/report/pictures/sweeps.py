"""Curves over an axis: lines with bands, a panel for each value of the other axes; heat maps where two axes are long.

What has no figure, since it failed or was disturbed, is a gap in its line and a cross below. One panel is as wide as a
column of a paper, several are as wide as a page. A bar marks each crossing, which the sentence below
tells.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullFormatter

from ffnbench.report.pictures.canvas import (
    BLACK,
    SMALL,
    drawing,
    legend_below,
    lines_above,
    literal,
    panels,
    pens,
    scale_axis,
    shortened,
    write_numbers,
)
from ffnbench.report.pictures.drawn import Drawn, DrawnRow, number_text, within_text
from ffnbench.report.pictures.heat import DPI, FONTS, LETTERS, heat_figure
from ffnbench.report.pictures.ratios import BAND, about
from ffnbench.report.sentences import sweep_line
from ffnbench.report.words import WITHIN
from ffnbench.result import Crossing, Crossings, Report
from ffnbench.stats.verdict import SAME_WITHIN

COLUMN, PAGE = 3.3, 7.0  # inches, of a paper
PANEL, AROUND, LEGEND_ROW, LINE = 2.0, 0.55, 0.14, 0.1  # inches: heights
MOST_PANELS = 6  # values of a second axis of numbers; more make a heat map
FARTHEST = 3.0  # how far beyond the values the axis shows of a wide interval
WIDEST = {1: 6, 2: 5, 3: 4}  # numbers below an axis, by panels in a row
GREY = "#808080"


def sweep_figure(report: Report) -> Figure:
    """The picture of a sweep: its axis with most points, ratios where its cells have several variants."""
    axes = report.plan.axes
    if len(axes) > 1 and len(axes[1].values) > MOST_PANELS:
        return heat_figure(report, axes[0], axes[1])
    return _curves(Drawn(report, axes[0]))


def _curves(drawn: Drawn) -> Figure:
    looks = {name: look for name, look in zip(drawn.names, pens(drawn.names), strict=True) if name in drawn.variants}
    series_of = drawn.panels
    columns = {1: 1, 2: 2, 4: 2}.get(len(series_of), 3)
    rows = math.ceil(len(series_of) / columns)
    crossings = drawn.report.figures.crossings
    with drawing(**FONTS):
        figure = Figure(dpi=DPI, layout="constrained")
        grid = panels(figure, len(series_of), columns, sharex=True, sharey=True)
        for number, (axes, (title, series)) in enumerate(zip(grid.flat, series_of.items(), strict=False)):
            _frame(axes, drawn, columns)
            for name, look in looks.items():
                _line(axes, series.get(name, []), look)
            _gaps(axes, series, looks)
            if crossings:
                _mark(axes, crossings, title, drawn, series)
            axes.set_title(literal(shortened(title, 60)), loc="left", pad=3)
            if number + columns >= len(series_of):
                axes.set_xlabel(literal(drawn.axis.name), labelpad=1)
                axes.tick_params(labelbottom=True)
        _limits(grid.flat[0], drawn)
        for axes in grid[:, 0]:
            axes.set_ylabel(literal(shortened(drawn.unit[1], 40)), labelpad=2)
        _around(figure, drawn, looks, (COLUMN if columns == 1 else PAGE, PANEL * rows), crossings)
    return figure


def _frame(axes: Axes, drawn: Drawn, columns: int) -> None:
    axes.tick_params(axis="both", length=2, pad=1.5)
    if drawn.of_ratios:
        axes.axhspan(1 - SAME_WITHIN, 1 + SAME_WITHIN, color=BAND, linewidth=0, zorder=0)
        axes.axhline(1, color=BLACK, linewidth=0.6, zorder=1)
    axis = drawn.axis
    if axis.logarithmic:
        axes.set_xscale("log")
    places = list(map(axis.place, axis.values))
    apart = (places[-1] - places[0]) / WIDEST[columns]
    kept: list[float] = []
    for value, place in zip(axis.values, places, strict=True):
        if not kept or place - axis.place(kept[-1]) >= apart * 0.999:
            kept.append(value)
    axes.xaxis.set_major_locator(FixedLocator(kept))
    axes.xaxis.set_minor_locator(FixedLocator([value for value in axis.values if value not in kept]))
    axes.xaxis.set_minor_formatter(NullFormatter())
    write_numbers(axes.xaxis, number_text)


def _line(axes: Axes, rows: Sequence[DrawnRow], look: Mapping[str, Any]) -> None:
    """A line that is broken where there is no value, and its band."""
    if not rows:
        return
    at = np.array([row.at for row in rows])
    value, low, high = (np.array([getattr(row, end) for row in rows]) for end in ("value", "low", "high"))
    axes.fill_between(at, low, high, color=look["color"], alpha=0.16, linewidth=0, zorder=2)
    axes.vlines(at, low, high, color=look["color"], linewidth=0.6, zorder=2.5)
    axes.plot(at, value, linestyle="-", linewidth=0.9, markersize=3.2, markeredgewidth=0.7, zorder=3, **look)


CROSSING: dict[str, Any] = {"color": BLACK, "linewidth": 1.4, "marker": "|", "markersize": 5, "zorder": 5}
CROSS: dict[str, Any] = {"linestyle": "", "marker": "x", "markersize": 3.6, "markeredgewidth": 1.0}


def _gaps(axes: Axes, series: Mapping[str, Sequence[DrawnRow]], looks: Mapping[str, Mapping[str, Any]]) -> None:
    """Crosses at the bottom, one above another, where variants have no figure."""
    stacked: dict[Any, int] = {}
    for name, look in looks.items():
        for row in series.get(name, ()):
            if row.why:
                height = 0.03 + 0.05 * stacked.setdefault(row.at, 0)
                stacked[row.at] += 1
                axes.plot([row.at], [height], color=look["color"], transform=axes.get_xaxis_transform(),
                          clip_on=False, zorder=5, **CROSS)  # fmt: skip


def _mark(axes: Axes, crossings: Crossings, title: str, drawn: Drawn, series: Mapping[str, Sequence[DrawnRow]]) -> None:
    """A bar over the interval of each crossing, where the two lines meet."""
    for crossing in crossings.places:
        if within_text(crossing.within) == title:
            y = _height(series, crossing, drawn)
            ends = [crossing.at.low, crossing.at.value, crossing.at.high]
            axes.plot(ends, [y] * 3, markevery=[1], **CROSSING)


def _height(series: Mapping[str, Sequence[DrawnRow]], crossing: Crossing, drawn: Drawn) -> float:
    """Where two lines of ratios meet: at 1 for one that meets the reference."""
    if not {crossing.variant, crossing.than} <= set(drawn.variants):
        return 1.0
    known = [row for row in series[crossing.variant] if not row.why]
    places, logs = [drawn.axis.place(row.at) for row in known], [math.log(row.value) for row in known]
    return math.exp(np.interp(drawn.axis.place(crossing.at.value), places, logs))


def _limits(axes: Axes, drawn: Drawn) -> None:
    """All values, and of their intervals what is not FARTHEST away."""
    known = [row for row in drawn.rows if not row.why]
    values = [row.value for row in known]
    if drawn.of_ratios:
        values += [1 - 2 * SAME_WITHIN, 1 + 2 * SAME_WITHIN]
    if not values:
        axes.set_yticks([])
        return
    low, high = min(values), max(values)
    low = max(min([low, *(row.low for row in known)]), low - (FARTHEST - 1) * abs(low) / FARTHEST)
    high = min(max([high, *(row.high for row in known)]), high * FARTHEST)
    scale_axis(axes.yaxis, low, high, below=3.0 if len(known) < len(drawn.rows) else 1.0)
    write_numbers(axes.yaxis, number_text)


def _around(
    figure: Figure, drawn: Drawn, looks: Mapping[str, Mapping[str, Any]], size: tuple[float, float],
    crossings: Crossings | None,
) -> None:  # fmt: skip
    """The legend and the lines above and below; then the figure is as high as it must be."""
    width, height = size
    handles = [
        Line2D([], [], label=literal(shortened(name, 40)), linewidth=0.9, markersize=3.2, **look)
        for name, look in looks.items()
    ]
    if whys := {row.why for row in drawn.rows if row.why}:
        handles.append(Line2D([], [], color=GREY, label=f"no figure: {', '.join(sorted(whys))}", **CROSS))
    if drawn.of_ratios:
        handles.append(Line2D([], [], color=BAND, linewidth=4, solid_capstyle="butt", label=f"same: within {WITHIN}"))
    if crossings and crossings.places:
        handles.append(Line2D([], [], label="crossing, with its interval", **CROSSING))
    longest = max(len(str(handle.get_label())) for handle in handles)
    columns = max(1, min(len(handles), 4 if width == COLUMN else 8, int(width * LETTERS / (longest + 6))))
    letters = int(width * LETTERS)
    above = lines_above(figure, about(drawn.report), letters)
    below = [part for line in sweep_line(drawn.report) for part in textwrap.wrap(line, letters)]
    figure.set_size_inches(
        width, height + AROUND + LEGEND_ROW * math.ceil(len(handles) / columns) + LINE * (above + len(below))
    )
    legend_below(
        figure, columns, handles=handles, handlelength=1.8, alignment="left", handletextpad=0.4,
        title="\n".join(map(literal, below)), title_fontsize=SMALL,
    )  # fmt: skip
