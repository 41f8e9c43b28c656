"""The picture of error against time, a panel for each group of rows: a colour for each
backend, a marker for each weight format, and a line through the Pareto front. It is as
wide as a column of a paper, and with several panels as wide as a page.
"""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ffnbench.choices import Weights
from ffnbench.common.errors import FfnbenchError
from ffnbench.metrics import ERROR
from ffnbench.report.columns import case_rows
from ffnbench.report.frame import Row
from ffnbench.report.header import heading
from ffnbench.report.pictures.canvas import (
    BLACK,
    COLOURS,
    COLUMN,
    GREY,
    MARKERS,
    PAGE,
    columns_for,
    drawing,
    finish,
    limits_of,
    literal,
    panels,
    scale_axis,
)
from ffnbench.report.pictures.ratios import about
from ffnbench.report.words import backend_text
from ffnbench.result import Report, TradeOff

HEIGHT = 2.1  # inches, of a row of panels
MILLISECONDS = 1e3
LEAST_ERROR = 1e-7  # smaller errors are drawn at this one
NAME_OF = {Weights.NONE: "weights as they are"}
LATENCY_ENDS = ("latency_low_s", "latency_high_s")
MARKER_OF = dict(zip(Weights, MARKERS, strict=False))


@drawing()
def trade_off_figure(report: Report) -> Figure:
    """Error against time; raises FfnbenchError where no rows differ in precision."""
    trade_offs = report.figures.trade_offs
    if not trade_offs:
        raise FfnbenchError(
            "no rows with a time and an error differ in precision",
            "for example --weights none,int8",
        )
    rows = [
        row
        for row in case_rows(report)
        if row["latency_s"] and row[ERROR] is not None and not row["failure"]
    ]
    backends = list(
        dict.fromkeys(
            backend_text(report.plan.case(row["label"]).workload) for row in rows
        )
    )
    colours = dict(zip(backends, COLOURS, strict=False))
    number, columns = len(trade_offs), columns_for(len(trade_offs))
    figure, every_axes = panels(
        number, columns, (COLUMN if number == 1 else PAGE, HEIGHT)
    )
    for axes, trade_off in zip(every_axes, trade_offs, strict=True):
        of_group = [
            row
            for row in rows
            if report.plan.reference_of(row["label"]) == trade_off.reference
        ]
        _draw(axes, report, trade_off, of_group, colours)
    used = {row["weight_format"] for row in rows}
    formats = [weights for weights in Weights if weights in used]
    handles = [
        Line2D([], [], color=colours[name], label=literal(name)) for name in backends
    ]
    handles += [
        Line2D(
            [],
            [],
            color=BLACK,
            linestyle="",
            marker=MARKER_OF[weights],
            label=NAME_OF.get(weights, f"{weights} weights"),
        )
        for weights in formats
    ]
    handles.append(
        Line2D([], [], color=GREY, linestyle=":", label="Pareto front, filled")
    )
    names = {case.variant.partition("@")[0] for case in report.plan.shown}
    name = f"{names.pop()}, " if len(names) == 1 else ""
    finish(
        figure,
        f"{name}{about(report)}\nerror: relative, to float64 of the original weights",
        handles,
    )
    return figure


def _draw(
    axes: Axes,
    report: Report,
    trade_off: TradeOff,
    rows: list[Row],
    colours: dict[str, str],
) -> None:
    """Draw the rows of one group, and the Pareto front through them."""
    [group] = [
        group for group in report.plan.groups if group.reference == trade_off.reference
    ]
    axes.set(xlabel="latency (ms)", ylabel="error", title=literal(heading(group)))
    points = {
        row["label"]: (MILLISECONDS * row["latency_s"], max(row[ERROR], LEAST_ERROR))
        for row in rows
    }
    ends_of = {
        row["label"]: [MILLISECONDS * row[key] for key in LATENCY_ENDS if row[key]]
        for row in rows
    }
    ends = [end for of_row in ends_of.values() for end in of_row]
    times, errors = zip(*points.values(), strict=True)
    scale_axis(axes.xaxis, *limits_of(times, ends))
    axes.set(yscale="log", ylim=(min(errors) / 3, max(errors) * 3))
    front = sorted(points[label] for label in trade_off.front if label in points)
    axes.plot(
        *zip(*front, strict=True),
        color=GREY,
        linestyle=":",
        drawstyle="steps-post",
        zorder=1,
    )
    for row in rows:
        work = report.plan.case(row["label"]).workload
        time, error = points[row["label"]]
        colour = colours[backend_text(work)]
        interval = ends_of[row["label"]]
        axes.plot(interval, [error] * len(interval), color=colour)
        if row["error_high"]:
            axes.vlines(
                time,
                max(row["error_low"], LEAST_ERROR),
                row["error_high"],
                color=colour,
            )
        face = colour if row["label"] in trade_off.front else "white"
        axes.plot(
            time,
            error,
            color=colour,
            marker=MARKER_OF[work.weights],
            markerfacecolor=face,
            linestyle="",
        )
