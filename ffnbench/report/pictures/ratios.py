"""The picture of measured cases, as wide as a column of a paper: the ratio of each row
with its interval, beside bars of the other amounts in which rows differ.

A row that has no ratio says why in its place. Where nothing was timed there are only
bars. Each verdict has a marker and a colour, so that a grey print tells them apart too.
Rows of one reference stand together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ffnbench.common.streams import visible
from ffnbench.common.units import IEC, SI, TIME, Units, digits, quantity, scale
from ffnbench.plan.metrics import ERROR, LATENCY, PEAK
from ffnbench.record.result import SAME_WITHIN, Report, Verdict
from ffnbench.report.columns import case_rows
from ffnbench.report.header import heading, headings
from ffnbench.report.pictures.canvas import (
    BAND,
    BLACK,
    COLUMN,
    SMALL_FONT,
    about,
    drawing,
    finish,
    interval_bar,
    nothing_to_draw,
    panels,
    scale_axis,
    shown_name,
)
from ffnbench.report.table import UNKNOWN_CELL, Row, estimate_in
from ffnbench.report.words import (
    CERTAIN,
    VERDICTS,
    WITHIN,
    error_text,
    interval_text,
    verdict_word,
)

ROW, LINE = 0.19, 0.11  # inches: the height of a row, and of each further line in it
AXIS, TITLES = 0.4, 0.22  # inches: the height of the axis, and of the titles of bars
RATIO_PANEL = 2.2  # the width of the ratios, where a panel of bars has 1
# letters from which on a name has a line for each of its keys, and the most of a line
SHORT_NAME, LONGEST_LINE = 18, 24
BAR = "#A9C4DA"
# marker, its colour, the colour that it is filled with
VERDICT_MARKERS: dict[Verdict, tuple[str, str, str]] = {
    Verdict.REFERENCE: ("s", BLACK, BLACK),
    Verdict.SLOWER: (">", "#D55E00", "#D55E00"),
    Verdict.FASTER: ("<", "#0072B2", "#0072B2"),
    Verdict.SAME: ("o", BLACK, BLACK),
    Verdict.UNCLEAR: ("o", BLACK, "white"),
    Verdict.BUSY: ("D", BLACK, "white"),
}
ONE: Units = (("", 1.0),)
PER_TOKEN = tuple((f"{name}/tok", size) for name, size in SI)
# the key of an amount, its title, its units
BARS: tuple[tuple[str, str, Units], ...] = (
    ("latency_s", "latency", TIME),
    (ERROR, "error", ONE),
    ("params", "params", SI),
    ("flops_forward", "FLOPs", PER_TOKEN),
    (PEAK, "peak", IEC),
)
Lines = Sequence[tuple[str, Row | None]]  # the name of a row, or a heading alone


@drawing()
def ratio_figure(report: Report) -> Figure:
    """The picture of a report: the ratios on the left where there are any, and a panel
    of bars for each amount in which rows differ.

    Raises FfnbenchError where no row has a time, and no amount is known.
    """
    plan = report.plan
    is_compared = (
        not report.is_of_counts
        and LATENCY in plan.metrics
        and not all(plan.is_reference(case.label) for case in plan.shown)
    )
    lines = _lines(report)
    rows = [row for _, row in lines if row]
    bars = [bar for bar in BARS if any(row[bar[0]] for row in rows)]
    if not bars or (is_compared and not any(row["latency_s"] for row in rows)):
        raise nothing_to_draw()
    widths = []
    if is_compared:
        bars = [bar for bar in bars if bar in BARS[2:] and _differ(rows, bar[0])]
        widths = [RATIO_PANEL]
    widths += [1.0] * len(bars)

    most_lines = max(name.count("\n") for name, _ in lines)
    height = len(lines) * (ROW + LINE * most_lines) + AXIS
    if bars:
        height += TITLES
    figure, axes = panels(
        len(widths), height, len(widths), width_ratios=widths, sharey=True
    )
    figure.set_figwidth(COLUMN)
    axes[0].set_ylim(len(lines) - 0.5, -0.5)
    axes[0].set_yticks(range(len(lines)), [name for name, _ in lines])
    for label, (_, row) in zip(axes[0].get_yticklabels(), lines, strict=True):
        if row is None:
            label.set_fontstyle("italic")
    if is_compared:
        _draw_ratios(axes[0], report, lines)
    for panel, bar in zip(axes[-len(bars) :] if bars else [], bars, strict=True):
        _draw_bars(panel, lines, *bar)
    texts = [_text(row, is_compared=is_compared) if row else "" for _, row in lines]
    beside = axes[0].secondary_yaxis("right")
    beside.set_yticks(range(len(lines)), texts, fontsize=SMALL_FONT)
    for panel in (*axes, beside):
        panel.tick_params(axis="y", length=0)
        panel.grid(visible=False)
        panel.spines[["left", "right"]].set_visible(False)
    finish(figure, about(report), axes[0].get_legend_handles_labels()[0])
    return figure


def _lines(report: Report) -> Lines:
    """The rows with their names, those of a group below its heading."""
    rows = {row["label"]: row for row in case_rows(report)}
    has_headings = bool(headings(report.plan))
    lines: list[tuple[str, Row | None]] = []
    for group in report.plan.groups:
        if has_headings:
            lines.append((heading(group), None))
        for case in group.cases:
            name = case.row if has_headings else case.label
            parts = name.split("@") if len(name) > SHORT_NAME else [name]
            texts = [shown_name(part, LONGEST_LINE) for part in parts]
            lines.append(("\n@".join(texts), rows[case.label]))
    return lines


def _differ(rows: Sequence[Row], key: str) -> bool:
    """Whether bars of this amount would differ in length."""
    values = [row[key] for row in rows if row[key] is not None]
    return max(values) > (1 + SAME_WITHIN) * min(values)


def _text(row: Row, *, is_compared: bool) -> str:
    """What stands beside a row: its ratio in figures, else why it has none."""
    ratio, word = estimate_in(row, "ratio"), verdict_word(row) or ""
    if row["failure"] or not is_compared:
        return word if row["failure"] else ""
    if row["verdict"] == Verdict.REFERENCE and row["latency_s"]:
        return f"{word}, {quantity(row['latency_s'], TIME)}"
    return interval_text(ratio) if ratio else word


def _draw_ratios(axes: Axes, report: Report, lines: Lines) -> None:
    """Draw the ratio of each row with its interval."""
    references = set()
    for place, (_, row) in enumerate(lines):
        if row is None:
            continue
        references.add(report.plan.name_of(report.plan.reference_of(row["label"])))
        if row["ratio"] is None or row["failure"]:
            continue
        verdict = Verdict(row["verdict"])
        marker, colour, face = VERDICT_MARKERS[verdict]
        axes.errorbar(
            row["ratio"],
            place,
            xerr=interval_bar(row, "ratio"),
            marker=marker,
            color=colour,
            markerfacecolor=face,
            linestyle="",
            label=VERDICTS[verdict],
        )
    axes.axvspan(
        1 - SAME_WITHIN,
        1 + SAME_WITHIN,
        color=BAND,
        linewidth=0,
        zorder=0,
        label=f"same: within {WITHIN}",
    )
    axes.axvline(1, color=BLACK, linewidth=0.6, zorder=1)
    axes.margins(x=0.1)
    scale_axis(axes.xaxis)
    reference = references.pop()
    if references or len(reference) > SHORT_NAME:
        reference = "the reference"
    axes.set_xlabel(f"time vs {visible(reference)} {CERTAIN}", fontsize=SMALL_FONT)


def _draw_bars(axes: Axes, lines: Lines, key: str, title: str, units: Units) -> None:
    """Draw bars from zero with their numbers; a value that is not known has no bar."""
    values: list[Any] = [row and row[key] for _, row in lines]
    unit, size = scale([value for value in values if value], units)
    bars = axes.barh(
        range(len(lines)), [value or 0 for value in values], 0.5, color=BAR
    )
    write = error_text if key == ERROR else digits
    texts = [write(value / size) if value else UNKNOWN_CELL for value in values]
    for place, (_, row) in enumerate(lines):
        if row is None:
            texts[place] = ""
    axes.bar_label(bars, texts, padding=1.5, fontsize=SMALL_FONT)
    axes.axvline(0, color=BLACK, linewidth=0.6)
    axes.set_xticks([])
    axes.set_title(f"{title}\n{unit}", fontsize=SMALL_FONT)
    axes.spines["bottom"].set_visible(False)
