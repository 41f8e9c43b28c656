"""The columns of a stack of blocks: what is counted of a block, its time, and the FFN's
part of both. CSV, JSON lists and data frames have these keys.

Counts are of one block, the mean over the layers of a stack. FLOPs are those of matrix
products of one token in the stack's mode.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ffnbench.block.plan import stacks_of
from ffnbench.common.choices import Mode
from ffnbench.common.units import IEC, SI, TIME
from ffnbench.ffn.attention import (
    attention_flops,
    cached_tokens,
    kv_bytes,
    projection_flops,
    score_flops,
    softmax_flops,
    value_flops,
)
from ffnbench.ffn.cost import Cost
from ffnbench.ffn.spec import AttentionSpec, StackSpec
from ffnbench.plan.metrics import LATENCY, PEAK, SAVED
from ffnbench.plan.plan import Case
from ffnbench.record.result import Comparison, Estimate, Report
from ffnbench.report.columns import (
    SHARE_WIDTH,
    TOKEN,
    column,
    seen_style,
    with_percent_sign,
)
from ffnbench.report.header import CONDITIONS
from ffnbench.report.table import (
    EXTRA,
    NUMBER_WIDTH,
    RATIO_WIDTH,
    Column,
    Row,
    in_row,
)
from ffnbench.report.words import CERTAIN, interval_text, seconds_text, share_text
from ffnbench.stats.in_place import alone

# FLOPs of a mode over those of forward: backward has two products for each of forward's
FLOPS_FACTOR = {Mode.FORWARD: 1, Mode.TRAIN: 3, Mode.BACKWARD: 2}
Of = Callable[[Report, Case], Any]
OfAttention = Callable[[AttentionSpec, Case], int]
SECONDS = ("block_s", "ffn_s", "alone_s")
FLOPS = ("flops_ffn", "flops_attention")


def block_rows(report: Report) -> list[Row]:
    """A row for each stack with FFNs, point by point."""
    return [
        _row(report, case) for group in report.plan.groups for case in stacks_of(group)
    ]


def _row(report: Report, case: Case) -> Row:
    row: Row = {}
    for each in COLUMNS:
        assert each.of is not None
        value = each.of(report, case)
        row |= in_row(each.key, value) if each.interval else {each.key: value}
    for key, value in case.point:
        row.setdefault(key, value)
    return row


def sees(spec: AttentionSpec) -> str:
    """Which tokens a token sees, in words: `all`, `the last 128`."""
    if spec.window is None:
        return "all"
    if spec.causal:
        return f"the last {spec.window:,}"
    return f"{spec.window:,} to either side"


def mean_of_layers(stack: StackSpec, of: Callable[[AttentionSpec], int]) -> float:
    """The mean of a count of attention over the layers of a stack."""
    total = sum(count * of(spec) for spec, count in stack.attentions)
    return total / stack.layers


def stack_of(case: Case) -> StackSpec:
    """The spec of a stack."""
    assert isinstance(case.ffn, StackSpec)
    return case.ffn


def cost_of_ffn(report: Report, case: Case) -> Cost:
    """The cost of one of the FFNs of a stack."""
    by_itself = alone(report.plan.group_of(case.label), case)
    assert by_itself is not None
    return report.cost(by_itself.label)


def ffn_flops(report: Report, case: Case) -> int | None:
    """FLOPs of a token in the FFN; None where they are not known."""
    flops = cost_of_ffn(report, case).flops_forward
    return None if flops is None else FLOPS_FACTOR[case.workload.mode] * flops


def ffn_share_of_flops(report: Report, case: Case, seq_len: int) -> float | None:
    """The FFN's share of the FLOPs of a block at a length."""
    of_ffn = cost_of_ffn(report, case).flops_forward
    of_attention = mean_of_layers(
        stack_of(case), lambda spec: attention_flops(spec, seq_len)
    )
    return None if of_ffn is None else of_ffn / (of_ffn + of_attention)


def _of_first(name: str) -> Of:
    """A field of the attention, the same in all layers."""
    return lambda report, case: getattr(stack_of(case).attentions[0][0], name)


def _mean(of: OfAttention) -> Of:
    """A count of attention, rounded."""
    return lambda report, case: round(
        mean_of_layers(stack_of(case), lambda spec: of(spec, case))
    )


def _flops(of: Callable[[AttentionSpec, int], int]) -> Of:
    return _mean(
        lambda spec, case: (
            FLOPS_FACTOR[case.workload.mode] * of(spec, case.workload.seq_len)
        )
    )


def _kv_bytes(spec: AttentionSpec, case: Case) -> int:
    """Bytes of the keys and values that a cache keeps of all sequences."""
    work = case.workload
    return kv_bytes(spec, work.dtype) * cached_tokens(spec, work.seq_len) * work.batch


def _of_layers(report: Report, case: Case) -> str:
    """What tokens see, by kind of layer: `the last 128 in 4, all in 4`."""
    kinds = stack_of(case).attentions
    if len(kinds) == 1:
        return sees(kinds[0][0])
    return ", ".join(f"{sees(spec)} in {count}" for spec, count in kinds)


