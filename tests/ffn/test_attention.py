"""Attention and stacks of blocks: closed form = module = tracer = a count by hand, and
attention is the function of its definition.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from math import sqrt

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from ffnbench.common.choices import Mode
from ffnbench.ffn.attention import (
    attention_flops,
    cached_tokens,
    kv_bytes,
    overtakes_at,
    pairs,
    projection_flops,
    score_flops,
    softmax_flops,
)
from ffnbench.ffn.modules import linear_reference
from ffnbench.ffn.spec import AttentionSpec, FFNSpec, MLASpec, MoESpec, Norm, StackSpec
from ffnbench.ffn.stack_module import Attention
from ffnbench.plan.plan import GIVEN, Case, Probe, Workload, cost_of
from ffnbench.worker.backends.building import build_case

D, SEQ = 48, 20
MLA = MLASpec(q_lora=20, kv_lora=12, nope=10, rope=6, v=8)
SHAPES = {
    "multi-head": AttentionSpec(d_model=D, heads=6, kv_heads=6, head_dim=8),
    "biased": AttentionSpec(
        d_model=D, heads=6, kv_heads=6, head_dim=8, qkv_bias=True, out_bias=True
    ),
    "grouped-query": AttentionSpec(
        d_model=D, heads=6, kv_heads=2, head_dim=12, qkv_bias=True
    ),
    "multi-query": AttentionSpec(d_model=D, heads=6, kv_heads=1, head_dim=4),
    "latent": AttentionSpec(
        d_model=D, heads=6, kv_heads=6, head_dim=16, mla=MLA, out_bias=True
    ),
    "latent, whole queries": AttentionSpec(
        d_model=D, heads=6, kv_heads=6, head_dim=16, mla=replace(MLA, q_lora=None)
    ),
    "windowed": AttentionSpec(d_model=D, heads=6, kv_heads=2, head_dim=8, window=7),
}
GRID = [
    replace(spec, causal=causal)
    for spec, causal in product(SHAPES.values(), (False, True))
]
IDS = [
    f"{name}-{'causal' if c else 'full'}" for name, c in product(SHAPES, (False, True))
]


def built(spec: AttentionSpec, dtype: torch.dtype = torch.float32, seq_len: int = SEQ):
    torch.manual_seed(3)
    return Attention(spec, dtype=dtype), torch.randn(2, seq_len, spec.d_model).to(dtype)


def error(y: torch.Tensor, expected: torch.Tensor) -> float:
    return float((y.detach().double() - expected).norm() / expected.norm())


@pytest.mark.parametrize("spec", GRID, ids=IDS)
def test_the_closed_form_is_the_module_and_the_tracer(spec: AttentionSpec) -> None:
    """torch counts the whole square, masked or not, so that of FLOPs only those of the
    unmasked one can be compared.
    """
    whole = replace(spec, causal=False, window=None)
    with torch.device("meta"):
        module, x = Attention(whole), torch.randn(2, SEQ, D, requires_grad=True)
        with FlopCounterMode(display=False) as counter:
            y = module(x)
            forward = counter.get_total_flops()
            y.sum().backward()
    assert attention_flops(whole, SEQ) * 2 * SEQ == forward
    backward = counter.get_total_flops() - forward
    assert backward == 2 * forward  # of x and of the weights
    assert spec.params == sum(p.numel() for p in module.parameters())
    layers = module.named_children()
    assert {name: layer.weight.shape for name, layer in layers} == spec.matrices


def in_stack(ffn: FFNSpec | None, norm: Norm, mode: Mode = Mode.FORWARD) -> Case:
    """A stack of three layers, one of which has a window."""
    windowed = replace(SHAPES["windowed"], window=None)
    stack = StackSpec(
        ffn=ffn, attentions=((windowed, 2), (SHAPES["biased"], 1)), norm=norm
    )
    work = Workload(
        batch=2, seq_len=SEQ, dtype="float32", device="cpu", mode=mode, threads=1
    )
    return Case(name="a", variant="a", ffn=stack, workload=work, sizing=GIVEN)


@pytest.mark.parametrize("norm", Norm)
@pytest.mark.parametrize("moe", [None, MoESpec(experts=4, top_k=4)])
def test_a_stack_counts_what_it_has(norm: Norm, moe: MoESpec | None) -> None:
    case = in_stack(FFNSpec(d_model=D, d_ff=40, activation="relu", moe=moe), norm)
    module = build_case(case, 0)
    found = cost_of(case, Probe())
    assert found.params == sum(p.numel() for p in module.parameters())
    assert found.weight_bytes == 4 * found.params
    if moe is None:  # whose routing needs numbers
        with FlopCounterMode(display=False) as counter:
            module.to("meta")(torch.randn(2, SEQ, D, device="meta"))
        assert found.flops_forward * 2 * SEQ == counter.get_total_flops()


def test_stacks_share_all_but_their_ffns() -> None:
    """Each layer has weights of its own; what two stacks have in common is a third one
    without FFNs, which adds its input's norm in their place.
    """
    ffns = [
        FFNSpec(d_model=D, d_ff=40, activation="relu"),
        FFNSpec(d_model=D, d_ff=32, activation="relu"),
        None,
    ]
    stacks = [build_case(in_stack(ffn, Norm.RMS), 0) for ffn in ffns]
    storages = [{p.data_ptr() for p in stack.parameters()} for stack in stacks]
    assert len(storages[0]) == len(list(stacks[0].parameters()))
    assert storages[0] & storages[1] == storages[2]
    x = expected = torch.randn(2, SEQ, D)
    for block in stacks[2]:
        trunk = block.trunk
        expected = expected + trunk.attention(trunk.attention_norm(expected))
        expected = expected + trunk.ffn_norm(expected)
    torch.testing.assert_close(stacks[2](x), expected)


def test_fewer_layers_are_spread_as_all_are() -> None:
    full, local = SHAPES["multi-head"], SHAPES["windowed"]
    model = StackSpec(attentions=((local, 20), (full, 4)))
    assert model.layers == 24
    assert [spec is full for spec in model.in_order].count(True) == 4
    twelve = model.with_layers(12)
    assert twelve.attentions == ((local, 10), (full, 2))
    assert model.with_layers(2).attentions == ((local, 2),)
    assert StackSpec(attentions=((full, 1),)).with_layers(8).layers == 8


@pytest.mark.parametrize("seq_len", [1, 2, 6, 7, 8, 15, 40])
@pytest.mark.parametrize("causal", [False, True])
def test_a_window_is_counted_position_by_position(seq_len: int, causal: bool) -> None:
    """As transformers' masks have it: the last 7, or 7 to either side; a cache keeps
    what the last token sees.
    """
    spec = replace(SHAPES["windowed"], causal=causal)
    sees = [
        [j for j in range(seq_len) if (0 <= i - j < 7 if causal else abs(i - j) <= 7)]
        for i in range(seq_len)
    ]
    assert pairs(spec, seq_len) == sum(map(len, sees))
    assert score_flops(spec, seq_len) == round(
        2 * 6 * 8 * sum(map(len, sees)) / seq_len
    )
    if causal:
        assert cached_tokens(spec, seq_len) == len(sees[-1])
    assert spec.windowed(seq_len) == (
        sum(map(len, sees)) < pairs(replace(spec, window=None), seq_len)
    )


def test_softmax_by_hand() -> None:
    """Scale, exp, sum and division of each score of 6 heads."""
    assert softmax_flops(SHAPES["biased"], SEQ) == 6 * SEQ * 4
    causal = replace(SHAPES["grouped-query"], causal=True)
    assert softmax_flops(causal, 3) == 6 * 2 * 4  # two of three keys, on average


def definition(module: Attention, x: Tensor) -> Tensor:
    """What a module should give for x (batch, seq_len, d_model), in float64, one head
    after another.
    """
    spec = module.spec
    x = x.detach().double()
    position = torch.arange(x.shape[1], device=x.device)
    distance = position[:, None] - position  # how far back from its query a key is
    window = x.shape[1] if spec.window is None else spec.window
    if spec.causal:
        visible = (distance >= 0) & (distance < window)
    else:
        visible = distance.abs() <= window
    values = []
    for q, k, v in _reference_heads(module, x):
        scores = torch.einsum("bqd,bkd->bqk", q, k) / sqrt(spec.key_dim)
        weights = (scores - scores.amax(-1, keepdim=True)).exp() * visible
        weights = weights / weights.sum(-1, keepdim=True)
        values.append(torch.einsum("bqk,bkd->bqd", weights, v))
    return _reference_linear(module, "o", torch.cat(values, dim=-1))


def _reference_heads(
    module: Attention, x: Tensor
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Query, key and value of each head, (batch, seq_len, dim), cut out of the
    projections by position.
    """
    spec = module.spec
    if spec.mla is not None:
        yield from _reference_latent_heads(module, spec.mla, x)
        return
    q, k, v = (_reference_linear(module, name, x) for name in "qkv")
    for head in range(spec.heads):
        group = head // (spec.heads // spec.kv_heads)
        yield (
            q.narrow(-1, head * spec.head_dim, spec.head_dim),
            k.narrow(-1, group * spec.head_dim, spec.head_dim),
            v.narrow(-1, group * spec.head_dim, spec.head_dim),
        )


