"""A block's figures as flat rows by length: FLOPs, bytes, latencies, and the FFN's
share of each.

A share is that of the FFN in FFN and attention together, as a block's norms are left
out. A measured share is 1 / (1 + r), where r is the ratio of attention's time to the
FFN's, so its interval follows from that of r.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter

from ffnbench.block.plan import (
    ATTENTION,
    FFN,
    TEXTBOOK,
    CasesOfLength,
    lengths_of,
    plans_of_blocks,
)
from ffnbench.common.choices import Mode
from ffnbench.ffn.attention import (
    attention_flops,
    cached_tokens,
    kv_bytes,
    overtakes_at,
    projection_flops,
    score_flops,
    value_flops,
)
from ffnbench.ffn.spec import AttentionSpec
from ffnbench.plan.metrics import PEAK
from ffnbench.plan.plan import Case
from ffnbench.record.result import Estimate, Report
from ffnbench.report.columns import case_rows
from ffnbench.report.header import CONDITIONS
from ffnbench.report.table import Row, in_row, interval_keys
from ffnbench.stats.cells import restricted
from ffnbench.stats.figures import figures_of

# FLOPs of a mode over those of forward: backward has two products for each of forward's
FLOPS_FACTOR = {Mode.FORWARD: 1, Mode.TRAIN: 3, Mode.BACKWARD: 2}
UNSAVED_KEYS = ("verdict", "failure")  # of FFN and attentions, for tables alone
HOW_KEYS = (*(each.key for each in CONDITIONS), "threads")
POINTS = 200  # of a curve over lengths
# A curve begins at the shortest length over this factor, and ends at the longest
# length, or the crossing, times it.
MARGIN_FACTOR = 4
MEAN = "mean"  # of all layers, in place of what a token sees


def sees(spec: AttentionSpec) -> str:
    """Which tokens a token sees, in words: `all`, `the last 128`."""
    if spec.window is None:
        return "all"
    if spec.causal:
        return f"the last {spec.window:,}"
    return f"{spec.window:,} to either side"


def kinds_of(report: Report) -> list[CasesOfLength]:
    """The kinds of layers, which differ in their windows: the cases of each kind at the
    shortest length.
    """
    lengths = list(lengths_of(report.plan))
    return [length for length in lengths if length.seq_len == lengths[0].seq_len]


def number_of_layers(kinds: Sequence[CasesOfLength]) -> int:
    """How many layers there are of these kinds; where all are alike, one stands for
    them.
    """
    return sum(kind.attention.layers or 1 for kind in kinds)


def flops_in_all_layers(kinds: Sequence[CasesOfLength], seq_len: int) -> int:
    """Attention's FLOPs of a token's forward pass through all layers of these kinds."""
    return sum(
        number_of_layers([kind]) * attention_flops(kind.spec, seq_len) for kind in kinds
    )


def crossing(kinds: Sequence[CasesOfLength], ffn_flops: int) -> int | None:
    """The shortest length at which attention needs more FLOPs than the FFN, in the mean
    over all layers of these kinds; None where it never does.
    """
    return overtakes_at(
        lambda seq_len: flops_in_all_layers(kinds, seq_len),
        number_of_layers(kinds) * ffn_flops,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """FLOPs of a token in the block's mode, the mean over all layers: of the FFN, of
    attention's projections, and of attention at each of `seq_lens`, which lie around
    the lengths of the block.

    `overtaken_at` is the length from which attention needs more than the FFN; None
    where it does so at every length or at none.
    """

    ffn: int | None
    projections: int
    seq_lens: list[int]
    attention: list[float]
    overtaken_at: int | None

    @property
    def ffn_shares(self) -> list[float]:
        """The FFN's share at each length; none where its FLOPs are unknown."""
        if self.ffn is None:
            return []
        return [self.ffn / (self.ffn + flops) for flops in self.attention]


def counts_by_length(report: Report) -> Counts:
    """What the picture shows of one block's FLOPs."""
    lengths, kinds = list(lengths_of(report.plan)), kinds_of(report)
    factor = FLOPS_FACTOR[lengths[0].ffn.workload.mode]
    ffn = report.cost(report.plan.reference).flops_forward
    overtaken_at = None if ffn is None else crossing(kinds, ffn)
    marks = [length.seq_len for length in lengths]
    if overtaken_at == 1:  # attention is above the FFN at every length
        overtaken_at = None
    if overtaken_at is not None:
        marks.append(overtaken_at)
    start, end = max(1.0, min(marks) / MARGIN_FACTOR), max(marks) * MARGIN_FACTOR
    step = (end / start) ** (1 / (POINTS - 1))
    # whole numbers, evenly on a scale of logarithms
    seq_lens = sorted({round(start * step**point) for point in range(POINTS)})
    layers = number_of_layers(kinds)
    return Counts(
        ffn=None if ffn is None else factor * ffn,
        projections=factor * projection_flops(lengths[0].spec),
        seq_lens=seq_lens,
        attention=[
            factor * flops_in_all_layers(kinds, seq_len) / layers
            for seq_len in seq_lens
        ],
        overtaken_at=overtaken_at,
    )


def blocks_of(report: Report) -> list[Report]:
    """A report of each block of a sweep, with the figures of its cases alone."""
    plans = plans_of_blocks(report.plan)
    if len(plans) == 1:
        return [report]
    parts = [restricted(report, plan) for plan in plans]
    return [replace(part, figures=figures_of(part)) for part in parts]


