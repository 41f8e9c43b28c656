"""What all pictures share: pens, texts that fit, and the bytes of a file. No display needed.

Colours are Okabe & Ito's (2008), which colour-blind readers can tell apart, and some more; a print in grey tells curves
by their markers. A pen belongs to a name, so that an activation looks the same in every picture.
"""

from __future__ import annotations

import io
import math
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from zlib import crc32

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from ffnbench.common.streams import visible
from ffnbench.ffn.activations import ACTIVATIONS
from ffnbench.result import Report

BLACK = "black"
COLOURS = (
    BLACK, "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#882255", "#6A3DD0", "#8C6239", "#999933",
    "#808080",
)  # fmt: skip
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", "*", "p")
LOOKS = 2 * len(MARKERS)  # full, then hollow
SMALL = 5.5  # points
SIDE_BY_SIDE, FEW_TICKS = 1.5, 3.0  # from these ratios on an axis is logarithmic, and has ticks by decade
TICKS = {20: (1,), 3: (1, 2, 5), 0: (1, 1.5, 2, 3, 5, 7)}  # in a decade, where the axis is longer than that
DPI = 150  # of a picture for a page; those for a column of a paper have 300
STYLE = {
    "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True, "axes.grid": True,
    "grid.color": BLACK, "grid.alpha": 0.1, "grid.linewidth": 0.6, "legend.frameon": False, "legend.fontsize": "small",
}  # fmt: skip


@contextmanager
def drawing(**settings: Any) -> Iterator[None]:
    """The style of all pictures, with these settings, for the while; a sign that the font lacks is a box, and no
    warning. Styles of matplotlib's own are not loaded: those in the user's folder would be as well.
    """
    defaults = {name: value for name, value in dict.items(matplotlib.rcParamsDefault) if name != "backend"}
    with matplotlib.rc_context(defaults | STYLE | settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        yield


def render(figure: Figure, suffix: str, *, texts: bool = False) -> bytes:
    """The picture as png, svg or pdf bytes; with `texts` as texts, which the reader's font draws, in svg and pdf."""
    buffer = io.BytesIO()
    with drawing(**({"svg.fonttype": "none", "pdf.fonttype": 42} if texts else {})):
        figure.savefig(buffer, format=suffix.removeprefix("."), dpi=figure.dpi)
    return buffer.getvalue()


def pens(names: Iterable[str]) -> list[dict[str, Any]]:
    """A pen for each name: of an activation by its place in the table, of another one by what its letters give, in a
    colour that no other one has where there is one.
    """
    table = [activation.name for activation in ACTIVATIONS]
    places: dict[str, int] = {}
    for name in sorted(names := list(names), key=lambda name: name not in table):
        first = table.index(name) if name in table else crc32(name.encode()) % LOOKS
        free = [n for n in (*range(first, LOOKS), *range(LOOKS + len(names))) if n not in places.values()]
        told = {place % len(COLOURS) for place in places.values()}
        apart = [place for place in free if place % len(COLOURS) not in told]
        places[name] = first if name in table else [*apart, *free][0]
    return [_pen(places[name]) for name in names]


def _pen(place: int) -> dict[str, Any]:
    """Colour and marker of a place."""
    colour = COLOURS[place % len(COLOURS)]
    face = "white" if place // len(MARKERS) % 2 else colour
    return {"color": colour, "marker": MARKERS[place % len(MARKERS)], "markerfacecolor": face}


def literal(text: str) -> str:
    """A name as it is: matplotlib would read `$` as mathematics, and hide a legend entry that begins with `_`."""
    escaped = visible(text).replace("$", r"\$")
    return f" {escaped}" if escaped.startswith("_") else escaped


def shortened(text: str, most: int = 120) -> str:
    """A text of at most so many letters; of a longer one both ends, since labels often differ at their end alone."""
    half = most // 2
    return text if len(text) <= most else f"{text[: most - half - 1]}…{text[-half:]}"


def ended(report: Report) -> str:
    """What the title of a run that was not finished ends with."""
    return "; interrupted" if report.interrupted else "; ended early" if report.stopped else ""


# What pictures of a paper share: axes, ticks, the legend below and the lines above


def panels(figure: Figure, number: int, columns: int, **how: Any) -> Any:
    """A grid of so many axes, row by row; those that are left over are hidden."""
    grid: Any = figure.subplots(math.ceil(number / columns), columns, squeeze=False, **how)
    for axes in grid.flat[number:]:
        axes.set_visible(False)
    return grid


def write_numbers(axis: Any, text: Callable[[float], str] = "{:g}".format) -> None:
    """Have the numbers beside an axis written like this."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))


def scale_axis(axis: Any, low: float, high: float, *, room: float = 0.06, below: float = 1.0, most: int = 5) -> None:
    """Show these values with room at both ends, so many times of it below; logarithmic where they are far apart."""
    if low > 0 and high / low > SIDE_BY_SIDE:
        factor = (high / low) ** room
        set_limits(axis, low / factor**below, high * factor, scale="log")
        axis.set_minor_locator(NullLocator())
        subs = next(subs for least, subs in TICKS.items() if high / low > least)
        few = high / low < FEW_TICKS
        axis.set_major_locator(MaxNLocator(most + 1) if few else LogLocator(subs=subs, numticks=most + 2))
    else:
        space = room * (high - low) or 0.1 * abs(high) or 1.0
        set_limits(axis, low - space * below, high + space)
        axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 4, 5, 10]))


def set_limits(axis: Any, low: float, high: float, scale: str = "linear") -> None:
    """The ends of an axis, and its scale."""
    name = axis.axis_name
    axis.axes.set(**{f"{name}scale": scale, f"{name}lim": (low, high)})


def lines_above(figure: Figure, text: str, letters: int) -> int:
    """The title, wrapped to so many letters; gives its number of lines."""
    lines = textwrap.wrap(text, letters)
    figure.suptitle("\n".join(map(literal, lines)), fontsize=SMALL, x=0.01, ha="left")
    return len(lines)


def legend_below(figure: Figure, columns: int, *, side: str = "left", **how: Any) -> None:
    """One legend for all axes, below them."""
    usual = {"handletextpad": 0.2, "columnspacing": 1.0, "borderpad": 0.1, "labelspacing": 0.25, "fontsize": SMALL}
    figure.legend(loc=f"outside lower {side}", ncols=columns, **usual | how)