def _reference_latent_heads(
    module: Attention, mla: MLASpec, x: Tensor
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """As `_reference_heads`, of latent attention."""
    if mla.q_lora is None:
        queries = _reference_linear(module, "q", x)
    else:
        queries = _reference_linear(
            module, "q_up", _reference_linear(module, "q_down", x)
        )
    down = _reference_linear(module, "kv_down", x)
    latent = down[..., : mla.kv_lora]
    shared_key = down[..., mla.kv_lora :]
    up = _reference_linear(module, "kv_up", latent)
    query_dim = mla.nope + mla.rope
    up_dim = mla.nope + mla.v
    for head in range(module.spec.heads):
        query = queries.narrow(-1, head * query_dim, query_dim)
        own_key = up.narrow(-1, head * up_dim, mla.nope)
        value = up.narrow(-1, head * up_dim + mla.nope, mla.v)
        yield query, torch.cat((own_key, shared_key), dim=-1), value


def _reference_linear(module: Attention, name: str, x: Tensor) -> Tensor:
    layer = getattr(module, name)
    return linear_reference(x, layer.weight, layer.bias).detach()


@pytest.mark.parametrize("spec", GRID, ids=IDS)
def test_attention_computes_its_definition(spec: AttentionSpec) -> None:
    tolerances = {"float64": 1e-13, "float32": 1e-5, "bfloat16": 3e-2, "float16": 3e-3}
    for dtype, tolerance in tolerances.items():
        module, x = built(spec, getattr(torch, dtype))
        expected = definition(module, x)
        assert error(module(x), expected) < tolerance, dtype
        assert error(module(x.requires_grad_()), expected) < tolerance, dtype


@pytest.mark.parametrize("causal", [False, True])
def test_it_is_torchs_own_multi_head_attention(causal: bool) -> None:
    module, x = built(replace(SHAPES["biased"], causal=causal))
    theirs = nn.MultiheadAttention(D, 6, batch_first=True)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(
            torch.cat([module.q.weight, module.k.weight, module.v.weight])
        )
        theirs.in_proj_bias.copy_(
            torch.cat([module.q.bias, module.k.bias, module.v.bias])
        )
        theirs.out_proj.load_state_dict(module.o.state_dict())
    mask = torch.ones(SEQ, SEQ, dtype=torch.bool).triu(1) if causal else None
    expected, _ = theirs(x, x, x, attn_mask=mask, need_weights=False)
    torch.testing.assert_close(module(x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", SHAPES)
def test_a_causal_token_knows_nothing_of_later_ones(name: str) -> None:
    module, x = built(replace(SHAPES[name], causal=True), torch.float64)
    torch.testing.assert_close(module(x)[:, :7], module(x[:, :7]))


def test_a_cache_keeps_keys_and_values_or_the_latent() -> None:
    assert kv_bytes(SHAPES["multi-head"], "float32") == 2 * 6 * 8 * 4
    assert kv_bytes(SHAPES["multi-query"], "bfloat16") == 2 * 4 * 2
    assert kv_bytes(SHAPES["latent"], "bfloat16") == (12 + 6) * 2
    for spec in (
        SHAPES.values()
    ):  # what the module computes for one token, before it is spread over the heads
        module, x = built(spec)
        kept = [
            layer(x)
            for name, layer in module.named_children()
            if name in ("k", "v", "kv_down")
        ]
        assert sum(y[0, 0].numel() for y in kept) == spec.kv_per_token


@pytest.mark.parametrize("spec", GRID, ids=IDS)
def test_the_crossover_is_the_first_length_that_costs_more(spec: AttentionSpec) -> None:
    for gap in (-5, 0, 1, 479, 480, 481, 960, 4800, 123457):
        ffn = projection_flops(spec) + gap
        found = overtakes_at(partial(attention_flops, spec), ffn)
        if found is None:
            widest = spec.window if spec.causal else 2 * spec.window + 1
            assert (
                projection_flops(spec) + 2 * widest * spec.heads * 2 * spec.key_dim
                <= ffn
            )
            continue
        assert attention_flops(spec, found) > ffn
        assert found == 1 or attention_flops(spec, found - 1) <= ffn
