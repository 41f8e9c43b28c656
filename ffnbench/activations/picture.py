"""What `plot-activations` writes: f on the left and f' on the right, with facts in the
legend; or act(g) * u over gate g and up u, a small panel for each form, all on one
colour scale; and the points of either as csv.
"""

from __future__ import annotations

# first, as it loads matplotlib away from the current folder
from ffnbench.report.pictures.canvas import (
    BLACK,
    PAGE,
    columns_for,
    drawing,
    finish,
    literal,
    named_lines,
    names_apart,
    panels,
    pens,
    render,
    shortened,
)

# isort: split
import math
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
from ffnbench.choices import FIGURE_SUFFIXES
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.units import digits
from ffnbench.ffn.spec import GATED_BY_ACTIVATION, ActivationSpec
from ffnbench.report.formats import Write
from ffnbench.report.writers import csv_text
from ffnbench.request import PictureRequest
from ffnbench.result import ActivationCurve


def picture(
    request: PictureRequest,
    chosen: Mapping[str, ActivationSpec],
    curves: dict[str, ActivationCurve],
    facts: dict[str, Facts],
) -> tuple[Figure, dict[str, Write]]:
    """The picture, and what writes it or its points, by suffix."""
    if request.gated:
        figure = gated_figure(curves, titles(chosen))
    else:
        figure = curves_figure(curves, facts)
    files: dict[str, Write] = {".csv": lambda: points(curves, request.gated)}
    return figure, files | {
        suffix: partial(render, figure, suffix) for suffix in FIGURE_SUFFIXES
    }


def titles(chosen: Mapping[str, ActivationSpec]) -> dict[str, str]:
    """The title of each surface, such as `swiglu: silu(g) · u`. One that was given by
    the name of its activation has the name of the gated form.
    """
    titles = {}
    for label, spec in chosen.items():
        if label == spec.activation:
            name = GATED_BY_ACTIVATION.get(label, f"{label}_glu")
        else:
            name = label
        beta = "" if spec.beta is None else f", β = {spec.beta:g}"
        titles[label] = f"{name}: {spec.activation.rpartition(':')[2]}(g{beta}) · u"
    return titles


def points(curves: dict[str, ActivationCurve], gated: bool) -> str:
    """Every point in full precision, as csv."""
    rows: list[dict[str, Any]] = []
    for label, curve in curves.items():
        if gated:
            for u in curve.x:
                for g, y in zip(curve.x, curve.y, strict=True):
                    rows.append(
                        {"gate": g, "up": u, "activation": label, "value": y * u}
                    )
        else:
            for x, y, slope in zip(curve.x, curve.y, curve.slope, strict=True):
                derivative = None if isnan(slope) else slope
                rows.append(
                    {"x": x, "activation": label, "value": y, "derivative": derivative}
                )
    return csv_text(rows)


HEIGHT = 2.5  # inches
DERIVATIVE_REACH = (-0.6, 2.1)  # beyond it f' is cut off
# Two values look equal where they are no farther apart than this share of the reach of
# x, or within a panel of its height.
LOOKS_EQUAL_SHARE = 0.002
# A curve that looks like an earlier one on more than this share of its points is
# dashed, so that both are seen.
COVERED_SHARE = 0.4
# a dash with its gap, in widths of a line; each further curve at one place has dashes
# of half the length
DASH = 8
MARKERS_OF_CURVE = 6
# A step between two points is a jump where it is larger than the first of these, and
# than the third largest step times the second: with two jumps at most, the third
# largest is a slope.
JUMP_LEAST, JUMP_FACTOR = 0.2, 20


