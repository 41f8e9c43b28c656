"""The picture of `block`: the FFN's share of a block, and the ratio of its part beside
that of the FFN alone; along the longest axis of a sweep, else by variant.
"""

from __future__ import annotations

# first, as it loads matplotlib away from the current folder
from ffnbench.report.pictures.canvas import (
    BARS,
    curves_of,
    draw_crossings,
    draw_curve,
    draw_same,
    drawing,
    finish,
    label_axis,
    panels,
    pens,
    shown_name,
)

# isort: split
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from ffnbench.block.rows import block_rows
from ffnbench.block.table import header
from ffnbench.record.result import Report
from ffnbench.report.sentences import crossing_texts

HEIGHT = 2.2  # inches, of a row of panels
SHARE = "the FFN's share of a block"


@drawing()
def block_figure(report: Report) -> Figure:
    """On the left the FFN's share: of FLOPs as a dashed line, of the time as points; on
    the right its part in that of the reference, hollow where the FFN is alone. What has
    no interval is left out, and where nothing was measured the right side.
    """
    curves = curves_of(report, block_rows(report))
    names = list(dict.fromkeys(name for panel in curves.values() for name in panel))
    pens_of = pens(names)
    columns = 1 if report.is_of_counts else 2
    figure, grid = panels(columns * len(curves), HEIGHT, columns=columns)
    for number, (title, panel) in enumerate(curves.items()):
        share, *ratios = grid[columns * number : columns * (number + 1)]
        share.set(title=shown_name(title), ylim=(0, 1), ylabel=SHARE)
        share.yaxis.set_major_formatter(PercentFormatter(1.0))
        for name, points in panel.items():
            pen, label = pens_of[name], shown_name(name)
            xs, rows = zip(*points, strict=True)
            counted = [row["ffn_share_flops"] for row in rows]
            if None not in counted:
                of_flops = {"color": pen["color"], "label": f"{label}: of FLOPs"}
                share.plot(xs, counted, ".--", **of_flops)
            for axes in ratios:
                draw_curve(share, points, "ffn_share", label=f"{label}: of time", **pen)
                if name != names[0]:
                    hollow = pen | {"markerfacecolor": "white", "linestyle": ":"}
                    alone = f"{label} alone, hot"
                    in_place = f"{label} in place"
                    draw_curve(axes, points, "ffn_ratio", label=in_place, **pen)
                    draw_curve(axes, points, "alone_ratio", label=alone, **hollow)
        for axes in ratios:
            axes.set_ylabel(f"time of the FFN vs {shown_name(names[0])}")
            draw_same(axes.axhspan, axes.axhline)
            draw_crossings(axes, report, title)
        for axes in (share, *ratios):
            if report.plan.axes:
                label_axis(axes, report.plan.axes[0])
            else:
                axes.set_xticks(range(len(names)), map(shown_name, names))
                axes.set_xlim(-0.5, len(names) - 0.5)
    handles = [line for panel in grid for line in panel.get_legend_handles_labels()[0]]
    question = "What share of a block is its FFN?"
    if not report.is_of_counts:
        question = f"{question} Which FFN is faster? {BARS}"
    texts = crossing_texts(report.figures.crossings)
    finish(figure, "\n".join([question, *header(report), *texts]), handles)
    return figure