def block_records(report: Report) -> list[Row]:
    """The rows as they are saved."""
    unsaved = tuple(f"_{key}" for key in UNSAVED_KEYS)
    return [
        {key: value for key, value in row.items() if not key.endswith(unsaved)}
        for row in block_rows(report)
    ]


def block_rows(report: Report) -> list[Row]:
    """One flat row for each length and window: base units, None for what is not known,
    and the UNSAVED_KEYS, which say why there is no time.

    Where layers differ in their windows, the rows of a length are followed by the mean
    over all layers.
    """
    of_cases = {row["label"]: row for row in case_rows(report)}
    rows = []
    for block in plans_of_blocks(report.plan):
        for _, kinds_at_length in groupby(lengths_of(block), attrgetter("seq_len")):
            kinds = list(kinds_at_length)
            counted = [_counted_columns(report, kind) for kind in kinds]
            measured = [_measured_columns(report, kind, of_cases) for kind in kinds]
            rows += [
                counts | times for counts, times in zip(counted, measured, strict=True)
            ]
            if len(kinds) > 1:
                conditions = {key: measured[0][key] for key in HOW_KEYS}
                unknown = dict.fromkeys(measured[0])
                rows.append(_mean_over_layers(counted) | unknown | conditions)
    return rows


def _mean_over_layers(rows: list[Row]) -> Row:
    """The counted columns of one length, the mean over all layers: `rows` has one row
    for each kind of them.
    """
    layers = sum(row["layers"] for row in rows)
    means = {}
    for key in (
        "flops_attention",
        "flops_scores",
        "flops_values",
        "flops_softmax",
        "kv_bytes",
    ):
        in_all = sum(row["layers"] * row[key] for row in rows)
        means[key] = round(in_all / layers)
    share = _ffn_share(rows[0]["flops_ffn"], means["flops_attention"])
    return {
        **rows[0],
        **means,
        "sees": MEAN,
        "layers": layers,
        "ffn_share_flops": share,
    }


def _ffn_share(of_ffn: int | None, of_attention: int) -> float | None:
    return None if of_ffn is None else of_ffn / (of_ffn + of_attention)


def _counted_columns(report: Report, length: CasesOfLength) -> Row:
    """What a block is, and what is counted of it, at one length and window."""
    spec, work = length.spec, length.ffn.workload
    ffn, attention = report.cost(length.ffn.label), report.cost(length.attention.label)
    factor = FLOPS_FACTOR[work.mode]
    parts = {
        "flops_projections": factor * projection_flops(spec),
        "flops_scores": factor * score_flops(spec, length.seq_len),
        "flops_values": factor * value_flops(spec, length.seq_len),
    }
    of_ffn = None if ffn.flops_forward is None else factor * ffn.flops_forward
    of_attention = sum(parts.values())
    return {
        "ffn": length.ffn.variant,
        "attention": spec.name,
        "d_model": spec.d_model,
        "d_ff": length.ffn.ffn.d_ff,
        "heads": spec.heads,
        "kv_heads": spec.kv_heads,
        "head_dim": spec.head_dim,
        "seq_len": length.seq_len,
        "batch": work.batch,
        "dtype": work.dtype,
        "device": work.device,
        "mode": work.mode,
        "causal": spec.causal,
        "sees": sees(spec),
        "layers": length.attention.layers,
        "ffn_params": ffn.params,
        "ffn_params_active": ffn.params_active,
        "attention_params": attention.params,
        "ffn_share_params": ffn.params / (ffn.params + attention.params),
        "flops_ffn": of_ffn,
        "flops_attention": of_attention,
        **parts,
        "ffn_share_flops": _ffn_share(of_ffn, of_attention),
        "flops_softmax": attention.flops_elementwise,
        "kv_bytes_per_token": kv_bytes(spec, work.dtype),
        "kv_bytes": kv_bytes(spec, work.dtype)
        * cached_tokens(spec, length.seq_len)
        * work.batch,
    }


def _measured_columns(
    report: Report, length: CasesOfLength, rows: dict[str, Row]
) -> Row:
    """What was measured at one length and window: columns of FFN, attention and
    textbook, from `rows` by label, and the FFN's share.
    """
    parts = {FFN: length.ffn, ATTENTION: length.attention, TEXTBOOK: length.textbook}
    row: Row = {}
    for name, case in parts.items():
        compared = () if name == FFN else interval_keys("ratio")
        keys = (*interval_keys("latency_s"), PEAK, *compared, *UNSAVED_KEYS)
        row |= _columns_of(name, case, keys, rows)
    row |= in_row(
        "ffn_share_latency", ffn_share(ratio_to_ffn(report, length.attention.label))
    )
    return row | {key: rows[length.ffn.label][key] for key in HOW_KEYS}


def _columns_of(
    name: str, case: Case | None, keys: Iterable[str], rows: dict[str, Row]
) -> Row:
    """The values of a case's row under `name_key`; None where there is no such case."""
    return {f"{name}_{key}": rows[case.label][key] if case else None for key in keys}


def ratio_to_ffn(report: Report, label: str) -> Estimate | None:
    """The ratio of a case's time to the FFN's; None where they were not compared."""
    comparison = report.comparison(label)
    return comparison.ratio if comparison else None


def ffn_share(ratio: Estimate | None) -> Estimate | None:
    """The FFN's share by the ratio of attention's time to the FFN's, with the interval
    that follows from the ratio's.
    """
    if ratio is None:
        return None
    low, high = (
        None if bound is None else 1 / (1 + bound) for bound in (ratio.high, ratio.low)
    )
    return replace(ratio, value=1 / (1 + ratio.value), low=low, high=high)
