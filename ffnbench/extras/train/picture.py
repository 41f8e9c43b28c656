"""What was learnt: loss against steps, FLOPs and seconds; and loss against the time of a step and of a token."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ffnbench.common.errors import FfnbenchError
from ffnbench.common.units import SI, TIME, scale
from ffnbench.extras.train.losses import learnt
from ffnbench.extras.train.planning import STEP, TOKEN
from ffnbench.extras.train.table import ENDS, training_of, training_records
from ffnbench.report.pictures.canvas import BLACK, DPI, drawing, ended, literal, pens
from ffnbench.report.words import CERTAIN
from ffnbench.result import Report

SIZE = 7.0, 5.2  # inches
SMALL = 7
LATE = 0.2  # of the steps, after which curves are drawn: before it they are one line
BAR: dict[str, Any] = {"linewidth": 0.9, "marker": "|", "markersize": 3}
RING: dict[str, Any] = {"marker": "o", "markersize": 10, "markerfacecolor": "none", "color": BLACK, "linestyle": ""}


def training_figure(report: Report) -> Figure:
    """Curves above, loss and time below; a ring is around what is on the Pareto front.

    Curves are of what is held out, and of the steps' own losses in files of earlier versions, which have no other. Bars
    are intervals of the difference and of the ratio to the reference, which has none.
    """
    found = {name: one for name, one in learnt(report).items() if one.loss}
    if not found:
        raise FfnbenchError("there is no loss to draw", "no run was trained to its end: the table says why")
    looks = dict(zip(found, pens(found), strict=True))
    rows = {row["variant"]: row for row in training_records(report)}
    steps, reference = training_of(report).steps, report.plan.name_of(report.plan.reference)
    with drawing(**{"font.size": SMALL, "legend.fontsize": SMALL}):
        figure = Figure(figsize=SIZE, dpi=DPI, layout="constrained")
        halves = figure.add_gridspec(2, 1)
        above, below = (figure.add_subfigure(halves[place]) for place in range(2))
        curves: Any = above.subplots(1, 3, sharey=True)
        for name, one in found.items():
            row, look = rows[name], looks[name]
            of_marker = 3 if one.held_out else 0  # a curve of ten points has room for them
            late = [point for point in one.held_out or one.curve if point[0] >= LATE * steps]
            for axes, whole in zip(curves, (steps, row["training_flops"], row["training_s"]), strict=True):
                if whole:
                    places = [step / steps * whole for step, _ in late]
                    losses = [loss for _, loss in late]
                    axes.plot(places, losses, label=literal(name), markersize=of_marker, **look | {"linewidth": 1.0})
            if late and row["training_s"]:
                ends = row["training_low_s"], row["training_high_s"]
                curves[2].plot(ends, [late[-1][1]] * 2, color=look["color"], **BAR)
        unit, size = scale([(row["training_flops"] or 0) for row in rows.values()], SI)
        curves[1].xaxis.set_major_formatter(lambda value, _: f"{value / size:g}")
        titles = "steps", f"FLOPs, {unit} (of the blocks)", f"seconds: steps x step time {CERTAIN}"
        for axes, title in zip(curves, titles, strict=True):
            axes.set_xlabel(title)
            axes.set_xlim(left=0)
        drawn = "held-out" if any(one.held_out for one in found.values()) else "training"
        curves[0].set_ylabel(f"{drawn} loss, nats per byte")
        for axes, of in zip(below.subplots(1, 2, sharey=True), (STEP, TOKEN), strict=True):
            _front(axes, rows, looks, of, reference)
        below.axes[0].set_ylabel("held-out loss, nats per byte")
        bars = f"bars: {CERTAIN} of the difference and of the ratio to {reference}; ring: Pareto front"
        below.suptitle(literal(bars), fontsize=SMALL)
        handles, names = curves[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=6)
        told = f"{steps:,} steps, d_model {report.plan.shown[0].ffn.d_model}; a probe of a small model"
        figure.suptitle(literal(told + ended(report)), fontsize=SMALL)
    return figure


def _front(axes: Axes, rows: dict[str, Any], looks: dict[str, dict[str, Any]], of: str, reference: str) -> None:
    """Loss over time, both as they are paired with the reference's."""
    start = rows[reference][f"{of}_s"] or 0.0
    timed = {name: rows[name] for name in looks if rows[name][f"{of}_ratio"]}
    unit, size = scale([start * row[f"{of}_ratio"] for row in timed.values()] or [1.0], TIME)
    for name, row in timed.items():
        look, loss = looks[name], row["loss"]
        x, low, high = (start * row[f"{of}_ratio{end}"] / size for end in ENDS)
        axes.plot([low, high], [loss, loss], color=look["color"], linewidth=0.9)
        if row["difference_low"] is not None:
            of_difference = [loss - row["difference"] + row[f"difference{end}"] for end in ENDS]
            axes.plot([x] * len(ENDS), of_difference, color=look["color"], linewidth=0.9)
        axes.plot([x], [loss], linestyle="", markersize=4.5, **look)
        if row[f"pareto_front_{of}"]:
            axes.plot([x], [loss], **RING)
    what = "a step: forward and backward" if of == STEP else "one token: forward"
    axes.set_xlabel(f"{what}, {unit}")
