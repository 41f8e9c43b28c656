"""The picture of `block`: FLOPs of a token by length of the sequence, and the FFN's share of them and of the time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# first, as it loads matplotlib away from the current folder
from ffnbench.report.pictures.canvas import BLACK, COLOURS, DPI, drawing, ended, literal, shortened, write_numbers

# isort: split
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, PercentFormatter

from ffnbench.block.plan import lengths_of
from ffnbench.block.rows import (
    MEAN,
    PRODUCTS,
    block_rows,
    blocks_of,
    crossing,
    in_all_layers,
    kinds_of,
    sees,
    spec_of,
)
from ffnbench.common.units import SI, scale
from ffnbench.ffn.attention import projection_flops
from ffnbench.plan import typed_as
from ffnbench.report.frame import Row, keys_of
from ffnbench.report.words import sizing_text, verdict_word
from ffnbench.result import Report

SIZE = (10.0, 4.2)  # inches
POINTS = 200
BESIDE = 4  # how far the curves go on beyond the shortest and the longest length, and beyond the crossing
FFN, ATTENTION = COLOURS[1:3]


def block_figure(report: Report) -> Figure:
    """On the left what is counted, on the right the FFN's share: of FLOPs as a curve, of the measured time as dots.

    A length whose time can't be told says why at its place. Each block of a sweep has a row of its own.
    """
    blocks = blocks_of(report)
    with drawing():
        figure = Figure(figsize=(SIZE[0], SIZE[1] * len(blocks)), dpi=DPI, layout="constrained")
        rows: Any = figure.subplots(len(blocks), 2, squeeze=False)
        titles = [_draw(panels, one) for panels, one in zip(rows, blocks, strict=True)]
        figure.suptitle(literal(shortened(titles[0], 110) + ended(report)), fontsize="medium")
    return figure


def _draw(panels: Any, report: Report) -> str:
    """One block; gives what it is."""
    lengths, kinds = list(lengths_of(report.plan)), kinds_of(report)
    spec, ffn, passes = spec_of(lengths[0]), lengths[0].ffn, PRODUCTS[lengths[0].ffn.workload.mode]
    flops, layers = report.cost(report.plan.reference).flops_forward, sum(k.attention.layers or 1 for k in kinds)
    overtaken = (crossing(kinds, flops) if flops is not None else None) or 0
    marks = [*(length.seq_len for length in lengths), *([overtaken] if overtaken > 1 else [])]
    x = np.unique(np.geomspace(max(1.0, min(marks) / BESIDE), max(marks) * BESIDE, POINTS).round())
    attention = passes * np.array([in_all_layers(kinds, int(n)) / layers for n in x])
    of_ffn, mean = None if flops is None else passes * flops, ", mean of all layers" * (len(kinds) > 1)
    for axes in panels:
        _frame(axes, x, overtaken)
    _counts(panels[0], x, of_ffn, passes * projection_flops(spec), attention, mean)
    rows = [row for row in block_rows(report) if row["sees"] != MEAN]
    _shares(panels[1], rows, x, None if of_ffn is None else of_ffn / (of_ffn + attention), mean)
    if where := ", ".join(f"{name} {typed_as(value)}" for name, value in ffn.point if name != "seq_len"):
        panels[0].set_title(f"{panels[0].get_title()}: {where}")
    kind = f"{spec.name} attention, {spec.heads} heads" + ", causal" * spec.causal
    kind += f", seeing {sees(spec)}" if spec.window and len(kinds) == 1 else ""
    return f"{ffn.variant} ({sizing_text(ffn.sizing)}) beside {kind}"


def _frame(axes: Axes, x: np.ndarray, crossing: int) -> None:
    axes.set_xscale("log", base=2)
    axes.set(xlim=(x[0], x[-1]), xlabel="tokens in the sequence")
    write_numbers(axes.xaxis, lambda n: f"{n:,.0f}" if n >= 1 else f"{n:g}")
    if crossing > 1:
        label = f"attention overtakes at {crossing:,}"
        axes.axvline(crossing, color=BLACK, alpha=0.6, linewidth=1, linestyle=":", label=label)


def _counts(axes: Axes, x: np.ndarray, ffn: float | None, projections: float, attention: np.ndarray, mean: str) -> None:
    unit, size = scale([n for n in (ffn, projections) if n], SI)
    axes.set_yscale("log")
    axes.plot(x, attention / size, color=ATTENTION, label="attention" + mean)
    axes.axhline(
        projections / size, color=ATTENTION, linestyle="--", linewidth=1, alpha=0.6, label="its projections alone"
    )
    if ffn is not None:
        axes.axhline(ffn / size, color=FFN, label="FFN")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    write_numbers(axes.yaxis)
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set(title=f"{unit}FLOPs of a token".strip())
    axes.legend(loc="best")


def _shares(axes: Axes, rows: Sequence[Row], x: np.ndarray, of_flops: np.ndarray | None, mean: str) -> None:
    drawn: list[Any] = []
    if of_flops is not None:
        drawn += axes.plot(x, of_flops, color=FFN, label="of FLOPs" + mean)
    dots = []
    for row in rows:
        value, low, high = (row[key] for key in keys_of("ffn_share_latency"))
        if low is None:
            why = verdict_word({"verdict": row["attention_verdict"], "failure": row["attention_failure"]}) or ""
            axes.annotate(why, (row["seq_len"], 0.97), rotation=90, ha="center", va="top", fontsize="small")
        else:
            dots.append((row["seq_len"], value, low, high))
    if dots:
        at, value, low, high = (np.array(column) for column in zip(*dots, strict=True))
        bars = np.array([value - low, high - value])
        drawn.append(axes.errorbar(at, value, yerr=bars, fmt="o", capsize=3, color=BLACK, label="of the latency"))
    axes.set(title="the FFN's share", ylim=(0, 1))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    if drawn:
        axes.legend(handles=drawn, loc="lower left")
