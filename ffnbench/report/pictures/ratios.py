"""The picture of measured cases, for a paper's column: ratios with intervals beside parameters, FLOPs and memory.

A ratio is a row's time relative to its reference's. Where nothing was timed there are bars alone. What a row came to is
told by its marker as well as by its colour, so that a print in grey tells it too. Rows of one reference stand together.
Texts stay texts in .svg and .pdf.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from ffnbench.metrics import LATENCY, PEAK
from ffnbench.plan import Kind, Mode
from ffnbench.report.csv_columns import case_records
from ffnbench.report.pictures.canvas import BLACK, drawing, literal, shortened
from ffnbench.report.tables.details import workload_line
from ffnbench.report.tables.words import CERTAIN, FAILED, WITHIN, interval_text, seconds_text
from ffnbench.result import Estimate, Report, Verdict
from ffnbench.stats.verdict import SAME_WITHIN
from ffnbench.units import IEC, SI, TIME, Units, quantity, scale

WIDTH, DPI = 3.3, 300  # inches: a column of a paper
ROW, AROUND, HEADING = 0.27, 0.95, 0.2  # inches: a row, what titles, axis and legend take, a line above a group
NAME, SMALL = 6.5, 5.5  # points
LINE, LINES, HEAD = 15, 2, 60  # letters of a label, and of a line above a group that has the whole width
FARTHEST = 3.0  # how far beyond the ratios the axis shows of a wide interval
SIDE_BY_SIDE = 1.5  # from this ratio on the axis is logarithmic
BAR = "#C9D9E6"
LOOK = {"axes.grid": False, "axes.spines.left": False, "figure.constrained_layout.w_pad": 0.02,
        "figure.constrained_layout.h_pad": 0.02}  # fmt: skip
MARKS: dict[Verdict, tuple[str, str, str]] = {  # marker, colour, words; Okabe & Ito's colours
    Verdict.SLOWER: (">", "#D55E00", "slower"),
    Verdict.FASTER: ("<", "#0072B2", "faster"),
    Verdict.SAME: ("o", BLACK, f"same within {WITHIN}"),
    Verdict.UNCLEAR: ("o", BLACK, "can't tell"),
    Verdict.BUSY: ("D", BLACK, "no verdict (busy)"),
    Verdict.REFERENCE: ("s", BLACK, "reference"),
}
HOLLOW = (Verdict.UNCLEAR, Verdict.BUSY)
Panels = dict[str, tuple[str, Units]]  # bars by column of the rows: title, units


def ratio_figure(report: Report) -> Figure:
    """The ratios on the left where there are any, one narrow panel of bars for each amount that is known."""
    places, headings = _places(report)
    compared = any(c.ratio and c.verdict is not Verdict.REFERENCE for c in report.comparisons)
    operations = report.plan.kind == Kind.ACTIVATIONS.value
    panels = {} if operations else _panels(report, compared)
    amounts = {record["label"]: record for record in case_records(report, ["label", *panels])}
    panels = {key: panel for key, panel in panels.items() if any(record[key] for record in amounts.values())}
    size = WIDTH, AROUND + ROW * len(places) + HEADING * len(headings)
    with drawing(**LOOK):
        figure = Figure(figsize=size, dpi=DPI, layout="constrained")
        compared = compared or not panels
        widths = [3.4] * compared + [1.0 if compared else 1.6] * len(panels)
        axes: Any = figure.subplots(1, len(widths), squeeze=False, width_ratios=widths)[0]
        _frame(axes, report, places, headings)
        if compared:
            _ratios(axes[0], report, places)
        for one, (key, (title, units)) in zip(axes[compared:], panels.items(), strict=True):
            _bars(one, {label: amounts[label][key] for label in places}, places, title, units)
        about = textwrap.wrap("activations by themselves" if operations else workload_line(report.plan), 74)
        figure.suptitle("\n".join(map(literal, about)), fontsize=SMALL, x=0.01, ha="left")
        figure.draw_without_rendering()
    return figure


def _places(report: Report) -> tuple[dict[str, float], dict[float, str]]:
    """Where each row stands from above, in rows; and the lines above groups, where there are several."""
    places: dict[str, float] = {}
    headings: dict[float, str] = {}
    at = 0.0
    for group in report.plan.groups:
        if len(report.plan.groups) > 1:
            headings[at] = f"relative to {group.reference}"
            at += HEADING / ROW
        for case in group.cases:
            places[case.label] = at
            at += 1
    return places, headings


def _panels(report: Report, compared: bool) -> Panels:
    modes = {case.workload.mode for case in report.plan.shown}
    train = modes != {Mode.FORWARD.value}
    passes = {Mode.TRAIN.value: "\nfwd+bwd", Mode.BACKWARD.value: "\nbwd"}
    which = passes.get(next(iter(modes)), "") if len(modes) == 1 else ""
    panels: Panels = {} if compared else {"latency_s": ("latency", TIME)}
    panels |= {
        "params": ("params", SI),
        "flops_timed": (f"FLOPs{which}\n/token", SI),
        PEAK: ("act. +\ngrad.\npeak" if train else "act.\npeak", IEC),
    }
    return panels


def _frame(axes: Sequence[Axes], report: Report, places: dict[str, float], headings: dict[float, str]) -> None:
    """Rows on the same heights in all panels, named at the first."""
    names = [_name(report, label) for label in places]
    for number, one in enumerate(axes):
        one.set_ylim(max(places.values()) + 0.6, -0.75)
        one.set_yticks(list(places.values()), names if not number else [""] * len(places))
        one.tick_params(axis="y", length=0, labelsize=NAME, pad=2)
        one.tick_params(axis="x", labelsize=SMALL, length=2, pad=1)
    for at, text in headings.items():
        axes[0].annotate(
            literal(shortened(text, HEAD if len(axes) == 1 else LINE * LINES)), (0, at), fontsize=SMALL,
            xycoords=("axes fraction", "data"), fontstyle="italic", va="center", annotation_clip=False,
        )  # fmt: skip


def _name(report: Report, label: str) -> str:
    """A label of at most so many lines, folded at its keys."""
    name = report.plan.case(label).variant if report.plan.kind == Kind.ACTIVATIONS.value else label
    if len(name) <= LINE:
        return literal(name)
    folded = name.replace("@", " @")
    lines = textwrap.wrap(folded, LINE, break_on_hyphens=False, max_lines=LINES, placeholder="…")
    return "\n".join(literal(line.replace(" @", "@")) for line in lines)


def _ratios(axes: Axes, report: Report, places: dict[str, float]) -> None:
    """Marker and interval of each row, what they come to in words above them."""
    found = {label: c for label in places if (c := report.comparison(label)) and c.ratio}
    unit, size = scale([e.value for label in places if (e := report.estimate(label, LATENCY))], TIME)
    axes.axvspan(1 - SAME_WITHIN, 1 + SAME_WITHIN, color=BLACK, alpha=0.08, linewidth=0)
    axes.axvline(1, color=BLACK, linewidth=0.6)
    for label, at in places.items():
        comparison, failure, latency = found.get(label), report.failure(label), report.estimate(label, LATENCY)
        said = [f"failed: {FAILED.get(failure.kind, failure.kind.value)}"] if failure else []
        if comparison and comparison.ratio and not failure:
            ends = comparison.ratio.low, comparison.ratio.high
            if None not in ends:
                axes.plot(
                    ends, [at + 0.1] * 2, color=MARKS[comparison.verdict][1], linewidth=1.1, solid_capstyle="butt"
                )
            axes.plot([comparison.ratio.value], [at + 0.1], **_marker(comparison.verdict))
            reference = comparison.verdict is Verdict.REFERENCE
            said.append("reference" if reference else interval_text(comparison.ratio))
        if latency is not None:
            said.append(f"{seconds_text(latency, size)} {unit}")
        text = axes.annotate(
            ",  ".join(said), (0.0, at - (0 if failure else 0.34)), xycoords=("axes fraction", "data"), fontsize=SMALL,
            va="center", annotation_clip=False, color=MARKS[Verdict.SLOWER][1] if failure else BLACK,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4},
        )  # fmt: skip
        text.set_in_layout(False)  # the panel is made wide enough for it
    _scale(axes, *_limits([c.ratio for c in found.values() if c.ratio]))
    references = {report.plan.reference_of(label) for label in places}
    to = shortened(references.pop(), LINE) if len(references) == 1 else "the reference"
    axes.set_xlabel(literal(f"time relative to {to} {CERTAIN}"), fontsize=SMALL, labelpad=1)
    told = {c.verdict for c in found.values()} - {Verdict.REFERENCE}
    handles = [Line2D([], [], label=words, **_marker(one)) for one, (_, _, words) in MARKS.items() if one in told]
    figure: Any = axes.figure
    figure.legend(handles=handles, loc="outside lower left", ncols=4, fontsize=SMALL,
                  handletextpad=0.2, columnspacing=1.0, borderpad=0.1)  # fmt: skip


def _marker(verdict: Verdict) -> dict[str, Any]:
    """How a line of one point looks that tells a verdict."""
    marker, colour, _ = MARKS[verdict]
    face = "white" if verdict in HOLLOW else colour
    return {"marker": marker, "color": colour, "linestyle": "", "markersize": 3.6, "markerfacecolor": face,
            "markeredgewidth": 0.8}  # fmt: skip


def _limits(ratios: Sequence[Estimate]) -> tuple[float, float]:
    """All ratios with the band of the same, and of their intervals what is not FARTHEST away."""
    values = [1 - 2 * SAME_WITHIN, 1 + 2 * SAME_WITHIN, *(ratio.value for ratio in ratios)]
    low, high = min(values), max(values)
    lows, highs = [r.low for r in ratios if r.low], [r.high for r in ratios if r.high]
    return max(min([low, *lows]), low / FARTHEST), min(max([high, *highs]), high * FARTHEST)


def _scale(axes: Axes, low: float, high: float) -> None:
    if high / low > SIDE_BY_SIDE:
        axes.set_xscale("log")
        axes.set_xlim(low / 1.06, high * 1.06)
        axes.xaxis.set_minor_locator(NullLocator())
        wide = high / low > 20
        axes.xaxis.set_major_locator(LogLocator(subs=(1,) if wide else (1, 1.5, 2, 3, 5, 7), numticks=6))
    else:
        room = 0.05 * (high - low)
        axes.set_xlim(low - room, high + room)
        axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _bars(axes: Axes, values: dict[str, float | None], places: dict[str, float], title: str, units: Units) -> None:
    """Bars from zero with their numbers; what is not known has none."""
    most = max(value for value in values.values() if value)
    for label, value in values.items():
        if value:
            axes.barh([places[label]], [value / most], height=0.62, color=BAR, linewidth=0)
        text = quantity(value, units) if value is not None else "–"
        axes.annotate(text, (0.03, places[label]), fontsize=SMALL, va="center", annotation_clip=False)
    axes.set_xlim(0, 1.02)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.axvline(0, color=BLACK, linewidth=0.6)
    axes.set_title(title, fontsize=SMALL, loc="left", pad=2)