def curves_figure(
    curves: dict[str, ActivationCurve], facts: dict[str, Facts]
) -> Figure:
    """All curves in one picture; the legend has their minima and where their gradient
    is zero. Where curves look like one, a third panel has their differences.
    """
    x = np.array(next(iter(curves.values())).x)
    values = np.array([curve.y for curve in curves.values()], dtype=float)
    # not a number where there is no derivative, which is drawn as a gap
    slopes = np.array([curve.slope for curve in curves.values()], dtype=float)
    # a square function must not flatten the others
    reach = 1.02 * max(abs(x[0]), abs(x[-1]), 1.0)
    looking_equal = []
    for i, j in combinations(range(len(values)), 2):
        difference = abs(values[i] - values[j]).max()
        if 0 < difference < LOOKS_EQUAL_SHARE * reach:
            looking_equal.append((i, j))
    count = 3 if looking_equal else 2
    names = list(curves)
    pens_of = pens(curves)
    with drawing(**{"lines.linewidth": 1.3}):
        figure, axes = panels(count, count, (PAGE, HEIGHT))
        is_dashed = _draw(
            axes[0], "f(x)", x, values, pens_of, _limits(values, -reach, reach)
        )
        is_dashed |= _draw(
            axes[1], "f'(x)", x, slopes, pens_of, _limits(slopes, *DERIVATIVE_REACH)
        )
        if looking_equal:
            titles = [f"{names[j]} \N{MINUS SIGN} {names[i]}" for i, j in looking_equal]
            differences = np.array([values[j] - values[i] for i, j in looking_equal])
            limits = _limits(differences, -math.inf, math.inf)
            is_dashed |= _draw(
                axes[-1],
                shortened(", ".join(titles)),
                x,
                differences,
                [pens_of[j] for _, j in looking_equal],
                limits,
            )
        labels = [
            text + _facts_text(facts.get(name))
            for text, name in zip(names_apart(names), names, strict=True)
        ]
        title = "dashed: a curve that lies on another one for a large part"
        finish(figure, title if is_dashed else "", named_lines(labels, pens_of))
    return figure


def _limits(values: np.ndarray, lowest: float, highest: float) -> tuple[float, float]:
    """The bottom and top of a panel of these curves, with some room. They are cut at
    `lowest` and `highest` unless a curve lies wholly beyond these.
    """
    finite = values[np.isfinite(values)]
    if not finite.size:
        return lowest, highest
    bottom, top = finite.min(), finite.max()
    may_stay = ~np.isfinite(values) | ((lowest <= values) & (values <= highest))
    if may_stay.any(axis=1).all():
        bottom, top = max(bottom, lowest), min(top, highest)
    room = 0.05 * (top - bottom) or 0.5 * max(1.0, abs(top))
    return float(bottom - room), float(top + room)


def _facts_text(facts: Facts | None) -> str:
    """What a legend says after a name, ` (min -0.1700 at -0.7518; f' = 0 for x < -3)`;
    "" where there is neither.
    """
    parts = []
    if (
        facts
        and facts.minimum is not None
        and facts.minimum_at is not None
        and not facts.minimum_flat
    ):
        parts.append(f"min {digits(facts.minimum, 4)} at {digits(facts.minimum_at, 4)}")
    for start, end in facts.dead if facts else ():
        match start, end:
            case None, None:
                parts.append("f' = 0")
            case None, _:
                parts.append(f"f' = 0 for x < {end:g}")
            case _, None:
                parts.append(f"f' = 0 for x > {start:g}")
            case _:
                parts.append(f"f' = 0 from {start:g} to {end:g}")
    return f" ({'; '.join(parts)})" if parts else ""


