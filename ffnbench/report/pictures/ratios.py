"""The picture of a comparison, as wide as a column of a paper: the ratio of each row
with its interval, and beside it in figures.

A row that has no ratio says why in its place. Each verdict has a marker and a colour,
so that a grey print tells them apart too; a value without an interval is hollow. Rows
of one reference stand together.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ffnbench.common.streams import visible
from ffnbench.common.units import TIME, quantity
from ffnbench.record.result import Report, Verdict
from ffnbench.report.columns import case_rows
from ffnbench.report.pictures.canvas import (
    BLACK,
    SMALL_FONT,
    about,
    draw_same,
    drawing,
    finish,
    interval_bar,
    nothing_to_draw,
    panels,
    scale_axis,
    shown_name,
)
from ffnbench.report.table import Row, estimate_in
from ffnbench.report.words import (
    CERTAIN,
    VERDICTS,
    interval_text,
    verdict_word,
)

ROW, LINE = 0.19, 0.11  # inches: the height of a row, and of each further line in it
AXIS = 0.4  # inches, the height of the axis
# letters from which on a name has a line for each of its keys, and the most of a line
SHORT_NAME, LONGEST_LINE = 18, 24
# marker, its colour, the colour that it is filled with
VERDICT_MARKERS: dict[Verdict, tuple[str, str, str]] = {
    Verdict.REFERENCE: ("s", BLACK, BLACK),
    Verdict.SLOWER: (">", "#D55E00", "#D55E00"),
    Verdict.FASTER: ("<", "#0072B2", "#0072B2"),
    Verdict.SAME: ("o", BLACK, BLACK),
    Verdict.UNCLEAR: ("o", BLACK, "white"),
    Verdict.BUSY: ("D", BLACK, "white"),
}
Lines = Sequence[tuple[str, Row]]  # the name of a row, and the row


@drawing()
def ratio_figure(report: Report) -> Figure:
    """The picture of a report; raises FfnbenchError where no row was compared."""
    lines = _lines(report)
    compared = [
        row
        for _, row in lines
        if row["ratio"] is not None and row["verdict"] != Verdict.REFERENCE
    ]
    if not compared:
        raise nothing_to_draw("ratio")
    most_lines = max(name.count("\n") for name, _ in lines)
    height = len(lines) * (ROW + LINE * most_lines) + AXIS
    figure, [axes] = panels(1, height)
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.set_yticks(range(len(lines)), [name for name, _ in lines])
    _draw_ratios(axes, report, lines)
    beside = axes.secondary_yaxis("right")
    texts = [_text(row) for _, row in lines]
    beside.set_yticks(range(len(lines)), texts, fontsize=SMALL_FONT)
    for panel in (axes, beside):
        panel.tick_params(axis="y", length=0)
        panel.grid(visible=False)
        panel.spines[["left", "right"]].set_visible(False)
    finish(figure, about(report), axes.get_legend_handles_labels()[0])
    return figure


def _lines(report: Report) -> Lines:
    """The rows with their names, a long one with a line for each of its keys."""
    lines = []
    for row in case_rows(report):
        name = row["label"]
        parts = name.split("@") if len(name) > SHORT_NAME else [name]
        texts = [shown_name(part, LONGEST_LINE) for part in parts]
        lines.append(("\n@".join(texts), row))
    return lines


def _text(row: Row) -> str:
    """What stands beside a row: its ratio in figures, else why it has none."""
    ratio, word = estimate_in(row, "ratio"), verdict_word(row) or ""
    if row["verdict"] == Verdict.REFERENCE and row["latency_s"]:
        return f"{word}, {quantity(row['latency_s'], TIME)}"
    return interval_text(ratio) if ratio and not row["failure"] else word


def _draw_ratios(axes: Axes, report: Report, lines: Lines) -> None:
    """Draw the ratio of each row with its interval."""
    references = set()
    for place, (_, row) in enumerate(lines):
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
    draw_same(axes.axvspan, axes.axvline)
    axes.margins(x=0.1)
    scale_axis(axes.xaxis)
    reference = references.pop()
    if references or len(reference) > SHORT_NAME:
        reference = "the reference"
    axes.set_xlabel(f"time vs {visible(reference)} {CERTAIN}", fontsize=SMALL_FONT)
