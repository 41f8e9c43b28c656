"""The journey of `block`: flags -> plan of an FFN and the attention beside it -> one run -> tables and records."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ffnbench.api import Prepared, price_plan
from ffnbench.bench.environment import available_memory, usable_cpus
from ffnbench.bench.memory_limits import USABLE, fit_into
from ffnbench.bench.prober import Prober
from ffnbench.errors import FfnbenchError
from ffnbench.ffn.attention import AttentionSpec, attention_cost, kv_bytes
from ffnbench.ffn.cost import cost
from ffnbench.models.model import LayerGroup, ModelSpec
from ffnbench.models.presets import model_of
from ffnbench.plan import DTYPES
from ffnbench.planning.block import BlockRequest, attention_of, block_plan, crosses, parse_lengths, refuse_sizes
from ffnbench.planning.effort import check_timeout
from ffnbench.report.listing import Record
from ffnbench.report.models import whole_model_table, with_total
from ffnbench.report.table import Table
from ffnbench.stats.verdict import refuse_blind


def prepare(request: BlockRequest, name: str | None, *, measure: bool) -> Prepared:
    """The plan with its costs; raises FfnbenchError for what is wrong, and for what memory does not hold."""
    if request.threads is None:
        request = replace(request, threads=usable_cpus())
    model = None if name is None else model_of(name)
    with Prober(check_timeout(request.timeout)) as prober:
        plan = block_plan(request, model, prober)
    if measure:
        plan = fit_into(plan, _memory(request.device))
        refuse_blind(plan)
    return price_plan(plan)


def _memory(device: str) -> int | None:
    """Bytes that a worker may use; where `auto` will become a GPU, the host's memory says nothing."""
    if device == "auto" and Path("/dev/nvidiactl").exists():
        return None
    available = available_memory()
    return None if available is None else int(USABLE * available)


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeModel:
    """All layers of a model: one record a kind, and their sum."""

    records: list[Record]
    table: Table


def whole_model(request: BlockRequest, name: str | None) -> WholeModel:
    """FFN and attention of all layers, in closed form."""
    if name is None:
        raise FfnbenchError("--whole-model needs a model", "for example --preset llama3-8b")
    refuse_sizes(request)
    default = BlockRequest()
    if (request.mode, request.batch) != (default.mode, default.batch):
        raise FfnbenchError("a whole model is counted for one sequence's forward pass", "leave --mode and --batch out")
    model, lengths = model_of(name), parse_lengths(request.seq_len)
    if len(lengths) > 1:
        raise FfnbenchError("a whole model is counted at one length", "give one --seq-len")
    records = with_total([_layers(request, model, group, lengths[0]) for group in model.groups])
    second = any(crosses(model, group) for group in model.groups)
    notes = [
        *([model.note] if model.note else []),
        *(["decoder layers have a second attention, to an encoder's sequence of the same length"] if second else []),
        "embeddings, the output layer, norms, position encodings and windows are not counted",
        f"source: {model.source}",
    ]
    header = (
        f"Whole model: {model.name}, {lengths[0]:,} tokens, {DTYPES.get(request.dtype)}, forward",
        "all layers of a kind together; a causal token counts what it sees; KV is that of one sequence",
    )
    return WholeModel(records=records, table=whole_model_table(records, header, notes))


def _layers(request: BlockRequest, model: ModelSpec, group: LayerGroup, seq_len: int) -> Record:
    dtype = DTYPES.get(request.dtype)
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
