"""The pictures as figures: texts inside, curves apart, limits that hold every curve, gaps that stay gaps."""

from __future__ import annotations

import math
from collections.abc import Callable

import matplotlib.style
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from ffnbench.activations.facts import Facts
from ffnbench.errors import FfnbenchError
from ffnbench.report.pictures.canvas import Canvas, render
from ffnbench.report.pictures.curves import curves_figure
from ffnbench.report.pictures.surfaces import gated_figure
from ffnbench.result import Curve

NATURAL = Canvas(size=None, dpi=50, style="default")
FACTS = Facts(
    low=None, low_reached=False, high=None, high_reached=False, minimum=None, minimum_at=None, minimum_until=None,
    minimum_flat=False, monotonic="increasing", jumps=(), kinks=(), bends=(),
    slope_low=None, slope_high=None, zero_gradient=0.0, saturated=0.0, mean=0.0, second_moment=1.0,
)  # fmt: skip


def curve(
    f: Callable[[np.ndarray], np.ndarray], *, low: float = -4, high: float = 4, flat: tuple = (), points: int = 401
) -> Curve:
    x = np.linspace(low, high, points)
    slope = (f(x + 1e-6) - f(x - 1e-6)) / 2e-6
    return Curve(x=tuple(x), y=tuple(f(x)), slope=tuple(slope), flat=flat)


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


RELU = curve(relu, flat=((-4.0, 0.0),))
RELU2 = curve(lambda x: relu(x) ** 2, flat=((-4.0, 0.0),))


def side(f: Callable[[np.ndarray], np.ndarray], *, reach: float = 4) -> Curve:
    """One side of a surface, of so few points that drawing it takes no time."""
    return curve(f, low=-reach, high=reach, points=41)


def figure_of(curves: dict[str, Curve], canvas: Canvas = NATURAL, *, derivative: bool = True) -> Figure:
    figure = curves_figure(curves, dict.fromkeys(curves, FACTS), derivative=derivative, canvas=canvas)
    figure.draw_without_rendering()
    return figure


@pytest.fixture(scope="module")
def pair() -> Figure:
    """relu and relu2, drawn once for all that look at them."""
    return figure_of({"relu": RELU, "relu2": RELU2})


def bar_names(figure: Figure) -> list[Text]:
    return figure.axes[0].texts


def test_each_dead_zone_is_named_beside_its_own_bar(pair: Figure) -> None:
    texts = bar_names(pair)
    assert [text.get_text() for text in texts] == ["relu: zero gradient", "relu2: zero gradient"]
    assert texts[0].get_position()[0] > 0
    boxes = [text.get_window_extent() for text in texts]
    assert boxes[0].y0 > boxes[1].y1 - 1


ZONES = {
    "the whole range": ((-4.0, 4.0),),
    "the right edge": ((3.0, 4.0),),
    "both edges": ((-4.0, -1.0), (1.0, 4.0)),
    "nearly all": ((-3.9, 3.9),),
}


@pytest.mark.parametrize("canvas", [NATURAL, Canvas(size=(4.0, 3.0), dpi=50, style="default")], ids=["natural", "4x3"])
@pytest.mark.parametrize("zones", ZONES.values(), ids=list(ZONES))
def test_the_names_of_dead_zones_stay_inside_the_axes(zones, canvas: Canvas) -> None:
    figure = figure_of({"f": curve(np.tanh, flat=zones), "a_name_that_is_long" * 8: curve(np.sin, flat=zones)}, canvas)
    axes = figure.axes[0].bbox
    for text in bar_names(figure):
        box = text.get_window_extent()
        assert axes.x0 <= box.x0 < box.x1 <= axes.x1, text.get_text()
        assert axes.y0 - 1 <= box.y0, text.get_text()


def pieces(figure: Figure, colour: str, panel: int = 0) -> list:
    return [
        line for line in figure.axes[panel].lines
        if line.get_color() == colour and line.get_linewidth() == 1.8
    ]  # fmt: skip


