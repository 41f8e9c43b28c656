"""What all pictures share: style, panels, ticks, names, pens, the title above and the
legend below.

Every picture is as wide as a column or as a page of a paper, with letters that are
large enough there. Colours are Okabe and Ito's (2008), which colour-blind readers can
tell apart, and some more; in a grey print, markers tell curves apart. A pen, which is a
colour with a marker, belongs to a name, so that an activation looks the same in every
picture.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from zlib import crc32

import matplotlib
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from ffnbench.common.streams import visible
from ffnbench.ffn.activations import ACTIVATIONS
from ffnbench.result import Report

COLUMN, PAGE = 3.3, 7.0  # inches: the width of a paper's column, and of its page
DPI = 200  # of a png; print takes svg or pdf
SMALL_FONT = 5.5  # points: the smallest letters
MOST_IN_LEGEND = 8  # columns of a legend
LETTERS, LONGEST = 40, 60  # the most letters of a name, of the title of a panel

BLACK, GREY, BAND = "black", "#808080", "#EBEBEB"
COLOURS = (
    BLACK,
    "#D55E00",
    "#0072B2",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#882255",
    "#6A3DD0",
    "#8C6239",
    "#999933",
    GREY,
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", "*", "p")
PENS = 2 * len(MARKERS)  # all markers filled, then all hollow
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
    "grid.color": BLACK,
    "grid.alpha": 0.1,
    "grid.linewidth": 0.6,
    "xtick.labelsize": 6,
    "ytick.labelsize": 6,
    "xtick.major.size": 2,
    "ytick.major.size": 2,
    "xtick.major.pad": 1.5,
    "ytick.major.pad": 1.5,
    "xtick.minor.size": 1.2,
    "ytick.minor.size": 1.2,
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
}

# ratios of the ends of an axis, from which on it is logarithmic, and from which on its
# ticks are at the same digits in each decade
LOGARITHMIC_FROM, DECADES_FROM = 1.5, 3.0
# the first digits of ticks, by the ratio that the ends of the axis exceed
DIGITS_OF_TICKS = {100: (1,), 3: (1, 2, 5)}
FARTHEST = 3.0  # the factor beyond the values up to which an axis shows intervals


@contextmanager
def drawing(**settings: Any) -> Iterator[None]:
    """Draw in the style of all pictures, changed by these settings of matplotlib. A
    sign that the font lacks becomes a box without a warning.

    The style begins from matplotlib's defaults in memory: loading a style by its name
    would load those of the user's folder too.
    """
    defaults = {
        name: value
        for name, value in dict.items(matplotlib.rcParamsDefault)
        if name != "backend"
    }
    with (
        matplotlib.rc_context(defaults | CANVAS_STYLE | settings),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        yield


def columns_for(number: int) -> int:
    """How many panels stand in a row, where there are `number` of them."""
    return {1: 1, 2: 2, 4: 2}.get(number, 3)


def panels(
    number: int, columns: int, size: tuple[float, float], **grid: Any
) -> tuple[Figure, list[Any]]:
    """A figure and its `number` axes, row by row. `size` is the width of the figure and
    the height of a row, in inches; `finish` adds the height of title and legend.
    """
    width, height = size
    rows = math.ceil(number / columns)
    figure = Figure(figsize=(width, height * rows), dpi=DPI, layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False, **grid).flat)
    for unused in axes[number:]:
        unused.remove()
    if grid.get("sharex"):
        # where the last row is not full, the axes above its gap are the lowest
        for lowest in axes[number - columns : number]:
            lowest.tick_params(labelbottom=True)
    return figure, axes[:number]


def finish(figure: Figure, title: str, handles: Sequence[Any] = ()) -> None:
    """Write the title above the axes and the legend of these handles below, and make
    the figure so much higher.
    """
    width, height = figure.get_size_inches()
    lines = map(literal, title.split("\n"))
    suptitle = figure.suptitle("\n".join(lines), x=0.01, ha="left", wrap=True)
    height += suptitle.get_window_extent().height / figure.dpi
    # as many columns as are not wider than the figure
    for columns in range(min(len(handles), MOST_IN_LEGEND), 0, -1):
        legend = figure.legend(handles=handles, ncols=columns, loc="outside lower left")
        size = legend.get_window_extent()
        if size.width <= figure.bbox.width or columns == 1:
            height += size.height / figure.dpi
            break
        legend.remove()
    figure.set_size_inches(width, height)


def render(figure: Figure, suffix: str) -> bytes:
    """The picture as bytes of a png, svg or pdf file; texts stay texts but in png."""
    buffer = io.BytesIO()
    with drawing(**{"svg.fonttype": "none", "pdf.fonttype": 42}):
        figure.savefig(buffer, format=suffix.removeprefix("."), dpi=figure.dpi)
    return buffer.getvalue()


# Names and pens


def literal(text: str) -> str:
    """A name that matplotlib shows as it is: it would read `$` as mathematics, and hide
    a legend entry that begins with `_`.
    """
    escaped = visible(text).replace("$", r"\$")
    return f" {escaped}" if escaped.startswith("_") else escaped


def shortened(text: str, most: int = LONGEST) -> str:
    """A text of at most `most` letters: of a longer one both ends, since labels often
    differ only at their end.
    """
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[: most - half - 1]}…{text[-half:]}"


def names_apart(names: Sequence[str], most: int = LETTERS) -> list[str]:
    """Names of at most `most` letters; different names that are the same when they are
    shortened get numbers.
    """
    short_names = [shortened(name, most) for name in names]
    full_names_of: dict[str, set[str]] = {}
    for short, full in zip(short_names, names, strict=True):
        full_names_of.setdefault(short, set()).add(full)
    numbered = []
    for place, short in enumerate(short_names):
        if len(full_names_of[short]) > 1:
            short += f" ({short_names[: place + 1].count(short)})"
        numbered.append(short)
    return numbered


def pens(names: Iterable[str]) -> list[dict[str, Any]]:
    """The pen of each name, as keywords of `plot`. An activation has the pen of its
    place in the table, and another name one that follows from its letters, unless the
    picture has its colour already: then the next pen whose colour is free, if any is.
    """
    table = [activation.name for activation in ACTIVATIONS]
    names = list(names)
    in_order = [name for name in table if name in names]
    in_order += [name for name in names if name not in table]
    places: dict[str, int] = {}
    for name in in_order:
        start = table.index(name) if name in table else crc32(name.encode()) % PENS
        free = [
            place
            for place in (*range(start, PENS), *range(start))
            if place not in places.values()
        ]
        colours = {place % len(COLOURS) for place in places.values()}
        in_own_colour = [place for place in free if place % len(COLOURS) not in colours]
        places[name] = [*in_own_colour, *free, start][0]
    return [_pen(places[name]) for name in names]


def _pen(place: int) -> dict[str, Any]:
    colour = COLOURS[place % len(COLOURS)]
    is_hollow = place // len(MARKERS) % 2
    face = "white" if is_hollow else colour
    return {
        "color": colour,
        "marker": MARKERS[place % len(MARKERS)],
        "markerfacecolor": face,
    }


def named_lines(
    names: Sequence[str], pens_of_names: Iterable[dict[str, Any]]
) -> list[Line2D]:
    """The handles of a legend: each name with its pen."""
    return [
        Line2D([], [], label=literal(name), **pen)
        for name, pen in zip(names, pens_of_names, strict=True)
    ]


def title_ending(report: Report) -> str:
    """The end of a title, which says that a run was not finished; else empty."""
    if report.interrupted:
        return "; interrupted"
    return "; ended early" if report.stopped else ""


# Axes


def limits_of(
    values: Sequence[float], ends: Iterable[float | None]
) -> tuple[float, float]:
    """The limits of an axis that shows all values, and of their intervals what is not
    too far away. An end that is None is not known.
    """
    low, high = min(values), max(values)
    known = [end for end in ends if end is not None]
    lowest = max(min([low, *known]), low / FARTHEST)
    highest = min(max([high, *known]), high * FARTHEST)
    return lowest, highest


def scale_axis(
    axis: Any, low: float, high: float, *, below: float = 1.0, most: int = 5
) -> None:
    """Have an axis show the values from `low` to `high`, with room at both ends and
    `below` times as much at the lower one, and with at most `most` ticks.

    The axis is logarithmic where its ends are far apart.
    """
    name = axis.axis_name
    if low > 0 and high / low > LOGARITHMIC_FROM:
        room = (high / low) ** 0.06
        axis.axes.set(
            **{f"{name}scale": "log", f"{name}lim": (low / room**below, high * room)}
        )
        axis.set_minor_locator(NullLocator())
        if high / low < DECADES_FROM:
            axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]))
        else:
            digits = [
                digits
                for least, digits in DIGITS_OF_TICKS.items()
                if high / low > least
            ]
            axis.set_major_locator(LogLocator(subs=digits[0], numticks=most + 2))
    else:
        room = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
        axis.axes.set(**{f"{name}lim": (low - room * below, high + room)})
        axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 4, 5, 10]))
    write_numbers(axis)


def write_numbers(axis: Any, text: Callable[[float], str] = "{:,g}".format) -> None:
    """Have the numbers beside an axis written by `text`."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))
