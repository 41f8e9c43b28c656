"""A whole model, kind of layer by kind of layer: the FFN's and attention's parameters, FLOPs and KV bytes, summed.

Below it every parameter of the model by part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ffnbench.errors import FfnbenchError
from ffnbench.ffn.attention import AttentionSpec, attention_cost, kv_bytes
from ffnbench.ffn.cost import cost
from ffnbench.ffn.dtypes import DTYPES
from ffnbench.models.model import LayerGroup, ModelSpec, WholeModel, crosses, whole_model
from ffnbench.models.presets import model_of
from ffnbench.planning.block import attention_of, parse_lengths, refuse_sizes
from ffnbench.planning.compare import named_model
from ffnbench.report.formats import View, view_of
from ffnbench.report.parts import parts_table
from ffnbench.report.records import Record
from ffnbench.report.table import EXTRA, Cell, Column, Table
from ffnbench.request import BlockRequest
from ffnbench.units import IEC, SI, quantity

SUMMED = ("layers", "ffn_params", "ffn_params_active", "attention_params", "flops_ffn", "flops_attention", "kv_bytes")
SHARES = {"ffn_share_params": ("ffn_params", "attention_params"), "ffn_share_flops": ("flops_ffn", "flops_attention")}

OF_ALL = ("embedding_params", "router_params", "norm_params", "head_params", "params", "params_active")


def whole_model_view(request: BlockRequest) -> View:
    """All layers of the model that a request names, and all its parameters, in closed form; nothing is measured."""
    name = named_model(request.preset, request.config)
    if name is None:
        raise FfnbenchError("--whole-model needs a model", "for example --preset llama3-8b")
    refuse_sizes(request)
    model, lengths = model_of(name), parse_lengths(request.seq_len)
    if len(lengths) > 1:
        raise FfnbenchError("a whole model is counted at one length", "give one --seq-len")
    counted = with_total([_layers(request, model, group, lengths[0]) for group in model.groups])
    whole = whole_model(_as_asked(request, model))
    records = [row | _of_all(whole if row is counted[-1] else None) for row in counted]
    second = any(crosses(model, group) for group in model.groups)
    notes = [
        *(["decoder layers have a second attention, to an encoder's sequence of the same length"] if second else []),
        "FFN: with its router, without norms; in FLOPs norms, position encodings and windows are not counted",
    ]
    header = (
        f"Whole model: {model.name}, {lengths[0]:,} tokens, {DTYPES.canonical(request.dtype)}, forward",
        "all layers of a kind together; a causal token counts what it sees; KV is that of one sequence",
    )
    table = replace(parts_table(whole), above=(whole_model_table(records, header, notes),))
    return view_of(table, lambda: records)


def _as_asked(request: BlockRequest, model: ModelSpec) -> ModelSpec:
    """The model with the attention that the flags make of its own."""
    groups = (replace(g, attention=attention_of(request, g.ffn.d_model, g)) for g in model.groups)
    return replace(model, groups=tuple(groups))


def _of_all(whole: WholeModel | None) -> Record:
    """The parts of the whole model, which stand in the last record."""
    if whole is None:
        return dict.fromkeys(OF_ALL)
    parts = whole.parts
    numbers = (parts["embeddings"], parts["router"], parts["norms"], parts["head"], whole.params, whole.active)
    return dict(zip(OF_ALL, numbers, strict=True))


def _layers(request: BlockRequest, model: ModelSpec, group: LayerGroup, seq_len: int) -> Record:
    dtype = DTYPES.canonical(request.dtype)
    own = attention_of(request, group.ffn.d_model, group)
    attentions = [own, replace(own, causal=False)] if crosses(model, group) else [own]
    ffn = cost(group.ffn, tokens=seq_len, dtype=dtype, train=False, device="cpu")
    assert ffn.flops_forward is not None
    return {
        "model": model.name,
        "kind": group.kind,
        "layers": group.count,
        "seq_len": seq_len,
        "dtype": dtype,
        "ffn_params": group.count * ffn.params,
        "ffn_params_active": group.count * ffn.params_active,
        "attention_params": group.count * sum(spec.params for spec in attentions),
        "flops_ffn": group.count * ffn.flops_forward,
        "flops_attention": group.count * sum(_flops(spec, seq_len) for spec in attentions),
        "kv_bytes": group.count * seq_len * sum(kv_bytes(spec, dtype) for spec in attentions),
    }


def _flops(spec: AttentionSpec, seq_len: int) -> int:
    found = attention_cost(spec, seq_len=seq_len, dtype="float32").flops_forward
    assert found is not None
    return found


def with_total(records: Sequence[Record]) -> list[Record]:
    """The records of all kinds, their sum below; shares are the FFN's in the two together."""
    total: Record = {**records[0], "kind": "all", **{key: sum(r[key] for r in records) for key in SUMMED}}
    rows = [*records, total] if len(records) > 1 else list(records)
    return [row | {name: row[a] / (row[a] + row[b]) for name, (a, b) in SHARES.items()} for row in rows]


def whole_model_table(records: Sequence[Record], header: Sequence[str], notes: Sequence[str]) -> Table:
    """One row a kind of layer; all layers of a kind together."""
    columns = (
        Column(title="layers", left=True),
        Column(title="count", priority=1),
        Column(title="FFN", unit="params", priority=1),
        Column(title="attention", unit="params", priority=1),
        Column(title="FFN's share", unit="of params", priority=0),
        Column(title="FFN", unit="FLOPs/tok", priority=3),
        Column(title="attention", unit="FLOPs/tok", priority=3),
        Column(title="FFN's share", unit="of FLOPs", priority=2),
        Column(title="KV", unit="bytes", priority=4),
        Column(title="FFN, active", unit="params/tok", priority=EXTRA),
    )
    return Table(
        columns=columns,
        rows=tuple(_row(record) for record in records),
        header=tuple(header),
        footnotes=tuple(notes),
        summary=(_summary(records[-1]),),
    )


def _row(r: Record) -> tuple[Cell, ...]:
    def share(key: str) -> Cell:
        return Cell(text=f"{100 * r[key]:.1f}%", value=r[key])

    def count(key: str) -> Cell:
        return Cell(text=quantity(r[key], SI), value=r[key])

    return (
        Cell(text=r["kind"], value=r["kind"]),
        Cell(text=f"{r['layers']:,}", value=r["layers"]),
        count("ffn_params"),
        count("attention_params"),
        share("ffn_share_params"),
        count("flops_ffn"),
        count("flops_attention"),
        share("ffn_share_flops"),
        Cell(text=quantity(r["kv_bytes"], IEC), value=r["kv_bytes"]),
        count("ffn_params_active"),
    )


def _summary(total: Record) -> str:
    together = total["ffn_params"] + total["attention_params"]
    text = f"FFNs and attention of all layers: {together:,} parameters"
    active = total["ffn_params_active"] + total["attention_params"]
    return text + (f", {active:,} of them active for a token" if active != together else "")