def test_where_two_curves_are_one_line_both_are_seen(pair: Figure) -> None:
    """relu is drawn through, relu2 over it with gaps, for x < 0 and nowhere else."""
    for panel in (0, 1):
        assert all(not line.is_dashed() for line in pieces(pair, "black", panel))
        over = pieces(pair, "#D55E00", panel)
        dashed = [line for line in over if line.is_dashed()]
        assert len(dashed) == 1
        x = dashed[0].get_xdata()
        assert x[0] == -4
        assert -0.1 < x[-1] < 0.3
    assert not any(line.is_dashed() for line in pieces(figure_of({"relu2": RELU2}), "black"))


def test_a_slope_that_does_not_exist_is_a_gap() -> None:
    slope = [*RELU.slope[:200], None, *RELU.slope[201:]]
    figure = figure_of({"relu": Curve(x=RELU.x, y=RELU.y, slope=tuple(slope), flat=RELU.flat)})
    drawn = np.concatenate([line.get_ydata() for line in pieces(figure, "black", 1)])
    assert np.isnan(drawn).any()
    assert all(map(math.isfinite, figure.axes[1].get_ylim()))
    nowhere = Curve(x=RELU.x, y=RELU.y, slope=(None,) * len(RELU.x), flat=())
    assert all(map(math.isfinite, figure_of({"f": nowhere}).axes[1].get_ylim()))


@pytest.mark.parametrize(
    ("name", "f", "low", "high"),
    [
        ("sigmoid near 0", lambda x: 1 / (1 + np.exp(-x)), -0.01, 0.01),
        ("high above", lambda x: x + 1000, -4, 4),
        ("far below", lambda x: x - 1000, -4, 4),
        ("falling", lambda x: -5 * x, -4, 4),
        ("steep", lambda x: 100 * x, -4, 4),
        ("constant", lambda x: 0 * x, -4, 4),
        ("far out", lambda x: x**3, 1e11, 1e12),
    ],
)
def test_every_curve_is_in_sight(name: str, f, low: float, high: float) -> None:
    figure = figure_of({"f": curve(f, low=low, high=high), "relu": curve(relu, low=low, high=high)})
    for axes, key in zip(figure.axes, ("y", "slope"), strict=True):
        bottom, top = axes.get_ylim()
        assert bottom < top
        values = np.array(getattr(curve(f, low=low, high=high), key))
        assert ((values >= bottom) & (values <= top)).any(), f"{name}: {key}"


def test_a_square_function_does_not_flatten_the_others(pair: Figure) -> None:
    assert pair.axes[0].get_ylim()[1] < 5


@pytest.mark.parametrize("length", [5, 40, 120, 400])
@pytest.mark.parametrize("number", [1, 4, 12])
def test_the_legend_fits(number: int, length: int) -> None:
    names = [f"{i}".ljust(length, "x") for i in range(number)]
    figure = figure_of(dict.fromkeys(names, RELU))
    legend = figure.legends[0].get_window_extent()
    assert legend.x0 >= 0
    assert legend.x1 <= figure.bbox.x1
    assert figure.axes[0].bbox.height > 2 * figure.dpi  # the figure grows with its legend
    assert len(figure.legends[0].get_texts()) == number


def test_names_are_taken_as_they_are() -> None:
    figure = figure_of({"_hidden": RELU, "$x^2": RELU2, "a$b$": RELU})
    shown = [text.get_text() for text in figure.legends[0].get_texts()]
    assert shown == [" _hidden", r"\$x^2", r"a\$b\$"]


def test_too_little_room_is_said() -> None:
    with pytest.raises(FfnbenchError, match="the size 3x2 is too small"):
        figure_of(dict.fromkeys("abcdefgh", RELU), Canvas(size=(3.0, 2.0), dpi=50, style="default"))


