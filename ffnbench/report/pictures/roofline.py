"""The roofline (Williams, Waterman and Patterson 2009): FLOP/s of each case over its
FLOPs per byte, its intensity, under the ceilings that the same run measured.

It is as wide as a column of a paper. Each case has a colour and a marker, and stands in
the legend with its share of the ceiling that binds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import atan2, degrees
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.transforms import offset_copy

from ffnbench.common.errors import FfnbenchError
from ffnbench.common.units import GIGA, IEC, SI, quantity
from ffnbench.report.columns import case_rows
from ffnbench.report.frame import Row
from ffnbench.report.notes import no_ceilings
from ffnbench.report.pictures.canvas import (
    BLACK,
    COLUMN,
    SMALL_FONT,
    drawing,
    finish,
    literal,
    names_apart,
    panels,
    pens,
    scale_axis,
)
from ffnbench.report.pictures.ratios import about
from ffnbench.report.words import BUSY_WORD, verdict_word
from ffnbench.result import Bound, Ceiling, Report

HEIGHT = 2.3  # inches
STEP = 1.06  # the factor between neighbouring cases where several have one intensity
# keeps a name readable where a line crosses it
HALO = [withStroke(linewidth=1.4, foreground="white")]
NAME_GAP = 1.2  # points between a line and its name
# A ridge is where a ceiling of bytes meets one of products. These are factors: the room
# beside cases and ridges, and the largest distance of a ridge that is shown to a case
BESIDE, NEAR = 3.0, 20.0
# the least ratio of the highest to the lowest FLOP/s of the axis, and with a ridge
LEAST_SPAN, LEAST_SPAN_WITH_RIDGE = 1.3, 4.0


@drawing()
def roofline_figure(report: Report) -> Figure:
    """The roofline of a report; raises FfnbenchError where the run has no ceilings, or
    no case that was timed.
    """
    if not report.roofs:
        raise no_ceilings()
    every_row = case_rows(report)
    rows = [row for row in every_row if row["flops_per_s"] and not row["failure"]]
    if not rows:
        raise FfnbenchError(
            "no case of this run has a latency and a number of FLOPs",
            "the table says why",
        )
    ceilings = report.figures.roofline
    if not ceilings:
        raise FfnbenchError(
            "other work disturbed every ceiling of this run",
            "measure again while the machine is quiet",
        )
    figure, [axes] = panels(1, 1, (COLUMN, HEIGHT))
    axes.set(xlabel="FLOP per byte of weights, input and output", ylabel="GFLOP/s")
    _set_limits(axes, rows, ceilings)
    for ceiling in ceilings:
        _draw_ceiling(axes, ceiling, ceilings)
    handles = []
    intensities = [_intensity(row) for row in rows]
    places = _side_by_side(intensities)
    labels = [row["label"] for row in rows]
    case_pens, names = pens(labels), names_apart(labels)
    for row, place, pen, name in zip(rows, places, case_pens, names, strict=True):
        axes.vlines(place, *_interval_ends(row), color=pen["color"], zorder=2)
        axes.plot(place, row["flops_per_s"] / GIGA, linestyle="", zorder=3, **pen)
        share = f" {100 * row['ceiling_share']:.0f}%" if row["ceiling_share"] else ""
        handles.append(Line2D([], [], linestyle="", label=literal(name + share), **pen))
    for row in every_row:
        if verdict_word(row) == BUSY_WORD:
            handles.append(
                Line2D(
                    [], [], linestyle="", label=literal(f"{row['label']} ({BUSY_WORD})")
                )
            )
    notes = "%: of the ceiling that binds"
    if places != intensities:
        notes += "; cases of one intensity stand side by side"
    finish(figure, f"{about(report)}\n{notes}", handles)
    return figure


def _intensity(row: Row) -> float:
    """The FLOPs per byte of a case."""
    return float(row["flops_per_s"] / row["bytes_per_s"])


def _side_by_side(intensities: Sequence[float]) -> list[float]:
    """Where cases stand on the axis: at their intensity; several that have nearly the
    same one stand around it, a STEP apart.
    """
    places = []
    for number, intensity in enumerate(intensities):
        neighbours = [
            other_number
            for other_number, other in enumerate(intensities)
            if intensity / STEP < other < intensity * STEP
        ]
        middle = (len(neighbours) - 1) / 2
        places.append(intensity * STEP ** (neighbours.index(number) - middle))
    return places


def _interval_ends(row: Row) -> tuple[float, float]:
    """The interval of a case's GFLOP/s; its value twice where it has none."""
    seconds = row["latency_s"]
    gflops = row["flops_per_s"] * seconds / GIGA
    low = gflops / (row["latency_high_s"] or seconds)
    high = gflops / (row["latency_low_s"] or seconds)
    return low, high


