"""The picture of a comparison, for a paper's column: ratios with intervals beside parameters, FLOPs and memory.

A ratio is a row's time relative to its reference's. Where nothing was timed there are bars alone. What a row came to is
told by its marker as well as by its colour, so that a print in grey tells it too. Rows of one reference stand together.
Texts stay texts in .svg and .pdf.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from ffnbench.metrics import LATENCY, PEAK
from ffnbench.plan import Case, Mode
from ffnbench.report.compare import compare_records
from ffnbench.report.picture import Canvas, drawing, literal, render, shortened
from ffnbench.report.records import Record
from ffnbench.report.summary import workload_line
from ffnbench.report.table import FAILED
from ffnbench.report.words import interval_text, seconds_text
from ffnbench.result import Report, Verdict
from ffnbench.stats.verdict import SAME_WITHIN
from ffnbench.units import IEC, SI, TIME, Units, quantity, scale

WIDTH, DPI = 3.3, 300  # inches: a column of a paper
ROW, AROUND, HEADING = 0.27, 0.95, 0.2  # inches: a row, what titles, axis and legend take, a line above a group
NAME, SMALL = 6.5, 5.5  # points
LINE, LINES = 15, 2  # letters of a label
FARTHEST = 3.0  # how far beyond the ratios the axis shows of a wide interval
SIDE_BY_SIDE = 1.5  # from this ratio on the axis is logarithmic
ALIKE = "#000000"
BAR = "#C9D9E6"
MARKS: dict[Verdict, tuple[str, str, str]] = {  # marker, colour, words; Okabe & Ito's colours
    Verdict.SLOWER: (">", "#D55E00", "slower"),
    Verdict.FASTER: ("<", "#0072B2", "faster"),
    Verdict.SAME: ("o", ALIKE, "same within 2%"),
    Verdict.UNCLEAR: ("o", ALIKE, "can't tell"),
    Verdict.BUSY: ("D", ALIKE, "no verdict (busy)"),
    Verdict.REFERENCE: ("s", ALIKE, "reference"),
}
HOLLOW = (Verdict.UNCLEAR, Verdict.BUSY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Bars of one column of the records."""

    key: str
    title: str
    units: Units


def forest_picture(report: Report, suffix: str) -> bytes:
    """The picture as bytes of that format."""
    figure, canvas = forest_figure(report)
    return render(figure, suffix, canvas, texts=True)


def forest_figure(report: Report) -> tuple[Figure, Canvas]:
    """The ratios on the left where there are any, one narrow panel of bars for each amount that is known."""
    groups: dict[str, list[Case]] = {}
    for case in report.plan.shown:
        groups.setdefault(report.plan.reference_of(case.label), []).append(case)
    places, headings = _places(groups)
    records = {record["label"]: record for record in compare_records(report)}
    compared = any(c.ratio and c.verdict is not Verdict.REFERENCE for c in report.comparisons)
    panels = [panel for panel in _panels(report, compared) if any(record[panel.key] for record in records.values())]
    height = AROUND + ROW * len(places) + HEADING * len(headings)
    canvas = Canvas(size=(WIDTH, height), dpi=DPI, style="default")
    with drawing(canvas):
        figure = Figure(figsize=canvas.size, dpi=DPI, layout="constrained")
        engine: Any = figure.get_layout_engine()
        engine.set(w_pad=0.02, h_pad=0.02, wspace=0.02)
        ratios = [3.4] * compared + [1.0 if compared else 1.6] * len(panels)
        axes: Any = figure.subplots(1, len(ratios), squeeze=False, width_ratios=ratios)[0]
        _frame(axes, places, headings, below=max(places.values()) + 0.6)
        if compared:
            _forest(axes[0], report, places)
        for one, panel in zip(axes[compared:], panels, strict=True):
            _bars(one, panel, records, places)
        if not compared:
            _failures(axes[0], report, places)
        about = "\n".join(map(literal, textwrap.wrap(workload_line(report.plan), 74)))
        figure.suptitle(about, fontsize=SMALL, x=0.01, ha="left")
        figure.draw_without_rendering()
    return figure, canvas


