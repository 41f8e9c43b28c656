"""A block's figures by length, flat: FLOPs, bytes, latencies, and the FFN's share of
each.

Shares are those of the FFN in the two together, as a block's norms are left out; a
measured share is 1 / (1 + ratio) of attention to the FFN, so its interval is the
ratio's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from ffnbench.block.plan import (
    ATTENTION,
    FFN,
    TEXTBOOK,
    CasesOfLength,
    lengths_of,
    parts_of,
)
from ffnbench.choices import Mode
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
from ffnbench.metrics import PEAK
from ffnbench.plan import Case
from ffnbench.report.columns import (
    CONDITION_KEYS,
    DEVICE_KEYS,
    LATENCY_KEYS,
    RATIO_KEYS,
    case_rows,
)
from ffnbench.report.frame import Row, in_row
from ffnbench.report.words import sizing_text
from ffnbench.result import Estimate, Report
from ffnbench.stats.cells import restricted
from ffnbench.stats.figures import figures_of

# backward: two products for each
PRODUCTS = {Mode.FORWARD: 1, Mode.TRAIN: 3, Mode.BACKWARD: 2}
PART_WORDS = ("verdict", "failure")  # of a part, that are not saved
POINTS = 200  # of a curve over lengths
# how far it goes on beyond the shortest and the longest length, and beyond the crossing
AROUND = 4
MEAN = "mean"  # of all layers, in place of what a token sees


def spec_of(length: CasesOfLength) -> AttentionSpec:
    """The attention of a block."""
    assert isinstance(length.attention.ffn, AttentionSpec)
    return length.attention.ffn


def sees(spec: AttentionSpec) -> str:
    """How many tokens one sees: `all`, `the last 128`."""
    if spec.window is None:
        return "all"
    if spec.causal:
        return f"the last {spec.window:,}"
    return f"{spec.window:,} to either side"


def kinds_of(report: Report) -> list[CasesOfLength]:
    """Each window at the shortest length."""
    lengths = list(lengths_of(report.plan))
    return [length for length in lengths if length.seq_len == lengths[0].seq_len]


def in_all_layers(kinds: Sequence[CasesOfLength], seq_len: int) -> int:
    """Attention's FLOPs of a token's forward pass through all layers of these kinds."""
    return sum(
        (kind.attention.layers or 1) * attention_flops(spec_of(kind), seq_len)
        for kind in kinds
    )


def crossing(kinds: Sequence[CasesOfLength], ffn_flops: int) -> int | None:
    """The shortest length at which attention needs more FLOPs than the FFN, in the mean
    of these kinds of layers.
    """
    layers = sum(kind.attention.layers or 1 for kind in kinds)
    return overtakes_at(
        lambda seq_len: in_all_layers(kinds, seq_len), layers * ffn_flops
    )


def _tokens(length: CasesOfLength) -> int:
    return length.seq_len


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """FLOPs of a token in all passes of the mode, in the mean of all layers: of the
    FFN, of attention's projections, and of attention at lengths around those of a
    block.

    `overtaken_at` is the length at which attention needs more than the FFN, if it is
    not the first.
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
    """What a curve of one block's FLOPs shows."""
    lengths, kinds = list(lengths_of(report.plan)), kinds_of(report)
    passes = PRODUCTS[lengths[0].ffn.workload.mode]
    ffn = report.cost(report.plan.reference).flops_forward
    overtaken_at = None if ffn is None else crossing(kinds, ffn)
    marks = [length.seq_len for length in lengths]
    if overtaken_at == 1:  # it is above the FFN at every length
        overtaken_at = None
    if overtaken_at is not None:
        marks.append(overtaken_at)
    start, end = max(1.0, min(marks) / AROUND), max(marks) * AROUND
    seq_lens = sorted(
        {
            round(start * (end / start) ** (point / (POINTS - 1)))
            for point in range(POINTS)
        }
    )
    layers = sum(kind.attention.layers or 1 for kind in kinds)
    return Counts(
        ffn=None if ffn is None else passes * ffn,
        projections=passes * projection_flops(spec_of(lengths[0])),
        seq_lens=seq_lens,
        attention=[
            passes * in_all_layers(kinds, seq_len) / layers for seq_len in seq_lens
        ],
        overtaken_at=overtaken_at,
    )


