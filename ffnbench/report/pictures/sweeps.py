"""Curves over an axis: lines with bands, a panel for each value of the other axes; heat maps where two axes are long.

What has no figure, since it failed or was disturbed, is a gap in its line and a cross below. One panel is as wide as a
column of a paper, several are as wide as a page. A bar marks each crossing, which the sentence below
tells.
"""

from __future__ import annotations

import json
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
from ffnbench.report.pictures.drawn import LATENCY_S, RATIO, Drawn, DrawnRow, drawn_of, number_text, within_text
from ffnbench.report.pictures.heat import DPI, FONTS, LETTERS, SMALL, heat_figure
from ffnbench.report.pictures.ratios import BAND, SIDE_BY_SIDE, TICKS, about
from ffnbench.report.tables.sweeps import sweep_line
from ffnbench.report.tables.words import WITHIN
from ffnbench.result import Report
from ffnbench.stats.curves import Crossing, Crossings, axes_of, crossings_of, variant_of
from ffnbench.stats.verdict import SAME_WITHIN
from ffnbench.streams import visible

COLUMN, PAGE = 3.3, 7.0  # inches, of a paper
PANEL, AROUND, LEGEND_ROW, LINE = 2.0, 0.55, 0.14, 0.1  # inches: heights
MOST_PANELS = 6  # values of a second axis of numbers; more make a heat map
FARTHEST = 3.0  # how far beyond the values the axis shows of a wide interval
WIDEST = {1: 6, 2: 5, 3: 4}  # numbers below an axis, by panels in a row
GREY = "#808080"


def sweep_figure(report: Report) -> Figure:
    """The picture of a sweep: its axis with most points, ratios where its cells have several variants."""
    drawn = drawn_of(report)
    second = axes_of(report.plan)[1:2]
    if second and len(second[0].values) > MOST_PANELS:
        return heat_figure(drawn, second[0])
    return _curves(drawn, marks=False)


def plotted(report: Report, x: str = "", y: str = "", facet: str = "") -> Figure:
    """Any column over any axis or column, with a mark on what no other variant of its cell beats."""
    return _curves(drawn_of(report, x, y, facet), marks=True)


def _curves(drawn: Drawn, *, marks: bool) -> Figure:
    names = list(dict.fromkeys(variant_of(group, case) for group, case, _ in drawn.rows))
    looks = {name: look for name, look in zip(names, pens(names), strict=True) if name in drawn.variants}
    panels = drawn.panels
    columns = 1 if len(panels) == 1 else 2 if len(panels) in (2, 4) else 3
    rows = math.ceil(len(panels) / columns)
    crossings = crossings_of(drawn.report) if drawn.y in (RATIO, LATENCY_S) else None
    if crossings and crossings.axis.name != drawn.x:
        crossings = None
    with drawing(**FONTS):
        figure = Figure(dpi=DPI, layout="constrained")
        grid: Any = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        for number, (axes, (title, series)) in enumerate(zip(grid.flat, panels.items(), strict=False)):
            _frame(axes, drawn, columns)
            for name, look in looks.items():
                _line(axes, series.get(name, []), look, drawn, marks=marks)
            _gaps(axes, series, looks)
            if crossings and drawn.y == RATIO:
                _mark(axes, crossings, title, drawn, series)
            axes.set_title(literal(shortened(title, 60)), loc="left", pad=3)
            if number + columns >= len(panels):
                axes.set_xlabel(literal(drawn.units[drawn.x][1]), labelpad=1)
                axes.tick_params(labelbottom=True)
        _limits(grid.flat[0], drawn)
        for axes in grid[:, 0]:
            axes.set_ylabel(literal(shortened(drawn.units[drawn.y][1], 40)), labelpad=2)
        _around(figure, drawn, looks, (COLUMN if columns == 1 else PAGE, PANEL * rows), crossings, marks=marks)
    return figure


def _frame(axes: Axes, drawn: Drawn, columns: int) -> None:
    axes.tick_params(axis="both", length=2, pad=1.5)
    if drawn.y == RATIO:
        axes.axhspan(1 - SAME_WITHIN, 1 + SAME_WITHIN, color=BAND, linewidth=0, zorder=0)
        axes.axhline(1, color=BLACK, linewidth=0.6, zorder=1)
    axis, texts = drawn.axis, drawn.texts
    if not drawn.swept and not texts:
        return _scale(axes, "x", axis.values[0], axis.values[-1])
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
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: literal(shortened(texts[int(value)], 14)) if texts else number_text(value))
    )
    return None


def _scale(axes: Axes, side: str, low: float, high: float, below: float = 1.0) -> None:
    """An axis of a column, with room at both ends, and so many times of it below; logarithmic where values are far
    apart.
    """
    axis: Any = axes.xaxis if side == "x" else axes.yaxis
    if low > 0 and high / low > SIDE_BY_SIDE:
        room = (high / low) ** 0.06
        axes.set(**{f"{side}scale": "log", f"{side}lim": (low / room**below, high * room)})
        axis.set_minor_locator(NullLocator())
        subs = next(subs for least, subs in TICKS.items() if high / low > least)
        axis.set_major_locator(MaxNLocator(6) if high / low < FARTHEST else LogLocator(subs=subs, numticks=7))
    else:
        room = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
        axes.set(**{f"{side}lim": (low - room * below, high + room)})
        axis.set_major_locator(MaxNLocator(5))
    axis.set_major_formatter(FuncFormatter(lambda value, _: number_text(value)))


