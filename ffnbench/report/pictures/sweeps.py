"""The picture of a sweep: lines with intervals along its longest axis, and a panel for
each combination of values on the other axes.

A row that failed is a gap in its line and a cross; a time without an interval is a
hollow point beside the line. A dotted line in a band marks each crossing, which the
sentence in the title tells.
"""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter
from matplotlib.transforms import ScaledTranslation

from ffnbench.record.result import Report
from ffnbench.report.columns import case_rows
from ffnbench.report.pictures.canvas import (
    BARS,
    GREY,
    MOST_IN_ROW,
    about,
    curves_of,
    draw_crossings,
    draw_curve,
    draw_same,
    drawing,
    finish,
    label_axis,
    nothing_to_draw,
    panels,
    pens,
    scale_axis,
    shown_name,
)
from ffnbench.report.sentences import crossing_texts

HEIGHT = 2.1  # inches, of a panel with its axis
BESIDE = 0.03  # inches between the points of two curves at one place


@drawing()
def sweep_figure(report: Report) -> Figure:
    """The picture of a sweep: where its groups have several rows, the ratios of all but
    the references; else latencies. Raises FfnbenchError where no row has a number.
    """
    plan = report.plan
    has_ratios = any(len(group.cases) > 1 for group in plan.groups)
    key = "ratio" if has_ratios else "latency_s"
    rows = [
        row
        for row in case_rows(report)
        if not (has_ratios and plan.is_reference(row["label"]))
    ]
    if all(row["failure"] or row[key] is None for row in rows):
        raise nothing_to_draw("ratio" if has_ratios else "time")
    curves = curves_of(report, rows)
    pens_of = pens(dict.fromkeys(name for panel in curves.values() for name in panel))
    figure, grid = panels(len(curves), HEIGHT, sharey=True)
    handles = []
    for axes, (title, panel) in zip(grid, curves.items(), strict=True):
        for place, (name, points) in enumerate(panel.items()):
            right = BESIDE * (place - (len(panel) - 1) / 2)
            moved = ScaledTranslation(right, 0, figure.dpi_scale_trans)
            pen = pens_of[name] | {"transform": axes.transData + moved}
            label = shown_name(name)
            xs, values, seen = draw_curve(axes, points, key, label=label, **pen)
            hollow = pen | {"markerfacecolor": "white", "linestyle": ""}
            if np.isfinite(seen).any():
                axes.plot(xs, seen, **hollow)
                axes.plot([], [], "o", color=GREY, mfc="white", label="no interval")
            failed = xs[np.isnan(values)]
            if len(failed):  # matplotlib leaves room even for a line without points
                cross = {"color": GREY, "clip_on": False, "label": "no time"}
                bottom = axes.get_xaxis_transform()
                axes.plot(failed, 0 * failed, "x", transform=bottom, **cross)
        if has_ratios:
            draw_same(axes.axhspan, axes.axhline)
        draw_crossings(axes, report, title)
        label_axis(axes, plan.axes[0])
        axes.set_title(shown_name(title))
        handles += axes.get_legend_handles_labels()[0]
    references = {plan.name_of(group.reference) for group in plan.groups}
    reference = references.pop() if len(references) == 1 else "the reference"
    reference = shown_name(reference)
    question, label = f"How long does a call take? {BARS}", "latency of a call"
    if has_ratios:
        question = f"Which is faster than {reference}? Below 1 is faster {BARS}"
        label = f"time vs {reference}"
    for axes in grid[::MOST_IN_ROW]:
        axes.set_ylabel(label)
    scale_axis(grid[0].yaxis, *([] if has_ratios else [EngFormatter("s")]))
    crossings = crossing_texts(report.figures.crossings)
    finish(figure, "\n".join([question, about(report), *crossings]), handles)
    return figure
