"""The roofline: FLOP/s of each case over its FLOPs per byte, under the ceilings that its own run measured.

Sized for one column of a paper. A case is told by colour and shape both, and named in the legend. (Williams, Waterman,
Patterson 2009 introduced the form.)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import atan2, ceil, degrees, inf
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import LogLocator, NullFormatter
from matplotlib.transforms import offset_copy

from ffnbench.common.errors import FfnbenchError
from ffnbench.common.streams import visible
from ffnbench.common.units import IEC, SI, quantity
from ffnbench.metrics import LATENCY
from ffnbench.plan import Case, needed_by
from ffnbench.report.columns import case_rows
from ffnbench.report.header import workload_line
from ffnbench.report.notes import no_ceilings
from ffnbench.report.pictures.canvas import BLACK, drawing, ended, legend_below, literal, pens, shortened, write_numbers
from ffnbench.report.words import BUSY, verdict_word
from ffnbench.result import Bound, Ceiling, Report, Roof

WIDTH, HEIGHT = 3.4, 2.7  # inches: a column of a paper, and the axes with what stands around them
LEGEND_ROW, LEGEND_AROUND = 0.115, 0.05
DPI = 300
FONTS = {"font.size": 7, "xtick.labelsize": 6.5, "ytick.labelsize": 6.5, "axes.labelsize": 7, "axes.linewidth": 0.6}
SMALL = 6.0  # points: the least letters
MARKER, GAP = 4.2, 1.2  # points: across a dot, between a line and its name
HALO = [withStroke(linewidth=1.4, foreground="white")]  # where a name and another line cross
LONGEST, LETTERS_ACROSS, LETTERS_OF_KEY = 64, 72, 4  # letters of a name, of a row of the legend, beside each name there
ALIKE = 0.1  # lines that are no farther apart are one
GIGA = 1e9
# factors: room on all sides, and across a single dot; beyond a ridge, and how far from the dots it is shown; the least
# height of the axes; from when on every decade has one number only
AROUND, ACROSS, BESIDE_RIDGE, NEAR, TALL, MANY_DECADES = 1.9, 3.0, 3.0, 20.0, 4.0, 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """A case: FLOPs per byte, and FLOPs per second with their interval."""

    case: Case
    intensity: float
    rate: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """Cases in the plan's order; the ceilings of their products and of their bytes, each the fastest first."""

    dots: tuple[Dot, ...]
    products: tuple[Ceiling, ...]
    bytes_: tuple[Ceiling, ...]


def roofline(report: Report) -> Roofline:
    """What is to be drawn; raises FfnbenchError where the run has no ceilings, or no case that was timed.

    Bytes are those that hold a case back; where they hold none, the slowest, to show how far away that is.
    """
    if not report.roofs:
        raise no_ceilings()
    dots = tuple(dot for case in report.plan.shown if (dot := _dot(report, case)))
    if not dots:
        raise FfnbenchError("no case of this run has a latency and a number of FLOPs", "the table says why")
    found = report.figures.ceilings
    if not any({Bound.PRODUCTS, Bound.BYTES} & bounds.keys() for bounds in found.values()):
        raise FfnbenchError(
            "other work disturbed every ceiling of this run", "measure again while the machine is quiet"
        )
    drawn = [dot.case.label for dot in dots]
    reading = {label: found[label][Bound.BYTES] for label in drawn if Bound.BYTES in found.get(label, {})}
    held = [line for label, line in reading.items() if (share := report.share(label)) and share.bound is Bound.BYTES]
    return Roofline(
        dots=dots,
        products=_apart(found[label][Bound.PRODUCTS] for label in drawn if Bound.PRODUCTS in found.get(label, {})),
        bytes_=_apart(held or sorted(reading.values(), key=lambda line: line.rate)[:1]),
    )


def _dot(report: Report, case: Case) -> Dot | None:
    """None for a case that failed or was not timed, or whose FLOPs nobody knows."""
    latency, needed = report.estimate(case.label, LATENCY), needed_by(case, report.cost(case.label))
    if latency is None or report.failure(case.label) or not needed.flops:
        return None
    rate, low, high = (needed.flops / (s or latency.value) for s in (latency.value, latency.high, latency.low))
    return Dot(case=case, intensity=needed.flops / needed.bytes, rate=rate, low=low, high=high)


def _apart(lines: Iterable[Ceiling]) -> tuple[Ceiling, ...]:
    """The fastest first, without those that would lie on a faster one of the same kind."""

    def kind(roof: Roof) -> tuple[str, int, str]:
        return roof.level, roof.threads, roof.dtype if roof.bound is Bound.PRODUCTS else ""

    kept: list[Ceiling] = []
    for line in sorted(lines, key=lambda line: -line.rate):
        alike = (other for other in kept if kind(other.roof) == kind(line.roof))
        if all(line.rate < (1 - ALIKE) * other.rate for other in alike):
            kept.append(line)
    return tuple(kept)


