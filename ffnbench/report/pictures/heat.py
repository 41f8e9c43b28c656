"""A heat map over two long axes: a panel for each variant, its value in figures and as a colour.

Colours of ratios are even around 1, so that a print in grey needs the figures. A ratio that is not decided has a `~`;
what has no figure, since it failed or was disturbed, is a cross.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from ffnbench.plan import Axis
from ffnbench.report.pictures.canvas import SMALL, drawing, lines_above, literal, panels, shortened
from ffnbench.report.pictures.drawn import Drawn, DrawnRow, number_text
from ffnbench.report.pictures.ratios import about
from ffnbench.report.sentences import sweep_line
from ffnbench.result import Report
from ffnbench.units import digits

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
