"""Attention: closed form = module = tracer = a count by hand, and both forms are the
function of the definition.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from ffnbench.common.choices import Mode
from ffnbench.common.errors import FfnbenchError
from ffnbench.ffn.attention import (
    attention_cost,
    attention_flops,
    cached_tokens,
    kv_bytes,
    overtakes_at,
    pairs,
    projection_flops,
    score_flops,
)
from ffnbench.ffn.attention_module import attention_reference, build_attention
from ffnbench.ffn.spec import AttentionForm, AttentionSpec, MLASpec
from ffnbench.plan.plan import GIVEN, Case, Workload
from ffnbench.worker.correctness import ROWS, Correctness
from ffnbench.worker.subject import subject_of

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
    replace(spec, causal=causal, form=form)
    for spec, causal, form in product(SHAPES.values(), (False, True), AttentionForm)
]
IDS = [
    f"{name}-{'causal' if c else 'full'}-{form.value}"
    for name, c, form in product(SHAPES, (False, True), AttentionForm)
]


def built(spec: AttentionSpec, dtype: torch.dtype = torch.float32, seq_len: int = SEQ):
    torch.manual_seed(3)
    return build_attention(spec, dtype=dtype), torch.randn(2, seq_len, spec.d_model).to(
        dtype
    )


def error(y: torch.Tensor, expected: torch.Tensor) -> float:
    return float((y.detach().double() - expected).norm() / expected.norm())


@pytest.mark.parametrize("spec", GRID, ids=IDS)
def test_the_closed_form_is_the_module_and_the_tracer(spec: AttentionSpec) -> None:
    """torch counts the whole square, masked or not, so that of FLOPs only those of the
    unmasked one can be compared.
    """
    whole = replace(spec, causal=False, window=None)
    with torch.device("meta"):
        module, x = build_attention(whole), torch.randn(2, SEQ, D, requires_grad=True)
        with FlopCounterMode(display=False) as counter:
            y = module(x)
            forward = counter.get_total_flops()
            y.sum().backward()
    found = attention_cost(whole, seq_len=SEQ, dtype="bfloat16")
    assert found.flops_forward * 2 * SEQ == forward
    assert found.flops_backward * 2 * SEQ == counter.get_total_flops() - forward
    assert found.params == spec.params == sum(p.numel() for p in module.parameters())
    assert found.weight_bytes == 2 * found.params
    layers = module.named_children()
    assert {name: layer.weight.shape for name, layer in layers} == spec.matrices
    if found.params_formula:
        assert eval(found.params_formula.replace("^", "**"), {"d": D}) == found.params


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
    assert pairs(replace(spec, form=AttentionForm.TEXTBOOK), seq_len) == seq_len**2
    assert spec.windowed(seq_len) == (
        sum(map(len, sees)) < pairs(replace(spec, window=None), seq_len)
    )


def test_element_wise_flops_by_hand() -> None:
    biased = attention_cost(SHAPES["biased"], seq_len=SEQ, dtype="float32")
    assert biased.flops_elementwise == 6 * SEQ * 4 + 4 * D
    assert (
        biased.flops_elementwise_backward == 6 * SEQ * 5 + 4 * D + 2 * D
    )  # dx of q, k and v
    grouped = attention_cost(
        replace(SHAPES["grouped-query"], causal=True), seq_len=3, dtype="float32"
    )
    assert grouped.flops_elementwise == 6 * 2 * 4 + 72 + 2 * 24
    assert (
        grouped.flops_elementwise_backward
        == 6 * 2 * 5 + 72 + 2 * 24 + 2 * D + 2 * 4 * 12
    )
    latent = attention_cost(SHAPES["latent"], seq_len=SEQ, dtype="float32")
    assert latent.flops_elementwise == 6 * SEQ * 4 + D
    # dx of queries and latent; the gradient of the key's 6 rotated elements, which all
    # 6 heads read
    assert latent.flops_elementwise_backward == 6 * SEQ * 5 + D + D + 5 * 6


@pytest.mark.parametrize("spec", GRID, ids=IDS)
def test_both_forms_compute_the_float64_reference(spec: AttentionSpec) -> None:
    tolerances = {"float64": 1e-13, "float32": 1e-5, "bfloat16": 3e-2, "float16": 3e-3}
    for dtype, tolerance in tolerances.items():
        module, x = built(spec, getattr(torch, dtype))
        expected = attention_reference(module, x)
        assert error(module(x), expected) < tolerance, dtype
        assert error(module(x.requires_grad_()), expected) < tolerance, dtype


@pytest.mark.parametrize("causal", [False, True])
def test_the_tokens_that_are_checked_see_all_others(causal: bool) -> None:
    """The check of a worker compares the first 16 tokens of a longer input. Tokens of
    an encoder see those behind them as well.
    """
    spec = replace(SHAPES["grouped-query"], causal=causal)
    work = Workload(
        batch=2,
        seq_len=3 * ROWS,
        dtype="float32",
        device="cpu",
        mode=Mode.FORWARD,
        threads=1,
    )
    case = Case(name="a", variant="a", ffn=spec, workload=work, sizing=GIVEN)
    subject = subject_of(build_attention(spec), work, D, 0)
    correctness = Correctness(case, 0)
    correctness.check(subject, 1)
    assert correctness.output_error is not None
    assert 0 < correctness.output_error < 1e-6


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_both_forms_have_equal_values_and_gradients_beyond_a_kernels_block(
    name: str, causal: bool
) -> None:
    results = []
    for form in AttentionForm:
        module, x = built(
            replace(SHAPES[name], causal=causal, form=form), torch.float64, 1100
        )
        x = (
            x[:1].requires_grad_()
        )  # one sequence: several of them are held against the reference above
        y = module(x)
        y.square().sum().backward()
        results.append([y, x.grad, *(p.grad for p in module.parameters())])
    for ours, textbook in zip(*results, strict=True):
        torch.testing.assert_close(ours, textbook, rtol=1e-9, atol=1e-9)


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
    for form in AttentionForm:
        module, x = built(replace(SHAPES[name], causal=True, form=form), torch.float64)
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
        assert attention_cost(spec, seq_len=found, dtype="float32").flops_forward > ffn
        assert (
            found == 1
            or attention_cost(spec, seq_len=found - 1, dtype="float32").flops_forward
            <= ffn
        )


def test_the_numbers_of_bert_and_llama() -> None:
    bert = AttentionSpec(d_model=768, heads=12, kv_heads=12, head_dim=64)
    assert (
        sum(r * c for name, (r, c) in bert.matrices.items() if name != "o") == 1_769_472
    )
    assert (bert.params, replace(bert, qkv_bias=True, out_bias=True).params) == (
        2_359_296,
        2_362_368,
    )
    assert (
        replace(
            bert, d_model=512, heads=8, kv_heads=8, qkv_bias=True, out_bias=True
        ).params
        == 1_050_624
    )
    llama = AttentionSpec(d_model=4096, heads=32, kv_heads=8, head_dim=128, causal=True)
    assert llama.params == 41_943_040
    assert kv_bytes(llama, "bfloat16") == 4096
    assert overtakes_at(partial(attention_flops, llama), 6 * 4096 * 14336) == 32_768
    assert [s.name for s in SHAPES.values()][2:5] == [
        "grouped-query",
        "multi-query",
        "latent",
    ]


def test_heads_that_do_not_divide_are_refused() -> None:
    with pytest.raises(FfnbenchError, match="32 heads can't share 5"):
        AttentionSpec(d_model=64, heads=32, kv_heads=5, head_dim=2)
    with pytest.raises(FfnbenchError, match="latent attention"):
        AttentionSpec(
            d_model=64, heads=4, kv_heads=4, head_dim=16, qkv_bias=True, mla=MLA
        )