@pytest.mark.parametrize("number", [1, 2, 4, 5, 10])
def test_panels_of_gated_forms_are_square_and_of_a_size(number: int) -> None:
    curves = {str(i): side(relu) for i in range(number)}
    figure = gated_figure(curves, {name: f"{name}: relu(g) · u" for name in curves}, canvas=NATURAL)
    panels = [axes.bbox for axes in figure.axes[:number]]
    for box in panels:
        assert box.width == pytest.approx(box.height, rel=0.01)
        assert 2.5 * figure.dpi < box.width < 3.6 * figure.dpi
    used = sum(1 for axes in figure.axes if axes.get_visible())
    assert used == number + 1  # the colour bar
    bottom, top = min(box.y0 for box in panels), max(box.y1 for box in panels)
    assert bottom < 0.9 * figure.dpi
    assert top > figure.bbox.height - 0.7 * figure.dpi


def contour_levels(figure: Figure) -> set[float]:
    return {float(level) for axes in figure.axes for c in axes.collections for level in getattr(c, "levels", ())}


@pytest.mark.parametrize("reach", [1e-6, 0.3, 1, 4, 100, 1e9])
def test_contours_scale_with_the_range(reach: float) -> None:
    figure = gated_figure({"f": side(relu, reach=reach)}, {"f": "f"}, canvas=NATURAL)
    levels = contour_levels(figure)
    assert 4 <= len(levels) <= 10
    assert 0.3 * reach**2 <= max(levels) <= reach**2
    assert {-level for level in levels} == levels


def test_one_steep_form_does_not_flatten_the_others() -> None:
    curves = {"a": side(relu), "b": side(relu), "steep": side(lambda x: 1000 * relu(x))}
    figure = gated_figure(curves, {name: name for name in curves}, canvas=NATURAL)
    assert figure.axes[0].collections[0].get_clim() == (-16, 16)


def test_a_form_that_is_zero_everywhere_can_be_drawn() -> None:
    zero = side(lambda x: 0 * x)
    assert render(gated_figure({"zero": zero}, {"zero": "zero"}, canvas=NATURAL), ".png", NATURAL)


def test_a_product_beyond_float64_is_refused() -> None:
    with pytest.raises(FfnbenchError, match="not finite"):
        gated_figure({"f": side(lambda x: x * 0 + 1e308)}, {"f": "f"}, canvas=NATURAL)


@pytest.mark.parametrize("name", ["swish@beta=0.5: swish(g, β = 0.5) · u", f"{'n' * 50}: {'n' * 50}(g) · u", "x" * 300])
def test_titles_stay_over_their_panels(name: str) -> None:
    figure = gated_figure(dict.fromkeys("abcd", side(relu)), dict.fromkeys("abcd", name), canvas=NATURAL)
    figure.draw_without_rendering()
    for axes in figure.axes[:4]:
        assert axes.title.get_window_extent().width <= 1.1 * axes.bbox.width


def test_dots_are_set_off_from_the_styles_own_background() -> None:
    found = Facts(**{**{f: getattr(FACTS, f) for f in FACTS.__slots__}, "minimum": -0.5, "minimum_at": 0.0})
    canvas = Canvas(size=None, dpi=50, style="dark_background")
    figure = curves_figure({"f": RELU}, {"f": found}, derivative=False, canvas=canvas)
    (dot,) = [line for line in figure.axes[0].lines if line.get_marker() == "o"]
    with matplotlib.style.context("dark_background"):
        assert matplotlib.colors.to_hex(dot.get_markeredgecolor()) == "#000000"
        assert dot.get_color() == "white"


def test_signs_that_the_font_lacks_are_no_warning() -> None:
    curves = {"日本語": RELU, "🙂": RELU2}
    figure = curves_figure(curves, dict.fromkeys(curves, FACTS), derivative=True, canvas=NATURAL)
    assert render(figure, ".svg", NATURAL).startswith(b"<?xml")
