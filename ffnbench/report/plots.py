"""Pictures of activations: curves with their derivatives, and the surfaces of the gated forms. No display needed.

Colours are Okabe & Ito's (2008), which colour-blind readers can tell apart; beyond seven curves the line style
changes as well.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ffnbench.errors import FfnbenchError
from ffnbench.ffn.facts import Facts
from ffnbench.registry import hint_for
from ffnbench.result import Curve

COLOURS = ("text", "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
LINES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))
DERIVATIVE_LIMITS = (-0.6, 2.1)
CONTOURS = (-8, -4, -2, -1, -0.5, 0.5, 1, 2, 4, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Size in inches, dots per inch, and a matplotlib style by name."""

    width: float
    height: float
    dpi: int
    style: str

    def __post_init__(self) -> None:
        if self.style != "default" and self.style not in matplotlib.style.available:
            known = ["default", *(s for s in matplotlib.style.available if not s.startswith("_"))]
            raise FfnbenchError(
                f"unknown style {self.style!r}", hint_for(self.style, known, "for example default, ggplot, grayscale")
            )


def render(figure: Figure, suffix: str, look: Look) -> bytes:
    """The picture as png, svg or pdf bytes."""
    buffer = io.BytesIO()
    with matplotlib.style.context(look.style):
        figure.savefig(buffer, format=suffix.removeprefix("."), dpi=look.dpi)
    return buffer.getvalue()


def curves_figure(curves: dict[str, Curve], facts: dict[str, Facts], *, derivative: bool, look: Look) -> Figure:
    """f on the left and f' on the right: axes through zero, minima as dots, dead zones as bars at the bottom."""
    with matplotlib.style.context(look.style):
        figure = Figure(figsize=(look.width, look.height), layout="constrained")
        axes: Any = figure.subplots(1, 2 if derivative else 1, squeeze=False)[0]
        top, bottom = _limits(curves)
        handles = _draw(axes[0], curves, lambda c: c.y, (bottom, top), "f(x)")
        _mark_minima(axes[0], curves, facts)
        _mark_dead_zones(axes[0], curves)
        if derivative:
            _draw(axes[1], curves, lambda c: c.slope, _slope_limits(curves), "f'(x)")
        labels = [_legend_text(name, facts[name]) for name in curves]
        rows = math.ceil(len(labels) / (3 if derivative else 2))
        figure.legend(
            handles, labels, loc="outside lower center", ncols=math.ceil(len(labels) / rows), frameon=False,
            handlelength=3.2, fontsize="small",
        )  # fmt: skip
    return figure


def _limits(curves: dict[str, Curve]) -> tuple[float, float]:
    """Room for every curve, but not more than the x axis spans: a square function must not flatten the others."""
    x = next(iter(curves.values())).x
    reach = max(abs(x[0]), abs(x[-1]))
    top = min(max(max(c.y) for c in curves.values()), 1.02 * reach)
    bottom = max(min(min(c.y) for c in curves.values()), -1.02 * reach)
    room = 0.08 * (top - bottom) or 1.0
    return top + room / 2, bottom - room


def _slope_limits(curves: dict[str, Curve]) -> tuple[float, float]:
    low, high = (f(f(c.slope) for c in curves.values()) for f in (min, max))
    bottom, top = max(low, DERIVATIVE_LIMITS[0]), min(high, DERIVATIVE_LIMITS[1])
    room = 0.08 * (top - bottom) or 0.5
    return bottom - room, top + room


