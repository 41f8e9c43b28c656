"""What all pictures share: style, panels, pens, the title above and the legend below.

Every picture is as wide as a column or as a page of a paper, with letters that are
large enough there. Colours are Okabe and Ito's (2008), which colour-blind readers can
tell apart, and some more; in a grey print, markers tell curves apart.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from operator import itemgetter
from typing import Any

import matplotlib
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from ffnbench.common.errors import WrongValue
from ffnbench.common.streams import visible
from ffnbench.plan.plan import Axis
from ffnbench.record.result import SAME_WITHIN, Report
from ffnbench.report.header import axis_text, conditions_line, heading_of
from ffnbench.report.table import Row, interval_keys
from ffnbench.report.words import WITHIN

COLUMN, PAGE = 3.3, 7.0  # inches: the width of a paper's column, and of its page
DPI = 200  # of a png; print takes svg or pdf
SMALL_FONT = 5.5  # points: the smallest letters
LINE = 0.06  # the height of a line of them, in parts of a panel
MOST_IN_ROW = 3  # panels
MOST_IN_LEGEND = 8  # columns of a legend
LONGEST = 60  # letters of a name

BARS = "(bars: 95% intervals)"
AXIS_TITLES = {
    "seq_len": "tokens (seq_len)",
    "d_model": "width of the model (d_model)",
    "d_ff": "width of the FFN (d_ff)",
}
MOST_NUMBERS = 6  # of an axis, below a panel
BLACK, GREY, BAND = "black", "#808080", "#EBEBEB"
COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#882255",
    "#6A3DD0",
    "#999933",
    BLACK,
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", "*", "p")
_FILLED = cycler(color=COLOURS, marker=MARKERS, markerfacecolor=COLOURS)
_HOLLOW = cycler(color=COLOURS, marker=MARKERS, markerfacecolor=["white"] * 10)
CANVAS_STYLE = {
    "font.size": 6.5,
    "axes.titlesize": 6.5,
    "axes.titlepad": 3,
    "axes.titlelocation": "left",
    "axes.labelpad": 1.5,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.6,
    "xtick.labelsize": 6,
    "ytick.labelsize": 6,
    "xtick.major.size": 2,
    "ytick.major.size": 2,
    "xtick.major.pad": 1.5,
    "ytick.major.pad": 1.5,
    "lines.linewidth": 0.9,
    "lines.markersize": 3.4,
    "lines.markeredgewidth": 0.8,
    "legend.frameon": False,
    "legend.fontsize": SMALL_FONT,
    "legend.handletextpad": 0.4,
    "legend.columnspacing": 1.0,
    "legend.borderpad": 0.1,
    "legend.labelspacing": 0.25,
    "figure.titlesize": SMALL_FONT,
    "figure.constrained_layout.w_pad": 0.03,
    "figure.constrained_layout.h_pad": 0.03,
    "text.parse_math": False,  # a `$` in a name is a `$`
    "svg.fonttype": "none",  # texts stay texts
    "pdf.fonttype": 42,
}
LOGARITHMIC_FROM = 5.0  # the ratio of the ends of an axis
# the first digits of the numbers beside it, by the ratio that its ends exceed
DIGITS_OF_TICKS = {100: (1,), 10: (1, 3), LOGARITHMIC_FROM: (1, 2, 5)}

Curves = dict[str, dict[str, list[tuple[float, Row]]]]


@contextmanager
def drawing() -> Iterator[None]:
    """Draw in the style of all pictures. A sign that the font lacks becomes a box
    without a warning.

    The style begins from matplotlib's defaults in memory: loading a style by its name
    would load those of the user's folder too.
    """
    defaults = dict(dict.items(matplotlib.rcParamsDefault))
    del defaults["backend"]
    with matplotlib.rc_context(defaults | CANVAS_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        yield


def panels(
    number: int, height: float, columns: int = MOST_IN_ROW, **grid: Any
) -> tuple[Figure, list[Any]]:
    """A figure and its `number` axes, row by row, each row of this height in inches.
    One panel is as wide as a column, several are as wide as a page.
    """
    columns = min(columns, number)
    rows = math.ceil(number / columns)
    width = COLUMN if number == 1 else PAGE
    figure = Figure(figsize=(width, height * rows), dpi=DPI, layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False, **grid).flat)
    for unused in axes[number:]:
        unused.remove()
    return figure, axes[:number]


def finish(
    figure: Figure,
    title: str,
    handles: Iterable[Any] = (),
    most: int = MOST_IN_LEGEND,
) -> None:
    """Write the title above the axes and the legend of these handles below, in at most
    so many columns, and make the figure so much higher. Of handles with the same label
    the legend has one.
    """
    width, height = figure.get_size_inches()
    lines = map(visible, title.split("\n"))
    suptitle = figure.suptitle("\n".join(lines), x=0.01, ha="left", wrap=True)
    height += suptitle.get_window_extent().height / figure.dpi
    entries = list({handle.get_label(): handle for handle in handles}.values())
    # as many columns as are not wider than the figure
    for columns in range(min(len(entries), most), 0, -1):
        legend = figure.legend(handles=entries, ncols=columns, loc="outside lower left")
        size = legend.get_window_extent()
        if size.width <= figure.bbox.width or columns == 1:
            height += size.height / figure.dpi
            break
        legend.remove()
    figure.set_size_inches(width, height)


def render(figure: Figure, suffix: str) -> bytes:
    """The picture as bytes of a png, svg or pdf file."""
    buffer = io.BytesIO()
    with drawing():
        figure.savefig(buffer, format=suffix.removeprefix("."), dpi=figure.dpi)
    return buffer.getvalue()


def nothing_to_draw(what: str) -> WrongValue:
    """The error of a picture that would have no number; `what` it would be of."""
    return WrongValue(
        f"there is nothing to draw: no row has a {what}",
        "the table says why: leave the picture out",
    )


def about(report: Report) -> str:
    """The first line of a title: what was measured, and that a run was not finished."""
    text = conditions_line(report.plan)
    if report.interrupted:
        return f"{text}; interrupted"
    if report.stopped:
        return f"{text}; ended early"
    return text


def shown_name(text: str, most: int = LONGEST) -> str:
    """A name in at most this many letters: of a longer one both ends, since labels
    often differ only at their end. matplotlib would hide one that begins with `_`.
    """
    name = visible(text)
    if len(name) > most:
        half = most // 2
        name = f"{name[: half - 1]}…{name[-half:]}"
    return f" {name}" if name.startswith("_") else name


def pens(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The colour and the marker of each name, as keywords of `plot`."""
    return dict(zip(names, cycle(_FILLED.concat(_HOLLOW)), strict=False))


