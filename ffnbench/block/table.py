"""The answer of `block`: parameters matrix by matrix, FLOPs and bytes by length, and what was measured beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ffnbench.block.plan import ATTENTION, FFN, Length, lengths_of
from ffnbench.block.rows import (
    block_records,
    blocks_of,
    crossing,
    ffn_share,
    kinds_of,
    ratio_to_ffn,
    sees,
    spec_of,
)
from ffnbench.ffn.cost import bias_params, matrix_params
from ffnbench.ffn.spec import FFNSpec
from ffnbench.metrics import LATENCY, PEAK
from ffnbench.report.frame import Row
from ffnbench.report.tables.conditions import in_title
from ffnbench.report.tables.details import details
from ffnbench.report.tables.lines_below import failure_line, machine_line, to_do
from ffnbench.report.tables.table import (
    EXTRA,
    OF_NUMBER,
    OF_RATIO,
    Cell,
    Column,
    Field,
    TextTable,
    count,
    count_field,
    estimated,
    latency_cell,
    number_field,
    percentage,
    ratio_cell,
    table_of_fields,
    text_field,
)
from ffnbench.report.tables.words import CERTAIN, device_text, share_text, sizing_text
from ffnbench.result import Report, Verdict
from ffnbench.units import IEC, SI, TIME, counted, digits, scale

PASSES = {"forward": "forward", "train": "forward and backward", "backward": "backward"}  # in words, by mode
ACTIVE = "ffn, active"  # parameters that one token meets
OF_SHARE = 18
CONVENTION = "no norms, no position encodings; 1 MAC = 2 FLOPs"


def block_tables(report: Report) -> TextTable:
    """What was measured, or else counted by length; above it what can be counted without measuring. Of a sweep that
    for each block.
    """
    tables = []
    for one in blocks_of(report):
        lengths = list(lengths_of(one.plan))
        tables += [parts_table(one, lengths[0]), counted_table(one)]
        if report.environment is not None:
            tables.append(measured_table(one, lengths))
    return replace(tables[-1], above=tuple(tables[:-1]))


def counted_table(report: Report) -> TextTable:
    """FLOPs of a token and bytes of keys and values, one row a length and window; where attention overtakes."""
    rows = block_records(report)
    whole = ("flops_ffn", "flops_attention")  # the parts stand on the scale of the whole

    def flops(key: str, title: str, priority: int) -> Field:
        return number_field(rows, key, title, SI, priority, per="/tok", scaled_as=whole)

    fields: list[Field] = [
        count_field("seq_len", "seq_len", 0),
        *([count_field("layers", "layers", 0), text_field("sees", "sees", 0, left=True)] if rows[0]["layers"] else []),
        flops("flops_ffn", "FFN", 1),
        flops("flops_attention", "attention", 1),
        flops("flops_projections", "projections", 4),
        flops("flops_scores", "scores", 5),
        flops("flops_values", "values", 6),
        (Column(title="FFN's share", unit="of FLOPs"), lambda row: percentage(row["ffn_share_flops"])),
        number_field(rows, "kv_bytes", "KV", IEC, 3),
        flops("flops_softmax", "softmax", EXTRA),
        number_field(rows, "kv_bytes_per_token", "KV", IEC, EXTRA, per="/tok"),
    ]
    batch = rows[0]["batch"]
    kept = f"{batch} sequences" if batch > 1 else "one sequence"
    return table_of_fields(
        fields,
        rows,
        header=(f"FLOPs of a token, {PASSES[rows[0]['mode']]}; KV: keys and values of {kept}",),
        summary=(params_text(report), crossover(report), *(note.text for note in report.plan.notes)),
    )


def crossover(report: Report) -> str:
    """Where attention's FLOPs overtake the FFN's, by the closed forms: by windows, and in the mean of all layers."""
    kinds, ffn = kinds_of(report), report.cost(report.plan.reference).flops_forward
    if ffn is None:
        return "the FFN's FLOPs are unknown, and so is where attention overtakes it"
    if len(kinds) == 1:
        return overtaking_text(crossing(kinds, ffn))
    found = [f"{when(crossing([kind], ffn))} in the {_layers_text(kind)}" for kind in kinds]
    return f"in FLOPs attention overtakes the FFN {', '.join(found)}, {when(crossing(kinds, ffn))} in the mean of all"


def _layers_text(kind: Length) -> str:
    return f"{kind.attention.layers} layers that see {sees(spec_of(kind))}"


def when(at: int | None) -> str:
    """At which length attention overtakes."""
    return "never" if at is None else "at every length" if at == 1 else f"at {at:,} tokens"


def overtaking_text(at: int | None) -> str:
    """At which length attention overtakes, as a sentence."""
    if at == 1:
        return "attention needs more FLOPs than the FFN at every length"
    overtakes = "never overtakes the FFN" if at is None else f"overtakes the FFN {when(at)}"
    return f"in FLOPs attention {overtakes}"


def measured_table(report: Report, lengths: Sequence[Length]) -> TextTable:
    """Latencies, their ratios to the FFN's and the FFN's share, one row a length."""
    after = [*failure_line(report), *to_do(report), *machine_line(report)]
    return table_of_fields(
        _measured_fields(report, lengths),
        lengths,
        header=["measured"],
        summary=[*overtaken(report), *after],
        details=details(report),
    )


def _measured_fields(report: Report, lengths: Sequence[Length]) -> list[Field]:
    cases = report.plan.shown
    time, second = scale([e.value for c in cases if (e := report.estimate(c.label, LATENCY))], TIME)
    unit, byte = scale([e.value for c in cases if (e := report.estimate(c.label, PEAK))], IEC)
    parts = {"FFN": lambda one: one.ffn, "attention": lambda one: one.attention}
    if any(length.textbook for length in lengths):
        parts["textbook"] = lambda one: one.textbook

    def label(part: str, length: Length) -> str | None:
        case = parts[part](length)
        return case.label if case else None

    def times(part: str, priority: int) -> Field:
        column = Column(title=part, unit=time, priority=priority, takes=OF_NUMBER)
        return column, lambda length: latency_cell(report, label(part, length), second)

    def ratio(part: str, priority: int) -> Field:
        column = Column(title=part, unit=f"time vs FFN {CERTAIN}", priority=priority, takes=OF_RATIO)
        return column, lambda length: ratio_cell(report, label(part, length))

    def peak(part: str) -> Field:
        def cell(length: Length) -> Cell:
            of = label(part, length)
            estimate = report.estimate(of, PEAK) if of else None
            return estimated(estimate, lambda found: digits(found.value / byte))

        return Column(title=f"{part} peak", unit=unit, priority=EXTRA), cell

    def share(length: Length) -> Cell:
        return estimated(ffn_share(ratio_to_ffn(report, length.attention.label)), share_text)

    sees_what: Field = (Column(title="sees", left=True), lambda length: Cell(text=sees(spec_of(length))))
    return [
        (Column(title="seq_len"), lambda length: count(length.seq_len)),
        *([sees_what] if len(kinds_of(report)) > 1 else []),
        times("FFN", 1),
        *(field for part in list(parts)[1:] for field in (times(part, 1 + 2 * (part == "textbook")), ratio(part, 4))),
        (Column(title="FFN's share", unit=f"% of latency {CERTAIN}", takes=OF_SHARE), share),
        *map(peak, parts),
    ]


def overtaken(report: Report) -> Iterator[str]:
    """Between which lengths attention becomes the slower one, as far as the intervals tell, for each window."""
    kinds = kinds_of(report)
    for kind in kinds:
        where = f" where it sees {sees(spec_of(kind))}" if len(kinds) > 1 else ""
        found = {
            length.seq_len: report.comparison(length.attention.label)
            for length in lengths_of(report.plan)
            if spec_of(length).window == spec_of(kind).window
        }
        faster = [tokens for tokens, c in found.items() if c and c.verdict is Verdict.FASTER]
        slower = [tokens for tokens, c in found.items() if c and c.verdict is Verdict.SLOWER]
        if slower and faster and max(faster) < min(slower):
            yield f"measured, attention overtakes the FFN between {max(faster):,} and {min(slower):,} tokens{where}"
        elif faster and not slower:
            yield f"measured, attention takes less time than the FFN up to {max(faster):,} tokens{where}"
        elif slower and not faster:
            yield f"measured, attention takes more time than the FFN from {min(slower):,} tokens on{where}"


def parts_table(report: Report, length: Length) -> TextTable:
    """One row a matrix, and the sums; under -v alone."""
    fields = [
        text_field("part", "part", 0, left=True),
        text_field("shape", "rows x columns", 2),
        count_field("weights", "weights", 1),
        count_field("biases", "biases", 3),
        count_field("params", "params", 0),
    ]
    rows, sums = _attention_rows(length)
    table = table_of_fields(fields, [*rows, *sums, *ffn_rows(report, length)], header=_header(report, length))
    return replace(table, details=(CONVENTION,), extra=True)


def _attention_rows(length: Length) -> tuple[list[Row], list[Row]]:
    """Its matrices; the sums: q, k and v; with o all of attention."""
    spec = spec_of(length)
    rows = [_part(name, shape, spec.biases.get(name, 0)) for name, shape in spec.matrices.items()]
    inputs = [row for row in rows if row["part"] != "o"]
    name = "all but o" if spec.mla else " + ".join(row["part"] for row in inputs)
    return rows, [_sum(name, inputs), _sum(ATTENTION, rows)]


def params_text(report: Report) -> str:
    """How many times the FFN is as large."""
    length = next(lengths_of(report.plan))
    (_, (into, attention)), ffn = _attention_rows(length), ffn_rows(report, length)[-1]
    times = ", ".join(f"{ffn['params'] / row['params']:.2f} times {row['part']}" for row in (attention, into))
    active = f" (active for a token: {ffn['active'] / attention['params']:.2f} times)" if "active" in ffn else ""
    return f"the FFN has {ffn['params']:,} parameters: {times}{active}"


def ffn_rows(report: Report, length: Length) -> list[Row]:
    """The FFN's matrices and their sum; only the sum where it is code of the user's or of experts."""
    ffn, cost = length.ffn.ffn, report.cost(length.ffn.label)
    if not isinstance(ffn, FFNSpec):
        return [_total(FFN, cost.params)]
    if ffn.moe is not None:
        return [_total(ACTIVE, cost.params_active), _total(FFN, cost.params) | {"active": cost.params_active}]
    rows = [_part(name, shape, shape[0] if ffn.bias else 0) for name, shape in ffn.matrices.items()]
    return [*rows, _total(FFN, cost.params) | {"weights": matrix_params(ffn), "biases": bias_params(ffn)}]


def _total(name: str, params: int) -> Row:
    return {"part": name, "shape": "", "weights": None, "biases": None, "params": params}


def _part(name: str, shape: tuple[int, int], bias: int) -> Row:
    weights, text = shape[0] * shape[1], f"{shape[0]:,} x {shape[1]:,}"
    return {"part": name, "shape": text, "weights": weights, "biases": bias, "params": weights + bias}


def _sum(name: str, parts: Sequence[Row]) -> Row:
    return {"part": name, "shape": "", **{key: sum(p[key] for p in parts) for key in ("weights", "biases", "params")}}


def _header(report: Report, length: Length) -> tuple[str, ...]:
    case, spec, work = length.ffn, spec_of(length), length.ffn.workload
    width = f", d_ff {case.ffn.d_ff:,}" if case.ffn.d_ff else ""
    heads = f"{counted(spec.heads, 'head')} of {spec.head_dim}"
    if spec.mla is not None:
        heads = f"{spec.heads} heads of {spec.key_dim}, values of {spec.value_dim}"
    elif spec.kv_heads != spec.heads:
        heads += f", {spec.kv_heads} of keys and values"
    kinds = kinds_of(report)
    windows = "; " + ", ".join(map(_layers_text, kinds)) if len(kinds) > 1 else ""
    if len(kinds) == 1 and spec.window:
        windows = f", seeing {sees(spec)}"
    where = [device_text(work), *in_title(report.plan)] if report.environment else []
    batch = [f"batch {work.batch}"] if work.batch > 1 else []
    return (
        ", ".join([f"d_model {case.ffn.d_model:,}", work.dtype, *where, work.mode, *batch])
        + f"; {case.variant}{width} ({sizing_text(case.sizing)})",
        f"{spec.name} attention: {heads}, {'causal' if spec.causal else 'not causal'}{windows}",
    )
