"""The picture of activations: f on the left and f' on the right, with their minima and their dead zones."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from itertools import combinations
from typing import Any

# first, as it loads matplotlib away from the current folder
from ffnbench.report.pictures.canvas import BLACK, DPI, drawing, literal, pens

# isort: split
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ffnbench.activations.facts import Facts
from ffnbench.result import Curve

HEIGHT, LEGEND_ROW = 4.3, 0.2  # inches: the axes with their titles, and a row of the legend
DERIVATIVE_REACH = (-0.6, 2.1)
HIDDEN = 0.002  # of the width that is drawn: a fifth of a line
WIDEST, NARROWEST = 3.0, 1.2  # points, of the first line and the last: where curves are one line, all are seen
LETTERS = 12  # of the legend's that an inch has room for, with what stands before them
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
    most = int(LETTERS * width)
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
