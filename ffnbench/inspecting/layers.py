"""The answer of `inspect --length`: a table of a model's layers, a row for each kind,
and below it the table of all its parameters.
"""

from __future__ import annotations

from dataclasses import replace

from ffnbench.block.table import overtaking_text
from ffnbench.common.units import IEC, SI, Units, quantity
from ffnbench.inspecting.by_length import (
    CountedByLength,
    InspectRequest,
    count_by_length,
)
from ffnbench.inspecting.counting import count_model, count_whole_model
from ffnbench.inspecting.table import model_view, parts_frame, parts_view
from ffnbench.models.published import model_of
from ffnbench.report.columns import with_percent_sign
from ffnbench.report.formats import View
from ffnbench.report.frame import EXTRA, Column, Frame


def model_answer(request: InspectRequest) -> View:
    """The answer of `inspect`: the layers at a length, all parameters, or the FFNs."""
    if request.length is not None:
        return layers_view(count_by_length(request))
    model = model_of(request.model)
    if request.whole_model:
        return parts_view(count_whole_model(model))
    return model_view(count_model(model))


def layers_view(counted: CountedByLength) -> View:
    """The tables of the layers of a model at a length, and of all its parameters."""
    layers = Frame(
        columns=LAYER_COLUMNS,
        rows=counted.rows,
        header=[
            f"Whole model: {counted.name}, {counted.seq_len:,} tokens, {counted.dtype}, forward",
            "rows: all layers of a kind; KV: keys and values of one sequence",
        ],
        summary=[overtaking_text(counted.overtaken_at)] if counted.has_flops else [],
        details=[
            *counted.notes,
            "FFN: with its router, without norms; in FLOPs norms and position encodings are not counted",
        ],
    )
    return View(
        frame=lambda: replace(
            parts_frame(counted.whole_model), above=(layers,), saved=counted.rows
        ),
        title="inspect",
    )


def _quantity(
    key: str, title: str, unit: str, priority: int, units: Units = SI
) -> Column:
    """A column whose numbers are scaled one by one, each to a unit of its own."""
    return Column(
        key=key,
        title=title,
        unit=unit,
        priority=priority,
        write=lambda value: quantity(value, units),
    )


LAYER_COLUMNS = (
    Column(key="kind", title="layers", left=True),
    Column(key="layers", title="count", priority=1),
    _quantity("ffn_params", "FFN", "params", 1),
    _quantity("attention_params", "attention", "params", 1),
    Column(
        key="ffn_share_params",
        title="FFN's share",
        unit="of params",
        write=with_percent_sign,
    ),
    _quantity("flops_ffn", "FFN", "FLOPs/tok", 3),
    _quantity("flops_attention", "attention", "FLOPs/tok", 3),
    Column(
        key="ffn_share_flops",
        title="FFN's share",
        unit="of FLOPs",
        write=with_percent_sign,
        priority=2,
    ),
    _quantity("kv_bytes", "KV", "bytes", 4, IEC),
    _quantity("ffn_params_active", "FFN, active", "params/tok", EXTRA),
)