def interval_bar(row: Row, key: str) -> Sequence[Sequence[float]] | None:
    """The interval of a value of a row, as `errorbar` takes it: how far below and above
    the value its ends are; None where it has none.
    """
    value, low, high = (row[key] for key in interval_keys(key))
    if low is None or high is None:
        return None
    return [[value - low], [high - value]]


def curves_of(report: Report, rows: Iterable[Row]) -> Curves:
    """The points (x, row) of each curve, by panel and name: along the longest axis of a
    sweep, else side by side.
    """
    places: dict[str, Any] = {}
    curves: Curves = {}
    for row in rows:
        case = report.plan.case(row["label"])
        within = dict(case.point)
        x = places.setdefault(case.row, len(places))
        for axis in report.plan.axes[:1]:
            x = within.pop(axis.name)
        panel = curves.setdefault(heading_of(within), {})
        panel.setdefault(case.row, []).append((x, row))
    return curves


def draw_curve(
    axes: Axes, points: list[tuple[float, Row]], key: str, **pen: Any
) -> Any:
    """Draw a value of rows with its intervals, a gap where it has none; return the
    places of the points and their values, and the values without an interval.
    """
    xs, rows = zip(*sorted(points, key=itemgetter(0)), strict=True)
    numbers = [
        [None if row["failure"] else row[each] for each in interval_keys(key)]
        for row in rows
    ]
    values, lows, highs = np.array(numbers, float).T
    bars = [values - lows, highs - values]
    axes.errorbar(xs, values + 0 * lows, yerr=bars, elinewidth=0.6, zorder=3, **pen)
    for numbers in (values, lows, highs):  # also where the pen moves the points
        axes.update_datalim(np.column_stack([xs, numbers]))
    return np.array(xs), values, np.where(np.isnan(lows), values, np.nan)


def draw_same(span: Any, line: Any) -> None:
    """Mark the ratio 1, and those that are called the same, by these methods of axes:
    axhspan and axhline, or axvspan and axvline.
    """
    span(
        1 - SAME_WITHIN,
        1 + SAME_WITHIN,
        color=BAND,
        linewidth=0,
        zorder=0,
        label=f"same: the interval is within {WITHIN}",
    )
    line(1, color=BLACK, linewidth=0.6, zorder=1)


def label_points(axes: Axes, points: Iterable[tuple[float, float, str]]) -> None:
    """Write names at the left of points (x, y, name), one above the other where they
    would overlap.
    """
    least = 0.0
    to_parts = axes.transData - axes.transAxes
    for x, y, name in sorted(points, key=itemgetter(1)):
        left, up = to_parts.transform((x, y))
        least = max(up, least)
        axes.annotate(
            name,
            (left, least),
            (-6, 0),
            "axes fraction",
            "offset points",
            ha="right",
            va="center",
            fontsize=SMALL_FONT,
        )
        least += LINE


def draw_crossings(axes: Axes, report: Report, title: str) -> None:
    """Mark each crossing of the panel of that title, with its interval."""
    for crossing in report.figures.crossings:
        at = crossing.at
        if heading_of(crossing.within) == title:
            axes.axvline(
                at.value,
                color=BLACK,
                ls=":",
                zorder=1,
                label="crossing, between two points",
            )
            axes.axvspan(
                at.low or at.value, at.high or at.value, color=GREY, alpha=0.2, lw=0
            )


def label_axis(axes: Axes, axis: Axis) -> None:
    """Write values of an axis below a panel, as many as fit there."""
    if axis.logarithmic:
        axes.set_xscale("log")
    numbered = axis.values[:: math.ceil(len(axis.values) / MOST_NUMBERS)]
    axes.set_xticks(numbered, map(axis_text, numbered))
    axes.set_xticks(axis.values, [""] * len(axis.values), minor=True)
    axes.set_xlabel(AXIS_TITLES.get(axis.name, axis.name))


def scale_axis(axis: Any, numbers: Any = "{x:,g}") -> None:
    """Make an axis logarithmic where its ends are far apart, and write its numbers by
    this formatter.
    """
    low, high = axis.get_data_interval()
    if 0 < LOGARITHMIC_FROM * low < high:
        axis.axes.set(**{f"{axis.axis_name}scale": "log"})
        [digits, *_] = [
            digits for least, digits in DIGITS_OF_TICKS.items() if high > least * low
        ]
        axis.set_major_locator(LogLocator(subs=digits))
        axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(numbers)
