"""The answer of `block`: parameters matrix by matrix, FLOPs and bytes by length, and what was measured beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ffnbench.block.plan import ATTENTION, FFN, TEXTBOOK, Length, lengths_of
from ffnbench.block.rows import MEAN, block_records, block_rows, blocks_of, crossing, kinds_of, sees, spec_of
from ffnbench.choices import Mode
from ffnbench.common.units import counted
from ffnbench.ffn.cost import bias_params, matrix_params
from ffnbench.ffn.spec import FFNSpec
from ffnbench.report.columns import column
from ffnbench.report.frame import Frame, Row
from ffnbench.report.header import in_title
from ffnbench.report.notes import details
from ffnbench.report.sentences import failure_line, machine_line, to_do
from ffnbench.report.words import device_text, sizing_text
from ffnbench.result import Report, Verdict

PASSES = {
    Mode.FORWARD: "forward",
    Mode.TRAIN: "forward and backward",
    Mode.BACKWARD: "backward",
}
ACTIVE = "ffn, active"  # parameters that one token meets
CONVENTION = "no norms, no position encodings; 1 MAC = 2 FLOPs"
COUNTED = (
    "flops_ffn", "flops_attention", "flops_projections", "flops_scores", "flops_values", "ffn_share_flops", "kv_bytes",
    "flops_softmax", "kv_bytes_per_token",
)  # fmt: skip
PARTS = ("part", "shape", "weights", "biases", "params")


def block_frame(report: Report) -> Frame:
    """What was measured, or else counted by length; above it what can be counted without measuring. Of a sweep that
    for each block.
    """
    frames = []
    for block in blocks_of(report):
        rows = block_rows(block)
        frames += [_parts(block), _counted(block, rows)]
        if report.environment is not None:
            frames.append(_measured(block, [row for row in rows if row["sees"] != MEAN]))
    return replace(frames[-1], above=tuple(frames[:-1]), saved=block_records(report))


def _counted(report: Report, rows: list[Row]) -> Frame:
    """FLOPs of a token and bytes of keys and values, one row a length and window; where attention overtakes."""
    batch = rows[0]["batch"]
    kept = f"{batch} sequences" if batch > 1 else "one sequence"
    windows = ("layers", "sees") if rows[0]["layers"] else ()
    seq_len = column("seq_len", 0, write=None)
    return Frame(
        columns=(seq_len, *map(column, windows), *map(column, COUNTED)),
        rows=rows,
        header=[f"FLOPs of a token, {PASSES[rows[0]['mode']]}; KV: keys and values of {kept}"],
        summary=[_params_text(report), _crossover(report), *(note.text for note in report.plan.notes)],
    )


def _measured(report: Report, rows: list[Row]) -> Frame:
    """Latencies, their ratios to the FFN's and the FFN's share, one row a length."""
    parts = [FFN, ATTENTION]
    if any(length.textbook for length in lengths_of(report.plan)):
        parts.append(TEXTBOOK)
    names = [f"{FFN}_latency_s"]
    for part in parts[1:]:
        names += [f"{part}_latency_s", f"{part}_ratio"]
    windows = ["sees"] if len(kinds_of(report)) > 1 else []
    shown = [*windows, *names, "ffn_share_latency", *(f"{part}_peak_bytes" for part in parts)]
    return Frame(
        columns=(column("seq_len", 0, write=None), *map(column, shown)),
        rows=rows,
        header=["measured"],
        summary=[*_overtaken(report), *failure_line(report), *to_do(report), *machine_line(report)],
        details=details(report),
    )


def _parts(report: Report) -> Frame:
    """One row a matrix, and the sums; under -v alone."""
    length = next(lengths_of(report.plan))
    rows, sums = _attention_rows(length)
    return Frame(
        columns=tuple(column(name, 0 if name == "params" else None) for name in PARTS),
        rows=[*rows, *sums, *_ffn_rows(report, length)],
        header=_header(report, length),
        details=[CONVENTION],
        verbose_only=True,
    )


def _crossover(report: Report) -> str:
    """Where attention's FLOPs overtake the FFN's, by the closed forms: by windows, and in the mean of all layers."""
    kinds, ffn = kinds_of(report), report.cost(report.plan.reference).flops_forward
    if ffn is None:
        return "the FFN's FLOPs are unknown, and so is where attention overtakes it"
    if len(kinds) == 1:
        return overtaking_text(crossing(kinds, ffn))
    found = [f"{_when(crossing([kind], ffn))} in the {_layers_text(kind)}" for kind in kinds]
    return f"in FLOPs attention overtakes the FFN {', '.join(found)}, {_when(crossing(kinds, ffn))} in the mean of all"


def _layers_text(kind: Length) -> str:
    return f"{kind.attention.layers} layers that see {sees(spec_of(kind))}"


def _when(at: int | None) -> str:
    """At which length attention overtakes."""
    return "never" if at is None else "at every length" if at == 1 else f"at {at:,} tokens"


def overtaking_text(at: int | None) -> str:
    """At which length attention overtakes, as a sentence."""
    if at == 1:
        return "attention needs more FLOPs than the FFN at every length"
    overtakes = "never overtakes the FFN" if at is None else f"overtakes the FFN {_when(at)}"
    return f"in FLOPs attention {overtakes}"


def _overtaken(report: Report) -> Iterator[str]:
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


def _attention_rows(length: Length) -> tuple[list[Row], list[Row]]:
    """Its matrices; the sums: q, k and v; with o all of attention."""
    spec = spec_of(length)
    rows = [_part(name, shape, spec.biases.get(name, 0)) for name, shape in spec.matrices.items()]
    inputs = [row for row in rows if row["part"] != "o"]
    name = "all but o" if spec.mla else " + ".join(row["part"] for row in inputs)
    return rows, [_sum(name, inputs), _sum(ATTENTION, rows)]


def _params_text(report: Report) -> str:
    """How many times the FFN is as large."""
    length = next(lengths_of(report.plan))
    (_, (into, attention)), ffn = _attention_rows(length), _ffn_rows(report, length)[-1]
    times = ", ".join(f"{ffn['params'] / row['params']:.2f} times {row['part']}" for row in (attention, into))
    active = f" (active for a token: {ffn['active'] / attention['params']:.2f} times)" if "active" in ffn else ""
    return f"the FFN has {ffn['params']:,} parameters: {times}{active}"


def _ffn_rows(report: Report, length: Length) -> list[Row]:
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
