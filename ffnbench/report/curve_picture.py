"""The picture of activations: f on the left and f' on the right, with their minima and their dead zones."""

from __future__ import annotations

import math
import textwrap
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ffnbench.activations.facts import Facts
from ffnbench.report.picture import Canvas, drawing, lay_out, literal, pen, shortened
from ffnbench.result import Curve

HEIGHT, LEGEND_HEIGHT = 4.6, 0.55  # inches: the picture, and the part of it that a legend of two lines takes
DERIVATIVE_REACH = (-0.6, 2.1)
WIDTH = 1.8  # of a line, in points
TOUCHING, PERIOD = 0.9, 15.0  # points: nearer curves share their line, each with its part of a period


def curves_figure(curves: dict[str, Curve], facts: dict[str, Facts], *, derivative: bool, canvas: Canvas) -> Figure:
    """All curves in one picture: axes through zero, minima as dots, dead zones as bars at the bottom."""
    x = np.array(next(iter(curves.values())).x)
    values = np.array([curve.y for curve in curves.values()], dtype=float)
    slopes = np.array([curve.slope for curve in curves.values()], dtype=float)  # where there is none, a gap
    with drawing(canvas):
        figure = Figure(figsize=canvas.size or (10.0 if derivative else 6.0, HEIGHT), layout="constrained")
        axes: Any = figure.subplots(1, 2 if derivative else 1, squeeze=False)[0]
        reach = 1.02 * max(abs(x[0]), abs(x[-1]), 1.0)  # a square function must not flatten the others
        _frame(axes[0], x, _limits(values, -reach, reach), "f(x)")
        if derivative:
            _frame(axes[1], x, _limits(slopes, *DERIVATIVE_REACH), "f'(x)")
        labels = [_legend_text(name, facts.get(name)) for name in curves]
        legend = _legend(figure, labels, most=3 if derivative else 2)
        if canvas.size is None:
            more = max(0.0, legend.get_window_extent().height / figure.dpi - LEGEND_HEIGHT)
            figure.set_size_inches(float(figure.get_size_inches()[0]), HEIGHT + more)
        lay_out(figure, axes)
        _mark_dead_zones(axes[0], curves)
        _draw(axes[0], x, values)
        if derivative:
            _draw(axes[1], x, slopes)
        _mark_minima(axes[0], x, [facts.get(name) for name in curves])
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
    grey = pen(0)["color"]
    axes.axhline(0, color=grey, alpha=0.4, linewidth=0.8, zorder=0)
    axes.axvline(0, color=grey, alpha=0.4, linewidth=0.8, zorder=0)
    axes.set(xlim=(x[0], x[-1]), ylim=limits, xlabel="x", title=title)
    axes.grid(True, color=grey, alpha=0.1, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.ticklabel_format(scilimits=(-2, 5), useMathText=True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _legend_text(name: str, facts: Facts | None) -> str:
    if facts is None or facts.minimum is None or facts.minimum_at is None or facts.minimum_flat:
        return literal(name)
    value, place = (f"{v:.4f}" if abs(v) >= 1e-3 or not v else f"{v:.3e}" for v in (facts.minimum, facts.minimum_at))
    return literal(f"{name}  (min {value} at {place})")


def _legend(figure: Figure, labels: list[str], most: int) -> Any:
    """Under the axes, in as many columns as fit; where not even one does, its lines are folded."""

    def legend(columns: int, texts: list[str]) -> Any:
        rows = math.ceil(len(texts) / columns)
        lines = [Line2D([], [], linewidth=WIDTH, **pen(i)) for i in range(len(texts))]
        return figure.legend(
            lines, texts, loc="outside lower center", ncols=math.ceil(len(texts) / rows), frameon=False,
            handlelength=3.2, fontsize="small",
        )  # fmt: skip

    for columns in range(min(most, len(labels)), 0, -1):
        made = legend(columns, labels)
        share = figure.bbox.width / made.get_window_extent().width
        if share >= 1:
            return made
        made.remove()
    longest = max(10, int(0.8 * share * max(map(len, labels))))
    return legend(1, ["\n".join(textwrap.wrap(label, longest)) for label in labels])


def _draw(axes: Axes, x: np.ndarray, values: np.ndarray) -> None:
    """The curves, in pieces: where some run on one line, each shows in its part of a dashed one."""
    with np.errstate(over="ignore"):
        heights = values / np.ptp(axes.get_ylim()) * (axes.bbox.height * 72 / axes.figure.dpi)
    shortest = math.ceil(2 * PERIOD / (axes.bbox.width * 72 / axes.figure.dpi) * len(x))
    count, rank = _company(heights, shortest)
    for i, y in enumerate(values):
        jumps = _jumps(y)
        place = np.where(rank[i] == 0, 0, count[i] * len(values) + rank[i])  # the lowest is drawn through
        cuts = [0, *(np.nonzero(np.diff(place))[0] + 1), len(x) - 1]
        for a, b in pairwise(cuts):
            style = pen(i)
            if r := rank[i][a]:
                on = PERIOD * (count[i][a] - r) / count[i][a]
                style["linestyle"] = (0, (on / WIDTH, (PERIOD - on) / WIDTH))
            gaps = jumps[(jumps >= a) & (jumps < b)] - a + 1
            piece: list[np.ndarray] = [np.insert(part[a : b + 1], gaps, np.nan) for part in (x, y)]
            axes.plot(*piece, linewidth=WIDTH, zorder=3, **style)


def _company(heights: np.ndarray, shortest: int) -> tuple[np.ndarray, np.ndarray]:
    """For each curve and point: how many curves run on one line there, and how many of them lie below this one."""
    curves = range(len(heights))
    count, rank = np.ones(heights.shape, int), np.zeros(heights.shape, int)
    for i in curves:
        for j in range(i):
            together = _long_runs(np.abs(heights[i] - heights[j]) < TOUCHING, shortest)
            count[i] += together
            count[j] += together
            rank[i] += together
    return count, rank


def _long_runs(flags: np.ndarray, shortest: int) -> np.ndarray:
    """Only the runs of True that are long enough: curves that merely cross share nothing."""
    edges = np.nonzero(np.diff(np.concatenate(([False], flags, [False])).astype(int)))[0]
    kept: np.ndarray = np.zeros(len(flags), int)
    for start, end in zip(edges[::2], edges[1::2], strict=True):
        if end - start >= shortest:
            kept[start:end] = 1
    return kept


def _jumps(y: np.ndarray) -> np.ndarray:
    """The points after which y jumps: drawn as a gap, not as a steep line that the function never takes."""
    change = np.nan_to_num(np.abs(np.diff(y)))
    typical = np.partition(change, -3)[-3] if len(change) > 3 else 0.0
    return np.nonzero((change > 0.2) & (change > 20 * max(typical, 1e-9)))[0]


def _mark_minima(axes: Axes, x: np.ndarray, facts: list[Facts | None]) -> None:
    for i, found in enumerate(facts):
        if found is None:
            continue
        at, value = found.minimum_at, found.minimum
        if at is not None and value is not None and not found.minimum_flat and x[0] <= at <= x[-1]:
            axes.plot(
                [at], [value], "o", color=pen(i)["color"], markersize=5, markeredgecolor=axes.get_facecolor(), zorder=5
            )


def _mark_dead_zones(axes: Axes, curves: dict[str, Curve]) -> None:
    """Bars under the curves, one row an activation with its name: there its gradient is exactly zero."""
    dead = [(i, name, curve.flat) for i, (name, curve) in enumerate(curves.items()) if curve.flat]
    if not dead:
        return
    line = _text(axes, "relu", 0, 0)
    row = 1.35 * line.get_window_extent().height / axes.bbox.height  # share of the axes
    line.remove()
    share = min(0.5, (len(dead) + 0.3) * row)
    bottom, top = axes.get_ylim()
    axes.set_ylim(bottom - share / (1 - share) * (top - bottom), top)
    lowest = axes.get_ylim()[0]
    step = (bottom - lowest) / (len(dead) + 0.3)
    for k, (i, name, zones) in enumerate(dead):
        y = bottom - step * (k + 0.5)
        for zone in zones:
            axes.plot(zone, (y, y), linewidth=3.5, alpha=0.75, solid_capstyle="butt", zorder=4, **pen(i))
        _name_bars(axes, literal(name), zones, y)


def _text(axes: Axes, text: str, x: float, y: float) -> Any:
    behind = {"facecolor": axes.get_facecolor(), "edgecolor": "none", "pad": 0.8}
    return axes.text(x, y, text, fontsize="x-small", va="center_baseline", bbox=behind, zorder=6, clip_on=True)


def _name_bars(axes: Axes, name: str, zones: tuple[tuple[float, float], ...], y: float) -> None:
    """The name beside its bar where there is room within the axes, else on the longest bar, cut if it must be."""
    low, high = axes.get_xlim()
    pixel = (high - low) / axes.bbox.width
    pad = 5 * axes.figure.dpi / 72 * pixel
    text = _text(axes, name, 0, y)

    def width() -> float:
        return float(text.get_window_extent().width) * pixel + 2 * pad

    ends = [low, *(edge for zone in zones for edge in zone), high]
    longest = max(zones, key=lambda zone: zone[1] - zone[0])
    for said in (f"{name}: zero gradient", name):
        text.set_text(said)
        for start, end in zip(ends[::2], ends[1::2], strict=True):
            if end - start >= width():
                text.set(x=start + pad if start > low else end - pad, ha="left" if start > low else "right")
                return
    text.set(x=(longest[0] + longest[1]) / 2, ha="center")
    for said in (f"{name}: zero gradient", name):
        text.set_text(said)
        if longest[1] - longest[0] >= width() + 2 * pad:
            return
    if high - low < width():
        text.set_text(shortened(name, max(3, int(0.9 * len(name) * (high - low) / width()))))
    text.set_x(min(max(text.get_position()[0], low + width() / 2), high - width() / 2))
