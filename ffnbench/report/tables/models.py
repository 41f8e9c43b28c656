"""The answer of `inspect`: a model's FFNs in words and numbers, one row a kind of layer."""

from __future__ import annotations

from ffnbench import jsonable
from ffnbench.ffn.moe import MoESpec, Scores
from ffnbench.ffn.spec import FFNSpec
from ffnbench.jsonable import text_of
from ffnbench.models.model import CountedLayers, CountedModel
from ffnbench.report.formats import View, view_of
from ffnbench.report.records import Record
from ffnbench.report.tables.table import EXTRA, Cell, Column, TextTable, count
from ffnbench.units import SI, quantity


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
    if moe.groups > 1:
        parts.append(f"from {moe.top_groups} of {moe.groups} groups")
    if moe.scores is Scores.SIGMOID:
        parts.append("sigmoid scores")
    return parts


def model_table(model: CountedModel) -> TextTable:
    """One row a kind of layer; parameters of one layer, then of all."""
    columns = (
        Column(title="layers", left=True),
        Column(title="count", priority=1),
        Column(title="params", unit="a layer", priority=2),
        Column(title="active", unit="a token", priority=3),
        Column(title="params", unit="all layers", priority=5),
        Column(title="FFN", left=True, priority=EXTRA, flexible=True),
    )
    return TextTable(
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
    return (
        Cell(text=layers.kind, value=layers.kind),
        count(layers.count),
        count(layers.params),
        count(layers.params_active),
        count(layers.params * layers.count),
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
    data = {"model": model.name, "source": model.source, "counted_by": model.counted_by, "note": model.note}
    return text_of(data | {"layers": layers}, 1) + "\n"


def model_records(model: CountedModel) -> list[Record]:
    """One flat record a kind of layer."""
    return [
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


def model_view(model: CountedModel) -> View:
    """The answer of `inspect`."""
    return view_of(model_table(model), lambda: model_records(model), json=lambda: _json(model))
