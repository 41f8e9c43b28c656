"""A sweep drawn: lines with bands along an axis, a panel for each value of the other axes; heat maps where two axes are
long, a panel for each variant, its value in figures and as a colour.

What has no figure, since it failed or was disturbed, is a gap in its line and a cross. One panel is as wide as a column
of a paper, several are as wide as a page. A bar marks each crossing, which the sentence below tells. Colours of ratios
are even around 1; a ratio that is not decided has a `~`.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullFormatter

from ffnbench.common.units import SI, TIME, digits, quantity, scale
from ffnbench.metrics import LATENCY
from ffnbench.plan import Axis, Group
from ffnbench.report.columns import case_rows
from ffnbench.report.frame import Row
from ffnbench.report.header import heading
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
from ffnbench.report.pictures.ratios import BAND, about
from ffnbench.report.sentences import sweep_line
from ffnbench.report.words import WITHIN, verdict_word
from ffnbench.result import Crossing, Crossings, Estimate, Report, Verdict
from ffnbench.stats.verdict import SAME_WITHIN

LARGE = 1e6  # numbers from here on are shortened


@dataclass(frozen=True, slots=True)
class DrawnRow:
    """A row of the run: where it stands, its value and interval, or why it has none. `up` is the value of the axis that
    a heat map goes up by.
    """

    label: str
    at: float
    up: Any
    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    why: str = ""
    undecided: bool = False


@dataclass(frozen=True)
class Drawn:
    """What is drawn of a run along `axis`; the other axes make panels, but for `up`, which a heat map has."""

    report: Report
    axis: Axis
    up: Axis | None = None

    @cached_property
    def of_ratios(self) -> bool:
        """Whether ratios are drawn, and not seconds: where a cell has several variants."""
        return any(len(group.cases) > 1 for group in self.report.plan.groups)

    @cached_property
    def names(self) -> list[str]:
        """All variants of the run."""
        return list(dict.fromkeys(group.variant_of(case) for group in self.report.plan.groups for case in group.cases))

    @cached_property
    def variants(self) -> list[str]:
        """The variants that are drawn: of ratios all but the references."""
        plan = self.report.plan
        shown = [
            group.variant_of(case)
            for group in plan.groups
            for case in group.cases
            if not (self.of_ratios and plan.is_reference(case.label))
        ]
        return list(dict.fromkeys(shown))

    @cached_property
    def unit(self) -> tuple[float, str]:
        """What values are divided by, and what stands beside them."""
        plan = self.report.plan
        if self.of_ratios:
            references = {group.variant_of(plan.case(group.reference)) for group in plan.groups}
            return 1.0, f"time vs {references.pop() if len(references) == 1 else 'the reference'}"
        seconds = [self._estimate(case.label) for group in plan.groups for case in group.cases]
        unit, size = scale([estimate.value for estimate in seconds if estimate], TIME)
        return size, f"latency ({unit})"

    @cached_property
    def panels(self) -> dict[str, dict[str, list[DrawnRow]]]:
        """Rows by variant, along the axis, for each value of the other axes."""
        panels: dict[str, dict[str, list[DrawnRow]]] = {}
        for group in self.report.plan.groups:
            others = {key: value for key, value in group.values.items() if key != self.axis.name}
            if self.up:
                others.pop(self.up.name)
            series = panels.setdefault(within_text(others), {})
            for case in group.cases:
                series.setdefault(group.variant_of(case), []).append(self._row(group, case.label))
        for series in panels.values():
            for rows in series.values():
                rows.sort(key=lambda row: row.at)
        return panels

    @property
    def rows(self) -> list[DrawnRow]:
        """All that is drawn."""
        return [row for series in self.panels.values() for name in self.variants for row in series.get(name, ())]

    @cached_property
    def _rows(self) -> dict[str, Row]:
        return {row["label"]: row for row in case_rows(self.report)}

    def _estimate(self, label: str) -> Estimate | None:
        if not self.of_ratios:
            return self.report.estimate(label, LATENCY)
        comparison = self.report.comparison(label)
        return comparison.ratio if comparison else None

    def _row(self, group: Group, label: str) -> DrawnRow:
        at, up = float(group.values[self.axis.name]), group.values[self.up.name] if self.up else None
        estimate = self._estimate(label)
        if estimate is None or not self.report.has_time(label):
            return DrawnRow(label, at, up, why=verdict_word(self._rows[label]) or "not known")
        low = estimate.value if estimate.low is None else estimate.low
        high = estimate.value if estimate.high is None else estimate.high
        value, low, high = (end / self.unit[0] for end in (estimate.value, low, high))
        comparison = self.report.comparison(label)
        undecided = self.of_ratios and comparison is not None and comparison.verdict is Verdict.UNCLEAR
        return DrawnRow(label, at, up, value, low, high, undecided=undecided)


def within_text(values: Mapping[str, Any]) -> str:
    """`d_model 512, bfloat16`."""
    plain = {key: str(value).lower() if isinstance(value, bool | None) else value for key, value in values.items()}
    return heading(Group(reference="", cases=(), values=plain))


def number_text(value: float) -> str:
    """A number beside an axis: `4,096`, `4.72 M`."""
    return quantity(value, SI) if abs(value) >= LARGE else f"{value:,g}"


CELL, WIDE, BESIDE, ABOVE = (0.27, 0.2), 7.0, 1.1, 0.62  # inches: a cell, a page, and what stands around
DPI, TINY = 300, 5.0
LETTERS = 22  # of small text, that an inch has room for
FONTS = {"font.size": 7, "xtick.labelsize": 6, "ytick.labelsize": 6, "axes.labelsize": 6.5, "axes.titlesize": 6.5,
         "axes.linewidth": 0.6, "figure.constrained_layout.w_pad": 0.03,
         "figure.constrained_layout.h_pad": 0.03}  # fmt: skip
TICKS, TILDE = 5, " (~: can't tell)"
LEAST = 1.1  # the ratio that has the full colour where none is farther from 1
PALE = 0.25, 0.75  # shares of the colours' way between which figures are black


def heat_figure(report: Report, across: Axis, up: Axis) -> Figure:
    """A panel for each variant and each value of further axes."""
    drawn = Drawn(report, across, up)
    cells_of = {
        (title, name): cells
        for title, series in drawn.panels.items()
        for name, cells in series.items()
        if name in drawn.variants
    }
    width = CELL[0] * len(across.values)
    columns = max(1, min(len(cells_of), int((WIDE - BESIDE) / width)))
    rows = math.ceil(len(cells_of) / columns)
    values = [cell.value for cells in cells_of.values() for cell in cells if not cell.why]
    with drawing(**FONTS | {"axes.grid": False}):
        figure = Figure(dpi=DPI, layout="constrained")
        inches = max(3.3, BESIDE + width * columns)
        letters = int(inches * LETTERS)
        above = lines_above(figure, about(report), letters)
        figure.set_size_inches(inches, (CELL[1] * len(up.values) + ABOVE) * rows + 0.1 * above)
        grid = panels(figure, len(cells_of), columns, sharex=True, sharey=True)
        norm, colours = _colours(values, ratio=drawn.of_ratios)
        image: Any = None
        for axes, ((title, name), cells) in zip(grid.flat, cells_of.items(), strict=False):
            image = _cells(axes, cells, across, up, norm, colours)
            axes.set_title(literal(shortened(", ".join(filter(None, (name, title))), 60)), loc="left", pad=3)
        for axes in grid[-1]:
            axes.set_xlabel(literal(across.name), labelpad=1)
        for axes in grid[:, 0]:
            axes.set_ylabel(literal(up.name), labelpad=2)
        ticks = np.geomspace(norm.vmin, norm.vmax, TICKS)
        bar = figure.colorbar(image, ax=grid, pad=0.02, aspect=30)
        bar.set_ticks(ticks.tolist(), labels=[digits(tick) for tick in ticks], minor=False)
        bar.ax.minorticks_off()
        tilde = TILDE if drawn.of_ratios else ""
        bar.set_label(literal(drawn.unit[1]) + tilde, fontsize=6.5)
        below = [part for line in sweep_line(report) for part in textwrap.wrap(line, letters)]
        figure.supxlabel("\n".join(map(literal, below)), fontsize=SMALL, x=0.01, ha="left")
    return figure


def _colours(values: Sequence[float], *, ratio: bool) -> tuple[LogNorm, str]:
    if ratio:
        most = max([LEAST, *values, *(1 / value for value in values)])
        return LogNorm(1 / most, most), "RdBu_r"
    return LogNorm(min(values, default=1.0), max(values, default=1.0) * (1 + 1e-9)), "cividis"


def _cells(axes: Axes, cells: Sequence[DrawnRow], across: Axis, up: Axis, norm: LogNorm, colours: str) -> Any:
    """The cells, all of one size, with their figures."""
    grid = np.full((len(up.values), len(across.values)), np.nan)
    for cell in cells:
        x, y = across.values.index(cell.at), up.values.index(cell.up)
        grid[y, x] = cell.value
        text = digits(cell.value)
        if cell.undecided:
            text = f"~{text}"
        if cell.why:
            text = "×"
        pale = cell.why or PALE[0] < norm(cell.value) < PALE[1]
        axes.text(x, y, text, ha="center", va="center", fontsize=TINY, color="black" if pale else "white")
    for side, axis in ((axes.xaxis, across), (axes.yaxis, up)):
        side.set_ticks(range(len(axis.values)), [number_text(value) for value in axis.values])
    axes.tick_params(axis="x", rotation=90 if max(across.values) >= 1000 else 0)
    axes.tick_params(length=2, pad=1.5)
    image = axes.imshow(grid, norm=norm, cmap=colours, aspect="auto", origin="lower")
    axes.spines[:].set_visible(False)
    return image


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
