"""The roofline: FLOP/s of each case over its FLOPs per byte, under the ceilings that its own run measured.

Sized for one column of a paper. A case is told by colour and shape both, and named beside its dot; where the names
have no room there, a legend has them. (Williams, Waterman, Patterson 2009 introduced the form.)
"""

from __future__ import annotations

from math import atan2, ceil, degrees, hypot

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from ffnbench.report.label_places import Box, Placed, Segment, place
from ffnbench.report.picture import COLOURS, Canvas, drawing, lay_out, literal, pen, render, shortened
from ffnbench.report.roofline import Dot, Roofline, at, roofline
from ffnbench.result import Bound, Report, Roof
from ffnbench.stats.ceilings import Ceiling, read_bytes
from ffnbench.units import IEC, SI, quantity

WIDTH, HEIGHT = 3.4, 2.7  # inches: a column of a paper, and the axes with what stands around them
LEGEND_ROW, LEGEND_AROUND = 0.115, 0.05
CANVAS = Canvas(size=(WIDTH, HEIGHT), dpi=300, style="default")
FONTS = {"font.size": 7, "axes.labelsize": 7, "xtick.labelsize": 6.5, "ytick.labelsize": 6.5, "axes.linewidth": 0.6,
         "xtick.major.width": 0.6, "ytick.major.width": 0.6, "xtick.minor.width": 0.4, "ytick.minor.width": 0.4,
         "pdf.fonttype": 42}  # fmt: skip
SMALL = 6.0  # points: the least letters
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")  # one more than colours, so that a pair comes again after 56 cases
MARKER, GAP = 4.2, 4.5  # points: across a dot, and from its centre to its label
EDGE = 2.0  # points between an axis and a name
STEP = 3.0  # points: how much farther the next place of a name is
LONGEST_BESIDE, LONGEST_IN_LEGEND = 26, 64  # letters
LETTERS_ACROSS, LETTERS_OF_KEY = 72, 4  # letters beside each other in a legend, and what a marker takes of them
DARKER = 0.65  # of a dot's colour, for its name
ENDS = (0.0, 1.0, 0.5, 0.25, 0.75)  # where the name of a line may stand along it
GIGA = 1e9
# factors: room on all sides, and on both sides of the ridge; the least height of the axes; from when on every decade
# has one number only
AROUND, BESIDE_RIDGE, TALL, MANY_DECADES = 1.9, 8.0, 25.0, 300.0


def roofline_picture(report: Report, suffix: str) -> bytes:
    """The picture as bytes of that format; raises FfnbenchError where the run has no ceilings."""
    figure = roofline_figure(report)
    return render(figure, suffix, CANVAS)


def roofline_figure(report: Report) -> Figure:
    """The cases under their ceilings."""
    found = roofline(report)
    with drawing(CANVAS), matplotlib.rc_context(FONTS):
        figure = Figure(figsize=CANVAS.size, dpi=CANVAS.dpi, layout="constrained")
        axes = figure.subplots()
        _frame(axes, found)
        lines = _lines(axes, found)
        for number, dot in enumerate(found.dots):
            _mark(axes, dot, number)
        lay_out(figure, [axes])
        if not _names(axes, found, lines):
            _legend(figure, found)
            lay_out(figure, [axes])
            _names(axes, found, lines, of_dots=False)
    return figure


def _frame(axes: Axes, found: Roofline) -> None:
    """Both axes logarithmic, with room for all dots, for the ridge and for the names of the lines."""
    axes.set(xscale="log", yscale="log", xlabel="FLOP per byte of weights, input and output", ylabel="GFLOP/s")
    across = [dot.intensity for dot in found.dots]
    ridges = [top.rate / under.rate for top in found.products for under in found.bytes_]
    lines = found.products or found.bytes_
    tops = [dot.high for dot in found.dots] + [at(line, min(across)) for line in lines]
    axes.set_xlim(
        min([min(across) / AROUND, *(ridge / BESIDE_RIDGE for ridge in ridges)]),
        max([max(across) * AROUND, *(ridge * BESIDE_RIDGE for ridge in ridges)]),
    )
    low = min(min(dot.low for dot in found.dots) / AROUND, max(tops) / TALL)
    axes.set_ylim(low / GIGA, max(tops) * AROUND / GIGA)
    for axis, (first, last) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if last / first < MANY_DECADES else (1,), numticks=12))
        axis.set_minor_locator(LogLocator(subs="all", numticks=12))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    axes.grid(True, color=pen(0)["color"], alpha=0.1, linewidth=0.4)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _lines(axes: Axes, found: Roofline) -> list[tuple[Ceiling, Line2D]]:
    """Bytes rise up to the highest line of products; products go on from where the fastest bytes reach them."""
    low, high = axes.get_xlim()
    top = max((line.rate for line in found.products), default=axes.get_ylim()[1] * GIGA)
    fastest = max((line.rate for line in found.bytes_), default=0.0)
    drawn = []
    for line in (*found.products, *found.bytes_):
        is_bytes = line.roof.bound is Bound.BYTES
        start = max(low, line.rate / fastest) if fastest and not is_bytes else low
        end = min(high, top / line.rate) if is_bytes else high
        (artist,) = axes.plot(
            [start, end], [at(line, start) / GIGA, at(line, end) / GIGA], "--" if is_bytes else "-",
            color=pen(0)["color"], linewidth=0.9, zorder=1.5, gid=line.roof.name,
        )  # fmt: skip
        drawn.append((line, artist))
    return drawn


