"""All layers of a model at a length: parameters, FLOPs and bytes of keys and values by
kind of layer, and their sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ffnbench.block.plan import attention_of, uncounted
from ffnbench.block.rows import sees
from ffnbench.ffn.attention import (
    attention_flops,
    cached_tokens,
    kv_bytes,
    overtakes_at,
)
from ffnbench.ffn.cost import cost
from ffnbench.ffn.spec import DTYPES, AttentionSpec, read_positive
from ffnbench.inspecting.counting import (
    WholeModel,
    count_whole_model,
    sum_of,
)
from ffnbench.models.model import AttentionWindow, LayerGroup, ModelSpec, crosses
from ffnbench.models.published import model_of
from ffnbench.report.frame import Row
from ffnbench.request import BlockRequest, Request

# what the last row sums over all kinds of layers
SUMMED = (
    "layers",
    "ffn_params",
    "ffn_params_active",
    "attention_params",
    "flops_ffn",
    "flops_attention",
    "kv_bytes",
)
# share -> the FFN's amount, and that of attention
SHARES = {
    "ffn_share_params": ("ffn_params", "attention_params"),
    "ffn_share_flops": ("flops_ffn", "flops_attention"),
}
# of the whole model: only the last row has them
WHOLE_MODEL_KEYS = (
    "embedding_params",
    "router_params",
    "norm_params",
    "head_params",
    "params",
    "params_active",
)


@dataclass(frozen=True, kw_only=True)
class InspectRequest(Request):
    """`ffnbench inspect`."""

    POSITIONAL = ("model",)

    model: str = ""
    whole_model: bool = False
    length: int | None = None
    dtype: str = "float32"


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedByLength:
    """All layers of a model at a length: a row for each kind of layer, and their sum in
    the last row.

    `overtaken_at` is the shortest sequence at which attention needs more FLOPs than the
    FFNs. `notes` say what is not counted.
    """

    name: str
    seq_len: int
    dtype: str
    rows: list[Row]
    whole_model: WholeModel
    overtaken_at: int | None
    notes: list[str]

    @property
    def has_flops(self) -> bool:
        """Whether the FLOPs of all FFNs and attentions are known."""
        return None not in (
            self.rows[-1]["flops_ffn"],
            self.rows[-1]["flops_attention"],
        )


def count_by_length(request: InspectRequest) -> CountedByLength:
    """Count all layers of a model at a length, and all its parameters, in closed
    form.
    """
    seq_len = read_positive("length", request.length)
    dtype = DTYPES.canonical(request.dtype)
    model = model_of(request.model)
    kinds: list[Row] = []
    all_attentions: list[AttentionSpec] = []  # of every layer
    notes = []
    for group in model.groups:
        if crosses(model.groups, group):
            notes.append(
                "decoder layers have a second attention, to an encoder's sequence of the same length"
            )
        for window in group.all_windows:
            attentions = _attentions(model, group, window)
            kinds.append(_row(model, group, window, attentions, seq_len, dtype))
            all_attentions += window.count * (attentions or [])
    notes += filter(None, map(uncounted, model.groups))
    rows = with_total(kinds)
    whole = count_whole_model(model)
    of_whole = [
        *(whole.parts[part] for part in ("embeddings", "router", "norms", "head")),
        whole.params,
        whole.active,
    ]
    rows = [row | dict.fromkeys(WHOLE_MODEL_KEYS) for row in rows]
    rows[-1] |= dict(zip(WHOLE_MODEL_KEYS, of_whole, strict=True))
    overtaken_at = None
    if None not in (rows[-1]["flops_attention"], rows[-1]["flops_ffn"]):

        def flops_at(length: int) -> int:
            return sum(attention_flops(spec, length) for spec in all_attentions)

        overtaken_at = overtakes_at(flops_at, rows[-1]["flops_ffn"])
    return CountedByLength(
        name=model.name,
        seq_len=seq_len,
        dtype=dtype,
        rows=rows,
        whole_model=whole,
        overtaken_at=overtaken_at,
        notes=notes,
    )


def _attentions(
    model: ModelSpec, group: LayerGroup, window: AttentionWindow
) -> list[AttentionSpec] | None:
    """The attentions of one layer: to its own tokens, and to those of an encoder where
    there is one. None where they are not known.
    """
    if group.attention is None:
        return None
    own = replace(
        attention_of(BlockRequest(), group.attention.d_model, group),
        window=window.tokens,
    )
    if crosses(model.groups, group):
        return [own, replace(own, causal=False)]
    return [own]


def _row(
    model: ModelSpec,
    group: LayerGroup,
    window: AttentionWindow,
    attentions: list[AttentionSpec] | None,
    seq_len: int,
    dtype: str,
) -> Row:
    """The row of all layers of a kind with the same window. Of an attention whose
    window can't be counted (`other`) only the parameters are known.
    """
    flops_ffn = None  # of what is none of ffnbench's forms
    if group.ffn is not None:
        ffn = cost(group.ffn, tokens=seq_len, dtype=dtype, train=False, device="cpu")
        assert ffn.flops_forward is not None
        flops_ffn = window.count * ffn.flops_forward
    active = group.ffn_params_active
    kind = group.kind
    if window.other:
        kind += f", {window.other.replace('_', ' ')}"
    elif window.tokens and attentions:
        kind += f", {sees(attentions[0])}"
    params = flops = cache_bytes = None
    if attentions is not None:
        params = window.count * sum(spec.params for spec in attentions)
        if not window.other:
            flops = window.count * sum(
                attention_flops(spec, seq_len) for spec in attentions
            )
            cache_bytes = window.count * sum(
                cached_tokens(spec, seq_len) * kv_bytes(spec, dtype)
                for spec in attentions
            )
    return {
        "model": model.name,
        "kind": kind,
        "layers": window.count,
        "seq_len": seq_len,
        "dtype": dtype,
        "ffn_params": window.count * group.ffn_params,
        "ffn_params_active": None if active is None else window.count * active,
        "attention_params": params,
        "flops_ffn": flops_ffn,
        "flops_attention": flops,
        "kv_bytes": cache_bytes,
    }


def with_total(rows: Sequence[Row]) -> list[Row]:
    """The rows of all kinds, and below several of them their sum; each with the FFN's
    shares in FFN and attention together.
    """
    all_rows = list(rows)
    if len(rows) > 1:
        sums = {key: sum_of(row[key] for row in rows) for key in SUMMED}
        all_rows.append({**rows[0], "kind": "all", **sums})
    for place, row in enumerate(all_rows):
        shares: Row = dict.fromkeys(SHARES)
        for name, (of_ffn, of_attention) in SHARES.items():
            if None not in (row[of_attention], row[of_ffn]):
                shares[name] = row[of_ffn] / (row[of_ffn] + row[of_attention])
        all_rows[place] = row | shares
    return all_rows
