"""Rows over time, a panel each: every run with its interval, the levels, and a line at each step with its commit.

Runs stand one beside another, however long it was from one to the next; days below tell when.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ffnbench.gate.side_by_side import RATIO
from ffnbench.gate.timeline import Row, Timeline
from ffnbench.metrics import LATENCY, PEAK
from ffnbench.report.pictures.canvas import BLACK, drawing, literal, shortened
from ffnbench.report.tables.timeline import commit_text, told_name
from ffnbench.units import IEC, SI, TIME, scale, signed_percent

WIDTH, DPI = 7.0, 300  # inches, of a paper's page
PANEL, AROUND = 1.5, 0.35  # inches: a panel, and the line above all
MOST = 24  # panels
DAYS = 3  # below a panel
SPAN = 0.05  # of a value, that a panel shows at least
TOLD, ROOM = 4, 0.12  # words of steps one below another, and what each takes of the height
FONTS = {"font.size": 7, "xtick.labelsize": 5.5, "ytick.labelsize": 6, "axes.titlesize": 6.5, "axes.linewidth": 0.6}
SMALL = 5.5  # points
UNITS = {LATENCY: TIME, PEAK: IEC}
STEP: dict[str, Any] = {"linewidth": 0.9, "linestyle": "--", "zorder": 1}
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
        told = f"history of {found.runs} runs{shown}; bands: 95% intervals; lines: levels between steps"
        figure.suptitle(told, fontsize=SMALL, x=0.01, ha="left")
    return figure


def mark_of(row: Row, at: int) -> str:
    """The name of the mark of a run."""
    return f"{row.case.label} {row.metric} {row.points[at].run.created} {id(row)}"


def _panel(axes: Axes, row: Row, title: str) -> None:
    points = [point.value for point in row.points]
    unit, size = ("", 1.0) if row.metric == RATIO else scale([p.value for p in points], UNITS.get(row.metric, SI))
    axes.set_title(literal(shortened(f"{title} ({unit})" if unit else title, 60)), loc="left", pad=3)
    places, values = list(range(len(points))), [point.value / size for point in points]
    lows, highs = ([(getattr(p, end) or p.value) / size for p in points] for end in ("low", "high"))
    marks = json.dumps([mark_of(row, at) for at in places])
    axes.plot(places, values, linestyle="", marker="o", markersize=2.6, color=RUN, zorder=3, gid=marks)
    for start, end, level in row.levels:
        axes.fill_between(places[start:end], lows[start:end], highs[start:end], color=RUN, alpha=0.2, linewidth=0)
        axes.plot([start - 0.5, end - 0.5], [level / size] * 2, color=BLACK, linewidth=0.9, zorder=4)
    _limits(axes, values, min(lows), max(highs), len(row.steps))
    for number, step in enumerate(row.steps):
        axes.axvline(step.at - 0.5, color=SLOWER if step.change.value > 1 else FASTER, **STEP)
        late, down = step.at > len(values) / 2, number % TOLD * SMALL * 1.3 + 1
        axes.annotate(
            literal(f"{signed_percent(step.change.value - 1)} {commit_text(row.points[step.at]).split()[0]}"),
            (step.at - 0.5, 1), (-2 if late else 2, -down), ("data", "axes fraction"), "offset points",
            ha="right" if late else "left", va="top", fontsize=SMALL,
        )  # fmt: skip
    kept = sorted({round(k * (len(values) - 1) / (DAYS - 1)) for k in range(DAYS)})
    axes.set_xticks(kept, [row.points[at].run.created[:10] for at in kept])
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axes.tick_params(axis="both", length=2, pad=1.5)


def _limits(axes: Axes, values: Sequence[float], low: float, high: float, steps: int) -> None:
    """All values, and of their intervals what is near; what only scatters looks like that; room for words of steps."""
    least, most = min(values), max(values)
    span = max(most - least, SPAN * most)
    low, high = max(low, (least + most - 2 * span) / 2), min(high, (least + most + 2 * span) / 2)
    low, high = min(low, (least + most - span) / 2), max(high, (least + most + span) / 2)
    axes.set_ylim(low - 0.04 * span, high + (0.04 + ROOM * min(steps, TOLD)) * (high - low))
    axes.set_xlim(-0.7, len(values) - 0.3)
