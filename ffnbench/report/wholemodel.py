"""A whole model, kind of layer by kind of layer: the FFN's and attention's parameters, FLOPs and KV bytes, summed."""

from __future__ import annotations

from collections.abc import Sequence

from ffnbench.report.listing import Record
from ffnbench.report.table import EXTRA, Cell, Column, Table
from ffnbench.units import IEC, SI, quantity

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