def _set_limits(axes: Axes, rows: Sequence[Row], ceilings: Sequence[Ceiling]) -> None:
    """Set both axes so that they show the cases, the ridges that are near to them, and
    the ceilings above them.
    """
    intensities = [_intensity(row) for row in rows]
    products = _of_bound(ceilings, Bound.PRODUCTS)
    reads = _of_bound(ceilings, Bound.BYTES)
    ridges = [top.rate / read.rate for top in products for read in reads]
    left, right = min(intensities) / NEAR, max(intensities) * NEAR
    intensities += [ridge for ridge in ridges if left < ridge < right]
    scale_axis(axes.xaxis, min(intensities) / BESIDE, max(intensities) * BESIDE)
    lows, highs = zip(*map(_interval_ends, rows), strict=True)
    top = max(highs)
    least = LEAST_SPAN
    for ceiling in ceilings:
        start, end = _span(ceiling, ceilings, axes.get_xlim())
        if start < end:
            top = max(top, _height_below(ceiling, end))
            if ceiling.roof.bound is Bound.BYTES:
                least = LEAST_SPAN_WITH_RIDGE
    scale_axis(axes.yaxis, min(*lows, top / least), top)


def _of_bound(ceilings: Sequence[Ceiling], bound: Bound) -> list[Ceiling]:
    return [ceiling for ceiling in ceilings if ceiling.roof.bound is bound]


def _height_below(ceiling: Ceiling, intensity: Any) -> Any:
    """The most GFLOP/s that a ceiling allows a case of this intensity."""
    return ceiling.rate / GIGA * (intensity if ceiling.roof.bound is Bound.BYTES else 1)


def _span(
    ceiling: Ceiling, ceilings: Sequence[Ceiling], limits: tuple[float, float]
) -> tuple[float, float]:
    """The intensities between which a ceiling is drawn. One of bytes ends at the
    fastest products; one of products begins at the fastest bytes.
    """
    left, right = limits
    is_of_bytes = ceiling.roof.bound is Bound.BYTES
    others = _of_bound(ceilings, Bound.PRODUCTS if is_of_bytes else Bound.BYTES)
    if not others:
        return limits
    fastest = max(other.rate for other in others)
    if is_of_bytes:
        return left, min(right, fastest / ceiling.rate)
    return max(left, ceiling.rate / fastest), right


def _draw_ceiling(axes: Axes, ceiling: Ceiling, ceilings: Sequence[Ceiling]) -> None:
    """Draw a line with its name along it: the name of the fastest ceiling of its bound
    above the line, others below.
    """
    start, end = _span(ceiling, ceilings, axes.get_xlim())
    if start >= end:
        return
    roof = ceiling.roof
    rises = roof.bound is Bound.BYTES
    x = np.geomspace(start, end, 50)
    axes.plot(
        x,
        _height_below(ceiling, x) * np.ones_like(x),
        "--" if rises else "-",
        color=BLACK,
        zorder=1.5,
    )
    if rises:
        start_in_sight = max(start, axes.get_ylim()[0] * GIGA / ceiling.rate)
        place, rate = (start_in_sight * end) ** 0.5, f"{quantity(ceiling.rate, SI)}B/s"
        name = f"{rate}: {roof.level}, {quantity(roof.read_bytes, IEC)}\n{literal(roof.path)}"
    else:
        place, rate = end, f"{quantity(ceiling.rate, SI)}FLOP/s"
        name = f"{rate}: {roof.dtype}, {literal(roof.path)}"
    is_fastest = ceiling == _of_bound(ceilings, roof.bound)[0]
    figure: Any = axes.figure
    axes.text(
        place,
        _height_below(ceiling, place),
        name,
        fontsize=SMALL_FONT,
        ha="center" if rises else "right",
        va="bottom" if is_fastest else "top",
        rotation=degrees(atan2(_height_below(ceiling, place), place)) if rises else 0,
        rotation_mode="anchor",
        transform_rotates_text=True,
        transform=offset_copy(
            axes.transData,
            figure,
            y=NAME_GAP if is_fastest else -NAME_GAP,
            units="points",
        ),
        path_effects=HALO,
        in_layout=False,
    )