def _places(groups: dict[str, list[Case]]) -> tuple[dict[str, float], dict[float, str]]:
    """Where each row stands from above, in rows; and the lines above groups, where there are several."""
    places: dict[str, float] = {}
    headings: dict[float, str] = {}
    at = 0.0
    for reference, cases in groups.items():
        if len(groups) > 1:
            headings[at] = f"relative to {reference}"
            at += HEADING / ROW
        for case in cases:
            places[case.label] = at
            at += 1
    return places, headings


def _panels(report: Report, compared: bool) -> list[Panel]:
    modes = {case.workload.mode for case in report.plan.shown}
    train = modes != {Mode.FORWARD.value}
    flops = {Mode.TRAIN.value: "\nfwd+bwd", Mode.BACKWARD.value: "\nbwd"}.get(
        next(iter(modes)) if len(modes) == 1 else "", ""
    )
    return [
        *([] if compared else [Panel(key="latency_s", title="latency", units=TIME)]),
        Panel(key="params", title="params", units=SI),
        Panel(key="flops_timed", title=f"FLOPs{flops}\n/token", units=SI),
        Panel(key=PEAK, title="act. +\ngrad.\npeak" if train else "act.\npeak", units=IEC),
        *([] if compared or not train else [Panel(key="saved_bytes", title="saved", units=IEC)]),
    ]


def _frame(axes: Sequence[Axes], places: dict[str, float], headings: dict[float, str], *, below: float) -> None:
    """Rows on the same heights in all panels, named at the first."""
    for number, one in enumerate(axes):
        one.set_ylim(below, -0.75)
        one.set_yticks(list(places.values()), [_label(name) for name in places] if not number else [""] * len(places))
        one.tick_params(axis="y", length=0, labelsize=NAME, pad=2)
        one.tick_params(axis="x", labelsize=SMALL, length=2, pad=1)
        for side in ("top", "right", "left"):
            one.spines[side].set_visible(False)
    for at, text in headings.items():
        axes[0].annotate(
            literal(shortened(text, LINE * LINES)), (0, at), xycoords=("axes fraction", "data"), fontsize=SMALL,
            fontstyle="italic", va="center", annotation_clip=False,
        )  # fmt: skip


def _label(name: str) -> str:
    """In two lines where it is long, broken before an `@` if that can be."""
    if len(name) <= LINE:
        return literal(name)
    lines = textwrap.wrap(name.replace("@", " @"), LINE, break_on_hyphens=False)
    if len(lines) > LINES:
        lines = [*lines[: LINES - 1], shortened("".join(lines[LINES - 1 :]), LINE)]
    return "\n".join(literal(line.replace(" @", "@")) for line in lines)


def _forest(axes: Axes, report: Report, places: dict[str, float]) -> None:
    """Marker and interval of each row, what they come to in words above them."""
    found = {label: c for label in places if (c := report.comparison(label)) and c.ratio}
    seconds = [e.value for label in places if (e := report.estimate(label, LATENCY))]
    unit, size = scale(seconds, TIME)
    low, high = _limits([c.ratio for c in found.values()])
    axes.axvspan(1 - SAME_WITHIN, 1 + SAME_WITHIN, color=ALIKE, alpha=0.08, linewidth=0)
    axes.axvline(1, color=ALIKE, linewidth=0.6)
    for label, at in places.items():
        comparison, failure, latency = found.get(label), report.failure(label), report.estimate(label, LATENCY)
        said = [f"failed: {FAILED.get(failure.kind, failure.kind.value)}"] if failure else []
        if comparison and comparison.ratio and not failure:
            _mark(axes, at, comparison.verdict, comparison.ratio, (low, high))
            reference = comparison.verdict is Verdict.REFERENCE
            said.append("reference" if reference else interval_text(comparison.ratio))
        if latency is not None:
            said.append(f"{seconds_text(latency, size).partition(' ')[0]} {unit}")
        _say(axes, ",  ".join(said), at, failed=failure is not None)
    _scale(axes, low, high)
    references = {report.plan.reference_of(label) for label in places}
    to = shortened(references.pop(), LINE) if len(references) == 1 else "the reference"
    axes.set_xlabel(literal(f"time relative to {to} [95%]"), fontsize=SMALL, labelpad=1)
    _legend(axes, list(dict.fromkeys(c.verdict for c in found.values())))


