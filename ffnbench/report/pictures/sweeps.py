"""The picture of a sweep: lines with bands along its longest axis, and a panel for each
combination of values on the other axes.

A row without a figure, since it failed or was disturbed, is a gap in its line and a
cross. One panel is as wide as a column of a paper, several are as wide as a page. A bar
marks each crossing, which the sentence in the title tells.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ffnbench.common.units import SI, TIME, quantity, scale
from ffnbench.plan import Axis, Value
from ffnbench.report.columns import case_rows
from ffnbench.report.frame import Row, interval_keys
from ffnbench.report.header import heading_of
from ffnbench.report.pictures.canvas import (
    BAND,
    BLACK,
    COLUMN,
    GREY,
    LETTERS,
    PAGE,
    columns_for,
    drawing,
    finish,
    limits_of,
    literal,
    named_lines,
    names_apart,
    panels,
    pens,
    scale_axis,
    shortened,
    write_numbers,
)
from ffnbench.report.pictures.ratios import about, nothing_to_draw
from ffnbench.report.sweep_sentences import sweep_line
from ffnbench.report.words import WITHIN, verdict_word
from ffnbench.result import SAME_WITHIN, Crossing, Report

HEIGHT = 2.1  # inches, of a panel with its axis
MOST_NUMBERS = {1: 6, 2: 5, 3: 4}  # numbers below an axis, by panels in a row
WITH_PREFIX_FROM = 1e6  # larger numbers beside an axis have a prefix
CROSSING: dict[str, Any] = {
    "color": BLACK,
    "linewidth": 1.4,
    "marker": "|",
    "markersize": 5,
    "zorder": 5,
}
CROSS: dict[str, Any] = {
    "linestyle": "",
    "marker": "x",
    "markersize": 3.6,
    "zorder": 5,
    "clip_on": False,
}


@dataclass(frozen=True, slots=True)
class Panel:
    """The rows of a sweep that have the same values `within` on all other axes.
    `curves` are the rows of each variant along the drawn axis; each row has the values
    of all axes, by their names.
    """

    title: str
    within: Mapping[str, Value]
    curves: dict[str, list[Row]]


@dataclass(frozen=True, slots=True)
class Swept:
    """What is drawn of a sweep: the value `key` of its rows, in a unit of this size,
    along one axis, in panels.
    """

    axis: Axis
    key: str
    size: float
    title: str
    panels: list[Panel]

    @property
    def rows(self) -> list[Row]:
        """The rows of all panels."""
        curves = [curve for panel in self.panels for curve in panel.curves.values()]
        return [row for curve in curves for row in curve]

    @property
    def names(self) -> list[str]:
        """The variants of all panels, each once."""
        return list(
            dict.fromkeys(name for panel in self.panels for name in panel.curves)
        )

    def is_known(self, row: Row) -> bool:
        """Whether a row has a figure: it did not fail, and was not too disturbed."""
        return (
            row[self.key] is not None
            and row["latency_s"] is not None
            and not row["failure"]
        )

    def value(self, row: Row, key: str = "") -> float:
        """The value of a row in the unit, or with a `key` that end of its interval,
        where it has one; NaN where there is no figure.
        """
        if not self.is_known(row):
            return math.nan
        value = row[self.key]
        if key and row[key] is not None:
            value = row[key]
        return float(value) / self.size


def swept(report: Report) -> Swept:
    """What is drawn of a sweep, along its longest axis: where its groups have several
    rows, the ratios of all but the references; else latencies.
    """
    plan = report.plan
    axis = plan.axes[0]
    of_ratios = any(len(group.cases) > 1 for group in plan.groups)
    rows = {row["label"]: row for row in case_rows(report)}
    panel_of: dict[str, Panel] = {}  # by title
    for group in sorted(plan.groups, key=lambda group: float(group.values[axis.name])):
        within = {key: value for key, value in group.values.items() if key != axis.name}
        title = heading_of(within)
        panel = panel_of.setdefault(title, Panel(title, within, {}))
        for case in group.cases:
            if not (of_ratios and plan.is_reference(case.label)):
                curve = panel.curves.setdefault(case.row, [])
                curve.append(rows[case.label] | dict(group.values))
    if of_ratios:
        references = {plan.name_of(group.reference) for group in plan.groups}
        reference = references.pop() if len(references) == 1 else "the reference"
        key, size, title = "ratio", 1.0, f"time vs {shortened(reference, LETTERS)}"
    else:
        latencies = [row["latency_s"] for row in rows.values() if row["latency_s"]]
        unit, size = scale(latencies, TIME)
        key, title = "latency_s", f"latency, {unit}"
    return Swept(axis, key, size, title, list(panel_of.values()))


def number_text(value: float) -> str:
    """A number beside an axis: `4,096`, `4.72 M`."""
    return quantity(value, SI) if abs(value) >= WITH_PREFIX_FROM else f"{value:,g}"


@drawing()
def sweep_figure(report: Report) -> Figure:
    """The picture of a sweep; raises FfnbenchError where no row has a number."""
    drawn = swept(report)
    if not any(map(drawn.is_known, drawn.rows)):
        raise nothing_to_draw()
    axis = drawn.axis
    pens_of = dict(zip(drawn.names, pens(drawn.names), strict=True))
    count = len(drawn.panels)
    columns = columns_for(count)
    size = COLUMN if columns == 1 else PAGE, HEIGHT
    figure, grid = panels(count, columns, size, sharex=True, sharey=True)
    crossings = report.figures.crossings.places if report.figures.crossings else ()
    for axes, panel in zip(grid, drawn.panels, strict=True):
        axes.set_title(literal(shortened(panel.title)))
        for place, (name, curve) in enumerate(panel.curves.items()):
            _draw(axes, drawn, curve, pens_of[name], place)
        if drawn.key == "ratio":
            axes.axhspan(
                1 - SAME_WITHIN, 1 + SAME_WITHIN, color=BAND, linewidth=0, zorder=0
            )
            axes.axhline(1, color=BLACK, linewidth=0.6, zorder=1)
        for crossing in crossings:
            if crossing.within == panel.within:
                ends = [crossing.at.low, crossing.at.value, crossing.at.high]
                axes.plot(
                    ends,
                    [_height_of_crossing(drawn, panel, crossing)] * 3,
                    markevery=[1],
                    **CROSSING,
                )
    _label_axes(grid[0], drawn, MOST_NUMBERS[columns])
    for axes in grid[-columns:]:
        axes.set_xlabel(literal(axis.name))
    for axes in grid[::columns]:
        axes.set_ylabel(literal(drawn.title))
    finish(
        figure,
        "\n".join([about(report), *sweep_line(report)]),
        _handles(drawn, pens_of, crossings),
    )
    return figure


def _draw(
    axes: Axes, drawn: Swept, curve: Sequence[Row], pen: Mapping[str, Any], place: int
) -> None:
    """Draw the line of a variant with its band. Where a value is missing the line has a
    gap, and a cross stands at the bottom: `place` is the number of the variant, which
    gives its crosses a height of their own.
    """
    at = [row[drawn.axis.name] for row in curve]
    _, low_key, high_key = interval_keys(drawn.key)
    value = np.array([drawn.value(row) for row in curve])
    low = np.array([drawn.value(row, low_key) for row in curve])
    high = np.array([drawn.value(row, high_key) for row in curve])
    axes.fill_between(at, low, high, color=pen["color"], alpha=0.16, linewidth=0)
    axes.errorbar(
        at, value, yerr=[value - low, high - value], elinewidth=0.6, zorder=3, **pen
    )
    missing = [row[drawn.axis.name] for row in curve if not drawn.is_known(row)]
    if missing:  # matplotlib leaves room even for a line without points
        height = [0.03 + 0.05 * place for _ in missing]
        axes.plot(
            missing,
            height,
            color=pen["color"],
            transform=axes.get_xaxis_transform(),
            **CROSS,
        )


def _height_of_crossing(drawn: Swept, panel: Panel, crossing: Crossing) -> float:
    """The ratio at which two lines meet: 1 for a crossing with the reference."""
    if not {crossing.variant, crossing.than} <= panel.curves.keys():
        return 1.0
    measured = [row for row in panel.curves[crossing.variant] if drawn.is_known(row)]
    axis = drawn.axis
    places = [axis.place(row[axis.name]) for row in measured]
    logs = [math.log(drawn.value(row)) for row in measured]
    return math.exp(np.interp(axis.place(crossing.at.value), places, logs))


def _label_axes(axes: Axes, drawn: Swept, most: int) -> None:
    """Set the limits of all panels, and the numbers beside them: along the axis, those
    of its values that have room.
    """
    axis = drawn.axis
    if axis.logarithmic:
        axes.set_xscale("log")
    distance = 0.999 * (axis.place(axis.values[-1]) - axis.place(axis.values[0])) / most
    numbered = [axis.values[0]]
    for value in axis.values:
        if axis.place(value) - axis.place(numbered[-1]) >= distance:
            numbered.append(value)
    axes.set_xticks(numbered, [number_text(value) for value in numbered])
    axes.set_xticks(axis.values, [""] * len(axis.values), minor=True)
    measured = [row for row in drawn.rows if drawn.is_known(row)]
    values = [drawn.value(row) for row in measured]
    ends = [
        drawn.value(row, key) for row in measured for key in interval_keys(drawn.key)
    ]
    if drawn.key == "ratio":
        values += [1 - 2 * SAME_WITHIN, 1 + 2 * SAME_WITHIN]
    if values:
        room_for_crosses = 3.0 if len(measured) < len(drawn.rows) else 1.0
        scale_axis(axes.yaxis, *limits_of(values, ends), below=room_for_crosses)
        write_numbers(axes.yaxis, number_text)


def _handles(
    drawn: Swept, pens_of: Mapping[str, dict[str, Any]], crossings: Sequence[Crossing]
) -> list[Line2D]:
    """The handles of the legend."""
    handles = named_lines(names_apart(list(pens_of)), pens_of.values())
    reasons = {
        verdict_word(row) or "not known"
        for row in drawn.rows
        if not drawn.is_known(row)
    }
    if reasons:
        handles.append(
            Line2D(
                [],
                [],
                color=GREY,
                label=f"no figure: {', '.join(sorted(reasons))}",
                **CROSS,
            )
        )
    if drawn.key == "ratio":
        handles.append(
            Line2D(
                [],
                [],
                color=BAND,
                linewidth=4,
                solid_capstyle="butt",
                label=f"same: within {WITHIN}",
            )
        )
    if crossings:
        handles.append(Line2D([], [], label="crossing, with its interval", **CROSSING))
    return handles