def _block_seconds(report: Report, case: Case) -> Estimate | None:
    stack = report.estimate(case.label, LATENCY)
    if stack is None:
        return None
    layers = stack_of(case).layers
    low, high = (end and end / layers for end in (stack.low, stack.high))
    return replace(stack, value=stack.value / layers, low=low, high=high)


def _of_part(name: str) -> Of:
    def value(report: Report, case: Case) -> Any:
        return getattr(report.figures.in_place.get(case.label), name, None)

    return value


def _alone(of: Callable[[Report, str], Any]) -> Of:
    """A figure of the FFN alone, by the label of its case."""

    def value(report: Report, case: Case) -> Any:
        by_itself = alone(report.plan.group_of(case.label), case)
        return None if by_itself is None else of(report, by_itself.label)

    return value


def alone_ratio(report: Report, case: Case) -> Estimate | None:
    """The ratio of the FFN of a stack by itself to that of the reference."""
    ratio: Estimate | None = _alone(_ratio)(report, case)
    return ratio


def _ratio(report: Report, label: str) -> Estimate | None:
    comparison: Comparison | None = report.comparison(label)
    return comparison.ratio if comparison else None


def _saved_bytes(report: Report, case: Case) -> int | None:
    """What a block saves for backward."""
    saved = report.value(case.label, SAVED)
    return None if saved is None else round(saved / stack_of(case).layers)


def _ratio_column(key: str, what: str, of: Of, priority: int, **more: Any) -> Column:
    return Column(
        key,
        what,
        f"vs reference {CERTAIN}",
        of=of,
        interval=True,
        read=interval_text,
        word=lambda row: "1" if row["verdict"] == "reference" and row[key] else None,
        priority=priority,
        least_width=RATIO_WIDTH,
        **more,
    )


def _seconds_column(key: str, title: str, of: Of, priority: int) -> Column:
    return Column(
        key,
        title,
        of=of,
        units=TIME,
        interval=True,
        read=seconds_text,
        scaled_with=SECONDS,
        priority=priority,
        least_width=NUMBER_WIDTH,
    )


def _flops_column(key: str, title: str, of: Of, priority: int) -> Column:
    return Column(
        key, title, TOKEN, of=of, units=SI, scaled_with=FLOPS, priority=priority
    )


# whether the FFN alone has another ratio
DIFFERS = {True: "differs", False: "agrees"}

# fmt: off
NAMES = (
    column("label"), column("variant"),
    *map(column, ("d_model", "d_ff", "dtype", "device", "mode", "backend", "batch", "seq_len", "threads")),
    *(column(each.key) for each in CONDITIONS if each.key in ("latency_time", "matmul_precision")),
    Column("layers", of=lambda report, case: stack_of(case).layers),
    Column("norm", of=lambda report, case: str(stack_of(case).norm)),
    *(Column(key, of=_of_first(key)) for key in ("heads", "kv_heads", "causal")),
    Column("sees", of=_of_layers, left=True),
)
COUNTS = (
    Column("ffn_params", "FFN", "params", of=lambda report, case: cost_of_ffn(report, case).params, units=SI, priority=7),
    Column("ffn_params_active", "active", of=lambda report, case: cost_of_ffn(report, case).params_active, units=SI, priority=EXTRA),
    Column("attention_params", "attention", "params", of=_mean(lambda spec, case: spec.params), units=SI, priority=EXTRA),
    _flops_column("flops_ffn", "FFN", ffn_flops, 1),
    _flops_column("flops_attention", "attention", _flops(attention_flops), 1),
    _flops_column("flops_projections", "projections", _flops(lambda spec, seq_len: projection_flops(spec)), 4),
    _flops_column("flops_scores", "scores", _flops(score_flops), 5),
    _flops_column("flops_values", "values", _flops(value_flops), 6),
    _flops_column("flops_softmax", "softmax", _flops(softmax_flops), EXTRA),
    Column("ffn_share_flops", "FFN's share", "of FLOPs", read=with_percent_sign,
           of=lambda report, case: ffn_share_of_flops(report, case, case.workload.seq_len)),
    Column("kv_bytes", "KV", of=_mean(_kv_bytes), units=IEC, priority=3),
)
MEASURED = (
    _seconds_column("block_s", "block", _block_seconds, 3),
    _seconds_column("ffn_s", "its FFN", _of_part("part"), 2),
    Column("ffn_share", "share", f"% {CERTAIN}", of=_of_part("share"), interval=True, read=share_text, priority=4,
           least_width=SHARE_WIDTH),
    _ratio_column("block_ratio", "blocks", lambda report, case: _ratio(report, case.label), 6, style=seen_style),
    column("verdict", 5),
    _ratio_column("ffn_ratio", "FFN in place", _of_part("ratio"), 0),
    _ratio_column("alone_ratio", "alone, hot", alone_ratio, 0),
    Column("alone_differs", "vs in place", of=_of_part("differs"), left=True, word=lambda row: DIFFERS.get(row["alone_differs"], ""), priority=1),
    _seconds_column("alone_s", "FFN alone", _alone(lambda report, label: report.estimate(label, LATENCY)), EXTRA),
    Column(SAVED, "saved", of=_saved_bytes, units=IEC, priority=5),
    column(PEAK, EXTRA),
)
# fmt: on
COLUMNS = (*NAMES, *COUNTS, *MEASURED, column("failure"))
