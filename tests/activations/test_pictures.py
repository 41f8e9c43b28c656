"""The picture of activations: limits that show every curve, gaps that stay gaps."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from matplotlib.figure import Figure

from ffnbench.activations.picture import curves_figure
from ffnbench.record.result import ActivationCurve


def curve(
    f: Callable[[np.ndarray], np.ndarray],
    *,
    low: float = -4,
    high: float = 4,
    points: int = 401,
) -> ActivationCurve:
    x = np.linspace(low, high, points)
    slope = (f(x + 1e-6) - f(x - 1e-6)) / 2e-6
    return ActivationCurve(x=tuple(x), y=tuple(f(x)), slope=tuple(slope))


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


RELU = curve(relu)


def figure_of(curves: dict[str, ActivationCurve]) -> Figure:
    figure = curves_figure(curves, {})
    figure.draw_without_rendering()
    return figure


def test_a_slope_that_does_not_exist_is_a_gap() -> None:
    slope = [*RELU.slope[:200], None, *RELU.slope[201:]]
    figure = figure_of(
        {"relu": ActivationCurve(x=RELU.x, y=RELU.y, slope=tuple(slope))}
    )
    drawn = figure.axes[1].lines[0].get_ydata()
    assert np.isnan(drawn[200])
    assert np.isfinite(drawn[[199, 201]]).all()
    nowhere = ActivationCurve(x=RELU.x, y=RELU.y, slope=(None,) * len(RELU.x))
    assert all(map(math.isfinite, figure_of({"f": nowhere}).axes[1].get_ylim()))
