"""A whole model at a length, counted kind of layer by kind of layer: the FFN's and attention's parameters, FLOPs and KV
bytes, summed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ffnbench.block.plan import attention_of, uncounted
from ffnbench.block.rows import sees
from ffnbench.extras.models.counting import WholeModel, whole_model
from ffnbench.extras.models.request import InspectRequest
from ffnbench.ffn.attention import attention_flops, kept_tokens, kv_bytes, overtakes_at
from ffnbench.ffn.cost import cost, flops_forward
from ffnbench.ffn.spec import DTYPES, AttentionSpec, read_positive
from ffnbench.models.model import LayerGroup, ModelSpec, Sight, crosses
from ffnbench.models.presets import model_of
from ffnbench.report.frame import Row
from ffnbench.request import HEADS, BlockRequest

SUMMED = ("layers", "ffn_params", "ffn_params_active", "attention_params", "flops_ffn", "flops_attention", "kv_bytes")
SHARES = {"ffn_share_params": ("ffn_params", "attention_params"), "ffn_share_flops": ("flops_ffn", "flops_attention")}

OF_ALL = ("embedding_params", "router_params", "norm_params", "head_params", "params", "params_active")


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedByLength:
    """All layers of a model at a length: a row a kind of layer and their sum, every parameter of the whole model, and
    the shortest sequence at which attention needs more FLOPs than the FFNs; `notes` are what is not counted.
    """

    name: str
    seq_len: int
    dtype: str
    rows: list[Row]
    whole: WholeModel
    overtaken_at: int | None
    notes: list[str]

    @property
    def has_flops(self) -> bool:
        """Whether those of all attentions are known."""
        return self.rows[-1]["flops_attention"] is not None


def count_by_length(asked: InspectRequest) -> CountedByLength:
    """All layers of a model at a length, and all its parameters, in closed form."""
    assert asked.length is not None
    read_positive("length", asked.length)
    of_attention = {name: getattr(asked, name) for name in HEADS}
    request = BlockRequest(preset=asked.model, dtype=asked.dtype, **of_attention)
    model = model_of(asked.model)
    layers = [_layers(request, model, group, sight, asked.length) for group in model.groups for sight in group.seen]
    counted = with_total(layers)
    whole = whole_model(_as_asked(request, model))
    notes = []
    if any(crosses(model, group) for group in model.groups):
        notes.append("decoder layers have a second attention, to an encoder's sequence of the same length")
    notes += [text for group in model.groups if (text := uncounted(group))]
    return CountedByLength(
        name=model.name,
        seq_len=asked.length,
        dtype=DTYPES.canonical(request.dtype),
        rows=[row | _of_all(whole if row is counted[-1] else None) for row in counted],
        whole=whole,
        overtaken_at=None if counted[-1]["flops_attention"] is None else _crossing(request, model),
        notes=notes,
    )


def _as_asked(request: BlockRequest, model: ModelSpec) -> ModelSpec:
    """The model with the attention that the flags make of its own."""
    groups = (replace(g, attention=attention_of(request, g.ffn.d_model, g)) for g in model.groups)
    return replace(model, groups=tuple(groups))


def _of_all(whole: WholeModel | None) -> Row:
    """The parts of the whole model, which stand in the last record."""
    if whole is None:
        return dict.fromkeys(OF_ALL)
    parts = whole.parts
    numbers = (parts["embeddings"], parts["router"], parts["norms"], parts["head"], whole.params, whole.active)
    return dict(zip(OF_ALL, numbers, strict=True))


def _layers(request: BlockRequest, model: ModelSpec, group: LayerGroup, sight: Sight, seq_len: int) -> Row:
    dtype = DTYPES.canonical(request.dtype)
    ffn = cost(group.ffn, tokens=seq_len, dtype=dtype, train=False, device="cpu")
    assert ffn.flops_forward is not None
    specs, counted = _attentions(request, model, group, sight), not sight.other
    known = counted or group.attention is not None
    what = sight.other.replace("_", " ") if sight.other else sees(specs[0]) if sight.window else ""
    kept = sum(kept_tokens(spec, seq_len) * kv_bytes(spec, dtype) for spec in specs)
    return {
        "model": model.name,
        "kind": f"{group.kind}, {what}" if what else group.kind,
        "layers": sight.count,
        "seq_len": seq_len,
        "dtype": dtype,
        "ffn_params": sight.count * ffn.params,
        "ffn_params_active": sight.count * ffn.params_active,
        "attention_params": sight.count * sum(spec.params for spec in specs) if known else None,
        "flops_ffn": sight.count * ffn.flops_forward,
        "flops_attention": sight.count * sum(attention_flops(s, seq_len) for s in specs) if counted else None,
        "kv_bytes": sight.count * kept if counted else None,
    }


def _attentions(request: BlockRequest, model: ModelSpec, group: LayerGroup, sight: Sight) -> list[AttentionSpec]:
    """Of one layer: its own, and that to an encoder's tokens where there is one."""
    own = replace(attention_of(request, group.ffn.d_model, group), window=sight.window)
    return [own, replace(own, causal=False)] if crosses(model, group) else [own]


def _crossing(request: BlockRequest, model: ModelSpec) -> int | None:
    """The shortest sequence at which all attentions need more FLOPs than all FFNs."""
    rows = [
        (sight.count, spec)
        for group in model.groups for sight in group.seen for spec in _attentions(request, model, group, sight)
    ]  # fmt: skip
    ffns = sum(group.count * flops_forward(group.ffn) for group in model.groups)
    return overtakes_at(lambda seq_len: sum(n * attention_flops(spec, seq_len) for n, spec in rows), ffns)


def _sum(numbers: Iterable[int | None]) -> int | None:
    found = list(numbers)
    return None if None in found else sum(filter(None, found))


def with_total(records: Sequence[Row]) -> list[Row]:
    """The records of all kinds, their sum below; shares are the FFN's in the two together."""
    total: Row = {**records[0], "kind": "all", **{key: _sum(r[key] for r in records) for key in SUMMED}}
    rows = [*records, total] if len(records) > 1 else list(records)
    return [
        row | {name: None if row[b] is None else row[a] / (row[a] + row[b]) for name, (a, b) in SHARES.items()}
        for row in rows
    ]
