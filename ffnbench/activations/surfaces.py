"""The picture of gated forms: act(g) * u over gate g and up u, one small panel a form, all on one colour scale."""

from __future__ import annotations

import math
import textwrap
from statistics import median_high
from typing import Any

# first, as it loads matplotlib away from the current folder
from ffnbench.report.pictures.canvas import DPI, drawing, literal, panels, shortened

# isort: split
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ffnbench.errors import FfnbenchError
from ffnbench.result import Curve

PANEL, BESIDE, ABOVE = 3.1, 1.7, 0.5  # inches: a panel, and what colour bar and axis labels take
LEVELS = 5
STEEP = 2.0  # times the usual height: steeper ones are cut, so that a square function does not flatten the others
LETTERS = 34  # of a title that a panel has room for in a line


def gated_figure(curves: dict[str, Curve], titles: dict[str, str]) -> Figure:
    """All surfaces in one picture; raises FfnbenchError where a product is not finite."""
    with np.errstate(over="ignore"):  # rows are u, columns g
        surfaces = {name: np.outer(curve.x, np.asarray(curve.y, dtype=float)) for name, curve in curves.items()}
    tops = [float(np.abs(surface).max()) for surface in surfaces.values()]
    if not all(map(math.isfinite, tops)):
        raise FfnbenchError("act(g) * u is not finite on this range", "choose a smaller --range")
    scale = max(top for top in tops if top <= STEEP * median_high(tops)) or 1.0
    columns = len(curves) if len(curves) <= 3 else min(5, math.ceil(len(curves) ** 0.5))
    rows = math.ceil(len(curves) / columns)
    size = (PANEL * columns + BESIDE, (PANEL + 0.15) * rows + ABOVE)
    with drawing(**{"axes.grid": False, "axes.spines.top": True, "axes.spines.right": True}):
        figure = Figure(figsize=size, dpi=DPI, layout="compressed")  # as constrained, for panels that are square
        grid, levels = panels(figure, len(curves), columns, sharex=True, sharey=True), _levels(scale)
        for k, (axes, (name, curve)) in enumerate(zip(grid.flat, curves.items(), strict=False)):
            image = _draw(axes, np.asarray(curve.x), surfaces[name], scale, levels)
            lines = textwrap.wrap(shortened(titles[name]), LETTERS)
            axes.set_title("\n".join(map(literal, lines)), fontsize="small")
            if not k % columns:
                axes.set_ylabel("up u")
            if k + columns >= len(curves):
                axes.set_xlabel("gate g")
                axes.tick_params(labelbottom=True)
        figure.colorbar(
            image, ax=grid, label="act(g) · u", shrink=0.85, pad=0.02, aspect=8 + 12 * rows,
            extend="both" if max(tops) > scale else "neither",
        )  # fmt: skip
    return figure


def _levels(scale: float) -> list[float]:
    """Contours at 1, 2, 5 times powers of ten, the highest ones that fit under 3/4 of the scale; both signs."""
    exponent = math.floor(math.log10(scale))
    steps = [float(f"{digit}e{e}") for e in range(exponent - 2, exponent + 1) for digit in (1, 2, 5)]
    positive = [step for step in steps if step <= 0.75 * scale][-LEVELS:]
    return [*(-step for step in reversed(positive)), *positive]


def _draw(axes: Axes, x: np.ndarray, z: np.ndarray, scale: float, levels: list[float]) -> Any:
    image = axes.pcolormesh(x, x, z, cmap="RdBu_r", vmin=-scale, vmax=scale, shading="gouraud", rasterized=True)
    if within := [level for level in levels if z.min() < level < z.max()]:
        lines = axes.contour(x, x, z, levels=within, colors="0.15", linewidths=0.6)
        axes.clabel(lines, fontsize=6, fmt="%g")
    axes.axhline(0, color="0.5", linewidth=0.6)
    axes.axvline(0, color="0.5", linewidth=0.6)
    axes.set(xlim=(x[0], x[-1]), ylim=(x[0], x[-1]))  # the axes through zero may lie outside
    axes.ticklabel_format(scilimits=(-2, 5), useMathText=True)
    axes.set_aspect("equal")
    return image
