"""The picture of `block`: FLOPs of a token by length of the sequence, and the FFN's share of them and of the time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, PercentFormatter

from ffnbench.ffn.attention import projection_flops
from ffnbench.planning.block import Length, lengths_of
from ffnbench.report.pictures.canvas import Canvas, lay_out, literal, pen, render, shortened
from ffnbench.report.tables.block_records import (
    PRODUCTS,
    crossing,
    ffn_share,
    in_all_layers,
    kinds_of,
    ratio_to_ffn,
    sees,
    spec_of,
)
from ffnbench.report.tables.words import sizing_text
from ffnbench.result import Report
from ffnbench.units import SI, scale

SIZE = (10.0, 4.2)
CANVAS = Canvas(size=SIZE, dpi=150, style="default")
POINTS = 200
BESIDE = 4  # how far the curves go on beyond the shortest and the longest length, and beyond the crossing
FFN_PEN, ATTENTION_PEN, PART_PEN = 1, 2, 0


def block_picture(report: Report, suffix: str) -> bytes:
    """The picture as bytes of that format."""
    return render(block_figure(report), suffix, CANVAS)


def block_figure(report: Report) -> Figure:
    """On the left what is counted, on the right the FFN's share: of FLOPs as a curve, of the measured time as dots."""
    lengths = list(lengths_of(report.plan))
    kinds, flops = kinds_of(report), report.cost(report.plan.reference).flops_forward
    overtaken = None if flops is None else crossing(kinds, flops)
    x = _span([length.seq_len for length in lengths], overtaken)
    with matplotlib.style.context(CANVAS.style):
        figure = Figure(figsize=SIZE, layout="constrained")
        panels: Any = figure.subplots(1, 2)
        for axes in panels:
            _frame(axes, x, overtaken)
        _counts(panels[0], report, x)
        _shares(panels[1], report, lengths, x)
        spec, ffn = spec_of(lengths[0]), lengths[0].ffn
        name = f"{ffn.variant} ({sizing_text(ffn.sizing)})"
        kind = f"{spec.name} attention, {spec.heads} heads" + (", causal" if spec.causal else "")
        if spec.window and len(kinds) == 1:
            kind += f", seeing {sees(spec)}"
        figure.suptitle(literal(shortened(f"{name} beside {kind}", 110)), fontsize="medium")
        lay_out(figure, panels)
    return figure


def _span(lengths: list[int], crossing: int | None) -> np.ndarray:
    """Whole lengths around those that were asked for and around the crossing, evenly on a log scale."""
    marks = [*lengths, *([crossing] if crossing and crossing > 1 else [])]
    low, high = max(1.0, min(marks) / BESIDE), max(marks) * BESIDE
    found: np.ndarray = np.unique(np.geomspace(low, high, POINTS).round())
    return found


def _frame(axes: Axes, x: np.ndarray, crossing: int | None) -> None:
    grey = pen(PART_PEN)["color"]
    axes.set_xscale("log", base=2)
    axes.set(xlim=(x[0], x[-1]), xlabel="tokens in the sequence")
    axes.xaxis.set_major_formatter(FuncFormatter(_tokens))
    axes.grid(True, color=grey, alpha=0.1, linewidth=0.6)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if crossing and crossing > 1:
        axes.axvline(
            crossing, color=grey, alpha=0.6, linewidth=1, linestyle=":", label=f"attention overtakes at {crossing:,}"
        )


def _tokens(value: float, _: object) -> str:
    """1, 64, 4,096: as they are typed."""
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def _flops(report: Report, kinds: Sequence[Length], x: np.ndarray) -> tuple[float | None, float, np.ndarray]:
    """FLOPs of a token in the FFN, in attention's projections, and at each length in all of attention, in the mean of
    these kinds of layers.
    """
    spec, passes = spec_of(kinds[0]), PRODUCTS[kinds[0].ffn.workload.mode]
    ffn, layers = report.cost(kinds[0].ffn.label).flops_forward, sum(kind.attention.layers or 1 for kind in kinds)
    attention = np.array([in_all_layers(kinds, int(n)) / layers for n in x])
    return None if ffn is None else passes * ffn, passes * projection_flops(spec), passes * attention


def _counts(axes: Axes, report: Report, x: np.ndarray) -> None:
    kinds = kinds_of(report)
    ffn, projections, attention = _flops(report, kinds, x)
    unit, size = scale([n for n in (ffn, projections) if n], SI)
    axes.set_yscale("log")
    several, color = len(kinds) > 1, pen(ATTENTION_PEN)["color"]
    axes.plot(x, attention / size, **pen(ATTENTION_PEN), label="attention" + ", mean of all layers" * several)
    for kind, style in zip(kinds if several else (), cycle(("-.", ":")), strict=False):
        axes.plot(x, _flops(report, [kind], x)[2] / size, color=color, linestyle=style, linewidth=1,
                  label=f"where it sees {sees(spec_of(kind))}")  # fmt: skip
    axes.axhline(projections / size, color=color, linestyle="--", linewidth=1, alpha=0.6,
                 label="its projections alone")  # fmt: skip
    if ffn is not None:
        axes.axhline(ffn / size, **pen(FFN_PEN), label="FFN")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set(title=f"{unit}FLOPs of a token".strip())
    axes.legend(frameon=False, fontsize="small", loc="best")


def _shares(axes: Axes, report: Report, lengths: list[Length], x: np.ndarray) -> None:
    kinds = kinds_of(report)
    ffn, _, attention = _flops(report, kinds, x)
    if ffn is not None:
        label = "of FLOPs" + ", mean of all layers" * (len(kinds) > 1)
        axes.plot(x, ffn / (ffn + attention), **pen(FFN_PEN), label=label)
    found = [(n.seq_len, ffn_share(ratio_to_ffn(report, n.attention.label))) for n in lengths]
    dots = [(n, s.value, s.low, s.high) for n, s in found if s and s.low is not None and s.high is not None]
    if dots:
        at, value, low, high = (np.array(column) for column in zip(*dots, strict=True))
        bars = np.array([value - low, high - value])
        axes.errorbar(at, value, yerr=bars, fmt="o", capsize=3, color=pen(PART_PEN)["color"], label="of the latency")
    axes.set(title="the FFN's share", ylim=(0, 1))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    if ffn is not None or dots:
        handles, labels = axes.get_legend_handles_labels()
        said = {label: handle for handle, label in zip(handles, labels, strict=True) if label.startswith("of ")}
        axes.legend(said.values(), said.keys(), frameon=False, fontsize="small", loc="lower left")
