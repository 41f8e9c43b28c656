"""The picture of measured cases, as wide as a column of a paper: the ratio of each row
with its interval, beside bars of the other amounts in which rows differ. An amount that
is the same in all rows stands in the title.

A row that has no ratio says why in its place. Where nothing was timed there are only
bars. Each verdict has a marker and a colour, so that a grey print tells them apart too.
Rows of one reference stand together.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import compress
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ffnbench.common.errors import FfnbenchError
from ffnbench.common.units import SI, TIME, quantity
from ffnbench.metrics import ERROR, LATENCY, PEAK
from ffnbench.plan import Kind
from ffnbench.report.columns import case_rows, column
from ffnbench.report.frame import UNKNOWN_CELL, Frame, Row, ShownColumn, estimate_in
from ffnbench.report.header import conditions_line, headings, ordered_by_group
from ffnbench.report.pictures.canvas import (
    BAND,
    BLACK,
    COLUMN,
    SMALL_FONT,
    drawing,
    finish,
    limits_of,
    literal,
    names_apart,
    panels,
    scale_axis,
    shortened,
    title_ending,
)
from ffnbench.report.words import CERTAIN, VERDICTS, WITHIN, interval_text, verdict_word
from ffnbench.result import SAME_WITHIN, Report, Verdict

ROW, LINE = 0.19, 0.11  # inches: the height of a row, and of each further line in it
AXIS, TITLES = 0.38, 0.22  # inches: the height of the axis, and of the titles of bars
RATIO_PANEL = 2.2  # the width of the ratios, where a panel of bars has 1
LINE_LETTERS = 18  # the most letters of a name in one line
LONGEST_CASE_NAME = 100  # letters of a name in all of its lines
BAR = "#A9C4DA"
# marker, its colour, the colour that it is filled with
VERDICT_MARKERS: dict[Verdict, tuple[str, str, str]] = {
    Verdict.SLOWER: (">", "#D55E00", "#D55E00"),
    Verdict.FASTER: ("<", "#0072B2", "#0072B2"),
    Verdict.SAME: ("o", BLACK, BLACK),
    Verdict.UNCLEAR: ("o", BLACK, "white"),
    Verdict.REFERENCE: ("s", BLACK, BLACK),
}
RATIO_STYLE = {
    "axes.grid": False,
    "axes.spines.left": False,
    "ytick.major.size": 0,
    "ytick.labelsize": 6.5,
    "legend.handlelength": 1.2,
}


@drawing(**RATIO_STYLE)
def ratio_figure(report: Report) -> Figure:
    """The picture of a report: the ratios on the left where there are any, and a panel
    of bars for each amount in which rows differ.

    Raises FfnbenchError where no row has a time, and no amount is known or differs.
    """
    plan = report.plan
    rows = ordered_by_group(plan, case_rows(report))
    is_compared = (
        not report.is_of_counts
        and LATENCY in plan.metrics
        and not all(plan.is_reference(row["label"]) for row in rows)
    )
    above = dict(headings(plan))
    if is_compared:  # rows of which the run has nothing are left out
        is_shown = [bool(row["latency_s"] or verdict_word(row)) for row in rows]
        above = {sum(is_shown[:number]): text for number, text in above.items()}
        rows = list(compress(rows, is_shown))
    if not rows:
        raise nothing_to_draw()
    amounts = _shown_amounts(report, rows, is_compared=is_compared)
    in_bars = [shown for shown in amounts if _differs(shown, rows)]
    in_title = [shown for shown in amounts if shown not in in_bars]
    if is_compared:
        is_empty = not in_bars and not any(row["latency_s"] for row in rows)
    else:
        is_empty = not amounts
    if is_empty:
        raise nothing_to_draw()
    if not is_compared and not in_bars:  # a picture needs a panel
        in_bars, in_title = in_title, []

    names = _names(report, rows)
    places, groups, height = _places_of_rows(names, above)
    widths = [1.0] * len(in_bars)
    if is_compared:
        widths.insert(0, RATIO_PANEL)
    size = COLUMN, height + AXIS + (TITLES if in_bars else 0.0)
    figure, axes = panels(
        len(widths), len(widths), size, width_ratios=widths, sharey=True
    )
    axes[0].set_ylim(height, 0)
    axes[0].set_yticks(places, ["\n".join(map(literal, lines)) for lines in names])
    for place, text in groups.items():
        heading = axes[0].text(
            0,
            place,
            literal(text),
            fontstyle="italic",
            va="center",
            backgroundcolor="white",
        )
        heading.set(transform=axes[0].get_yaxis_transform())
    handles = []
    if is_compared:
        handles = _ratios(axes[0], report, rows, places, most=4 - len(in_bars))
    bars = axes[1:] if is_compared else axes
    for panel, shown in zip(bars, in_bars, strict=True):
        _bars(panel, shown, rows, places)
    if not is_compared:
        _say_why(axes[0], rows, places)
    title = about(report)
    if in_title:
        texts = [_range_text(shown, rows) for shown in in_title]
        title += f"\nall rows: {', '.join(texts)}"
    finish(figure, title, handles)
    return figure


def nothing_to_draw() -> FfnbenchError:
    """The error of a picture that would have no number."""
    return FfnbenchError(
        "there is nothing to draw: no row has a number",
        "the table says why: leave the picture out",
    )


def about(report: Report) -> str:
    """The first line of a title: what was measured."""
    if report.plan.kind == Kind.ACTIVATIONS:
        what = "activations by themselves"
    else:
        what = conditions_line(report.plan)
    return what + title_ending(report)


def _shown_amounts(
    report: Report, rows: Sequence[Row], *, is_compared: bool
) -> list[ShownColumn]:
    """The amounts that some row has: parameters, FLOPs and peak memory; the latency
    where no ratio is shown, and the error where nothing was timed.
    """
    columns = [] if is_compared else [column("latency_s", text=None)]
    if report.plan.kind != Kind.ACTIVATIONS:
        columns += [column("params", units=SI), column("flops_timed"), column(PEAK)]
        if LATENCY not in report.plan.metrics and ERROR in report.plan.metrics:
            columns.append(column(ERROR))
    known = [each for each in columns if any(row[each.key] for row in rows)]
    return Frame(columns=tuple(known), rows=rows).shown()


def _values_known(shown: ShownColumn, rows: Sequence[Row]) -> list[tuple[float, str]]:
    """The known values of a column, each with its text, from the smallest on."""
    pairs = zip((row[shown.column.key] for row in rows), shown.texts, strict=True)
    return sorted(pair for pair in pairs if pair[0] is not None)


def _differs(shown: ShownColumn, rows: Sequence[Row]) -> bool:
    """Whether bars of this column would differ in length."""
    values = _values_known(shown, rows)
    return values[-1][0] > (1 + SAME_WITHIN) * values[0][0]


def _range_text(shown: ShownColumn, rows: Sequence[Row]) -> str:
    """The smallest and the largest value of a column: `params 522 to 524 k`."""
    texts = [text for _, text in _values_known(shown, rows)]
    value = texts[0] if texts[0] == texts[-1] else f"{texts[0]} to {texts[-1]}"
    return f"{shown.title} {value} {shown.unit}".strip()


def _names(report: Report, rows: Sequence[Row]) -> list[list[str]]:
    """The name of each row as a list of lines, which is folded before its keys."""
    plan = report.plan
    names = [row["label"] for row in rows]
    if plan.kind == Kind.ACTIVATIONS:
        names = [plan.case(label).variant for label in names]
    elif headings(plan):
        names = [plan.name_of(label) for label in names]
    # a space makes textwrap fold there
    keyed = [name.replace("@", " @") for name in names_apart(names, LONGEST_CASE_NAME)]
    return [
        [
            line.replace(" @", "@")
            for line in textwrap.wrap(name, LINE_LETTERS, break_on_hyphens=False)
        ]
        for name in keyed
    ]


def _places_of_rows(
    names: Sequence[Sequence[str]], headings: dict[int, str]
) -> tuple[list[float], dict[float, str], float]:
    """Where rows and headings stand: for each row its distance from the top, for each
    heading its distance with its text, and the height of all, in inches. `headings` are
    given by the number of the row that each stands above.
    """
    places: list[float] = []
    groups: dict[float, str] = {}
    top = 0.0
    for number, lines in enumerate(names):
        if number in headings:
            groups[top + ROW / 2] = headings[number]
            top += ROW
        height = ROW + LINE * (len(lines) - 1)
        places.append(top + height / 2)
        top += height
    return places, groups, top


def _ratios(
    axes: Axes,
    report: Report,
    rows: Sequence[Row],
    places: Sequence[float],
    *,
    most: int,
) -> list[Any]:
    """Draw the ratio of each row with its interval, and beside it in figures; where it
    has none, write why. The axis has at most `most` ticks. Returns the handles of the
    legend.
    """
    band = axes.axvspan(
        1 - SAME_WITHIN,
        1 + SAME_WITHIN,
        color=BAND,
        linewidth=0,
        label=f"same: within {WITHIN}",
    )
    axes.axvline(1, color=BLACK, linewidth=0.6)
    values = [1 - 2 * SAME_WITHIN, 1 + 2 * SAME_WITHIN]
    ends: list[float | None] = []
    verdicts = set()
    for row, place in zip(rows, places, strict=True):
        ratio, text = estimate_in(row, "ratio"), verdict_word(row) or ""
        if ratio and row["latency_s"] and not row["failure"]:
            verdict = Verdict(row["verdict"])
            verdicts.add(verdict)
            values.append(ratio.value)
            ends += [ratio.low, ratio.high]
            if verdict is Verdict.REFERENCE:
                text += f", {quantity(row['latency_s'], TIME)}"
            else:
                text = interval_text(ratio)
            if ratio.low is not None and ratio.high is not None:
                axes.hlines(
                    place,
                    ratio.low,
                    ratio.high,
                    color=VERDICT_MARKERS[verdict][1],
                    linewidth=1.1,
                )
            axes.plot(ratio.value, place, clip_on=False, **_marker(verdict))
        _write_beside(axes, place, text)
    scale_axis(axes.xaxis, *limits_of(values, ends), most=most)
    references = {
        report.plan.name_of(report.plan.reference_of(row["label"])) for row in rows
    }
    if len(references) == 1:
        reference = shortened(references.pop(), LINE_LETTERS)
    else:
        reference = "the reference"
    axes.set_xlabel(literal(f"time vs {reference} {CERTAIN}"), fontsize=SMALL_FONT)
    shown = [
        verdict
        for verdict in VERDICT_MARKERS
        if verdict in verdicts and verdict is not Verdict.REFERENCE
    ]
    return [
        *(
            Line2D([], [], label=VERDICTS[verdict], **_marker(verdict))
            for verdict in shown
        ),
        band,
    ]


def _marker(verdict: Verdict) -> dict[str, Any]:
    """The marker of a verdict, as keywords of `plot`."""
    marker, colour, face = VERDICT_MARKERS[verdict]
    return {"marker": marker, "color": colour, "markerfacecolor": face, "linestyle": ""}


def _write_beside(axes: Axes, place: float, text: str) -> None:
    """Write a text on the right of a row."""
    axes.annotate(
        text,
        (1, place),
        xycoords=axes.get_yaxis_transform(),
        xytext=(4, 0),
        textcoords="offset points",
        va="center",
        fontsize=SMALL_FONT,
    )


def _bars(
    axes: Axes, shown: ShownColumn, rows: Sequence[Row], places: Sequence[float]
) -> None:
    """Draw bars from zero with their numbers; a value that is not known has no bar."""
    values = [row[shown.column.key] or 0.0 for row in rows]
    bars = axes.barh(places, values, height=ROW / 2, color=BAR)
    axes.bar_label(
        bars,
        ["–" if text == UNKNOWN_CELL else text for text in shown.texts],
        padding=1.5,
        fontsize=SMALL_FONT,
    )
    axes.axvline(0, color=BLACK, linewidth=0.6)
    axes.set_xlim(0, max(values))
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.set_title(f"{shown.title}\n{shown.unit}", fontsize=SMALL_FONT)


def _say_why(axes: Axes, rows: Sequence[Row], places: Sequence[float]) -> None:
    """Write in the place of a failed row why it failed, where there are only bars."""
    for row, place in zip(rows, places, strict=True):
        if row["failure"]:
            axes.text(
                0, place, f" {verdict_word(row)}", va="center", fontsize=SMALL_FONT
            )
