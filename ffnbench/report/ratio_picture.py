"""The picture of measured cases: each one's ratio to its reference with its interval; where nothing was timed, bytes.

A panel for each reference. What is the same within 2 % lies in the grey band; what can't be told is hollow.
"""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from ffnbench.metrics import LATENCY, PEAK
from ffnbench.plan import Case, Kind
from ffnbench.report.picture import Canvas, drawing, lay_out, literal, pen, render, shortened
from ffnbench.report.words import ratio_text, seconds_text
from ffnbench.result import Comparison, Report, Verdict
from ffnbench.stats.verdict import SAME_WITHIN
from ffnbench.units import IEC, SI, TIME, Units, quantity, scale

WIDTH, ROW, AROUND = 7.5, 0.34, 1.05  # inches: the picture, a row, what axis and title take
LEAST = 0.9  # of the rows together
LONGEST_LABEL = 40
PENS = {Verdict.SLOWER: 1, Verdict.FASTER: 3}  # vermilion and green, told apart by colour-blind readers too
SIDE_BY_SIDE = 1.5  # from this ratio on the axis is logarithmic


def ratio_picture(report: Report, suffix: str) -> bytes:
    """The picture as bytes of that format."""
    figure, canvas = ratio_figure(report)
    return render(figure, suffix, canvas)


def ratio_figure(report: Report) -> tuple[Figure, Canvas]:
    """A panel for each reference; without any ratio one panel of peak bytes, or of parameters."""
    groups: dict[str, list[Case]] = {}
    for case in report.plan.shown:
        groups.setdefault(report.plan.reference_of(case.label), []).append(case)
    if not any(c.ratio for c in report.comparisons):
        groups = {"": list(report.plan.shown)}
    heights = [AROUND + max(LEAST, ROW * len(cases)) for cases in groups.values()]
    canvas = Canvas(size=(WIDTH, sum(heights)), dpi=150, style="default")
    with drawing(canvas):
        figure = Figure(figsize=canvas.size, layout="constrained")
        panels: Any = figure.subplots(len(groups), 1, squeeze=False, height_ratios=heights)[:, 0]
        for axes, (reference, cases) in zip(panels, groups.items(), strict=True):
            if reference:
                _ratios(axes, report, reference, cases)
            else:
                _amounts(axes, report, cases)
        lay_out(figure, panels)
    return figure, canvas


def _frame(axes: Axes, report: Report, cases: list[Case]) -> None:
    """A row a case, the first on top, numbers to the right of each."""
    names = [case.variant if report.plan.kind == Kind.ACTIVATIONS.value else case.label for case in cases]
    axes.set_yticks(range(len(cases)), [literal(shortened(name, LONGEST_LABEL)) for name in names])
    axes.set_ylim(len(cases) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.grid(True, axis="x", color=pen(0)["color"], alpha=0.1, linewidth=0.6)
    axes.set_axisbelow(True)


def _ratios(axes: Axes, report: Report, reference: str, cases: list[Case]) -> None:
    _frame(axes, report, cases)
    axes.axvspan(1 - SAME_WITHIN, 1 + SAME_WITHIN, color=pen(0)["color"], alpha=0.08, linewidth=0)
    axes.axvline(1, color=pen(0)["color"], linewidth=0.8, alpha=0.6)
    bounds = [1 - 2 * SAME_WITHIN, 1 + 2 * SAME_WITHIN]
    seconds = [e.value for case in cases if (e := report.estimate(case.label, LATENCY))]
    unit, size = scale(seconds, TIME)
    for row, case in enumerate(cases):
        comparison, latency = report.comparison(case.label), report.estimate(case.label, LATENCY)
        failure = report.failure(case.label)
        said = [failure.kind.value] if failure else []
        if comparison is not None:
            bounds += _dot(axes, row, comparison)
            said.append(ratio_text(comparison.verdict, comparison.ratio))
        if latency is not None:
            said.append(f"{seconds_text(latency, size)} {unit}".replace("±", "± "))
        axes.annotate(
            ",  ".join(said), (1.01, row), xycoords=("axes fraction", "data"), va="center", fontsize="small",
            annotation_clip=False,
        )  # fmt: skip
    low, high = min(bounds), max(bounds)
    if high / low > SIDE_BY_SIDE:
        axes.set_xscale("log")
        axes.set_xlim(low / 1.05, high * 1.05)
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5)))
    else:
        axes.set_xlim(low - 0.03 * (high - low), high + 0.03 * (high - low))
        axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_title(literal(f"time relative to {shortened(reference, LONGEST_LABEL)}"), fontsize="medium", loc="left")
    axes.set_xlabel("ratio with its 95% interval over processes; grey: the same within 2%", fontsize="small")


def _dot(axes: Axes, row: int, comparison: Comparison) -> list[float]:
    """The ratio and its interval; gives what the axis must hold."""
    ratio = comparison.ratio
    if ratio is None:
        return []
    colour = pen(PENS.get(comparison.verdict, 0))["color"]
    hollow = comparison.verdict in (Verdict.UNCLEAR, Verdict.BUSY)
    low, high = ratio.low or ratio.value, ratio.high or ratio.value
    axes.plot([low, high], [row, row], color=colour, linewidth=1.6, alpha=0.8)
    axes.plot([ratio.value], [row], "o", color=colour, markersize=5, markerfacecolor="white" if hollow else colour)
    return [low, high]


def _amounts(axes: Axes, report: Report, cases: list[Case]) -> None:
    """Bars: peak bytes where they are known, else parameters."""
    metric, units = (PEAK, IEC) if any(report.value(c.label, PEAK) for c in cases) else ("params", SI)
    _frame(axes, report, cases)
    values = [_amount(report, case, metric) for case in cases]
    unit, size = scale([value for value in values if value], units)
    axes.barh(range(len(cases)), [(value or 0) / size for value in values], height=0.55, color=pen(2)["color"])
    for row, (case, value) in enumerate(zip(cases, values, strict=True)):
        _name_amount(axes, report, case, row, value, units)
    axes.set_title("peak memory of a call" if metric == PEAK else "parameters", fontsize="medium", loc="left")
    axes.set_xlabel(unit, fontsize="small")


def _amount(report: Report, case: Case, metric: str) -> float | None:
    return report.value(case.label, metric) if metric == PEAK else report.cost(case.label).params


def _name_amount(axes: Axes, report: Report, case: Case, row: int, value: float | None, units: Units) -> None:
    failure = report.failure(case.label)
    text = quantity(value, units) if value else failure.kind.value if failure else "not known"
    axes.annotate(
        text, (1.01, row), xycoords=("axes fraction", "data"), va="center", fontsize="small", annotation_clip=False
    )
