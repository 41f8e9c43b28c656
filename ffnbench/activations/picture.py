"""What `plot-activations` writes: f on the left and f' on the right, with their minima and their dead zones; or
act(g) * u over gate g and up u, one small panel a form, all on one colour scale; and the points of either as csv.
"""

from __future__ import annotations

# first, as it loads matplotlib away from the current folder
from ffnbench.report.pictures.canvas import BLACK, DPI, drawing, literal, panels, pens, render, shortened

# isort: split
import math
import textwrap
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import combinations
from math import isnan
from statistics import median_high
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ffnbench.activations.facts import Facts
from ffnbench.common.errors import FfnbenchError
from ffnbench.ffn.spec import GATED_BY_ACTIVATION, ActivationSpec
from ffnbench.report.formats import PICTURES, Write
from ffnbench.report.writers import csv_text
from ffnbench.request import PictureRequest
from ffnbench.result import Curve


def picture(
    request: PictureRequest, chosen: Mapping[str, ActivationSpec], curves: dict[str, Curve], facts: dict[str, Facts]
) -> tuple[Figure, dict[str, Write]]:
    """The picture, and what writes it and its points, by suffix."""
    if request.gated:
        figure = gated_figure(curves, titles(chosen))
    else:
        figure = curves_figure(curves, facts, derivative=request.derivative is not False)
    files: dict[str, Write] = {".csv": lambda: points(curves, request.gated)}
    return figure, files | {suffix: partial(render, figure, suffix) for suffix in PICTURES}


def titles(chosen: Mapping[str, ActivationSpec]) -> dict[str, str]:
    """`swiglu: silu(g) · u`. An activation by itself is titled with the name of its gated form."""
    titles = {}
    for label, spec in chosen.items():
        name = GATED_BY_ACTIVATION.get(label, f"{label}_glu") if label == spec.activation else label
        beta = "" if spec.beta is None else f", β = {spec.beta:g}"
        titles[label] = f"{name}: {spec.activation.rpartition(':')[2]}(g{beta}) · u"
    return titles


def points(curves: dict[str, Curve], gated: bool) -> str:
    """Every point in full precision."""
    if gated:
        return csv_text(
            {"gate": g, "up": u, "activation": label, "value": y * u}
            for label, curve in curves.items() for u in curve.x for g, y in zip(curve.x, curve.y, strict=True)
        )  # fmt: skip
    return csv_text(
        {"x": x, "activation": label, "value": y, "derivative": None if isnan(s) else s}
        for label, curve in curves.items() for x, y, s in zip(curve.x, curve.y, curve.slope, strict=True)
    )  # fmt: skip


HEIGHT, LEGEND_ROW = 4.3, 0.2  # inches: the axes with their titles, and a row of the legend
DERIVATIVE_REACH = (-0.6, 2.1)
HIDDEN = 0.002  # of the width that is drawn: a fifth of a line
WIDEST, NARROWEST = 3.0, 1.2  # points, of the first line and the last: where curves are one line, all are seen
LEGEND_LETTERS = 12  # of the legend's that an inch has room for, with what stands before them
MARKERS_OF_CURVE = 6
SIZES: dict[str, Any] = {"markersize": 5.5, "markeredgewidth": 1.0}
BAR, ROOM = 0.035, 1.35  # of the height: a dead zone, and that of all of them in bars