def roofline_figure(report: Report) -> Figure:
    """The cases under their ceilings, of busy ones the names; raises FfnbenchError where the run has no ceilings."""
    found = roofline(report)
    with drawing(**FONTS):
        figure = Figure(dpi=DPI, layout="constrained")
        axes = figure.subplots()
        _frame(axes, found)
        _lines(axes, found)
        names = [shortened(dot.case.label, LONGEST) for dot in found.dots]
        looks = pens(dot.case.label for dot in found.dots)
        for dot, name, look in zip(found.dots, names, looks, strict=True):
            x, y = dot.intensity, dot.rate / GIGA
            axes.plot([x, x], [dot.low / GIGA, dot.high / GIGA], color=look["color"], linewidth=0.9, zorder=2)
            axes.plot(
                [x], [y], linestyle="", markersize=MARKER, markeredgewidth=0.8, zorder=3, gid=visible(dot.case.label),
                label=literal(name), **look,
            )  # fmt: skip
        for row in case_rows(report):
            if verdict_word(row) == BUSY:
                names.append(f"{shortened(row['label'], LONGEST)} (busy)")
                axes.plot([], [], linestyle="", label=literal(names[-1]))
        columns = max(1, min(3, len(names), LETTERS_ACROSS // (max(map(len, names)) + LETTERS_OF_KEY)))
        figure.set_size_inches(WIDTH, HEIGHT + LEGEND_ROW * ceil(len(names) / columns) + LEGEND_AROUND)
        legend_below(figure, columns, side="center", borderpad=0, handlelength=1.4, fontsize=SMALL)
        if said := ended(report):
            figure.suptitle(workload_line(report.plan) + said, fontsize=SMALL)
    return figure


def _at(line: Ceiling, intensity: float) -> float:
    """The most FLOPs per second that a ceiling allows a case of this intensity."""
    return line.rate * intensity if line.roof.bound is Bound.BYTES else line.rate


def _frame(axes: Axes, found: Roofline) -> None:
    """Both axes logarithmic, around the dots: with the ridges that are near, and with the ceilings above the dots."""
    axes.set(xscale="log", yscale="log", xlabel="FLOP per byte of weights, input and output", ylabel="GFLOP/s")
    across = [dot.intensity for dot in found.dots]
    first, last = min(across), max(across)
    ridges = [top.rate / under.rate for top in found.products for under in found.bytes_]
    near = [ridge for ridge in ridges if first / NEAR < ridge < last * NEAR]
    axes.set_xlim(
        min([first / ACROSS, *(ridge / BESIDE_RIDGE for ridge in near)]),
        max([last * ACROSS, *(ridge * BESIDE_RIDGE for ridge in near)]),
    )
    tops = [*(dot.high for dot in found.dots), *(_at(line, end) for line, _, end in _in_sight(found, *axes.get_xlim()))]
    axes.set_ylim(min(min(dot.low for dot in found.dots) / AROUND, max(tops) / TALL) / GIGA, max(tops) * AROUND / GIGA)
    for axis, (first, last) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if last / first < MANY_DECADES else (1,), numticks=12))
        axis.set_minor_locator(LogLocator(subs="all", numticks=12))
        write_numbers(axis)
        axis.set_minor_formatter(NullFormatter())


def _in_sight(found: Roofline, low: float, high: float) -> list[tuple[Ceiling, float, float]]:
    """The ceilings with their ends: bytes rise up to the highest products, which go on from there."""
    top = max((line.rate for line in found.products), default=inf)
    fastest = max((line.rate for line in found.bytes_), default=inf)
    spans = [(line, max(low, line.rate / fastest), high) for line in found.products]
    spans += [(line, low, min(high, top / line.rate)) for line in found.bytes_]
    return [(line, start, end) for line, start, end in spans if start < end]


def _lines(axes: Axes, found: Roofline) -> None:
    """Each is named along itself: the fastest above its line, the others below theirs."""
    figure: Any = axes.figure
    lines = _in_sight(found, *axes.get_xlim())
    for line, start, end in lines:
        is_bytes = line.roof.bound is Bound.BYTES
        axes.plot(
            [start, end], [_at(line, start) / GIGA, _at(line, end) / GIGA], "--" if is_bytes else "-",
            color=BLACK, linewidth=0.9, zorder=1.5, gid=line.roof.name,
        )  # fmt: skip
        middle = (start * end) ** 0.5 if is_bytes else end
        height, first = _at(line, middle) / GIGA, line in (*found.products[:1], *found.bytes_[:1])
        text = axes.text(
            middle, height, _said(line, [other.roof for other, _, _ in lines]), fontsize=SMALL,
            ha="center" if is_bytes else "right", va="bottom" if first else "top",
            rotation=degrees(atan2(height, middle)) if is_bytes else 0,
            rotation_mode="anchor", transform_rotates_text=True, path_effects=HALO,
            transform=offset_copy(axes.transData, figure, y=GAP if first else -GAP, units="points"),
        )  # fmt: skip
        text.set_in_layout(False)


def _said(line: Ceiling, among: list[Roof]) -> str:
    """`414 GFLOP/s: float32, oneDNN`; of bytes in two rows, for slanted lines are short.

    The size of what is read is told where it differs among the roofs.
    """
    roof = line.roof
    unit, what, then = ("B/s", roof.level, "\n") if roof.bound is Bound.BYTES else ("FLOP/s", roof.dtype, ", ")
    if roof.level and sum(other.level == roof.level for other in among) > 1:
        what += f", {quantity(roof.read_bytes, IEC)}"
    return then.join(map(literal, (f"{quantity(line.rate, SI)}{unit}: {what}", roof.path)))
