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
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from ffnbench.report.pictures.canvas import BLACK, drawing, literal, pens, shortened
from ffnbench.report.pictures.drawn import Drawn, DrawnRow, number_text, within_text
from ffnbench.report.pictures.heat import DPI, FONTS, LETTERS, SMALL, heat_figure
from ffnbench.report.pictures.ratios import BAND, SIDE_BY_SIDE, TICKS, about
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
    panels = drawn.panels
    columns = 1 if len(panels) == 1 else 2 if len(panels) in (2, 4) else 3
    rows = math.ceil(len(panels) / columns)
    crossings = drawn.report.figures.crossings
    with drawing(**FONTS):
        figure = Figure(dpi=DPI, layout="constrained")
        grid: Any = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        for number, (axes, (title, series)) in enumerate(zip(grid.flat, panels.items(), strict=False)):
            _frame(axes, drawn, columns)
            for name, look in looks.items():
                _line(axes, series.get(name, []), look)
            _gaps(axes, series, looks)
            if crossings:
                _mark(axes, crossings, title, drawn, series)
            axes.set_title(literal(shortened(title, 60)), loc="left", pad=3)
            if number + columns >= len(panels):
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
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number_text(value)))


def _scale(axes: Axes, low: float, high: float, below: float) -> None:
    """The axis of values, with room at both ends, and so many times of it below; logarithmic where values are far
    apart.
    """
    axis: Any = axes.yaxis
    if low > 0 and high / low > SIDE_BY_SIDE:
        room = (high / low) ** 0.06
        axes.set(yscale="log", ylim=(low / room**below, high * room))
        axis.set_minor_locator(NullLocator())
        subs = next(subs for least, subs in TICKS.items() if high / low > least)
        axis.set_major_locator(MaxNLocator(6) if high / low < FARTHEST else LogLocator(subs=subs, numticks=7))
    else:
        room = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
        axes.set(ylim=(low - room * below, high + room))
        axis.set_major_locator(MaxNLocator(5))
    axis.set_major_formatter(FuncFormatter(lambda value, _: number_text(value)))


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
    _scale(axes, low, high, below=3.0 if len(known) < len(drawn.rows) else 1.0)


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
    above = textwrap.wrap(about(drawn.report), int(width * LETTERS))
    below = [part for line in sweep_line(drawn.report) for part in textwrap.wrap(line, int(width * LETTERS))]
    lines = len(above) + len(below)
    figure.set_size_inches(width, height + AROUND + LEGEND_ROW * math.ceil(len(handles) / columns) + LINE * lines)
    figure.suptitle("\n".join(map(literal, above)), fontsize=SMALL, x=0.01, ha="left")
    figure.legend(
        handles=handles, loc="outside lower left", ncols=columns, fontsize=SMALL, handlelength=1.8, alignment="left",
        columnspacing=1.0, handletextpad=0.4, borderpad=0.1, labelspacing=0.25,
        title="\n".join(map(literal, below)), title_fontsize=SMALL,
    )  # fmt: skip
