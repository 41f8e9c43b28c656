"""The pictures as figures: texts inside, curves apart, limits that hold every curve,
gaps that stay gaps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.special import ndtr

from ffnbench.activations.facts import Facts
from ffnbench.activations.picture import curves_figure
from ffnbench.report.pictures.canvas import pens
from ffnbench.result import ActivationCurve

FACTS = Facts(
    low=None, low_reached=False, high=None, high_reached=False, minimum=None, minimum_at=None, minimum_until=None,
    minimum_flat=False, monotonic="increasing", jumps=(), kinks=(), bends=(),
    slope_low=None, slope_high=None, zero_gradient=0.0, saturated=0.0, mean=0.0, second_moment=1.0, dead=(),
)  # fmt: skip


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
COLOURS = [pen["color"] for pen in pens(["relu", "relu2"])]
RELU2 = curve(lambda x: relu(x) ** 2)


def figure_of(curves: dict[str, ActivationCurve]) -> Figure:
    facts = {
        name: replace(FACTS, dead=((None, 0.0),)) if name.startswith("relu") else FACTS
        for name in curves
    }
    figure = curves_figure(curves, facts)
    figure.draw_without_rendering()
    return figure


@pytest.fixture(scope="module")
def pair() -> Figure:
    """relu and relu2, drawn once for all that look at them."""
    return figure_of({"relu": RELU, "relu2": RELU2})


def pieces(figure: Figure, colour: str, panel: int = 0) -> list:
    return [line for line in figure.axes[panel].lines if line.get_color() == colour]


def test_two_curves_that_look_like_one_have_their_difference_beside_them(
    pair: Figure,
) -> None:
    """The tanh form of gelu is at most 4.73e-4 away (Hendrycks and Gimpel; by scipy's
    erf here).
    """
    gelu = curve(lambda x: x * ndtr(x))
    by_tanh = curve(
        lambda x: (
            0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        )
    )
    figure = figure_of({"gelu": gelu, "relu2": RELU2, "gelu_tanh": by_tanh})
    (line,) = (line for line in figure.axes[2].lines if len(line.get_xdata()) > 2)
    assert max(abs(line.get_ydata())) == pytest.approx(4.73e-4, rel=5e-3)
    low, high = figure.axes[2].get_ylim()
    assert high - low < 2e-3
    assert figure.axes[2].get_title(loc="left") == "gelu_tanh \N{MINUS SIGN} gelu"
    assert [len(of.axes) for of in (pair, figure_of({"a": gelu, "b": gelu}))] == [2, 2]


def test_a_slope_that_does_not_exist_is_a_gap() -> None:
    slope = [*RELU.slope[:200], None, *RELU.slope[201:]]
    figure = figure_of(
        {"relu": ActivationCurve(x=RELU.x, y=RELU.y, slope=tuple(slope))}
    )
    drawn = np.concatenate([line.get_ydata() for line in pieces(figure, COLOURS[0], 1)])
    assert np.isnan(drawn).any()
    nowhere = ActivationCurve(x=RELU.x, y=RELU.y, slope=(None,) * len(RELU.x))
    assert all(map(math.isfinite, figure_of({"f": nowhere}).axes[1].get_ylim()))
