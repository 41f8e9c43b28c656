"""What was learnt: loss against steps, FLOPs and seconds; and loss against the time of a step and of a token."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ffnbench.errors import FfnbenchError
from ffnbench.planning.training import STEP, TOKEN
from ffnbench.report.pictures.canvas import BLACK, DPI, drawing, ended, literal, pens
from ffnbench.report.tables.training import training_of, training_records
from ffnbench.report.tables.words import CERTAIN
from ffnbench.result import Report
from ffnbench.stats.training import learnt, of_cell
from ffnbench.streams import visible
from ffnbench.units import SI, TIME, scale

SIZE = 7.0, 5.2  # inches
SMALL = 7
LATE = 0.2  # of the steps, after which curves are drawn: before it they are one line
RING: dict[str, Any] = {"marker": "o", "markersize": 10, "markerfacecolor": "none", "color": BLACK, "linestyle": ""}


def training_figure(report: Report) -> Figure:
    """Curves above, the frontier below; a ring is around what no other variant beats on both."""
    found = {name: one for name, one in learnt(report).items() if one.loss}
    if not found:
        raise FfnbenchError("there is no loss to draw", "no run was trained to its end: the table says why")
    looks = dict(zip(found, pens(found), strict=True))
    rows = {row["variant"]: row for row in training_records(report)}
    training, steps = training_of(report), of_cell(report.plan, STEP)
    with drawing(**{"font.size": SMALL, "legend.fontsize": SMALL}):
        figure = Figure(figsize=SIZE, dpi=DPI, layout="constrained")
        halves = figure.add_gridspec(2, 1)
        above, below = (figure.add_subfigure(halves[place]) for place in range(2))
        curves: Any = above.subplots(1, 3, sharey=True)
        for name, one in found.items():
            late = [point for point in one.curve if point[0] >= LATE * training.steps]
            flops = (rows[name]["training_flops"] or 0) / training.steps
            for number, axes in enumerate(curves):
                places = [(step, step * flops, seconds)[number] for step, _, seconds in late]
                if any(places):
                    look = looks[name] | {"marker": "", "linewidth": 1.0}
                    axes.plot(places, [loss for _, loss, _ in late], label=literal(name), **look)
        unit, size = scale([(row["training_flops"] or 0) for row in rows.values()], SI)
        curves[1].xaxis.set_major_formatter(lambda value, _: f"{value / size:g}")
        for axes, title in zip(curves, ("steps", f"FLOPs, {unit} (of the blocks)", "seconds of training"), strict=True):
            axes.set_xlabel(title)
            axes.set_xlim(left=0)
        curves[0].set_ylabel("training loss, nats per byte")
        for axes, of in zip(below.subplots(1, 2, sharey=True), (STEP, TOKEN), strict=True):
            _frontier(axes, rows, looks, of)
        below.axes[0].set_ylabel(f"held-out loss, nats per byte {CERTAIN}")
        handles, names = curves[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=6)
        told = f"{training.steps:,} steps, d_model {steps[next(iter(found))].ffn.d_model}; a probe of a small model"
        figure.suptitle(literal(told + ended(report)), fontsize=SMALL)
    return figure


def _frontier(axes: Axes, rows: dict[str, Any], looks: dict[str, dict[str, Any]], of: str) -> None:
    """Loss over time, each with its interval."""
    seconds = [row[f"{of}_s"] for row in rows.values() if row[f"{of}_s"]]
    unit, size = scale(seconds or [1.0], TIME)
    for name, look in looks.items():
        row = rows[name]
        if (x := row[f"{of}_s"]) is None:
            continue
        for key, low, high in (("x", f"{of}_low_s", f"{of}_high_s"), ("y", "loss_low", "loss_high")):
            if row[low] is not None:
                ends = ([row[low] / size, row[high] / size], [row["loss"]] * 2)
                ends = ends if key == "x" else ([x / size] * 2, [row[low], row[high]])
                axes.plot(*ends, color=look["color"], linewidth=0.9)
        axes.plot([x / size], [row["loss"]], linestyle="", markersize=4.5, gid=visible(name), **look)
        if row[f"unbeaten_{of}"]:
            axes.plot([x / size], [row["loss"]], **RING)
    what = "a step: forward and backward" if of == STEP else "one token: forward"
    axes.set_xlabel(f"{what}, {unit} {CERTAIN}; ring: no other beats it")
