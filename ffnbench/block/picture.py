"""The picture of `block`: the FFN's share of a block, and the ratio of its part beside
that of the FFN alone; along the longest axis of a sweep, else by variant.
"""

from __future__ import annotations

# first, as it loads matplotlib away from the current folder
from ffnbench.report.pictures.canvas import (
    BAND,
    BLACK,
    draw_crossings,
    drawing,
    finish,
    label_axis,
    panels,
    pens,
    shown_name,
)

# isort: split
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from ffnbench.block.rows import block_rows
from ffnbench.block.table import header
from ffnbench.plan.plan import Axis
from ffnbench.record.result import SAME_WITHIN, Report
from ffnbench.report.header import heading_of
from ffnbench.report.sentences import crossing_texts
from ffnbench.report.table import Row, interval_keys

HEIGHT = 2.2  # inches, of a row of panels
Pens = dict[str, dict[str, Any]]


@drawing()
def block_figure(report: Report) -> Figure:
    """On the left the FFN's share: of FLOPs as a dashed line, of the time as points; on
    the right its part in that of the reference, hollow where the FFN is alone. What has
    no interval is left out, and where nothing was measured the right side.
    """
    plan, rows = report.plan, block_rows(report)
    axis = plan.axes[0] if plan.axes else None
    by_panel: dict[str, list[Row]] = {}
    for row in rows:
        point = plan.case(row["label"]).point
        within = {key: value for key, value in point if not axis or key != axis.name}
        by_panel.setdefault(heading_of(within), []).append(row)
    names = list(dict.fromkeys(plan.case(row["label"]).name for row in rows))
    pens_of = pens(names)
    columns = 1 if report.is_of_counts else 2
    figure, grid = panels(columns * len(by_panel), HEIGHT, columns=columns)
    for number, (title, of_panel) in enumerate(by_panel.items()):
        share, *ratio = grid[columns * number : columns * (number + 1)]
        curves = {
            name: [row for row in of_panel if plan.case(row["label"]).name == name]
            for name in names
        }
        share.set_title(", ".join(filter(None, [shown_name(title), "the FFN's share"])))
        share.set_ylim(0, 1)
        share.yaxis.set_major_formatter(PercentFormatter(1.0))
        _draw_shares(share, curves, pens_of, axis)
        for axes in ratio:
            axes.set_title(f"the FFN's part vs {shown_name(names[0])}")
            _draw_ratios(axes, curves, pens_of, axis)
            draw_crossings(axes, report, title)
        for axes in (share, *ratio):
            if axis is None:
                axes.set_xticks(range(len(names)), map(shown_name, names))
                axes.set_xlim(-0.5, len(names) - 0.5)
            else:
                label_axis(axes, axis)
    handles = [line for panel in grid for line in panel.get_legend_handles_labels()[0]]
    texts = crossing_texts(report.figures.crossings)
    finish(figure, "\n".join([*header(report), *texts]), handles)
    return figure


def _places(name: str, rows: list[Row], pens_of: Pens, axis: Axis | None) -> list[Any]:
    """Where the rows of a variant stand from left to right."""
    if axis is None:
        return [list(pens_of).index(name)] * len(rows)
    return [row[axis.name] for row in rows]


def _draw_shares(
    axes: Axes, curves: dict[str, list[Row]], pens_of: Pens, axis: Axis | None
) -> None:
    for name, rows in curves.items():
        pen, places = pens_of[name], _places(name, rows, pens_of, axis)
        counted = [row["ffn_share_flops"] for row in rows]
        if None not in counted:
            axes.plot(
                places,
                counted,
                "_--",
                color=pen["color"],
                label=f"{shown_name(name)}: FLOPs",
            )
        _draw_points(axes, places, rows, "ffn_share", shown_name(name), pen)


def _draw_ratios(
    axes: Axes, curves: dict[str, list[Row]], pens_of: Pens, axis: Axis | None
) -> None:
    axes.axhspan(1 - SAME_WITHIN, 1 + SAME_WITHIN, color=BAND, linewidth=0, zorder=0)
    axes.axhline(1, color=BLACK, linewidth=0.6, zorder=1)
    for name, rows in list(curves.items())[1:]:
        pen, places = pens_of[name], _places(name, rows, pens_of, axis)
        hollow = pen | {"markerfacecolor": "white", "linestyle": ":"}
        _draw_points(axes, places, rows, "ffn_ratio", shown_name(name), pen)
        alone = f"{shown_name(name)} alone, hot"
        _draw_points(axes, places, rows, "alone_ratio", alone, hollow)


def _draw_points(
    axes: Axes,
    places: list[Any],
    rows: list[Row],
    key: str,
    label: str,
    pen: dict[str, Any],
) -> None:
    """Draw the values of rows that have an interval, with these."""
    value, low, high = interval_keys(key)
    certain = [
        (place, row)
        for place, row in zip(places, rows, strict=True)
        if row[low] is not None and row[high] is not None
    ]
    if not certain:
        return
    below = [row[value] - row[low] for _, row in certain]
    above = [row[high] - row[value] for _, row in certain]
    axes.errorbar(
        [place for place, _ in certain],
        [row[value] for _, row in certain],
        yerr=[below, above],
        elinewidth=0.6,
        zorder=3,
        label=label,
        **pen,
    )