def _say(axes: Axes, text: str, at: float, *, failed: bool = False) -> None:
    """Above the marker; the panel is made wide enough for it."""
    said = axes.annotate(
        text, (0.0, at - (0 if failed else 0.34)), xycoords=("axes fraction", "data"), fontsize=SMALL, va="center",
        annotation_clip=False, color=MARKS[Verdict.SLOWER][1] if failed else ALIKE,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4},
    )  # fmt: skip
    said.set_in_layout(False)


def _mark(axes: Axes, at: float, verdict: Verdict, ratio: Any, limits: tuple[float, float]) -> None:
    """Where the interval leaves the panel it ends in an arrow."""
    marker, colour, _ = MARKS[verdict]
    low, high = ratio.low or ratio.value, ratio.high or ratio.value
    ends = max(low, limits[0]), min(high, limits[1])
    at += 0.1
    axes.plot(ends, [at, at], color=colour, linewidth=1.1, solid_capstyle="butt")
    for end, shown, arrow in ((low, ends[0], "<"), (high, ends[1], ">")):
        if end != shown:
            axes.plot([shown], [at], marker=arrow, color=colour, markersize=2.5, clip_on=False)
    face = "white" if verdict in HOLLOW else colour
    axes.plot([ratio.value], [at], marker, color=colour, markersize=3.6, markerfacecolor=face, markeredgewidth=0.8)


def _limits(ratios: Sequence[Any]) -> tuple[float, float]:
    """All ratios with the band of the same, and of their intervals what is not FARTHEST away."""
    values = [1 - 2 * SAME_WITHIN, 1 + 2 * SAME_WITHIN, *(ratio.value for ratio in ratios)]
    low, high = min(values), max(values)
    lows, highs = ([getattr(ratio, end) for ratio in ratios if getattr(ratio, end)] for end in ("low", "high"))
    return max(min([low, *lows]), low / FARTHEST), min(max([high, *highs]), high * FARTHEST)


def _scale(axes: Axes, low: float, high: float) -> None:
    if high / low > SIDE_BY_SIDE:
        axes.set_xscale("log")
        axes.set_xlim(low / 1.06, high * 1.06)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_minor_formatter(NullFormatter())
        wide = high / low > 20
        axes.xaxis.set_major_locator(LogLocator(subs=(1,) if wide else (1, 1.5, 2, 3, 5, 7), numticks=6))
    else:
        room = 0.05 * (high - low)
        axes.set_xlim(low - room, high + room)
        axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _legend(axes: Axes, verdicts: Sequence[Verdict]) -> None:
    """The markers that are there, below the axis."""
    handles = [
        Line2D(
            [], [], linestyle="", marker=marker, color=colour, markersize=3.4, label=words,
            markerfacecolor="white" if verdict in HOLLOW else colour, markeredgewidth=0.8,
        )
        for verdict, (marker, colour, words) in MARKS.items()
        if verdict in verdicts and verdict is not Verdict.REFERENCE
    ]  # fmt: skip
    figure: Any = axes.figure
    figure.legend(
        handles=handles, loc="outside lower left", ncols=4, fontsize=SMALL, frameon=False, handletextpad=0.2,
        columnspacing=1.0, borderpad=0.1,
    )  # fmt: skip


def _bars(axes: Axes, panel: Panel, records: dict[str, Record], places: dict[str, float]) -> None:
    """Bars from zero with their numbers; what is not known has none."""
    values = {label: records[label][panel.key] for label in places}
    most = max(value for value in values.values() if value)
    for label, at in places.items():
        value = values[label]
        if value:
            axes.barh([at], [value / most], height=0.62, color=BAR, linewidth=0)
        text = quantity(value, panel.units) if value is not None else "–"
        axes.annotate(text, (0.03, at), fontsize=SMALL, va="center", annotation_clip=False)
    axes.set_xlim(0, 1.02)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.axvline(0, color=ALIKE, linewidth=0.6)
    axes.set_title(panel.title, fontsize=SMALL, loc="left", pad=2)


def _failures(axes: Axes, report: Report, places: dict[str, float]) -> None:
    """Where nothing was timed a failure is told beside the name of its row."""
    labels = []
    for label in places:
        failure = report.failure(label)
        labels.append(_label(label) + (f"\nfailed: {FAILED.get(failure.kind, failure.kind.value)}" if failure else ""))
    axes.set_yticks(list(places.values()), labels)