def _draw(axes: Axes, curves: dict[str, Curve], of: Any, limits: tuple[float, float], title: str) -> list[Any]:
    """The curves with the zero axes; gives the lines back, for the legend."""
    lines = []
    for i, curve in enumerate(curves.values()):
        x, y = _broken_at_jumps(curve.x, of(curve))
        lines += axes.plot(x, y, color=_colour(i), linestyle=_line(i), linewidth=1.8, zorder=3)
    axes.axhline(0, color=_colour(0), alpha=0.4, linewidth=0.8, zorder=0)
    axes.axvline(0, color=_colour(0), alpha=0.4, linewidth=0.8, zorder=0)
    first = next(iter(curves.values()))
    axes.set(xlim=(first.x[0], first.x[-1]), ylim=limits, xlabel="x", title=title)
    axes.grid(True, color=_colour(0), alpha=0.1, linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return lines


def _broken_at_jumps(x: Sequence[float], y: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """A jump of a derivative is a gap, not a steep line that the function never takes."""
    xs, ys = np.asarray(x), np.asarray(y)
    change = np.abs(np.diff(ys))
    typical = np.partition(change, -3)[-3] if len(change) > 3 else 0.0
    jumps = np.nonzero((change > 0.2) & (change > 20 * max(typical, 1e-9)))[0]
    for place in jumps[::-1]:
        xs, ys = np.insert(xs, place + 1, np.nan), np.insert(ys, place + 1, np.nan)
    return xs, ys


def _mark_minima(axes: Axes, curves: dict[str, Curve], facts: dict[str, Facts]) -> None:
    for i, (name, curve) in enumerate(curves.items()):
        at, value = facts[name].minimum_at, facts[name].minimum
        if at is not None and value is not None and curve.x[0] <= at <= curve.x[-1]:
            axes.plot([at], [value], "o", color=_colour(i), markersize=5, markeredgecolor="white", zorder=5)


def _mark_dead_zones(axes: Axes, curves: dict[str, Curve]) -> None:
    """Bars under the curves, one an activation: there its gradient is exactly zero."""
    dead = [(i, name, zone) for i, (name, curve) in enumerate(curves.items()) for zone in curve.flat]
    if not dead:
        return
    bottom, top = axes.get_ylim()
    step = 0.028 * (top - bottom)
    rows = {name: k for k, name in enumerate(dict.fromkeys(name for _, name, _ in dead))}
    axes.set_ylim(bottom - step * (len(rows) + 0.6), top)
    for i, name, (start, end) in dead:
        y = bottom - step * (rows[name] + 0.2)
        axes.plot([start, end], [y, y], color=_colour(i), linewidth=3.5, alpha=0.75, solid_capstyle="butt", zorder=2)
    names = ", ".join(rows)
    right = max(end for _, _, (_, end) in dead)
    y = bottom - step * ((len(rows) - 1) / 2 + 0.2)
    axes.annotate(
        f"zero gradient: {names}", (right, y), xytext=(4, 0), textcoords="offset points", va="center",
        fontsize="x-small", alpha=0.75,
    )  # fmt: skip


def _legend_text(name: str, facts: Facts) -> str:
    if facts.minimum is None or facts.minimum_at is None:
        return name
    return f"{name}  (min {facts.minimum:.4f} at {facts.minimum_at:.4f})"


def _colour(i: int) -> str:
    """The first colour is that of the style's text: black on white, white on black."""
    colour = COLOURS[i % len(COLOURS)]
    return str(matplotlib.rcParams["text.color"]) if colour == "text" else colour


def _line(i: int) -> Any:
    beyond = i - len(COLOURS)
    return LINES[1 + beyond % (len(LINES) - 1)] if beyond >= 0 else LINES[0]


def gated_figure(curves: dict[str, Curve], titles: dict[str, str], *, look: Look) -> Figure:
    """act(g) * u over gate g and up u, one small panel a form, all on one colour scale."""
    columns = min(3, len(curves))
    rows = math.ceil(len(curves) / columns)
    with matplotlib.style.context(look.style):
        figure = Figure(figsize=(look.width, look.height), layout="constrained")
        grid: Any = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
        scale = max(float(np.abs(_surface(curve)).max()) for curve in curves.values())
        for axes, (name, curve) in zip(grid.flat, curves.items(), strict=False):
            image = _draw_surface(axes, curve, scale)
            axes.set_title(titles[name], fontsize="medium")
        for axes in grid.flat[len(curves) :]:
            axes.set_visible(False)
        for axes in grid[:, 0]:
            axes.set_ylabel("up u")
        for k, axes in enumerate(grid.flat[: len(curves)]):
            if k + columns >= len(curves):
                axes.set_xlabel("gate g")
                axes.tick_params(labelbottom=True)
        figure.colorbar(image, ax=grid, label="act(g) · u", shrink=0.85, pad=0.02)
    return figure


def _surface(curve: Curve) -> np.ndarray:
    """Rows are u, columns g."""
    return np.outer(np.asarray(curve.x), np.asarray(curve.y))


def _draw_surface(axes: Axes, curve: Curve, scale: float) -> Any:
    x, z = np.asarray(curve.x), _surface(curve)
    image = axes.pcolormesh(x, x, z, cmap="RdBu_r", vmin=-scale, vmax=scale, shading="gouraud", rasterized=True)
    levels = [level for level in CONTOURS if z.min() < level < z.max()]
    if levels:
        lines = axes.contour(x, x, z, levels=levels, colors="0.15", linewidths=0.6)
        axes.clabel(lines, fontsize=6, fmt="%g")
    axes.axhline(0, color="0.5", linewidth=0.6)
    axes.axvline(0, color="0.5", linewidth=0.6)
    axes.set_aspect("equal")
    return image
