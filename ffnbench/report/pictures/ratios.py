"""The picture of measured cases, for a paper's column: ratios with intervals beside parameters, FLOPs and memory.

A ratio is a row's time relative to its reference's, in figures below its name; a row that has none says why there.
Where nothing was timed there are bars alone, and a row that failed says so below its name. What a row came to is told
by its marker as well as by its colour, so that a print in grey tells it too. Rows of one reference stand together.
Texts stay texts in .svg and .pdf.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ffnbench.common.errors import FfnbenchError
from ffnbench.common.streams import visible
from ffnbench.common.units import SI
from ffnbench.metrics import ERROR, LATENCY, PEAK
from ffnbench.plan import Kind
from ffnbench.report.columns import case_rows, column
from ffnbench.report.frame import Frame, Row, ShownColumn, estimate_in
from ffnbench.report.header import conditions_line, heading
from ffnbench.report.pictures.canvas import (
    BLACK,
    SMALL,
    drawing,
    ended,
    legend_below,
    lines_above,
    literal,
    scale_axis,
    shortened,
    write_numbers,
)
from ffnbench.report.words import (
    CERTAIN,
    VERDICTS,
    WITHIN,
    interval_text,
    verdict_word,
)
from ffnbench.result import Estimate, Report, Verdict
from ffnbench.stats.verdict import SAME_WITHIN

WIDTH, DPI = 3.3, 300  # inches: a column of a paper
ROW, FOLDED = 0.27, 0.36  # inches: a row, and one whose name may be folded
AROUND, HEADING = 0.85, 0.2  # inches: what titles, axis and legend take, a line above a group
NAME = 6.5  # points
LINE, LINES, HEAD = 15, 2, 60  # letters of a label, and of a line above a group that has the whole width
UP, DOWN = 0.18, 0.28  # of a row: from its middle to its name, and to its figures
FARTHEST = 3.0  # how far beyond the ratios the axis shows of a wide interval
NUMBER, ALONE = 1.2, 0.55  # the room of a bar's number, in longest bars: beside ratios, and where there are none
BAR, BAND = "#A9C4DA", "0.92"
BEFORE: dict[str, Any] = {  # how a text stands that ends at a place
    "xytext": (-2, 0), "textcoords": "offset points", "fontsize": SMALL, "va": "center", "ha": "right",
    "annotation_clip": False,
}  # fmt: skip
LOOK = {"axes.grid": False, "axes.spines.left": False, "figure.constrained_layout.w_pad": 0.02,
        "figure.constrained_layout.h_pad": 0.02}  # fmt: skip
MARKS: dict[Verdict, tuple[str, str]] = {  # marker, colour: Okabe & Ito's
    Verdict.SLOWER: (">", "#D55E00"),
    Verdict.FASTER: ("<", "#0072B2"),
    Verdict.SAME: ("o", BLACK),
    Verdict.UNCLEAR: ("o", BLACK),
    Verdict.REFERENCE: ("s", BLACK),
}
PANELS = (  # bars
    column("latency_s", text=None), column("params", units=SI), column("flops_timed"), column(PEAK), column(ERROR),
)  # fmt: skip


def ratio_figure(report: Report) -> Figure:
    """The ratios on the left where there are any, one narrow panel of bars for each amount that is known.

    Raises FfnbenchError where nothing was timed and no amount is known.
    """
    places, headings = _places(report)
    names = [_name(report, label) for label in places]
    operations = report.plan.kind == Kind.ACTIVATIONS
    by_label = {row["label"]: row for row in case_rows(report)}
    rows = [by_label[label] for label in places]
    timed = LATENCY in report.plan.metrics
    bars = [one for one in PANELS if any(row[one.key] for row in rows)]
    if operations:
        bars = [one for one in bars if one.key == "latency_s"]
    if timed or ERROR not in report.plan.metrics:
        bars = [one for one in bars if one.key != ERROR]
    if not timed and not bars:
        raise FfnbenchError(
            "there is nothing to draw: no row has a number", "the table says why: leave the picture out"
        )
    others = any(row["verdict"] != Verdict.REFERENCE for row in rows)
    compared = bool(others and report.environment and timed) or not bars
    words = dict(zip(places.values(), map(verdict_word, rows), strict=True))
    failed = {} if timed else {at: word for at, word in words.items() if word}
    row = FOLDED if any("\n" in name for name in names) else ROW
    size = WIDTH, AROUND + row * len(places) + HEADING * len(headings)
    with drawing(**LOOK):
        figure = Figure(figsize=size, dpi=DPI, layout="constrained")
        widths = [*([2.6] if compared else []), *[1.0 for _ in bars]]
        axes: Any = figure.subplots(1, len(widths), squeeze=False, width_ratios=widths)[0]
        up = UP if compared or failed else 0.0
        _frame(axes, {at - up: name for at, name in zip(places.values(), names, strict=True)}, headings)
        _below_names(axes[0], failed)
        if compared:
            _ratios(axes[0], report, rows, list(places.values()))
        shown = Frame(columns=tuple(bars), rows=rows).shown()
        for one, of_bars in zip(axes[-len(bars) :], shown, strict=False):
            _bars(one, of_bars, rows, list(places.values()), NUMBER if report.comparisons else ALONE)
        lines_above(figure, about(report), 74)
        figure.draw_without_rendering()
    return figure


def about(report: Report) -> str:
    """What a picture is of, above it."""
    operations = report.plan.kind == Kind.ACTIVATIONS
    return ("activations by themselves" if operations else conditions_line(report.plan)) + ended(report)


def _places(report: Report) -> tuple[dict[str, float], dict[float, str]]:
    """Where each row stands from above, in rows; and the lines above groups, where there are several."""
    places: dict[str, float] = {}
    headings: dict[float, str] = {}
    at = 0.0
    for group in report.plan.groups:
        if len(report.plan.groups) > 1:
            headings[at] = heading(group) or f"relative to {group.reference}"
            at += HEADING / ROW
        for case in group.cases:
            places[case.label] = at
            at += 1
    return places, headings


def _frame(axes: Sequence[Axes], names: dict[float, str], headings: dict[float, str]) -> None:
    """Rows on the same heights in all panels, named at the first."""
    for number, one in enumerate(axes):
        one.set_ylim(max(names) + 0.7, -0.6)
        one.set_yticks(list(names), [""] * len(names) if number else names.values())
        one.tick_params(axis="y", which="both", length=0, labelsize=NAME, pad=2)
        one.tick_params(axis="x", labelsize=SMALL, length=2, pad=1)
    for at, text in headings.items():
        axes[0].annotate(
            literal(shortened(text, HEAD if len(axes) == 1 else LINE * LINES)), (0, at),
            xycoords=("axes fraction", "data"), fontstyle="italic", **BEFORE,
        )  # fmt: skip


def _name(report: Report, label: str) -> str:
    """A label of at most so many lines, folded at its keys."""
    operations = report.plan.kind == Kind.ACTIVATIONS
    name = report.plan.case(label).variant if operations else report.plan.name_of(label)
    if len(name) <= LINE:
        return literal(name)
    folded = shortened(name, LINE * LINES - 3).replace("@", " @")
    lines = textwrap.wrap(folded, LINE, break_on_hyphens=False, max_lines=LINES, placeholder="…")
    return "\n".join(literal(line.replace(" @", "@")) for line in lines)


def _below_names(axes: Axes, words: dict[float, str]) -> None:
    """What is said of rows, by their places."""
    axes.set_yticks([at + DOWN for at in words], list(words.values()), minor=True)
    axes.tick_params(axis="y", which="minor", labelsize=SMALL)


def _ratios(axes: Axes, report: Report, rows: Sequence[Row], places: Sequence[float]) -> None:
    """Marker and interval of each row that has them; in figures, or why it has none, below its name."""
    band = axes.axvspan(1 - SAME_WITHIN, 1 + SAME_WITHIN, color=BAND, linewidth=0, label=f"same: within {WITHIN}")
    axes.axvline(1, color=BLACK, linewidth=0.6)
    ratios: list[Estimate] = []
    said, verdicts = {}, set()
    for row, at in zip(rows, places, strict=True):
        ratio, verdict = estimate_in(row, "ratio"), row["verdict"] and Verdict(row["verdict"])
        said[at] = verdict_word(row) or ""
        if ratio is None or verdict not in MARKS or row["failure"]:
            continue
        if verdict is not Verdict.REFERENCE:
            said[at] = interval_text(ratio)
        if ratio.low is not None and ratio.high is not None:
            axes.plot([ratio.low, ratio.high], [at] * 2, color=MARKS[verdict][1], linewidth=1.1, solid_capstyle="butt")
        axes.plot([ratio.value], [at], clip_on=False, gid=visible(row["label"]), **_marker(verdict))
        ratios.append(ratio)
        verdicts.add(verdict)
    _below_names(axes, said)
    scale_axis(axes.xaxis, *_limits(ratios), room=0.05, most=3)
    write_numbers(axes.xaxis)
    references = {report.plan.name_of(report.plan.reference_of(row["label"])) for row in rows}
    to = shortened(references.pop(), LINE) if len(references) == 1 else "the reference"
    axes.set_xlabel(literal(f"time vs {to} {CERTAIN}"), fontsize=SMALL, labelpad=1)
    told = [verdict for verdict in MARKS if verdict in verdicts and verdict is not Verdict.REFERENCE]
    handles = [Line2D([], [], label=VERDICTS[verdict], **_marker(verdict)) for verdict in told]
    figure: Any = axes.figure
    legend_below(figure, 5, handles=[*handles, band], handlelength=1.2)


def _marker(verdict: Verdict) -> dict[str, Any]:
    """How a line of one point looks that tells a verdict."""
    marker, colour = MARKS[verdict]
    face = "white" if verdict is Verdict.UNCLEAR else colour
    return {"marker": marker, "color": colour, "linestyle": "", "markersize": 3.6, "markerfacecolor": face,
            "markeredgewidth": 0.8}  # fmt: skip


def _limits(ratios: Sequence[Estimate]) -> tuple[float, float]:
    """All ratios with the band of the same, and of their intervals what is not FARTHEST away."""
    values = [1 - 2 * SAME_WITHIN, 1 + 2 * SAME_WITHIN, *(ratio.value for ratio in ratios)]
    low, high = min(values), max(values)
    lows, highs = [r.low for r in ratios if r.low], [r.high for r in ratios if r.high]
    return max(min([low, *lows]), low / FARTHEST), min(max([high, *highs]), high * FARTHEST)


def _bars(axes: Axes, shown: ShownColumn, rows: Sequence[Row], places: Sequence[float], room: float) -> None:
    """Bars from zero, with their numbers before them, all in one unit; what is not known has none."""
    values = [row[shown.column.key] for row in rows]
    most = max(value for value in values if value)
    for row, at, value, text in zip(rows, places, values, shown.texts, strict=True):
        if value:
            axes.barh([at], [value / most], height=0.55, color=BAR, linewidth=0, gid=visible(row["label"]))
        axes.annotate("–" if value is None else text, (0, at), **BEFORE)
    axes.set_xlim(-room, 1.02)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.axvline(0, color=BLACK, linewidth=0.6)
    axes.set_title(f"{shown.title}\n{shown.unit}", fontsize=SMALL, loc="left", pad=3)