def _draw(
    axes: Axes,
    title: str,
    x: np.ndarray,
    values: np.ndarray,
    line_pens: Sequence[Mapping[str, Any]],
    limits: tuple[float, float],
) -> bool:
    """Draw curves into a panel, with markers at different places; where a function
    jumps, its curve has a gap. Returns whether a curve is dashed.
    """
    axes.axhline(0, color=BLACK, alpha=0.4, linewidth=0.8, zorder=0)
    axes.axvline(0, color=BLACK, alpha=0.4, linewidth=0.8, zorder=0)
    axes.set(xlim=(x[0], x[-1]), ylim=limits, xlabel="x", title=literal(title))
    axes.ticklabel_format(scilimits=(-2, 5), useMathText=True)
    near = LOOKS_EQUAL_SHARE * (limits[1] - limits[0])
    between_markers = max(1, len(x) // MARKERS_OF_CURVE)
    is_dashed = False
    for number, (y, pen) in enumerate(zip(values, line_pens, strict=True)):
        below = sum(
            np.mean(abs(y - earlier) < near) > COVERED_SHARE
            for earlier in values[:number]
        )
        dash = DASH / 2**below
        gaps: np.ndarray = _jumps(y) + 1
        axes.plot(
            np.insert(x, gaps, np.nan),
            np.insert(y, gaps, np.nan),
            linestyle=(0, (dash, DASH - dash)) if below else "-",
            zorder=3,
            markevery=(
                int(between_markers * (number + 0.5) / len(values)),
                between_markers,
            ),
            **pen,
        )
        is_dashed |= bool(below)
    return is_dashed


def _jumps(y: np.ndarray) -> np.ndarray:
    """The indices of points after which y jumps; such a step is no steep line, whose
    values the function would have.
    """
    steps = np.nan_to_num(np.abs(np.diff(y)))
    usual = np.partition(steps, -3)[-3] if len(steps) > 3 else 0.0
    least = max(JUMP_LEAST, JUMP_FACTOR * usual)
    return np.nonzero(steps > least)[0]


# inches: the side of a panel at most; what colour bar and labels of axes take
LARGEST_SIDE, BAR_AND_LABELS = 2.4, 0.9
CONTOUR_LEVELS = 5
# Surfaces higher than this many times the median of all heights are cut, so that a
# square function does not flatten the others.
HIGHEST_FACTOR = 2.0


@drawing(**{"axes.grid": False, "axes.spines.top": True, "axes.spines.right": True})
def gated_figure(curves: dict[str, ActivationCurve], titles: dict[str, str]) -> Figure:
    """All surfaces in one picture; raises FfnbenchError where a product is not
    finite.
    """
    with np.errstate(over="ignore"):  # rows are u, columns g
        surfaces = {
            name: np.outer(curve.x, np.asarray(curve.y, dtype=float))
            for name, curve in curves.items()
        }
    tops = [float(np.abs(surface).max()) for surface in surfaces.values()]
    if not all(map(math.isfinite, tops)):
        raise FfnbenchError(
            "act(g) * u is not finite on this range", "choose a smaller --range"
        )
    highest = HIGHEST_FACTOR * median_high(tops)
    scale = max(top for top in tops if top <= highest) or 1.0
    columns = columns_for(len(curves))
    side = min(LARGEST_SIDE, (PAGE - BAR_AND_LABELS) / columns)
    size = side * columns + BAR_AND_LABELS, side + 0.2
    figure, axes = panels(len(curves), columns, size, sharex=True, sharey=True)
    figure.set_layout_engine("compressed")  # as constrained, for panels that are square
    names = names_apart([titles[name] for name in curves])
    levels = _levels(scale)
    for panel, title, (name, curve) in zip(axes, names, curves.items(), strict=True):
        image = _surface(panel, np.asarray(curve.x), surfaces[name], scale, levels)
        panel.set_title(literal(title))
    for panel in axes[::columns]:
        panel.set_ylabel("up u")
    for panel in axes[-columns:]:
        panel.set_xlabel("gate g")
    extend = "both" if max(tops) > scale else "neither"
    figure.colorbar(
        image, ax=axes, label="act(g) · u", extend=extend, aspect=30, pad=0.02
    )
    return figure


def _levels(scale: float) -> list[float]:
    """The levels of contours, ascending: of 1, 2 and 5 times powers of ten the highest
    that are at most 3/4 of the scale, with both signs.
    """
    exponent = math.floor(math.log10(scale))
    positive = []
    for power in range(exponent - 2, exponent + 1):
        steps = [float(f"{digit}e{power}") for digit in (1, 2, 5)]
        positive += [step for step in steps if step <= 0.75 * scale]
    positive = positive[-CONTOUR_LEVELS:]
    return [*(-step for step in reversed(positive)), *positive]


def _surface(
    axes: Axes, x: np.ndarray, z: np.ndarray, scale: float, levels: list[float]
) -> Any:
    """Draw a surface with its contours into a panel; returns its image, for the colour
    bar.
    """
    image = axes.pcolormesh(
        x,
        x,
        z,
        cmap="RdBu_r",
        vmin=-scale,
        vmax=scale,
        shading="gouraud",
        rasterized=True,
    )
    within = [level for level in levels if z.min() < level < z.max()]
    if within:
        lines = axes.contour(x, x, z, levels=within, colors="0.15", linewidths=0.6)
        axes.clabel(lines, fontsize=5, fmt="%g")
    axes.axhline(0, color="0.5", linewidth=0.6)
    axes.axvline(0, color="0.5", linewidth=0.6)
    # the axes through zero may lie outside
    axes.set(xlim=(x[0], x[-1]), ylim=(x[0], x[-1]))
    axes.ticklabel_format(scilimits=(-2, 5), useMathText=True)
    axes.set_aspect("equal")
    return image
