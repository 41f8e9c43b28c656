"""Rows over time, a panel each: every run with its interval, the levels, and a line at each step with its commit.

Runs stand one beside another, however long it was from one to the next; days below tell when.
"""

from __future__ import annotations

import json
import math
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from ffnbench.gate.timeline import Row, Timeline
from ffnbench.metrics import LATENCY, PEAK
from ffnbench.report.pictures.canvas import BLACK, drawing, literal, shortened
from ffnbench.report.tables.timeline import commit_text, told_name
from ffnbench.units import IEC, SI, TIME, scale, signed_percent

WIDTH, DPI = 7.0, 300  # inches, of a paper's page
PANEL, AROUND = 1.5, 0.35  # inches: a panel, and the line above all
MOST = 24  # panels
DAYS = 3  # below a panel
ROOM = 0.3  # of what the values span, above them: for the words of a step
FARTHEST = 3.0  # of what the values span: how far the axis goes on for a wide interval
FONTS = {"font.size": 7, "xtick.labelsize": 5.5, "ytick.labelsize": 6, "axes.titlesize": 6.5, "axes.linewidth": 0.6}
SMALL = 5.5  # points
RUN, SLOWER, FASTER = "#0072B2", "#D55E00", "#009E73"


def history_figure(found: Timeline) -> Figure:
    """Rows with steps first; of very many the first ones."""
    rows = sorted(found.rows, key=lambda row: not row.steps)[:MOST]
    columns = min(2, len(rows))
    down = math.ceil(len(rows) / columns)
    with drawing(**FONTS):
        figure = Figure(figsize=(WIDTH, AROUND + PANEL * down), dpi=DPI, layout="constrained")
        grid: Any = figure.subplots(down, columns, squeeze=False)
        for axes in grid.flat[len(rows) :]:
            axes.set_visible(False)
        for axes, row in zip(grid.flat, rows, strict=False):
            _panel(axes, row, told_name(found, row))
        shown = f", {len(rows)} of {len(found.rows)} rows" * (len(rows) < len(found.rows))
        told = f"history of {found.runs} runs{shown}; bars: 95% intervals; lines: levels between steps"
        figure.suptitle(told, fontsize=SMALL, x=0.01, ha="left")
    return figure


def mark_of(row: Row, at: int) -> str:
    """The name of the mark of a run."""
    return f"{row.case.label} {row.metric} {row.points[at].run.created} {id(row)}"


def _panel(axes: Axes, row: Row, title: str) -> None:
    values = [point.value.value for point in row.points]
    unit, size = scale(values, {LATENCY: TIME, PEAK: IEC}.get(row.metric, SI)) if row.metric != "ratio" else ("", 1.0)
    places = list(range(len(values)))
    axes.set_title(literal(shortened(f"{title} ({unit})" if unit else title, 60)), loc="left", pad=3)
    for at, point in zip(places, row.points, strict=True):
        if point.value.low is not None and point.value.high is not None:
            axes.vlines(at, point.value.low / size, point.value.high / size, color=RUN, linewidth=1.6, alpha=0.3, zorder=2)
    marks = json.dumps([mark_of(row, at) for at in places])
    axes.plot(places, [v / size for v in values], linestyle="", marker="o", markersize=2.6, color=RUN, zorder=3, gid=marks)
    for start, end, level in row.levels:
        axes.plot([start - 0.5, end - 0.5], [level / size] * 2, color=BLACK, linewidth=0.9, zorder=4)
    _limits(axes, row, size)
    for step in row.steps:
        colour = SLOWER if step.change.value > 1 else FASTER
        axes.axvline(step.at - 0.5, color=colour, linewidth=0.9, linestyle="--", zorder=1)
        told = f"{signed_percent(step.change.value - 1)}\n{commit_text(row.points[step.at])}"
        late = step.at > 0.6 * len(values)
        axes.annotate(
            literal(told), (step.at - 0.5, 1), xycoords=("data", "axes fraction"), xytext=(-2 if late else 2, -1),
            textcoords="offset points", ha="right" if late else "left", va="top", fontsize=SMALL,
        )  # fmt: skip
    kept = sorted({round(k * (len(values) - 1) / (DAYS - 1)) for k in range(DAYS)})
    axes.xaxis.set_major_locator(FixedLocator(kept))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda at, _: row.points[round(at)].run.created[:10]))
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axes.tick_params(axis="both", length=2, pad=1.5)


def _limits(axes: Axes, row: Row, size: float) -> None:
    """All values, and of their intervals what is near; where steps are told, room for their words."""
    values = [point.value.value / size for point in row.points]
    low, high = min(values), max(values)
    span = (high - low) or 0.02 * high
    low = max(min([low, *(p.value.low / size for p in row.points if p.value.low)]), low - FARTHEST * span)
    high = min(max([high, *(p.value.high / size for p in row.points if p.value.high)]), high + FARTHEST * span)
    axes.set_ylim(low - 0.06 * span, high + (0.06 + ROOM * bool(row.steps)) * (high - low or span))
    axes.set_xlim(-0.7, len(values) - 0.3)
