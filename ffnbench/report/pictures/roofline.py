"""The roofline: FLOP/s of each case over its FLOPs per byte, under the ceilings that
its own run measured.

Sized for one column of a paper. A case is told by colour and shape both, and named in
the legend with its share of the ceiling that binds it. (Williams, Waterman, Patterson
2009 introduced the form.)
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
STEP = 1.06  # factor, from one case to the next where several have one intensity
# where a name and another line cross
HALO = [withStroke(linewidth=1.4, foreground="white")]
NAME_GAP = 1.2  # points between a line and its name
# factors: how far beyond the cases and the ridges the axis goes, and how far from the
# cases a ridge is shown
BESIDE, NEAR = 3.0, 20.0
# of the highest FLOP/s to the lowest that are shown
LEAST, LEAST_BESIDE_RIDGE = 1.3, 4.0


@drawing()
def roofline_figure(report: Report) -> Figure:
    """The cases under their ceilings; raises FfnbenchError where the run has no
    ceilings, or no case that was timed.
    """
    if not report.roofs:
        raise no_ceilings()
    rows = [
        row for row in case_rows(report) if row["flops_per_s"] and not row["failure"]
    ]
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
    for row in case_rows(report):
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
    """FLOPs per byte."""
    return float(row["flops_per_s"] / row["bytes_per_s"])


def _side_by_side(intensities: Sequence[float]) -> list[float]:
    """Where cases stand across: at their FLOPs per byte, those that are alike in a row
    around it.
    """
    places = []
    for number, intensity in enumerate(intensities):
        alike = [
            n
            for n, other in enumerate(intensities)
            if intensity / STEP < other < intensity * STEP
        ]
        places.append(intensity * STEP ** (alike.index(number) - (len(alike) - 1) / 2))
    return places


def _interval_ends(row: Row) -> tuple[float, float]:
    """The interval of a case's GFLOP/s; its value twice where it has none."""
    seconds, flops = row["latency_s"], row["flops_per_s"] * row["latency_s"] / GIGA
    return flops / (row["latency_high_s"] or seconds), flops / (
        row["latency_low_s"] or seconds
    )


def _set_limits(axes: Axes, rows: Sequence[Row], ceilings: Sequence[Ceiling]) -> None:
    """Both axes around the cases: with the ridges that are near, and with the ceilings
    above the cases.
    """
    across = [_intensity(row) for row in rows]
    products = _of_bound(ceilings, Bound.PRODUCTS)
    reads = _of_bound(ceilings, Bound.BYTES)
    ridges = [top.rate / read.rate for top in products for read in reads]
    across += [
        ridge for ridge in ridges if min(across) / NEAR < ridge < max(across) * NEAR
    ]
    scale_axis(axes.xaxis, min(across) / BESIDE, max(across) * BESIDE)
    spans = [_span(ceiling, ceilings, axes.get_xlim()) for ceiling in ceilings]
    seen = [
        (ceiling, end)
        for ceiling, (start, end) in zip(ceilings, spans, strict=True)
        if start < end
    ]
    lows, highs = zip(*map(_interval_ends, rows), strict=True)
    top = max([*highs, *(_height_below(ceiling, end) for ceiling, end in seen)])
    has_ridge = any(ceiling.roof.bound is Bound.BYTES for ceiling, _ in seen)
    least = LEAST_BESIDE_RIDGE if has_ridge else LEAST
    scale_axis(axes.yaxis, min(*lows, top / least), top)


def _of_bound(ceilings: Sequence[Ceiling], bound: Bound) -> list[Ceiling]:
    return [ceiling for ceiling in ceilings if ceiling.roof.bound is bound]


def _height_below(ceiling: Ceiling, intensity: Any) -> Any:
    """The most GFLOP/s that a ceiling allows a case of this intensity."""
    return ceiling.rate / GIGA * (intensity if ceiling.roof.bound is Bound.BYTES else 1)


def _span(
    ceiling: Ceiling, ceilings: Sequence[Ceiling], limits: tuple[float, float]
) -> tuple[float, float]:
    """From where to where a ceiling is drawn: bytes rise up to the highest products,
    which go on from there.
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
    """A line with its name along it: the fastest of a bound above the line, the others
    below theirs.
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
