"""The picture of `train`: the loss over the steps, its difference to the reference over
the steps, and the loss over the time of a step.
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
from ffnbench.extras.train.table import (
    ESTIMATE_SUFFIXES,
    training_of,
    training_records,
)
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
# curves are drawn after this share of the steps: before it they can't be told apart
DRAWN_FROM = 0.2
RING: dict[str, Any] = {
    "marker": "o",
    "markersize": 8,
    "markerfacecolor": "none",
    "color": BLACK,
    "linestyle": "",
}


@drawing()
def training_figure(report: Report) -> Figure:
    """Curves of losses, and loss and time; a ring is around what is on the Pareto
    front.

    Curves are of what is held out; files of earlier versions have the losses of the
    steps instead. Bars are intervals of the difference and of the ratio to the
    reference, which has none.
    """
    variants = {
        name: variant for name, variant in learnt(report).items() if variant.loss
    }
    if not variants:
        raise FfnbenchError(
            "there is no loss to draw",
            "no run was trained to its end: the table says why",
        )
    styles = dict(zip(variants, pens(variants), strict=True))
    rows = {
        row["variant"]: row
        for row in training_records(report)
        if row["variant"] in variants
    }
    steps = training_of(report).steps
    reference = report.plan.name_of(report.plan.reference)
    reference_text = shortened(reference, LETTERS)
    curves = {}
    for name, variant in variants.items():
        curve = variant.held_out or variant.curve
        curves[name] = {
            step: loss for step, loss in curve if step >= DRAWN_FROM * steps
        }
    figure, [losses, differences, front] = panels(3, 3, (PAGE, HEIGHT))
    loss_name = "training"
    if any(variant.held_out for variant in variants.values()):
        loss_name = "held-out"
    losses.set(xlabel="steps", ylabel=f"{loss_name} loss, nats per byte")
    differences.set(xlabel="steps", ylabel=f"difference to {literal(reference_text)}")
    for name, late_curve in curves.items():
        every = max(1, len(late_curve) // MARKERS_OF_CURVE)
        style = styles[name] | {"markevery": every}
        losses.plot(list(late_curve), list(late_curve.values()), **style)
        shared = [step for step in late_curve if step in curves.get(reference, {})]
        to_reference = [late_curve[step] - curves[reference][step] for step in shared]
        differences.plot(shared, to_reference, **style)
    _draw_front(front, rows, styles, reference)
    handles = named_lines(names_apart(list(styles)), styles.values())
    handles.append(Line2D([], [], label="Pareto front", **RING))
    about = f"{steps:,} steps, d_model {report.plan.shown[0].ffn.d_model}; a probe of a small model{title_ending(report)}"
    bars = f"bars: {CERTAIN} of the difference and of the ratio to {reference_text}"
    finish(figure, f"{about}\n{bars}", handles)
    return figure


def _draw_front(
    axes: Axes,
    rows: Mapping[str, Row],
    styles: Mapping[str, dict[str, Any]],
    reference: str,
) -> None:
    """Draw loss over the time of a step, both by their paired comparison with the
    reference: its value, times the ratio or plus the difference.
    """
    axes.set_ylabel("held-out loss, nats per byte")
    reference_s = rows[reference]["step_s"] if reference in rows else None
    timed = {
        name: row for name, row in rows.items() if reference_s and row["step_ratio"]
    }
    if not timed:
        axes.set_xlabel("a step: not timed")
        return
    times_s = [reference_s * row["step_ratio"] for row in timed.values()]
    unit, size = scale(times_s, TIME)
    axes.set_xlabel(f"a step: forward and backward, {unit}")
    for name, row in timed.items():
        style, loss = styles[name], row["loss"]
        time, low, high = (
            reference_s * row[f"step_ratio{suffix}"] / size
            for suffix in ESTIMATE_SUFFIXES
        )
        axes.hlines(loss, low, high, color=style["color"])
        if row["difference_low"] is not None:
            reference_loss = loss - row["difference"]
            axes.vlines(
                time,
                reference_loss + row["difference_low"],
                reference_loss + row["difference_high"],
                color=style["color"],
            )
        axes.plot(time, loss, **style | {"linestyle": ""})
        if row["pareto_front_step"]:
            axes.plot(time, loss, **RING)
