"""A block's figures by length, flat: FLOPs, bytes, latencies, and the FFN's share of each.

Shares are those of the FFN in the two together, as a block's norms are left out; a measured share is 1 / (1 + ratio)
of attention to the FFN, so its interval is the ratio's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from ffnbench.ffn.attention import (
    AttentionSpec,
    attention_flops,
    kept_tokens,
    kv_bytes,
    overtakes_at,
    projection_flops,
    score_flops,
    value_flops,
)
from ffnbench.metrics import DEVICE_TIME, HOST_TIME, LATENCY, PEAK
from ffnbench.plan import Mode
from ffnbench.planning.block import ATTENTION, FFN, TEXTBOOK, Length, lengths_of
from ffnbench.report.conditions import condition_values
from ffnbench.report.records import Record, seconds_record
from ffnbench.report.words import sizing_text
from ffnbench.result import Estimate, Report
from ffnbench.stats.launch_bound import launch_bound

PRODUCTS = {Mode.FORWARD.value: 1, Mode.TRAIN.value: 3, Mode.BACKWARD.value: 2}  # backward: two products for each

MEAN = "mean"  # of all layers, in place of what a token sees


def spec_of(length: Length) -> AttentionSpec:
    """The attention of a block."""
    assert isinstance(length.attention.ffn, AttentionSpec)
    return length.attention.ffn


def sees(spec: AttentionSpec) -> str:
    """How many tokens one sees: `all`, `the last 128`."""
    if spec.window is None:
        return "all"
    return f"the last {spec.window:,}" if spec.causal else f"{spec.window:,} to either side"


def kinds_of(report: Report) -> list[Length]:
    """Each window at the shortest length."""
    lengths = list(lengths_of(report.plan))
    return [length for length in lengths if length.seq_len == lengths[0].seq_len]


def in_all_layers(kinds: Sequence[Length], seq_len: int) -> int:
    """Attention's FLOPs of a token's forward pass through all layers of these kinds."""
    return sum((kind.attention.layers or 1) * attention_flops(spec_of(kind), seq_len) for kind in kinds)


def crossing(kinds: Sequence[Length], ffn_flops: int) -> int | None:
    """The shortest length at which attention needs more FLOPs than the FFN, in the mean of these kinds of layers."""
    layers = sum(kind.attention.layers or 1 for kind in kinds)
    return overtakes_at(lambda seq_len: in_all_layers(kinds, seq_len), layers * ffn_flops)


def block_records(report: Report) -> list[Record]:
    """One flat record a length and window, everything in base units, unknown as None: what csv holds.

    Where layers differ in their windows, the mean of them all comes after those of each length.
    """
    found = []
    for _, group in groupby(lengths_of(report.plan), key=lambda length: length.seq_len):
        lengths = list(group)
        counted = [_counted(report, length) for length in lengths]
        found += [row | _all_measured(report, length) for row, length in zip(counted, lengths, strict=True)]
        if len(lengths) > 1:
            nothing = dict.fromkeys(_all_measured(report, lengths[0]))
            found.append(_mean(counted) | nothing | condition_values(lengths[0].ffn.workload))
    return found


def _mean(rows: list[Record]) -> Record:
    """What is counted of one length, on average over all layers."""
    layers = sum(row["layers"] for row in rows)
    keys = ("flops_attention", "flops_scores", "flops_values", "flops_softmax", "kv_bytes")
    means = {key: round(sum(row["layers"] * row[key] for row in rows) / layers) for key in keys}
    share = _share(rows[0]["flops_ffn"], means["flops_attention"])
    return {**rows[0], **means, "sees": MEAN, "layers": layers, "ffn_share_flops": share}


def _share(of_ffn: int | None, of_attention: int) -> float | None:
    return None if of_ffn is None else of_ffn / (of_ffn + of_attention)


def _counted(report: Report, length: Length) -> Record:
    spec, work = spec_of(length), length.ffn.workload
    ffn, attention = report.cost(length.ffn.label), report.cost(length.attention.label)
    passes = PRODUCTS[work.mode]
    flops = {
        "flops_projections": projection_flops(spec),
        "flops_scores": score_flops(spec, length.seq_len),
        "flops_values": value_flops(spec, length.seq_len),
    }
    counted = {name: passes * value for name, value in flops.items()}
    of_ffn = None if ffn.flops_forward is None else passes * ffn.flops_forward
    of_attention = sum(counted.values())
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
        **counted,
        "ffn_share_flops": _share(of_ffn, of_attention),
        "flops_softmax": attention.flops_elementwise,
        "kv_bytes_per_token": kv_bytes(spec, work.dtype),
        "kv_bytes": kv_bytes(spec, work.dtype) * kept_tokens(spec, length.seq_len) * work.batch,
    }


def _all_measured(report: Report, length: Length) -> Record:
    """What was measured of one length and window."""
    measured: Record = {}
    on_device: Record = condition_values(length.ffn.workload)
    for name, case in ((FFN, length.ffn), (ATTENTION, length.attention), (TEXTBOOK, length.textbook)):
        measured |= _measured(report, name, case.label if case else "")
        on_device |= _on_device(report, name, case.label if case else "")
    share = ffn_share(ratio_to_ffn(report, length.attention.label))
    return {
        **measured,
        "ffn_share_latency": share.value if share else None,
        "ffn_share_latency_low": share.low if share else None,
        "ffn_share_latency_high": share.high if share else None,
        **on_device,
    }


def _measured(report: Report, name: str, label: str) -> Record:
    latency, peak, ratio = report.estimate(label, LATENCY), report.estimate(label, PEAK), ratio_to_ffn(report, label)
    found: Record = {
        f"{name}_latency_s": latency.value if latency else None,
        f"{name}_latency_low_s": latency.low if latency else None,
        f"{name}_latency_high_s": latency.high if latency else None,
        f"{name}_peak_bytes": int(peak.value) if peak else None,
    }
    if name == FFN:
        return found
    return found | {
        f"{name}_ratio": ratio.value if ratio else None,
        f"{name}_ratio_low": ratio.low if ratio else None,
        f"{name}_ratio_high": ratio.high if ratio else None,
    }


def _on_device(report: Report, name: str, label: str) -> Record:
    """What the device works for a call of a part, and what issuing it takes the CPU."""
    return {
        **seconds_record(report, label, DEVICE_TIME, f"{name}_{DEVICE_TIME}"),
        **seconds_record(report, label, HOST_TIME, f"{name}_{HOST_TIME}"),
        f"{name}_launch_bound": launch_bound(report, label),
    }


def ratio_to_ffn(report: Report, label: str) -> Estimate | None:
    """The ratio of a case to the FFN, or None."""
    comparison = report.comparison(label)
    return comparison.ratio if comparison else None


def ffn_share(ratio: Estimate | None) -> Estimate | None:
    """1 / (1 + attention / FFN), with the interval that the ratio's gives."""
    if ratio is None:
        return None
    low, high = (None if bound is None else 1 / (1 + bound) for bound in (ratio.high, ratio.low))
    return replace(ratio, value=1 / (1 + ratio.value), low=low, high=high)