def _mark(axes: Axes, dot: Dot, number: int) -> None:
    """The dot, with a white edge where it lies on another one, over the bar of its interval."""
    colour = pen(number % len(COLOURS))["color"]
    axes.plot([dot.intensity] * 2, [dot.low / GIGA, dot.high / GIGA], color=colour, linewidth=1.0, zorder=2)
    axes.plot(
        [dot.intensity], [dot.rate / GIGA], MARKERS[number % len(MARKERS)], color=colour, markersize=MARKER,
        markeredgecolor="white", markeredgewidth=0.4, zorder=3, gid=dot.case.label,
    )  # fmt: skip


# Names: of lines first, then of dots, each where it covers nothing; all in pixels of the figure


def _names(axes: Axes, found: Roofline, lines: list[tuple[Ceiling, Line2D]], *, of_dots: bool = True) -> bool:
    """Name the lines, and the dots where that is wanted; False where a dot's name has no room, and then none has."""
    edge, (x0, y0, x1, y1) = EDGE * axes.figure.dpi / 72, axes.bbox.extents
    inside = Box(x0 + edge, y0 + edge, x1, y1)
    segments = [part for _, artist in lines if (part := inside.part_of(_pixels(axes, artist)))]
    taken = [box for dot in found.dots for box in _covered(axes, dot)]
    named = [_text(axes, _said(line, [other.roof for other, _ in lines])) for line, _ in lines]
    for text, (line, artist) in zip(named, lines, strict=True):
        _name_line(axes, text, line, _pixels(axes, artist), (inside, segments, taken))
    if not of_dots:
        return True
    texts = [_text(axes, literal(dot.case.label)) for dot in found.dots]
    pixel = axes.figure.dpi / 72
    places = None
    if all(len(dot.case.label) <= LONGEST_BESIDE for dot in found.dots):
        labels = [(_at(axes, dot), _size(text)) for dot, text in zip(found.dots, texts, strict=True)]
        places = place(labels, inside=inside, taken=taken, lines=segments, gap=GAP * pixel, step=STEP * pixel)
    for number, text in enumerate(texts):
        if places is None:
            text.remove()
        else:
            _put(axes, text, places[number], number)
    if places is None:
        for text in named:
            text.remove()
    return places is not None


def _pixels(axes: Axes, artist: Line2D) -> Segment:
    (x0, y0), (x1, y1) = axes.transData.transform(artist.get_xydata())
    return (x0, y0), (x1, y1)


def _at(axes: Axes, dot: Dot) -> tuple[float, float]:
    x, y = axes.transData.transform((dot.intensity, dot.rate / GIGA))
    return float(x), float(y)


def _covered(axes: Axes, dot: Dot) -> list[Box]:
    """What a dot and its bar take."""
    half = (MARKER / 2 + 0.5) * axes.figure.dpi / 72
    x, y = _at(axes, dot)
    ends = axes.transData.transform([(dot.intensity, dot.low / GIGA), (dot.intensity, dot.high / GIGA)])[:, 1]
    low, high = map(float, ends)
    return [Box(x - half, y - half, x + half, y + half), Box(x - half / 4, low, x + half / 4, high)]


def _text(axes: Axes, said: str) -> Text:
    """A text to be put somewhere; it takes no part in the layout, which stays as it is."""
    text: Text = axes.text(0, 0, said, fontsize=SMALL, transform=None, zorder=4)
    text.set_path_effects([withStroke(linewidth=1.2, foreground=str(matplotlib.rcParams["axes.facecolor"]))])
    text.set_in_layout(False)
    return text


def _size(text: Text) -> tuple[float, float]:
    found = text.get_window_extent()
    return float(found.width), float(found.height)


def _put(axes: Axes, text: Text, placed: Placed, number: int) -> None:
    """The name at its place, with a thin line to its dot where it stands away."""
    colour = pen(number % len(COLOURS))["color"]
    to_axes = axes.transAxes.inverted()
    _fix(axes, text, (placed.box.x0, placed.box.y0))
    dark = tuple(DARKER * part for part in to_rgb(colour))  # yellow letters can't be read on white
    text.set(color=dark, verticalalignment="bottom", horizontalalignment="left")
    if placed.leader:
        x, y = zip(*(to_axes.transform(end) for end in placed.leader), strict=True)
        axes.plot(x, y, color=colour, linewidth=0.4, alpha=0.8, transform=axes.transAxes, zorder=1.8)


