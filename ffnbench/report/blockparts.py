"""A block's parameters, matrix by matrix: q, k, v and o, the FFN's, their sums and how they compare."""

from __future__ import annotations

from collections.abc import Sequence

from ffnbench.blockplan import ATTENTION, FFN, Length
from ffnbench.ffn.cost import bias_params, matrix_params
from ffnbench.ffn.spec import FFNSpec
from ffnbench.plan import Case
from ffnbench.report.blockrecords import spec_of
from ffnbench.report.listing import Record
from ffnbench.report.table import UNKNOWN, Cell, Column, Table
from ffnbench.result import Report

ACTIVE = "ffn, active"  # parameters that one token meets
CONVENTION = "no norms, no position encodings; 1 MAC = 2 FLOPs"


def parts_table(report: Report, length: Length) -> Table:
    """One row a matrix, and the sums: q, k and v; with o all of attention; the FFN."""
    spec = spec_of(length)
    rows = [_part(name, shape, spec.biases.get(name, 0)) for name, shape in spec.matrices.items()]
    inputs = [row for row in rows if row["part"] != "o"]
    name = "all but o" if spec.mla else " + ".join(row["part"] for row in inputs)
    into, attention = _sum(name, inputs), _sum(ATTENTION, rows)
    ffn = ffn_rows(report, length)
    columns = (
        Column(title="part", left=True),
        Column(title="rows x columns", priority=2),
        Column(title="weights", priority=1),
        Column(title="biases", priority=3),
        Column(title="params"),
    )
    return Table(
        columns=columns,
        rows=tuple(_cells(row) for row in (*rows, into, attention, *ffn)),
        header=_header(report, length),
        summary=(_comparison(ffn[-1], into, attention),),
    )


def _cells(row: Record) -> tuple[Cell, ...]:
    names = (Cell(text=row[key], value=row[key]) for key in ("part", "shape"))
    return (*names, *(integer(row[key]) for key in ("weights", "biases", "params")))


def _comparison(ffn: Record, into: Record, attention: Record) -> str:
    """How many times the FFN is as large, without biases and with them."""
    key = "params" if ffn["weights"] is None else "weights"
    parts = [f"the FFN is {ffn[key] / row[key]:.2f} times {row['part']}" for row in (into, attention)]
    text = ", ".join([parts[0], parts[1].removeprefix("the FFN is ")])
    if "active" in ffn:
        text += f" (what one token meets of it {ffn['active'] / attention['params']:.2f} times)"
    if key == "weights" and (ffn["biases"] or attention["biases"]):
        text += f" (without biases; with them {ffn['params'] / attention['params']:.2f} times)"
    return text


def ffn_rows(report: Report, length: Length) -> list[Record]:
    """The FFN's matrices and their sum; only the sum where it is code of the user's or of experts."""
    ffn, cost = length.ffn.ffn, report.cost(length.ffn.label)
    if not isinstance(ffn, FFNSpec):
        return [_total(FFN, cost.params)]
    if ffn.moe is not None:
        return [_total(ACTIVE, cost.params_active), _total(FFN, cost.params) | {"active": cost.params_active}]
    rows = [_part(name, shape, shape[0] if ffn.bias else 0) for name, shape in ffn.matrices.items()]
    return [*rows, _total(FFN, cost.params) | {"weights": matrix_params(ffn), "biases": bias_params(ffn)}]


def _total(name: str, params: int) -> Record:
    return {"part": name, "shape": "", "weights": None, "biases": None, "params": params}


def _part(name: str, shape: tuple[int, int], bias: int) -> Record:
    weights = shape[0] * shape[1]
    text = f"{shape[0]:,} x {shape[1]:,}"
    return {"part": name, "shape": text, "weights": weights, "biases": bias, "params": weights + bias}


def _sum(name: str, parts: Sequence[Record]) -> Record:
    return {"part": name, "shape": "", **{key: sum(p[key] for p in parts) for key in ("weights", "biases", "params")}}


def integer(value: int | None) -> Cell:
    """A count in full."""
    return Cell(text=UNKNOWN if value is None else f"{value:,}", value=value)


def _header(report: Report, length: Length) -> tuple[str, ...]:
    case, spec = length.ffn, spec_of(length)
    width = f", d_ff {case.ffn.d_ff:,}" if case.ffn.d_ff else ""
    if spec.mla is not None:
        heads = f"{spec.heads} heads of {spec.key_dim}, values of {spec.value_dim}"
    else:
        heads = f"{spec.heads} head{'s' * (spec.heads > 1)} of {spec.head_dim}"
        heads += f", {spec.kv_heads} of keys and values" if spec.kv_heads != spec.heads else ""
    return (
        f"Block: {case.variant}, d_model {case.ffn.d_model:,}{width} ({case.sizing})",
        f"{spec.name} attention: {heads}, {'causal' if spec.causal else 'not causal'}",
        _workload(report, case),
    )


def _workload(report: Report, case: Case) -> str:
    work = case.workload
    threads = f" ({work.threads} thread{'s' if work.threads > 1 else ''})" if work.device == "cpu" else ""
    where = [work.device + threads] if report.environment else []
    batch = [f"batch {work.batch}"] if work.batch > 1 else []
    return ", ".join([work.dtype, *where, work.mode, *batch]) + f"; {CONVENTION}"
