"""What `plot-activations` writes: f on the left and f' on the right, with facts in the
legend; and the points as csv.
"""

from __future__ import annotations

# first, as it loads matplotlib away from the current folder
from ffnbench.report.pictures.canvas import (
    BLACK,
    PAGE,
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
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ffnbench.activations.facts import Facts
from ffnbench.choices import FIGURE_SUFFIXES
from ffnbench.common.units import digits
from ffnbench.report.formats import Write
from ffnbench.report.writers import csv_text
from ffnbench.result import ActivationCurve


def picture(
    curves: dict[str, ActivationCurve], facts: dict[str, Facts]
) -> tuple[Figure, dict[str, Write]]:
    """The picture, and what writes it or its points, by suffix."""
    figure = curves_figure(curves, facts)
    files: dict[str, Write] = {".csv": lambda: points(curves)}
    return figure, files | {
        suffix: partial(render, figure, suffix) for suffix in FIGURE_SUFFIXES
    }


def points(curves: dict[str, ActivationCurve]) -> str:
    """Every point in full precision, as csv."""
    rows: list[dict[str, Any]] = []
    for label, curve in curves.items():
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
