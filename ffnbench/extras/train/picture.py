"""What was learnt: loss against steps, by itself and beside the reference's; loss
against the time of a step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ffnbench.common.errors import FfnbenchError
from ffnbench.common.units import TIME, scale
from ffnbench.extras.train.losses import learnt
from ffnbench.extras.train.table import ENDS, training_of, training_records
from ffnbench.report.frame import Row
from ffnbench.report.pictures.canvas import (
    BLACK,
    LETTERS,
    PAGE,
    drawing,
    finish,
    literal,
    named_lines,
    names_apart,
    panels,
    pens,
    shortened,
    title_ending,
)
from ffnbench.report.words import CERTAIN
from ffnbench.result import Report

HEIGHT = 1.9  # inches, of a panel
MARKERS_OF_CURVE = 8
LATE = 0.2  # of the steps, after which curves are drawn: before it they are one line
RING: dict[str, Any] = {
    "marker": "o",
    "markersize": 8,
    "markerfacecolor": "none",
    "color": BLACK,
    "linestyle": "",
}


@drawing()
def training_figure(report: Report) -> Figure:
    """Curves, and loss and time; a ring is around what is on the Pareto front.

    Curves are of what is held out, and of the steps' own losses in files of earlier
    versions, which have no other. Bars are intervals of the difference and of the ratio
    to the reference, which has none.
    """
    trained = {
        name: losses_of for name, losses_of in learnt(report).items() if losses_of.loss
    }
    if not trained:
        raise FfnbenchError(
            "there is no loss to draw",
            "no run was trained to its end: the table says why",
        )
    styles = dict(zip(trained, pens(trained), strict=True))
    rows = {
        row["variant"]: row
        for row in training_records(report)
        if row["variant"] in trained
    }
    steps = training_of(report).steps
    reference = report.plan.name_of(report.plan.reference)
    curves = {}
    for name, losses_of in trained.items():
        curve = losses_of.held_out or losses_of.curve
        curves[name] = {step: loss for step, loss in curve if step >= LATE * steps}
    figure, [losses, differences, front] = panels(3, 3, (PAGE, HEIGHT))
    drawn = "training"
    if any(losses_of.held_out for losses_of in trained.values()):
        drawn = "held-out"
    losses.set(xlabel="steps", ylabel=f"{drawn} loss, nats per byte")
    differences.set(
        xlabel="steps", ylabel=f"difference to {literal(shortened(reference, LETTERS))}"
    )
    for name, late_curve in curves.items():
        style = styles[name] | {
            "markevery": max(1, len(late_curve) // MARKERS_OF_CURVE)
        }
        losses.plot(list(late_curve), list(late_curve.values()), **style)
        shared = [step for step in late_curve if step in curves.get(reference, {})]
        to_reference = [late_curve[step] - curves[reference][step] for step in shared]
        differences.plot(shared, to_reference, **style)
    _draw_front(front, rows, styles, reference)
    handles = named_lines(names_apart(list(styles)), styles.values())
    handles.append(Line2D([], [], label="Pareto front", **RING))
    about = f"{steps:,} steps, d_model {report.plan.shown[0].ffn.d_model}; a probe of a small model{title_ending(report)}"
    bars = f"bars: {CERTAIN} of the difference and of the ratio to {shortened(reference, LETTERS)}"
    finish(figure, f"{about}\n{bars}", handles)
    return figure


def _draw_front(
    axes: Axes,
    rows: Mapping[str, Row],
    styles: Mapping[str, dict[str, Any]],
    reference: str,
) -> None:
    """Loss over the time of a step, both as they are paired with the reference's."""
    axes.set_ylabel("held-out loss, nats per byte")
    start = rows[reference]["step_s"] if reference in rows else None
    timed = {name: row for name, row in rows.items() if start and row["step_ratio"]}
    if not timed:
        axes.set_xlabel("a step: not timed")
        return
    unit, size = scale([start * row["step_ratio"] for row in timed.values()], TIME)
    axes.set_xlabel(f"a step: forward and backward, {unit}")
    for name, row in timed.items():
        style, loss = styles[name], row["loss"]
        time, low, high = (start * row[f"step_ratio{end}"] / size for end in ENDS)
        axes.hlines(loss, low, high, color=style["color"])
        if row["difference_low"] is not None:
            of_reference = loss - row["difference"]
            ends = (
                of_reference + row["difference_low"],
                of_reference + row["difference_high"],
            )
            axes.vlines(time, *ends, color=style["color"])
        axes.plot(time, loss, **style | {"linestyle": ""})
        if row["pareto_front_step"]:
            axes.plot(time, loss, **RING)