def blocks_of(report: Report) -> list[Report]:
    """A report of each block of a sweep: its cells at several lengths, and what was
    found of these.
    """
    plans = parts_of(report.plan)
    if len(plans) == 1:
        return [report]
    parts = [restricted(report, plan) for plan in plans]
    return [replace(part, figures=figures_of(part)) for part in parts]


def block_records(report: Report) -> list[Row]:
    """The rows as they are saved."""
    unsaved = tuple(f"_{key}" for key in PART_WORDS)
    return [
        {key: value for key, value in row.items() if not key.endswith(unsaved)}
        for row in block_rows(report)
    ]


def block_rows(report: Report) -> list[Row]:
    """One flat row a length and window, everything in base units, unknown as None; with
    why a part has no time.

    Where layers differ in their windows, the mean of them all comes after those of each
    length.
    """
    of_cases = {row["label"]: row for row in case_rows(report)}
    rows = []
    for block in parts_of(report.plan):
        for _, windows in groupby(lengths_of(block), key=_tokens):
            lengths = list(windows)
            counted = [_counted_columns(report, length) for length in lengths]
            measured = [
                _measured_columns(report, length, of_cases) for length in lengths
            ]
            rows += [
                counts | times for counts, times in zip(counted, measured, strict=True)
            ]
            if len(lengths) > 1:
                conditions = {
                    key: value if key in (*CONDITION_KEYS, "threads") else None
                    for key, value in measured[0].items()
                }
                rows.append(_mean_over_layers(counted) | conditions)
    return rows


def _mean_over_layers(rows: list[Row]) -> Row:
    """What is counted of one length, on average over all layers."""
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
    spec, work = spec_of(length), length.ffn.workload
    ffn, attention = report.cost(length.ffn.label), report.cost(length.attention.label)
    passes = PRODUCTS[work.mode]
    parts = {
        "flops_projections": passes * projection_flops(spec),
        "flops_scores": passes * score_flops(spec, length.seq_len),
        "flops_values": passes * value_flops(spec, length.seq_len),
    }
    of_ffn = None if ffn.flops_forward is None else passes * ffn.flops_forward
    of_attention = sum(parts.values())
    return {
        "ffn": length.ffn.variant,
        "attention": spec.name,
        "sizing": sizing_text(length.ffn.sizing),
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
    """What was measured of one length and window: columns of the rows of its parts, and
    the FFN's share.
    """
    parts = {FFN: length.ffn, ATTENTION: length.attention, TEXTBOOK: length.textbook}
    row: Row = {}
    for name, case in parts.items():
        compared = () if name == FFN else RATIO_KEYS
        row |= _of_part(name, case, (*LATENCY_KEYS, PEAK, *compared), rows)
    row |= in_row(
        "ffn_share_latency", ffn_share(ratio_to_ffn(report, length.attention.label))
    )
    row |= {key: rows[length.ffn.label][key] for key in CONDITION_KEYS}
    for name, case in parts.items():
        row |= _of_part(name, case, (*DEVICE_KEYS, *PART_WORDS), rows)
    return row | {"threads": length.ffn.workload.threads}


def _of_part(
    name: str, case: Case | None, keys: Iterable[str], rows: dict[str, Row]
) -> Row:
    return {f"{name}_{key}": rows[case.label][key] if case else None for key in keys}


def ratio_to_ffn(report: Report, label: str) -> Estimate | None:
    """The ratio of a case to the FFN, or None."""
    comparison = report.comparison(label)
    return comparison.ratio if comparison else None


def ffn_share(ratio: Estimate | None) -> Estimate | None:
    """1 / (1 + attention / FFN), with the interval that the ratio's gives."""
    if ratio is None:
        return None
    low, high = (
        None if bound is None else 1 / (1 + bound) for bound in (ratio.high, ratio.low)
    )
    return replace(ratio, value=1 / (1 + ratio.value), low=low, high=high)
