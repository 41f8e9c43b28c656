"""The answer of `inspect`: all parameters of a model by part, with a row for the FFNs
of each kind of layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ffnbench.common import jsonable
from ffnbench.common.choices import Convention
from ffnbench.common.jsonable import json_text
from ffnbench.common.units import SI, quantity
from ffnbench.ffn.spec import MoESpec, Scores
from ffnbench.inspecting.flops import ModelFlops, model_flops
from ffnbench.models.model import LayerGroup, ModelSpec
from ffnbench.models.published import model_of
from ffnbench.report.answer import Answer
from ffnbench.report.columns import with_percent_sign
from ffnbench.report.table import Column, Row, Table

Flops = Mapping[Convention, ModelFlops]


def answer_of(name: str, seq_len: int, convention: Convention) -> Answer:
    """The parameters of a preset, or of the model of a config.json, and its FLOPs for a
    token of a sequence.
    """
    model = model_of(name)
    flops = {each: model_flops(model, seq_len, each) for each in Convention}
    percent = 100 * model.parts["ffn"] / model.params
    answer = f"FFNs hold {percent:.1f}% of {quantity(model.params, SI)} parameters"
    if model.params_active not in (None, model.params):
        answer += f", {quantity(model.params_active, SI)} of them active for a token"
    details = [model.note, model.note_on_parts]
    if model.parts["head"] == 0 and model.parts["embeddings"]:
        details.append("the head shares the embedding's matrix")
    details += [f"counted by {model.counted_by}", f"source: {model.source}"]
    table = Table(
        columns=COLUMNS,
        rows=rows_of(model),
        header=[model.name, *map(layers_text, model.groups)],
        summary=[
            *filter(None, (model.defaults,)),
            answer,
            *flops_lines(flops, convention, seq_len),
        ],
        details=[*filter(None, details)],
    )
    return Answer(
        table=table,
        stem="inspect",
        json=partial(_json, model, flops, convention, seq_len),
    )


def rows_of(model: ModelSpec) -> list[Row]:
    """A row for each part of a model, and for the FFNs of each kind of layer; the last
    one is their sum. A model without one of the other parts has no row of it.
    """
    rows: list[Row] = []
    for part, params in model.parts.items():
        if part != "ffn":
            rows.append({"part": part, "params": params, "params_active": params})
            continue
        for group in model.groups:
            active = group.params_active
            row: Row = {
                "part": f"FFN, {group.kind}",
                "layers": group.count,
                "params_layer": group.params,
                "params": group.count * group.params,
                "params_active": None if active is None else group.count * active,
                "ffn": ffn_text(group),
            }
            rows.append(row)
    total: Row = {"params": model.params, "params_active": model.params_active}
    rows = [row for row in rows if row["params"] or row["part"] != "other"]
    rows.append({"part": "all", **total})
    same = {"model": model.name, "counted_by": model.counted_by}
    for each in rows:
        each["share"] = each["params"] / model.params
    return [dict.fromkeys(KEYS) | each | same for each in rows]


NAMES = {
    Convention.CAUSAL: "attention without masked pairs",
    Convention.SQUARE: "PaLM's convention (all pairs of tokens, 2 FLOPs forward a parameter)",
    Convention.MEGATRON: "Megatron's convention (half of all pairs, no router)",
}


def flops_lines(flops: Flops, convention: Convention, seq_len: int) -> list[str]:
    """FLOPs of a token in the chosen convention, and by how much the others differ."""
    chosen = flops[convention]
    if chosen.forward is None or chosen.training is None:
        return [f"FLOPs a token are not known: {chosen.missing}"]
    line = f"{gigas(chosen.forward)} GFLOP a token forward, {gigas(chosen.training)} in training, at {seq_len:,} tokens: {NAMES[convention]}, output layer in, embedding out"
    others = []
    for other, found in flops.items():
        if other is convention or not found.training:
            continue
        change = 100 * (found.training / chosen.training - 1)
        others.append(
            f"{gigas(found.training)} in training, {change:+z.1f}%, by {NAMES[other]}"
        )
    missing = [chosen.missing] if chosen.missing else []
    return [", ".join([line, *missing]), "; ".join(others)]


def gigas(flops: int) -> str:
    """Billions with two decimals: `32.71`."""
    return f"{flops / 1e9:,.2f}"


def layers_text(group: LayerGroup) -> str:
    """`32 dense layers: swiglu 4,096 -> 14,336, no biases`."""
    noun = "layer" if group.count == 1 else "layers"
    return f"{group.count} {group.kind} {noun}: {ffn_text(group)}"


def ffn_text(group: LayerGroup) -> str:
    """`swiglu 4,096 -> 14,336, no biases`; the name of the class where it is none of
    ffnbench's forms.
    """
    spec = group.ffn
    if spec is None:
        return f"{group.module}, form not proven"
    parts = [f"{spec.form_name} {spec.d_model:,} -> {spec.d_ff:,}"]
    parts.append("biases" if spec.bias else "no biases")
    if spec.moe is not None:
        parts += _experts(spec.moe)
    if not group.proven:
        parts.append("form not proven")
    return ", ".join(parts)


def _experts(moe: MoESpec) -> list[str]:
    """Say how many experts there are and how they are chosen."""
    parts = [f"{moe.experts} experts, {moe.top_k} a token"]
    if moe.shared_d_ff:
        gate = " behind a gate" if moe.shared_gate else ""
        parts.append(f"shared {moe.shared_d_ff:,} wide{gate}")
    if moe.latent:
        parts.append(f"at a latent width of {moe.latent:,}")
    if moe.router_bias:
        parts.append("router with biases")
    if moe.groups > 1:
        parts.append(f"from {moe.top_groups} of {moe.groups} groups")
    if moe.scores is Scores.SIGMOID:
        parts.append("sigmoid scores")
    return parts


def _json(model: ModelSpec, flops: Flops, convention: Convention, seq_len: int) -> str:
    """The model as a row of presets.json has it, its sums, and its FLOPs a token."""
    data = jsonable.encode(model) | {
        "params": model.params,
        "params_active": model.params_active,
        "parts": model.parts,
        "seq_len": seq_len,
        "attention": convention,
        "flops_forward": flops[convention].forward,
        "flops_training": {each: found.training for each, found in flops.items()},
        "flops_missing": flops[convention].missing,
    }
    return json_text(data, 1) + "\n"


COLUMNS = (
    Column(key="part", left=True),
    Column(key="layers", priority=3),
    Column(key="params_layer", title="params", unit="a layer", priority=4),
    Column(key="params", priority=1),
    Column(key="share", unit="of params", read=with_percent_sign),
    Column(key="params_active", title="active", unit="params/tok", priority=2),
)
KEYS = ("model", *(column.key for column in COLUMNS), "ffn")
