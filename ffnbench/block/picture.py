"""The picture of `block`: FLOPs of a token by length of the sequence, and the FFN's
share of them and of the time.
"""

from __future__ import annotations

# first, as it loads matplotlib away from the current folder
from ffnbench.report.pictures.canvas import (
    BLACK,
    COLOURS,
    drawing,
    finish,
    interval_bar,
    panels,
    scale_axis,
    title_ending,
)

# isort: split
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullLocator, PercentFormatter

from ffnbench.block.plan import lengths_of, without_length
from ffnbench.block.rows import (
    MEAN,
    block_rows,
    blocks_of,
    counts_by_length,
    kinds_of,
    sees,
)
from ffnbench.common.streams import visible
from ffnbench.plan.plan import typed_as
from ffnbench.record.result import Report
from ffnbench.report.words import verdict_word

HEIGHT = 2.2  # inches, of a block's two panels
OF_FFN, OF_ATTENTION = COLOURS[:2]
FFN_WIDTH = 1.8  # points; in a grey print it tells the FFN from attention


@drawing()
def block_figure(report: Report) -> Figure:
    """On the left what is counted, on the right the FFN's share: of FLOPs as a curve,
    of the measured time as dots.

    A length whose time can't be told says why at its place. Each block of a sweep has a
    row of its own.
    """
    blocks = blocks_of(report)
    figure, axes = panels(2 * len(blocks), HEIGHT, columns=2)
    for block, counts, shares in zip(blocks, axes[::2], axes[1::2], strict=True):
        _draw(counts, shares, block)
    handles = [
        line for panel in axes[-2:] for line in panel.get_legend_handles_labels()[0]
    ]
    finish(figure, _title(blocks[0]) + title_ending(report), handles)
    return figure


def _title(report: Report) -> str:
    """`gelu beside multi-head attention, 12 heads`."""
    [first, *_], kinds = lengths_of(report.plan), kinds_of(report)
    spec = first.spec
    title = f"{first.ffn.variant} beside {spec.name} attention, {spec.heads} heads"
    if spec.causal:
        title += ", causal"
    if spec.window and len(kinds) == 1:
        title += f", seeing {sees(spec)}"
    return title


def _draw(counts: Axes, shares: Axes, report: Report) -> None:
    """One block: FLOPs of a token on the left, the FFN's share of them and of the time
    on the right.
    """
    curves = counts_by_length(report)
    x = curves.seq_lens
    counts.plot(x, curves.attention, color=OF_ATTENTION, label="attention")
    counts.axhline(
        curves.projections,
        color=OF_ATTENTION,
        linestyle="--",
        label="its projections alone",
    )
    if curves.ffn is not None:
        counts.axhline(curves.ffn, color=OF_FFN, linewidth=FFN_WIDTH, label="FFN")
        shares.plot(x, curves.ffn_shares, color=OF_FFN, linewidth=FFN_WIDTH)
    _draw_measured(shares, report)

    of_layers = ", mean of all layers" if len(kinds_of(report)) > 1 else ""
    counts_title = f"FLOPs of a token{of_layers}"
    if curves.overtaken_at is not None:
        counts_title += f"; attention overtakes at {curves.overtaken_at:,}"
    shares_title = f"the FFN's share of FLOPs{of_layers}"
    point = without_length(report.plan.cases[0].point)
    block = [f"{name} {typed_as(value)}" for name, value in point]
    for axes, title in ((counts, counts_title), (shares, shares_title)):
        axes.set(xscale="log", xlim=(x[0], x[-1]), xlabel="tokens in the sequence")
        axes.set_title(visible(", ".join([*block, title])))
        axes.xaxis.set_major_locator(LogLocator(base=2, numticks=8))
        axes.xaxis.set_major_formatter("{x:,g}")
        axes.xaxis.set_minor_locator(NullLocator())
        if curves.overtaken_at is not None:
            axes.axvline(curves.overtaken_at, color=BLACK, alpha=0.6, linestyle=":")
    scale_axis(counts.yaxis, EngFormatter())
    shares.set_ylim(0, 1)
    shares.yaxis.set_major_formatter(PercentFormatter(1.0))


def _draw_measured(axes: Axes, report: Report) -> None:
    """Draw the measured shares with their intervals, and at a length whose time can't
    be told the reason.
    """
    for row in block_rows(report):
        if row["sees"] == MEAN:  # is counted alone
            continue
        interval = interval_bar(row, "ffn_share_latency")
        if interval is None:
            verdict, failure = row["attention_verdict"], row["attention_failure"]
            reason = verdict_word({"verdict": verdict, "failure": failure}) or ""
            axes.annotate(
                reason, (row["seq_len"], 0.97), rotation=90, ha="center", va="top"
            )
        else:
            axes.errorbar(
                row["seq_len"],
                row["ffn_share_latency"],
                yerr=interval,
                fmt="o",
                capsize=2,
                color=BLACK,
                label="its share of the latency",
            )