def _fix(axes: Axes, text: Text, pixel: tuple[float, float]) -> None:
    """In shares of the axes, so that it stays there at any resolution."""
    text.set_transform(axes.transAxes)
    x, y = axes.transAxes.inverted().transform(pixel)
    text.set_position((float(x), float(y)))


def _name_line(
    axes: Axes, text: Text, line: Ceiling, whole: Segment, among: tuple[Box, list[Segment], list[Box]]
) -> None:
    """Name a line along itself, at the end and on the side where that covers least.

    `among`: the axes, all lines, and what is taken, which gets what the name takes.
    """
    inside, segments, taken = among
    width, height = _size(text)
    (x0, y0), (x1, y1) = inside.part_of(whole) or whole
    length = hypot(x1 - x0, y1 - y0) or 1.0
    ux, uy = (x1 - x0) / length, (y1 - y0) / length
    off = 1.2 * axes.figure.dpi / 72
    room = length - width - 2 * off
    ends = [off + room * (end if line.roof.bound is Bound.BYTES else 1 - end) for end in ENDS]
    best: tuple[float, list[Box], tuple[float, float]] | None = None
    for rank, (along, above) in enumerate((end, above) for above in (True, False) for end in ends):
        away = off if above else -off - height
        corner = x0 + ux * along - uy * away, y0 + uy * along + ux * away
        boxes = _along(corner, (ux, uy), (width, height))
        cost = rank / 10
        for box in boxes:
            cost += 100 * (not box.within(inside)) + 10 * any(map(box.overlaps, taken))
            cost += any(map(box.crossed_by, segments))
        if best is None or cost < best[0]:
            best = cost, boxes, corner
    assert best is not None
    _fix(axes, text, best[2])
    text.set(rotation=degrees(atan2(uy, ux)), rotation_mode="anchor", verticalalignment="bottom")
    taken += best[1]


def _along(corner: tuple[float, float], direction: tuple[float, float], size: tuple[float, float]) -> list[Box]:
    """Upright boxes that cover a text that runs in a direction from its lower left corner."""
    (x, y), (ux, uy), (width, height) = corner, direction, size
    number = max(1, ceil(width / height))
    found = []
    for k in range(number):
        corners = [
            (x + ux * a - uy * b, y + uy * a + ux * b)
            for a in (width * k / number, width * (k + 1) / number)
            for b in (0, height)
        ]
        across, up = zip(*corners, strict=True)
        found.append(Box(min(across), min(up), max(across), max(up)))
    return found


def _said(line: Ceiling, among: list[Roof]) -> str:
    """`414 GFLOP/s: float32, oneDNN`; of bytes in two rows, for slanted lines are short.

    Threads and the size of what is read are told where they differ among the roofs.
    """
    roof = line.roof
    unit, what, then = ("B/s", roof.level, "\n") if roof.bound is Bound.BYTES else ("FLOP/s", roof.dtype, ", ")
    if sum(other.level == roof.level and other.threads == roof.threads for other in among) > 1 and roof.level:
        what += f", {quantity(read_bytes(roof), IEC)}"
    threads = (
        f"{roof.threads} thread{'s' * (roof.threads > 1)}, " if len({other.threads for other in among}) > 1 else ""
    )
    return then.join(map(literal, (f"{quantity(line.rate, SI)}{unit}: {what}", f"{threads}{roof.path}")))


def _legend(figure: Figure, found: Roofline) -> None:
    """Below the axes, which keep their height: in as many columns as the longest name allows."""
    names = [literal(shortened(dot.case.label, LONGEST_IN_LEGEND)) for dot in found.dots]
    columns = max(1, min(3, len(names), int(LETTERS_ACROSS / (max(map(len, names)) + LETTERS_OF_KEY))))
    rows = ceil(len(names) / columns)
    figure.set_size_inches(WIDTH, HEIGHT + LEGEND_ROW * rows + LEGEND_AROUND)
    keys = [
        Line2D([], [], linestyle="", marker=MARKERS[n % len(MARKERS)], color=pen(n % len(COLOURS))["color"],
               markersize=MARKER, markeredgecolor="white", markeredgewidth=0.4, label=name)
        for n, name in enumerate(names)
    ]  # fmt: skip
    figure.legend(handles=keys, loc="outside lower center", ncols=columns, fontsize=SMALL, frameon=False,
                  borderpad=0, labelspacing=0.25, handletextpad=0.2, columnspacing=1.0, handlelength=1.4)  # fmt: skip
