"""The picture of a comparison: every row with its ratio, told without colour too,
inside a paper's column; bars of what differs alone.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from fake_machine import FakeLaunch, measure, prepare
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ffnbench.common.errors import FfnbenchError
from ffnbench.report.pictures.canvas import COLUMN
from ffnbench.report.pictures.ratios import VERDICT_MARKERS, ratio_figure
from ffnbench.request import CompareRequest
from ffnbench.result import Estimate, Failure, FailureKind, Measured, Report

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
    request = CompareRequest(
        **{
            "variants": variants,
            "d_model": 64,
            "threads": 2,
            "workers": 5,
            "rounds": 8,
            **more,
        }
    )
    return measure(prepare(request), launch=FakeLaunch(seconds, trouble or {}))


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
    lines = [
        line
        for line in figure.axes[0].lines
        if line.get_marker() in {marker for marker, _, _ in VERDICT_MARKERS.values()}
    ]
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
    return [text.get_text() for text in figure.axes[0].texts]


def bars_of(figure: Figure, title: str) -> Axes:
    (axes,) = [
        axes for axes in figure.axes if axes.get_title(loc="left").startswith(title)
    ]
    return axes


def test_each_row_has_its_ratio_and_a_marker_that_tells_its_verdict_without_colour(
    report: Report, figure: Figure
) -> None:
    drawn = marks(figure)
    ratios = [report.comparison(label).ratio.value for label in TIMES]
    assert [x for _, _, x in drawn] == pytest.approx(ratios)
    assert [(marker, is_hollow) for marker, is_hollow, _ in drawn] == [
        ("s", False), ("o", False), (">", False), ("<", False), ("o", True),
    ]  # fmt: skip
    assert len(
        {(marker, face == "white") for marker, _, face in VERDICT_MARKERS.values()}
    ) == len(VERDICT_MARKERS)
    assert said(figure)[0] == "reference, 1.00 ms"
    assert [
        float(text.partition(" ")[0]) for text in said(figure)[1:]
    ] == pytest.approx(ratios[1:], abs=0.03)
    legend = [
        text.get_text() for legend in figure.legends for text in legend.get_texts()
    ]
    assert legend == ["slower", "faster", "same", "can't tell", "same: within 2%"]
    low, high = figure.axes[0].get_xlim()
    assert all(low < x < high for _, _, x in drawn)


def test_what_is_the_same_in_all_rows_stands_in_the_title_and_bars_are_of_what_differs(
    figure: Figure,
) -> None:
    """By hand at d_model 64: classic 2 * 64 * 256 parameters, gated 3 * 64 * 168; twice
    that in FLOPs.
    """
    assert len(figure.axes) == 1
    (line,) = [
        line
        for line in figure.get_suptitle().split("\n")
        if line.startswith("all rows")
    ]
    assert (
        line
        == "all rows: params 32.3 to 32.8 k, FLOPs 64.5 to 65.5 k/tok, peak 4.00 KiB"
    )
    wide = ratio_figure(run("relu,wide=relu@d_ff=40000", match="none"))
    params = bars_of(wide, "params")
    assert [bar.get_width() for bar in params.patches] == pytest.approx(
        [2 * 64 * 256, 2 * 64 * 40000]
    )
    assert [text.get_text() for text in params.texts] == ["0.0328", "5.12"]  # one unit


def test_what_was_counted_alone_is_drawn_even_where_it_is_the_same() -> None:
    figure = ratio_figure(
        prepare(CompareRequest(variants="relu,gelu", d_model=64)).cost_report()
    )
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "params\nk",
        "FLOPs\nk/tok",
        "peak\nMiB",
    ]


@pytest.mark.parametrize(
    "variants",
    [
        "relu,gelu",
        ",".join(f"v{i}=relu" for i in range(25)),
        "swiglu@bias=true@d_ff=512@init=normal,a_name_" + "x" * 60 + "=gelu",
    ],
    ids=["2 rows", "25 rows", "long names"],
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
    titles = [axes._left_title.get_window_extent() for axes in figure.axes[1:]]
    assert all(left.x1 <= right.x0 for left, right in pairwise(titles))


def test_labels_that_are_cut_stay_apart() -> None:
    long = [f"{'a' * 60}{middle}{'b' * 60}" for middle in "xy"]
    figure = ratio_figure(run(",".join(f"{name}=relu" for name in long)))
    names = [
        text.get_text().replace("\n", "") for text in figure.axes[0].get_yticklabels()
    ]
    assert len(set(names)) == 2


def test_errors_alone_are_drawn_and_a_row_of_another_function_says_so() -> None:
    """Bars of its counts alone would read as if all was well."""
    report = run("relu,gelu,swiglu", metrics="error", rounds=1)
    wrong = Failure(
        case="swiglu", kind=FailureKind.MISMATCH, message="the output differs"
    )
    errors = (("relu", 3e-7), ("gelu", 6e-7))
    measured = tuple(
        Measured(case=label, metric="error", estimate=Estimate(value=one))
        for label, one in errors
    )
    report = replace(report, measured=measured, failures=(wrong,))
    figure = ratio_figure(report)
    assert "mismatch" in [
        text.get_text().strip() for axes in figure.axes for text in axes.texts
    ]
    bars = bars_of(figure, "error")
    assert [bar.get_width() for bar in bars.patches] == pytest.approx([3e-7, 6e-7, 0])
    assert [text.get_text() for text in bars.texts][:3] == ["3e-7", "6e-7", "–"]


def test_a_picture_without_any_number_is_refused() -> None:
    """Not an empty axis of ratios that nobody measured."""
    report = run("relu,gelu", metrics="error", rounds=1)
    uncounted = tuple(
        replace(
            one,
            cost=replace(one.cost, params=0, flops_forward=None, flops_backward=None),
        )
        for one in report.costs
    )
    report = replace(report, measured=(), costs=uncounted)
    with pytest.raises(FfnbenchError, match="nothing to draw"):
        ratio_figure(report)


@pytest.mark.parametrize("sweep", ["", "--seq-len 1,4,16"])
def test_rows_that_are_all_busy_have_no_picture_and_the_other_file_is_written(
    on_fakes, tmp_path: Path, sweep: str
) -> None:
    launch = FakeLaunch()
    launch.waited = 0.9
    run, picture = tmp_path / "run.json", tmp_path / "run.png"
    asked = f"compare relu gelu --d-model 64 --quick {sweep}".strip()
    code, out, err = on_fakes(asked, "-o", run, "-o", picture, launch=launch)
    assert (code, "busy" in out) == (3, True)
    assert (run.exists(), picture.exists()) == (True, False)
    assert err.splitlines()[-3:] == [
        f"wrote {run}",
        f"error: cannot write {str(picture)!r}: there is nothing to draw: no row has a number",
        "hint: the table says why: leave the picture out",
    ]


def test_an_interval_that_is_too_wide_hides_no_other_row() -> None:
    launch = FakeLaunch(
        lambda label, w, n: (
            1e-3
            * (
                math.exp(3 * math.sin(4 * w))
                if label == "gelu"
                else 1 + 0.2 * (label != "relu")
            )
        )
    )
    figure = ratio_figure(
        measure(
            prepare(
                CompareRequest(
                    variants="relu,gelu,swiglu", d_model=64, threads=2, quick=True
                )
            ),
            launch=launch,
        )
    )
    low, high = figure.axes[0].get_xlim()
    assert high / low < 50
