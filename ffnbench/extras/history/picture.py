"""The picture of rows over time, a panel for each row: every run with its interval, the
levels, and a line at each step.

The distance from one run to the next is always the same, however much time was between
them; the dates are written below.
"""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING

from ffnbench.common.units import IEC, SI, TIME, scale, signed_percent
from ffnbench.extras.history.timeline import Series, Timeline
from ffnbench.extras.history.words import commit_text, metric_text, name_of, runs_text
from ffnbench.gate.side_by_side import RATIO
from ffnbench.metrics import LATENCY, PEAK
from ffnbench.report.pictures.canvas import (
    BLACK,
    COLOURS,
    PAGE,
    SMALL_FONT,
    drawing,
    finish,
    limits_of,
    literal,
    panels,
    scale_axis,
    shortened,
    write_numbers,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEIGHT = 1.1  # inches, of a panel
MOST_PANELS, MOST_DATES = 24, 7  # dates below one panel
# a panel shows at least this share of a value, so that scatter alone looks small
LEAST_SPAN = 0.05
STEP_TEXT_MARGIN = 0.7  # for the words of steps, in halves of the span
METRIC_UNITS = {LATENCY: TIME, PEAK: IEC}
SLOWER, RUN, FASTER = COLOURS[1:4]


@drawing()
def history_figure(timeline: Timeline) -> Figure:
    """Draw the rows in their order; of more than MOST_PANELS the first ones."""
    rows = timeline.rows[:MOST_PANELS]
    figure, grid = panels(len(rows), 1, (PAGE, HEIGHT))
    for axes, row in zip(grid, rows, strict=True):
        _draw(axes, row)
        axes.set_title(literal(shortened(f"{name_of(timeline, row)}: {_metric(row)}")))
    shown = ""
    if len(rows) < len(timeline.rows):
        shown = f", {len(rows)} of {len(timeline.rows)} rows"
    finish(
        figure,
        f"history of {runs_text(timeline)}{shown}; bars: 95% intervals; lines: levels between steps",
    )
    return figure


def _unit(row: Series) -> tuple[str, float]:
    if row.metric == RATIO:
        return "", 1.0
    return scale(
        [point.value.value for point in row.points], METRIC_UNITS.get(row.metric, SI)
    )


def _metric(row: Series) -> str:
    """The metric of a row with its unit: `time vs relu`; `latency (ms)`."""
    unit = _unit(row)[0]
    return f"{metric_text(row)} ({unit})" if unit else metric_text(row)


def _draw(axes: Axes, row: Series) -> None:
    size = _unit(row)[1]
    places = range(len(row.points))
    values = [point.value.value / size for point in row.points]
    lows = [(point.value.low or point.value.value) / size for point in row.points]
    highs = [(point.value.high or point.value.value) / size for point in row.points]
    axes.vlines(places, lows, highs, color=RUN)
    axes.plot(places, values, linestyle="", marker="o", markersize=2.4, color=RUN)
    for start, end in pairwise([0, *(step.at for step in row.steps), len(values)]):
        level = math.exp(fmean(map(math.log, values[start:end])))
        axes.hlines(level, start - 0.5, end - 0.5, color=BLACK, linewidth=0.9)
    for number, step in enumerate(row.steps):
        axes.axvline(
            step.at - 0.5,
            color=SLOWER if step.change.value > 1 else FASTER,
            linestyle="--",
        )
        commit = commit_text(row, step.at).split()[0]
        axes.annotate(
            literal(f"{signed_percent(step.change.value - 1)} {commit}"),
            (step.at - 0.5, 1),
            xycoords=axes.get_xaxis_transform(),
            xytext=(2, -1 - 1.3 * SMALL_FONT * (number % 2)),
            textcoords="offset points",
            va="top",
            fontsize=SMALL_FONT,
        )
    low, high = limits_of(values, [*lows, *highs])
    middle, half = (low + high) / 2, max(high - low, LEAST_SPAN * high) / 2
    top = middle + half * (1 + (STEP_TEXT_MARGIN if row.steps else 0.0))
    scale_axis(axes.yaxis, middle - half, top, most=4)
    write_numbers(axes.yaxis, "{:,.6g}".format)
    axes.set_xlim(-0.7, len(values) - 0.3)
    count = min(MOST_DATES, len(places))
    # dates at the two ends, and as evenly as possible between them
    dated = sorted({round(k * (len(values) - 1) / (count - 1)) for k in range(count)})
    axes.set_xticks(dated, _dates(row, dated))


def _dates(row: Series, places: list[int]) -> list[str]:
    """The days of these runs; where several are of one day, the times with minutes, and
    where that is not enough with seconds.
    """
    times = [row.points[place].run.created.replace("T", " ") for place in places]
    for start, end in ((0, 10), (5, 16), (5, 19)):
        texts = [time[start:end] for time in times]
        if len(set(texts)) == len(texts):
            break
    return texts