def curves_figure(curves: dict[str, Curve], facts: dict[str, Facts], *, derivative: bool) -> Figure:
    """All curves in one picture: axes through zero, minima in the legend, dead zones as bars at the bottom. Curves
    that look like one have a panel more, with what is between them.
    """
    x = np.array(next(iter(curves.values())).x)
    values = np.array([curve.y for curve in curves.values()], dtype=float)
    slopes = np.array([curve.slope for curve in curves.values()], dtype=float)  # where there is none, a gap
    labels = [_legend_text(name, facts.get(name)) for name in curves]
    reach = 1.02 * max(abs(x[0]), abs(x[-1]), 1.0)  # a square function must not flatten the others
    near = HIDDEN * reach
    pairs = [(i, j) for i, j in combinations(range(len(values)), 2) if 0 < abs(values[i] - values[j]).max() < near]
    panels = 1 + derivative + bool(pairs)
    width = 2.0 + 4.0 * panels
    most = int(LEGEND_LETTERS * width)
    columns = max(1, min(3 if derivative else 2, len(labels), most // (max(map(len, labels)) + 8)))
    labels = ["\n".join(textwrap.wrap(label, most - 8)) for label in labels]
    rows = math.ceil(sum(label.count("\n") + 1 for label in labels) / columns)
    with drawing():
        figure = Figure(figsize=(width, HEIGHT + LEGEND_ROW * rows), dpi=DPI, layout="constrained")
        axes: Any = figure.subplots(1, panels, squeeze=False)[0]
        _frame(axes[0], x, _limits(values, -reach, reach), "f(x)")
        looks = pens(curves)
        _mark_dead_zones(axes[0], curves, facts, looks)
        _draw(axes[0], x, values, labels, looks)
        if derivative:
            _frame(axes[1], x, _limits(slopes, *DERIVATIVE_REACH), "f'(x)")
            _draw(axes[1], x, slopes, [""] * len(labels), looks)
        if pairs:
            apart = np.array([values[j] - values[i] for i, j in pairs])
            names = [literal(f"{[*curves][j]} \N{MINUS SIGN} {[*curves][i]}") for i, j in pairs]
            _frame(axes[-1], x, _limits(apart, -math.inf, math.inf), "difference")
            _draw(axes[-1], x, apart, names, [looks[j] for _, j in pairs])
        figure.legend(loc="outside lower center", ncols=columns, handlelength=3.2)
    return figure


def _limits(values: np.ndarray, lowest: float, highest: float) -> tuple[float, float]:
    """Room for every curve, cut at `lowest` and `highest`, but no curve may lie wholly outside."""
    spans = [(row[np.isfinite(row)].min(), row[np.isfinite(row)].max()) for row in values if np.isfinite(row).any()]
    if not spans:
        return lowest, highest
    top = max(high if low > highest else min(high, highest) for low, high in spans)
    bottom = min(low if high < lowest else max(low, lowest) for low, high in spans)
    room = 0.08 * (top - bottom) or 0.5 * max(1.0, abs(top))
    return float(bottom - room), float(top + room / 2)


def _frame(axes: Axes, x: np.ndarray, limits: tuple[float, float], title: str) -> None:
    axes.axhline(0, color=BLACK, alpha=0.4, linewidth=0.8, zorder=0)
    axes.axvline(0, color=BLACK, alpha=0.4, linewidth=0.8, zorder=0)
    axes.set(xlim=(x[0], x[-1]), ylim=limits, xlabel="x", title=title)
    axes.ticklabel_format(scilimits=(-2, 5), useMathText=True)


def _legend_text(name: str, facts: Facts | None) -> str:
    if facts is None or facts.minimum is None or facts.minimum_at is None or facts.minimum_flat:
        return literal(name)
    value, place = (f"{v:.4f}" if abs(v) >= 1e-3 or not v else f"{v:.3e}" for v in (facts.minimum, facts.minimum_at))
    return literal(f"{name}  (min {value} at {place})")


def _draw(axes: Axes, x: np.ndarray, values: np.ndarray, labels: list[str], looks: Sequence[dict[str, Any]]) -> None:
    """The curves, each narrower than the one below it, with markers at places of its own; where one jumps, a gap."""
    widths = np.linspace(WIDEST, NARROWEST, len(values)) if len(values) > 1 else [1.8]
    apart = max(1, len(x) // MARKERS_OF_CURVE)
    for i, (y, width, label, look) in enumerate(zip(values, widths, labels, looks, strict=True)):
        gaps: np.ndarray = _jumps(y) + 1
        axes.plot(
            np.insert(x, gaps, np.nan), np.insert(y, gaps, np.nan), linewidth=width, zorder=3, label=label,
            markevery=(int(apart * (i + 0.5) / len(values)), apart), **SIZES, **look,
        )  # fmt: skip


def _jumps(y: np.ndarray) -> np.ndarray:
    """The points after which y jumps: drawn as a gap, not as a steep line that the function never takes."""
    change = np.nan_to_num(np.abs(np.diff(y)))
    typical = np.partition(change, -3)[-3] if len(change) > 3 else 0.0
    return np.nonzero((change > 0.2) & (change > 20 * max(typical, 1e-9)))[0]


def _dead_zones(facts: Facts | None, low: float, high: float) -> list[tuple[float, float]]:
    """Where within [low, high] the gradient is known to be exactly zero."""
    zones = []
    for start, end in facts.dead if facts else ():
        zone = max(low, -math.inf if start is None else start), min(high, math.inf if end is None else end)
        if zone[0] < zone[1]:
            zones.append(zone)
    return zones


def _mark_dead_zones(
    axes: Axes, curves: dict[str, Curve], facts: dict[str, Facts], looks: Sequence[dict[str, Any]]
) -> None:
    """Bars under the curves, one row an activation with its pen: there its gradient is exactly zero."""
    zones = [_dead_zones(facts.get(name), curve.x[0], curve.x[-1]) for name, curve in curves.items()]
    dead = [(look, within) for look, within in zip(looks, zones, strict=True) if within]
    if not dead:
        return
    bottom, top = axes.get_ylim()
    step = min(BAR, 0.5 / len(dead)) * (top - bottom)
    axes.set_ylim(bottom - ROOM * step * len(dead), top)
    for row, (look, within) in enumerate(dead):
        y = bottom - step * (row + 0.7)
        for zone in within:
            axes.plot(zone, (y, y), linewidth=3.5, alpha=0.75, solid_capstyle="butt", zorder=4, **SIZES, **look)
    axes.set_xlabel("x; bars: zero gradient")


PANEL, BESIDE, ABOVE = 3.1, 1.7, 0.5  # inches: a panel, and what colour bar and axis labels take
LEVELS = 5
STEEP = 2.0  # times the usual height: steeper ones are cut, so that a square function does not flatten the others
TITLE_LETTERS = 34  # of a title that a panel has room for in a line


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
            image = _surface(axes, np.asarray(curve.x), surfaces[name], scale, levels)
            lines = textwrap.wrap(shortened(titles[name]), TITLE_LETTERS)
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


def _surface(axes: Axes, x: np.ndarray, z: np.ndarray, scale: float, levels: list[float]) -> Any:
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
