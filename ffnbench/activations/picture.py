"""What `plot-activations` writes: f on the left and f' on the right, with the minimum
of each function in the legend; and the points as csv.
"""

from __future__ import annotations

# first, as it loads matplotlib away from the current folder
from ffnbench.report.pictures.canvas import (
    BLACK,
    drawing,
    finish,
    panels,
    pens,
    render,
    shown_name,
)

# isort: split
from functools import partial
from math import isnan
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ffnbench.activations.facts import Facts
from ffnbench.common.choices import FIGURE_SUFFIXES
from ffnbench.common.units import digits
from ffnbench.record.result import ActivationCurve
from ffnbench.report.answer import Write
from ffnbench.report.writers import csv_text

HEIGHT = 2.5  # inches
DERIVATIVE_REACH = 2.1  # a larger |f'| is not shown
MARKERS_OF_CURVE = 6


def picture(
    curves: dict[str, ActivationCurve], facts: dict[str, Facts]
) -> tuple[Figure, dict[str, Write]]:
    """The picture, and what writes it or its points, by suffix."""
    figure = curves_figure(curves, facts)
    files: dict[str, Write] = {".csv": partial(points, curves)}
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


@drawing()
def curves_figure(
    curves: dict[str, ActivationCurve], facts: dict[str, Facts]
) -> Figure:
    """All curves in one picture, with markers at different places, which tell curves
    apart that lie on each other.
    """
    figure, axes = panels(2, HEIGHT)
    pens_of = pens(curves)
    for place, (name, curve) in enumerate(curves.items()):
        # a square function must not flatten the others
        reach = max(abs(curve.x[0]), abs(curve.x[-1]), 1.0)
        values = _within(curve.y, reach), _within(curve.slope, DERIVATIVE_REACH)
        step = max(1, len(curve.x) // MARKERS_OF_CURVE)
        first = step * (2 * place + 1) // (2 * len(curves))
        label = shown_name(name) + _minimum_text(facts.get(name))
        for panel, y in zip(axes, values, strict=True):
            panel.plot(
                curve.x, y, markevery=(first, step), label=label, **pens_of[name]
            )
    for panel, title in zip(axes, ("f(x)", "f'(x)"), strict=True):
        panel.axhline(0, color=BLACK, alpha=0.4, linewidth=0.8, zorder=0)
        panel.axvline(0, color=BLACK, alpha=0.4, linewidth=0.8, zorder=0)
        panel.set(xlim=(curve.x[0], curve.x[-1]), xlabel="x", title=title)
    finish(
        figure,
        "Activations f(x), and their derivatives f'(x)",
        axes[0].get_legend_handles_labels()[0],
    )
    return figure


def _within(values: tuple[float | None, ...], reach: float) -> np.ndarray:
    """The values of a curve up to this size; beyond, and where there is no derivative,
    it has a gap. A curve that lies wholly beyond is not cut.
    """
    y = np.array(values, dtype=float)
    is_near = abs(y) <= reach
    return np.where(is_near, y, np.nan) if is_near.any() else y


def _minimum_text(facts: Facts | None) -> str:
    """` (min -0.1700 at -0.7518)`; "" where there is no minimum at one point."""
    if (
        facts is None
        or facts.minimum_flat
        or facts.minimum is None
        or facts.minimum_at is None
    ):
        return ""
    return f" (min {digits(facts.minimum, 4)} at {digits(facts.minimum_at, 4)})"
