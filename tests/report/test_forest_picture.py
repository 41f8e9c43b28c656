"""The picture of a comparison: every row with its ratio, told without colour too,
inside a paper's column.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from fake_machine import FakeLaunch, measure, prepare
from matplotlib.figure import Figure

from ffnbench.record.result import Report
from ffnbench.report.pictures.canvas import COLUMN
from ffnbench.report.pictures.ratios import ratio_figure

TIMES = {"relu": 1.0, "gelu": 1.001, "swiglu": 1.5, "silu": 0.7, "glu": 1.0}


def seconds(label: str, worker: int, number: int) -> float:
    """glu's processes are all over the place."""
    return (
        1e-3
        * TIMES.get(label, 1.2)
        * (1 + (0.2 * (-1) ** worker if label == "glu" else 0.001 * (worker % 3)))
    )


def run(
    variants: str = "relu,gelu,swiglu,silu,glu", trouble: Any = None, **more: Any
) -> Report:
    request = dict(
        **{
            "variants": variants,
            "d_model": 64,
            "threads": 2,
            "workers": 5,
            "rounds": 8,
            **more,
        }
    )
    return measure(prepare(**request), launch=FakeLaunch(seconds, trouble or {}))


@pytest.fixture(scope="module")
def report() -> Report:
    return run()


@pytest.fixture(scope="module")
def figure(report: Report) -> Figure:
    return ratio_figure(report)


def marks(figure: Figure) -> list[tuple[str, bool, float]]:
    """The markers on the axis of ratios, from above: shape, whether it is hollow,
    place.
    """
    lines = [bar.lines[0] for bar in figure.axes[0].containers]
    lines.sort(key=lambda line: line.get_ydata()[0])
    return [
        (
            line.get_marker(),
            line.get_markerfacecolor() == "white",
            float(line.get_xdata()[0]),
        )
        for line in lines
    ]


def said(figure: Figure) -> list[str]:
    """What stands beside the rows."""
    (beside,) = figure.axes[0].child_axes
    return [text.get_text() for text in beside.get_yticklabels()]


def test_each_row_has_its_ratio_and_a_marker_that_tells_its_verdict_without_colour(
    report: Report, figure: Figure
) -> None:
    drawn = marks(figure)
    ratios = [report.comparison(label).ratio.value for label in TIMES]
    assert [x for _, _, x in drawn] == pytest.approx(ratios)
    assert [(marker, is_hollow) for marker, is_hollow, _ in drawn] == [
        ("s", False), ("o", False), (">", False), ("<", False), ("o", True),
    ]  # fmt: skip
    assert said(figure)[0] == "reference, 1.00 ms"
    assert [
        float(text.partition(" ")[0]) for text in said(figure)[1:]
    ] == pytest.approx(ratios[1:], abs=0.03)
    low, high = figure.axes[0].get_xlim()
    assert all(low < x < high for _, _, x in drawn)


@pytest.mark.parametrize(
    "variants",
    [
        ",".join(f"v{i}=relu" for i in range(25)),
        "swiglu@bias=true@d_ff=512@init=normal,a_name_" + "x" * 60 + "=gelu",
    ],
    ids=["25 rows", "long names"],
)
def test_all_texts_are_inside_a_papers_column(variants: str) -> None:
    figure = ratio_figure(run(variants, mode="train", match="none"))
    assert figure.get_size_inches()[0] == COLUMN
    figure.draw_without_rendering()
    box = figure.bbox
    texts = [
        text
        for axes in figure.axes
        for text in (*axes.texts, *axes.get_yticklabels(), axes._left_title)
    ]
    for text in [text for text in texts if text.get_text() and text.get_visible()]:
        place = text.get_window_extent()
        assert box.x0 - 2 <= place.x0 < place.x1 <= box.x1 + 2, text.get_text()
        assert text.get_fontsize() >= 5.5
    names = [text.get_window_extent() for text in figure.axes[0].get_yticklabels()]
    assert all(upper.y0 >= lower.y1 - 1 for upper, lower in pairwise(names))
