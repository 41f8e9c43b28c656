"""The answers of `inspect`: a model's FFNs, a row for each kind of layer; and all its
parameters, a row for each part.
"""

from __future__ import annotations

from ffnbench.common import jsonable
from ffnbench.common.jsonable import json_text
from ffnbench.common.units import SI, quantity
from ffnbench.ffn.spec import MoESpec, Scores
from ffnbench.inspecting.counting import (
    CountedLayers,
    CountedModel,
    WholeModel,
    sum_of,
)
from ffnbench.report.columns import with_percent_sign
from ffnbench.report.formats import View
from ffnbench.report.frame import EXTRA, Column, Frame, Row

PART_TITLES = {"ffn": "FFN"}  # of parts whose title is not their name
# parts with a row in every table; a model without one of the others has no row of it
ALWAYS_SHOWN = ("embeddings", "attention", "ffn", "norms", "head", "all")


def ffn_text(layers: CountedLayers) -> str:
    """`swiglu 4,096 -> 14,336, no biases`; the name of the class where it is none of
    ffnbench's forms.
    """
    spec = layers.spec
    if spec is None:
        return f"{layers.name}, form not proven"
    parts = [f"{spec.form_name} {spec.d_model:,} -> {spec.d_ff:,}"]
    parts.append("biases" if spec.bias else "no biases")
    if spec.limit is not None:
        parts.append(f"gate clamped at {spec.limit:g}")
    if spec.moe is not None:
        parts += _experts(spec.moe)
    if not layers.proven:
        parts.append("form not proven")
    return ", ".join(parts)


def _experts(moe: MoESpec) -> list[str]:
    """Say how many experts there are and how they are chosen."""
    parts = [f"{moe.experts} experts, {moe.top_k} a token"]
    if moe.shared_gate:
        parts.append(f"shared {moe.shared_d_ff:,} wide behind a gate")
    elif moe.shared_d_ff:
        parts.append(f"shared {moe.shared_d_ff:,} wide")
    if moe.router_bias:
        parts.append("router with biases")
    if moe.groups > 1:
        parts.append(f"from {moe.top_groups} of {moe.groups} groups")
    if moe.scores is Scores.SIGMOID:
        parts.append("sigmoid scores")
    return parts


def model_view(model: CountedModel) -> View:
    """The answer of `inspect`: a row for each kind of layer."""
    records: list[Row] = []
    rows: list[Row] = []
    lines = []
    for layers in model.layers:
        record = {
            "kind": layers.kind,
            "count": layers.count,
            "params": layers.params,
            "params_active": layers.params_active,
            "ffn": ffn_text(layers),
            "counted_by": model.counted_by,
        }
        records.append(record)
        rows.append(record | {"all": layers.count * layers.params})
        noun = "layer" if layers.count == 1 else "layers"
        lines.append(f"{layers.count} {layers.kind} {noun}: {ffn_text(layers)}")
    frame = Frame(
        columns=FFN_COLUMNS,
        rows=rows,
        saved=records,
        header=[model.name, *lines],
        summary=[*filter(None, (model.defaults,)), _summary_line(model)],
        details=[*filter(None, (model.note,)), f"source: {model.source}"],
    )
    return View(frame=lambda: frame, json=lambda: _json(model), title="inspect")


def _summary_line(model: CountedModel) -> str:
    total = sum(layers.count * layers.params for layers in model.layers)
    active = sum_of(
        None if layers.params_active is None else layers.count * layers.params_active
        for layers in model.layers
    )
    text = f"FFNs of all layers: {quantity(total, SI)} parameters"
    if active not in (None, total):
        text += f", {quantity(active, SI)} active for a token"
    return f"{text}; counted by {model.counted_by}, without norms"


def _json(model: CountedModel) -> str:
    records = []
    for layers in model.layers:
        record = {
            "kind": layers.kind,
            "count": layers.count,
            "params": layers.params,
            "params_active": layers.params_active,
            "spec": jsonable.encode(layers.spec),
            "proven": layers.proven,
        }
        records.append(record)
    data = {
        "model": model.name,
        "source": model.source,
        "counted_by": model.counted_by,
        "note": model.note,
        "defaults": model.defaults,
        "layers": records,
    }
    return json_text(data, 1) + "\n"


def parts_view(model: WholeModel) -> View:
    """The answer of `inspect --whole-model`."""
    data = {
        "model": model.name,
        "source": model.source,
        "counted_by": model.counted_by,
        "defaults": model.defaults,
        "params": model.params,
        "params_active": model.active,
        "ffn_share": model.ffn / model.params,
        "parts": model.parts,
    }
    return View(
        frame=lambda: parts_frame(model),
        json=lambda: json_text(data, 1) + "\n",
        title="inspect",
    )


def parts_records(model: WholeModel) -> list[Row]:
    """A flat record for each part, and for their sum as the last."""
    records: list[Row] = []
    for name, number in [*model.parts.items(), ("all", model.params)]:
        record = {
            "model": model.name,
            "part": name,
            "params": number,
            "share": number / model.params,
            "params_active": _active_params(model, name, number),
            "counted_by": model.counted_by,
        }
        records.append(record)
    return records


def parts_frame(model: WholeModel) -> Frame:
    """The table of all parameters: a row for each part, and for their sum."""
    records = parts_records(model)
    return Frame(
        columns=PART_COLUMNS if model.idle else PART_COLUMNS[:-1],
        rows=[
            record
            for record in records
            if record["part"] in ALWAYS_SHOWN or record["params"] != 0
        ],
        saved=records,
        header=[f"Whole model: {model.name}, every parameter once"],
        summary=[
            *filter(None, (model.defaults,)),
            in_words(model),
        ],
        details=_notes(model),
    )


def _part_title(part: str) -> str:
    return PART_TITLES.get(part, part)


def _active_params(model: WholeModel, name: str, number: int) -> int | None:
    """The parameters of a part that a token meets: all of them, but for the experts
    that it does not go to, which are the FFN's.
    """
    if model.idle is None:
        return None
    if name in ("ffn", "all"):
        return number - model.idle
    return number


def _notes(model: WholeModel) -> list[str]:
    notes = []
    if model.note:
        notes.append(model.note)
    if model.head == 0 and model.embeddings:
        notes.append("the head shares the embedding's matrix")
    if model.router:
        notes.append("router: of all layers with experts; not part of FFN here")
    return [*notes, f"counted by {model.counted_by}", f"source: {model.source}"]


def in_words(model: WholeModel) -> str:
    """`FFNs hold 81% of 8.03 G parameters`."""
    percent = 100 * model.ffn / model.params
    text = f"FFNs hold {percent:.1f}% of {quantity(model.params, SI)} parameters"
    if model.idle and model.active:
        text += f", {quantity(model.active, SI)} of them active for a token"
    return text


FFN_COLUMNS = (
    Column(key="kind", title="layers", left=True),
    Column(key="count", priority=1),
    Column(key="params", unit="a layer", priority=2),
    Column(key="params_active", title="active", unit="a token", priority=3),
    Column(key="all", title="params", unit="all layers", priority=5),
    Column(key="ffn", title="FFN", left=True, flexible=True, priority=EXTRA),
)
PART_COLUMNS = (
    Column(key="part", left=True, write=_part_title),
    Column(key="params", priority=1),
    Column(key="share", unit="of params", write=with_percent_sign),
    Column(key="params_active", title="active", unit="params/tok", priority=2),
)
