"""The answer of `block`: parameters, FLOPs and bytes by length, and what was measured
beside them.
"""

from __future__ import annotations

from dataclasses import replace

from ffnbench.block.plan import ATTENTION, FFN, TEXTBOOK, CasesOfLength, lengths_of
from ffnbench.block.rows import (
    MEAN,
    block_records,
    block_rows,
    blocks_of,
    crossing,
    kinds_of,
    sees,
)
from ffnbench.common.choices import Mode
from ffnbench.common.units import IEC, SI, TIME, counted
from ffnbench.record.result import Report, Verdict
from ffnbench.report.columns import (
    SHARE_WIDTH,
    TOKEN,
    seen_style,
    with_percent_sign,
)
from ffnbench.report.header import common_conditions
from ffnbench.report.notes import details
from ffnbench.report.sentences import ending, failures, what_would_help
from ffnbench.report.table import (
    EXTRA,
    NUMBER_WIDTH,
    RATIO_WIDTH,
    Column,
    Row,
    Table,
)
from ffnbench.report.words import (
    CERTAIN,
    device_text,
    interval_text,
    seconds_text,
    share_text,
)

PASSES_OF_MODE = {
    Mode.FORWARD: "forward",
    Mode.TRAIN: "forward and backward",
    Mode.BACKWARD: "backward",
}
CONVENTION = "no norms, no position encodings; 1 MAC = 2 FLOPs"
SEQ_LEN, SEES = Column("seq_len"), Column("sees", left=True)


def _flops(key: str, title: str, priority: int) -> Column:
    """FLOPs of a part of a block, in the same unit as those of FFN and attention."""
    same = ("flops_ffn", "flops_attention")
    return Column(key, title, TOKEN, units=SI, priority=priority, scaled_with=same)


COUNTED_COLUMNS = (
    _flops("flops_ffn", "FFN", 1),
    _flops("flops_attention", "attention", 1),
    _flops("flops_projections", "projections", 4),
    _flops("flops_scores", "scores", 5),
    _flops("flops_values", "values", 6),
    Column("ffn_share_flops", "FFN's share", "of FLOPs", read=with_percent_sign),
    Column("kv_bytes", "KV", units=IEC, priority=3),
    _flops("flops_softmax", "softmax", EXTRA),
    Column("kv_bytes_per_token", "KV", TOKEN, units=IEC, priority=EXTRA),
)
SHARE = Column(
    "ffn_share_latency",
    "FFN's share",
    f"% of latency {CERTAIN}",
    interval=True,
    read=share_text,
    least_width=SHARE_WIDTH,
)


def block_tables(report: Report) -> list[Table]:
    """What is counted by length, and below it what was measured; in a sweep both for
    each block.
    """
    tables = []
    for block in blocks_of(report):
        rows = block_rows(block)
        tables.append(_counted_table(block, rows))
        if not report.is_of_counts:
            tables.append(
                _measured_table(block, [row for row in rows if row["sees"] != MEAN])
            )
    *others, last = tables
    return [*others, replace(last, saved=block_records(report))]


def _counted_table(report: Report, rows: list[Row]) -> Table:
    """FLOPs of a token and bytes of keys and values, one row for each length and
    window; below them where attention overtakes the FFN.
    """
    batch = rows[0]["batch"]
    sequences = f"{batch} sequences" if batch > 1 else "one sequence"
    windows = (Column("layers"), SEES) if rows[0]["layers"] else ()
    passes = PASSES_OF_MODE[rows[0]["mode"]]
    return Table(
        columns=(SEQ_LEN, *windows, *COUNTED_COLUMNS),
        rows=rows,
        header=[
            *_header(report),
            f"FLOPs of a token, {passes}; KV: keys and values of {sequences}",
        ],
        summary=[
            _params_text(report),
            _crossover(report),
            *(note.text for note in report.plan.notes),
        ],
        details=[CONVENTION],
    )


def _measured_table(report: Report, rows: list[Row]) -> Table:
    """Latencies, their ratios to the FFN's and the FFN's share, one row for each length
    and window.
    """
    parts = [FFN, ATTENTION]
    if any(length.textbook for length in lengths_of(report.plan)):
        parts.append(TEXTBOOK)
    windows = (SEES,) if len(kinds_of(report)) > 1 else ()
    latency, _, *peaks = _columns_of_part(FFN)  # the reference, whose ratio would be 1
    times = [latency]
    for part in parts[1:]:
        latency, ratio, peak = _columns_of_part(part)
        times += [latency, ratio]
        peaks.append(peak)
    return Table(
        columns=(SEQ_LEN, *windows, *times, SHARE, *peaks),
        rows=rows,
        header=["measured"],
        summary=[
            *_overtaking_lines(report),
            *filter(None, [failures(report), what_would_help(report), ending(report)]),
        ],
        details=details(report),
    )