def _line(axes: Axes, dots: Sequence[DrawnRow], look: Mapping[str, Any], drawn: Drawn, *, marks: bool) -> None:
    """A line that is broken where there is no value, and its band."""
    if not dots:
        return
    at = np.array([dot.at for dot in dots], dtype=float)
    value, low, high = (np.array([getattr(dot, end) for dot in dots]) for end in ("value", "low", "high"))
    if drawn.swept:
        axes.fill_between(at, low, high, color=look["color"], alpha=0.16, linewidth=0, zorder=2)
    axes.vlines(at, low, high, color=look["color"], linewidth=0.6, zorder=2.5)
    labels = [visible(dot.record["label"]) for dot in dots if not dot.why]
    axes.plot(at, value, linestyle="-" if drawn.joined else "", linewidth=0.9, markersize=3.2, markeredgewidth=0.7,
              zorder=3, gid=json.dumps(labels), **look)  # fmt: skip
    if marks and any(kept := [bool(dot.record["unbeaten"]) for dot in dots]):
        axes.plot(at[kept], value[kept], **RING)


RING: dict[str, Any] = {"linestyle": "", "marker": "o", "markersize": 6, "markerfacecolor": "none",
                        "markeredgecolor": BLACK, "markeredgewidth": 0.6, "zorder": 4}  # fmt: skip
CROSSING: dict[str, Any] = {"color": BLACK, "linewidth": 1.4, "marker": "|", "markersize": 5, "zorder": 5}
CROSS: dict[str, Any] = {"linestyle": "", "marker": "x", "markersize": 3.6, "markeredgewidth": 1.0}


def _gaps(axes: Axes, series: Mapping[str, Sequence[DrawnRow]], looks: Mapping[str, Mapping[str, Any]]) -> None:
    """Crosses at the bottom, one above another, where variants have no figure."""
    stacked: dict[Any, int] = {}
    for name, look in looks.items():
        for dot in series.get(name, ()):
            if dot.why:
                height = 0.03 + 0.05 * stacked.setdefault(dot.at, 0)
                stacked[dot.at] += 1
                axes.plot([dot.at], [height], color=look["color"], transform=axes.get_xaxis_transform(),
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
    known = [dot for dot in series[crossing.variant] if not dot.why]
    places, logs = [drawn.axis.place(dot.at) for dot in known], [math.log(dot.value) for dot in known]
    return math.exp(np.interp(drawn.axis.place(crossing.at.value), places, logs))


def _limits(axes: Axes, drawn: Drawn) -> None:
    """All values, and of their intervals what is not FARTHEST away."""
    known = [dot for dot in drawn.dots if not dot.why]
    values = [dot.value for dot in known] + [1 - 2 * SAME_WITHIN, 1 + 2 * SAME_WITHIN] * (drawn.y == RATIO)
    if not values:
        axes.set_yticks([])
        return
    low, high = min(values), max(values)
    low = max(min([low, *(dot.low for dot in known)]), low - (FARTHEST - 1) * abs(low) / FARTHEST)
    high = min(max([high, *(dot.high for dot in known)]), high * FARTHEST)
    _scale(axes, "y", low, high, below=3.0 if len(known) < len(drawn.dots) else 1.0)


def _around(
    figure: Figure, drawn: Drawn, looks: Mapping[str, Mapping[str, Any]], size: tuple[float, float],
    crossings: Crossings | None, *, marks: bool,
) -> None:  # fmt: skip
    """The legend and the lines above and below; then the figure is as high as it must be."""
    width, height = size
    handles = [
        Line2D([], [], label=literal(shortened(name, 40)), linewidth=0.9 * drawn.joined, markersize=3.2, **look)
        for name, look in looks.items()
    ]
    if whys := {dot.why for dot in drawn.dots if dot.why}:
        handles.append(Line2D([], [], color=GREY, label=f"no figure: {', '.join(sorted(whys))}", **CROSS))
    if drawn.y == RATIO:
        handles.append(Line2D([], [], color=BAND, linewidth=4, solid_capstyle="butt", label=f"same: within {WITHIN}"))
    if crossings and crossings.places and drawn.y == RATIO:
        handles.append(Line2D([], [], label="crossing, with its interval", **CROSSING))
    if marks and any(dot.record["unbeaten"] for dot in drawn.dots):
        handles.append(Line2D([], [], label="no other variant beats it", **RING))
    longest = max(len(str(handle.get_label())) for handle in handles)
    columns = max(1, min(len(handles), 4 if width == COLUMN else 8, int(width * LETTERS / (longest + 6))))
    above = textwrap.wrap(about(drawn.report), int(width * LETTERS))
    said = sweep_line(drawn.report) if crossings else []
    below = [part for line in said for part in textwrap.wrap(line, int(width * LETTERS))]
    lines = len(above) + len(below)
    figure.set_size_inches(width, height + AROUND + LEGEND_ROW * math.ceil(len(handles) / columns) + LINE * lines)
    figure.suptitle("\n".join(map(literal, above)), fontsize=SMALL, x=0.01, ha="left")
    figure.legend(
        handles=handles, loc="outside lower left", ncols=columns, fontsize=SMALL, handlelength=1.8, alignment="left",
        columnspacing=1.0, handletextpad=0.4, borderpad=0.1, labelspacing=0.25,
        title="\n".join(map(literal, below)), title_fontsize=SMALL,
    )  # fmt: skip
