"""Rows over time, a panel each: every run, a band of their intervals, the levels, and a line at each step.

Runs stand one beside another, however long it was from one to the next; days below tell when.
"""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Any

from ffnbench.common.units import IEC, SI, TIME, scale, signed_percent
from ffnbench.extras.history.table import commit_text, metric_text, named, runs_text
from ffnbench.extras.history.timeline import Series, Timeline
from ffnbench.gate.side_by_side import RATIO
from ffnbench.metrics import LATENCY, PEAK
from ffnbench.report.pictures.canvas import BLACK, SMALL, drawing, literal, panels, shortened, write_numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, PANEL, AROUND, DPI = 7.0, 1.5, 0.35, 300  # inches: a paper's page, the height of a panel, the line above all
MOST, DAYS = 24, 3  # panels, and days below one
SPAN = 0.05  # of a value, that a panel shows at least: what only scatters looks like that
TOLD, ROOM = 4, 0.12  # words of steps one below another, and what each takes of the height
FONTS = {"font.size": 7, "xtick.labelsize": 5.5, "ytick.labelsize": 6, "axes.titlesize": 6.5, "axes.linewidth": 0.6}
UNITS = {LATENCY: TIME, PEAK: IEC}
RUN, SLOWER, FASTER = "#0072B2", "#D55E00", "#009E73"
STEP: dict[str, Any] = {"linewidth": 0.9, "linestyle": "--", "zorder": 1}


def history_figure(found: Timeline) -> Figure:
    """The rows in their order; of very many the first ones."""
    from matplotlib.figure import Figure

    rows = found.rows[:MOST]
    down = math.ceil(len(rows) / min(2, len(rows)))
    with drawing(**FONTS):
        figure = Figure(figsize=(WIDTH, AROUND + PANEL * down), dpi=DPI, layout="constrained")
        grid = panels(figure, len(rows), min(2, len(rows)))
        for number, (axes, row) in enumerate(zip(grid.flat, rows, strict=False)):
            _panel(axes, row, named(found, row), number)
        shown = f", {len(rows)} of {len(found.rows)} rows" * (len(rows) < len(found.rows))
        told = f"history of {runs_text(found)}{shown}; bands: 95% intervals; lines: levels between steps"
        figure.suptitle(told, fontsize=SMALL, x=0.01, ha="left")
    return figure


def _panel(axes: Axes, row: Series, name: str, number: int) -> None:
    from matplotlib.ticker import MaxNLocator

    points = [point.value for point in row.points]
    unit, size = ("", 1.0) if row.metric == RATIO else scale([p.value for p in points], UNITS.get(row.metric, SI))
    title = shortened(f"{name}: {metric_text(row)}" + f" ({unit})" * bool(unit), 60)
    axes.set_title(literal(title), loc="left", pad=3)
    places, values = list(range(len(points))), [point.value / size for point in points]
    lows, highs = ([(getattr(p, end) or p.value) / size for p in points] for end in ("low", "high"))
    axes.plot(places, values, linestyle="", marker="o", markersize=2.6, color=RUN, zorder=3)
    for start, end in pairwise([0, *(step.at for step in row.steps), len(values)]):
        level = math.exp(fmean(map(math.log, values[start:end])))
        axes.fill_between(places[start:end], lows[start:end], highs[start:end], color=RUN, alpha=0.2, linewidth=0)
        axes.plot([start - 0.5, end - 0.5], [level] * 2, color=BLACK, linewidth=0.9, zorder=4)
    for place, step in enumerate(row.steps):
        axes.axvline(step.at - 0.5, color=SLOWER if step.change.value > 1 else FASTER, **STEP)
        late, down = step.at > len(values) / 2, place % TOLD * SMALL * 1.3 + 1
        axes.annotate(
            literal(f"{signed_percent(step.change.value - 1)} {commit_text(row, step.at).split()[0]}"),
            (step.at - 0.5, 1), (-2 if late else 2, -down), ("data", "axes fraction"), "offset points",
            ha="right" if late else "left", va="top", fontsize=SMALL,
        )  # fmt: skip
    middle, span = (min(values) + max(values)) / 2, max(max(values) - min(values), SPAN * max(values))
    low, high = (max(span / 2, min(far, span)) for far in (middle - min(lows), max(highs) - middle))
    axes.set_ylim(middle - low - 0.04 * span, middle + high + (0.04 + ROOM * min(len(row.steps), TOLD)) * (low + high))
    axes.set_xlim(-0.7, len(values) - 0.3)
    kept = sorted({round(k * (len(values) - 1) / (DAYS - 1)) for k in range(DAYS)})
    axes.set_xticks(kept, [row.points[at].run.created[:10] for at in kept])
    axes.yaxis.set_major_locator(MaxNLocator(4))
    write_numbers(axes.yaxis, "{:,.6g}".format)
    axes.tick_params(axis="both", length=2, pad=1.5)