def _columns_of_part(part: str) -> tuple[Column, Column, Column]:
    """The columns of a part of a block: latency, ratio and peak of activations, in the
    same units for all parts.
    """
    title, parts = {FFN: "FFN"}.get(part, part), (FFN, ATTENTION, TEXTBOOK)

    def style(row: Row) -> str:
        return seen_style({key: row[f"{part}_{key}"] for key in ("verdict", "failure")})

    latency = Column(
        f"{part}_latency_s",
        title,
        units=TIME,
        interval=True,
        read=seconds_text,
        style=style,
        priority=3 if part == TEXTBOOK else 1,
        least_width=NUMBER_WIDTH,
        scaled_with=tuple(f"{name}_latency_s" for name in parts),
    )
    ratio = Column(
        f"{part}_ratio",
        title,
        f"time vs FFN {CERTAIN}",
        interval=True,
        read=interval_text,
        priority=4,
        least_width=RATIO_WIDTH,
    )
    peak = Column(
        f"{part}_peak_bytes",
        f"{title} peak",
        units=IEC,
        priority=EXTRA,
        scaled_with=tuple(f"{name}_peak_bytes" for name in parts),
    )
    return latency, ratio, peak


def _crossover(report: Report) -> str:
    """Where attention's FLOPs overtake the FFN's by the closed forms, as a sentence:
    for each kind of layer, and in the mean of all.
    """
    kinds, ffn = kinds_of(report), report.cost(report.plan.reference).flops_forward
    if ffn is None:
        return "the FFN's FLOPs are unknown, and so is where attention overtakes it"
    places = [_length_text(crossing(kinds, ffn))]
    if len(kinds) > 1:
        places[0] += " in the mean of all"
        places += [
            f"{_length_text(crossing([kind], ffn))} in the {_layers_text(kind)}"
            for kind in kinds
        ]
    return f"in FLOPs attention overtakes the FFN {', '.join(places)}"


def _layers_text(kind: CasesOfLength) -> str:
    """`20 layers that see the last 128`."""
    return f"{kind.attention.layers} layers that see {sees(kind.spec)}"


def _length_text(at: int | None) -> str:
    """At which length attention overtakes, as a part of a sentence."""
    if at is None:
        return "never"
    if at == 1:
        return "at every length"
    return f"at {at:,} tokens"


def _overtaking_lines(report: Report) -> list[str]:
    """For each kind of layer a sentence on the lengths between which attention becomes
    the slower one, as far as the verdicts tell.
    """
    kinds = kinds_of(report)
    lines = []
    for kind in kinds:
        lengths: dict[Verdict, list[int]] = {}
        for length in lengths_of(report.plan):
            comparison = report.comparison(length.attention.label)
            if comparison and length.spec.window == kind.spec.window:
                lengths.setdefault(comparison.verdict, []).append(length.seq_len)
        faster = max(lengths.get(Verdict.FASTER, [0]))
        slower = min(lengths.get(Verdict.SLOWER, [0]))
        where = f" where it sees {sees(kind.spec)}" if len(kinds) > 1 else ""
        text = ""
        if faster and not slower:
            text = f"takes less time than the FFN up to {faster:,} tokens"
        elif slower and not faster:
            text = f"takes more time than the FFN from {slower:,} tokens on"
        elif faster < slower:
            text = f"overtakes the FFN between {faster:,} and {slower:,} tokens"
        if text:
            lines.append(f"measured, attention {text}{where}")
    return lines


def _params_text(report: Report) -> str:
    """How many times the parameters of attention the FFN has, as a sentence."""
    length = next(lengths_of(report.plan))
    ffn = report.cost(length.ffn.label)
    attention = report.cost(length.attention.label).params
    times = f"{ffn.params / attention:.2f} times attention"
    if ffn.params_active != ffn.params:
        times += f" (active for a token: {ffn.params_active / attention:.2f} times)"
    return f"the FFN has {ffn.params:,} parameters: {times}"


def _header(report: Report) -> list[str]:
    """Two lines on what a block is: its conditions and FFN, and its attention."""
    length = next(lengths_of(report.plan))
    case, spec, work = length.ffn, length.spec, length.ffn.workload
    facts = [f"d_model {case.ffn.d_model:,}", work.dtype]
    if report.environment:
        facts += [device_text(work), *common_conditions(report.plan)]
    facts.append(work.mode)
    if work.batch > 1:
        facts.append(f"batch {work.batch}")
    width = f", d_ff {case.ffn.d_ff:,}" if case.ffn.d_ff else ""

    if spec.mla is not None:
        heads = f"{spec.heads} heads of {spec.key_dim}, values of {spec.value_dim}"
    else:
        heads = f"{counted(spec.heads, 'head')} of {spec.head_dim}"
        if spec.kv_heads != spec.heads:
            heads += f", {spec.kv_heads} of keys and values"
    kinds = kinds_of(report)
    windows = ""
    if len(kinds) > 1:
        windows = f"; {', '.join(map(_layers_text, kinds))}"
    elif spec.window:
        windows = f", seeing {sees(spec)}"
    return [
        f"{', '.join(facts)}; {case.variant}{width}",
        f"{spec.name} attention: {heads}, {'causal' if spec.causal else 'not causal'}{windows}",
    ]
