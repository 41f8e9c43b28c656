"""The answer of `inspect`: a model's FFNs in words and numbers, one row a kind of layer."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from ffnbench import jsonable
from ffnbench.ffn.moe import MoESpec, Scores
from ffnbench.ffn.spec import FFNSpec
from ffnbench.models.model import CountedLayers, CountedModel
from ffnbench.report.listing import Record, machine_readable
from ffnbench.report.table import EXTRA, UNKNOWN, Cell, Column, Table
from ffnbench.report.text import markdown
from ffnbench.units import IEC, SI, quantity


def words(layers: CountedLayers) -> str:
    """`swiglu 4,096 -> 14,336, no biases`; a class's name where the form is not known."""
    spec = layers.spec
    if spec is None:
        return layers.name
    parts = [f"{spec.form} {spec.d_model:,} -> {spec.d_ff:,}", "biases" if spec.bias else "no biases"]
    if spec.limit is not None:
        parts.append(f"gate clamped at {spec.limit:g}")
    return ", ".join([*parts, *(_experts(spec.moe, spec) if spec.moe else ())])


def _experts(moe: MoESpec, spec: FFNSpec) -> list[str]:
    parts = [f"{moe.experts} experts, {moe.top_k} a token"]
    if moe.shared_d_ff:
        parts.append(f"shared {moe.shared_d_ff:,} wide{' behind a gate' if moe.shared_gate else ''}")
    if moe.router_bias:
        parts.append("router with biases")
    if moe.scores is Scores.SIGMOID:
        parts.append("sigmoid scores")
    return parts


def model_table(model: CountedModel) -> Table:
    """One row a kind of layer; parameters of one layer, then of all."""
    columns = (
        Column(title="layers", left=True),
        Column(title="count", priority=1),
        Column(title="params", unit="a layer", priority=2),
        Column(title="active", unit="a token", priority=3),
        Column(title="params", unit="all layers", priority=5),
        Column(title="FFN", left=True, priority=EXTRA, flexible=True),
    )
    return Table(
        columns=columns,
        rows=tuple(_row(layers) for layers in model.layers),
        header=(model.name, *(_sentence(layers) for layers in model.layers)),
        footnotes=tuple(filter(None, (model.note, f"source: {model.source}"))),
        summary=(_summary(model),),
    )


def _sentence(layers: CountedLayers) -> str:
    kind = f"{layers.kind} layer{'s' * (layers.count != 1)}"
    return f"{layers.count} {kind}: {words(layers)}"


def _row(layers: CountedLayers) -> tuple[Cell, ...]:
    def number(value: int | None) -> Cell:
        return Cell(text=UNKNOWN if value is None else f"{value:,}", value=value)

    return (
        Cell(text=layers.kind, value=layers.kind),
        number(layers.count),
        number(layers.params),
        number(layers.params_active),
        number(layers.params * layers.count),
        Cell(text=words(layers), value=words(layers)),
    )


def _summary(model: CountedModel) -> str:
    total = sum(layers.count * layers.params for layers in model.layers)
    active = [layers.params_active for layers in model.layers]
    text = f"FFNs of all layers: {quantity(total, SI)} parameters"
    if None not in active:
        of_a_token = sum(layers.count * (layers.params_active or 0) for layers in model.layers)
        text += f", {quantity(of_a_token, SI)} active for a token" if of_a_token != total else ""
    return f"{text}; counted by {model.counted_by}, norms left out"


def _json(model: CountedModel) -> str:
    layers = [
        {
            "kind": found.kind,
            "count": found.count,
            "params": found.params,
            "params_active": found.params_active,
            "spec": jsonable.encode(found.spec),
        }
        for found in model.layers
    ]
    data = {"model": model.name, "source": model.source, "counted_by": model.counted_by, "layers": layers}
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def _csv(model: CountedModel) -> str:
    records: list[Record] = [
        {
            "kind": found.kind,
            "count": found.count,
            "params": found.params,
            "params_active": found.params_active,
            "ffn": words(found),
            "counted_by": model.counted_by,
        }
        for found in model.layers
    ]
    return machine_readable(records, "csv")


MODEL_WRITERS: dict[str, Callable[[CountedModel], str]] = {
    ".csv": _csv,
    ".json": _json,
    ".md": lambda model: markdown(model_table(model), every=True),
}


SUMMED = ("layers", "ffn_params", "ffn_params_active", "attention_params", "flops_ffn", "flops_attention", "kv_bytes")
SHARES = {"ffn_share_params": ("ffn_params", "attention_params"), "ffn_share_flops": ("flops_ffn", "flops_attention")}


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
        rows=tuple(_whole_row(record) for record in records),
        header=tuple(header),
        footnotes=tuple(notes),
        summary=(_whole_summary(records[-1]),),
    )


def _whole_row(r: Record) -> tuple[Cell, ...]:
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


def _whole_summary(total: Record) -> str:
    together = total["ffn_params"] + total["attention_params"]
    text = f"FFNs and attention of all layers: {together:,} parameters"
    active = total["ffn_params_active"] + total["attention_params"]
    return text + (f", {active:,} of them active for a token" if active != together else "")
