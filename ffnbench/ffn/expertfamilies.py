"""The model types with a mixture of experts: under which keys of a config.json their numbers stand. Data alone."""

from __future__ import annotations

from dataclasses import replace

from ffnbench.ffn.stacks import GATED, GATED_MLP_BIAS, Experts, Or, Stack

_SHARED = Experts(experts="n_routed_experts", shared="n_shared_experts", normalised=Or("norm_topk_prob", True))
_DEEPSEEK = replace(_SHARED, sigmoid=True, layout="first_k_dense_replace")
_QWEN = Experts(
    experts=("num_experts", "num_local_experts"),
    normalised=Or("norm_topk_prob", False),
    layout="decoder_sparse_step",
)
_QWEN_SHARED = replace(_QWEN, shared_d_ff="shared_expert_intermediate_size", shared_gate=True)
_MIXTRAL = Experts(experts="num_local_experts", d_ff="intermediate_size")
_OLMOE = Experts(d_ff="intermediate_size", normalised=Or("norm_topk_prob", False))
_GPT_OSS = Experts(
    experts="num_local_experts", d_ff="intermediate_size", bias=True, router_bias=True, up_offset=1.0,
    limit=Or("swiglu_limit", 7.0),
)  # fmt: skip
_LLAMA4 = Experts(
    experts="num_local_experts", d_ff="intermediate_size", shared=1, sigmoid=True, normalised=False, layout="moe_layers"
)
_ARIA = Experts(experts="moe_num_experts", top_k="moe_topk", d_ff="intermediate_size", shared="moe_num_shared_experts")
_JAMBA = Experts(d_ff="intermediate_size", normalised=False, layout="expert_layer_period")

WITH_EXPERTS: dict[str, Stack] = {
    "mixtral": replace(GATED, experts=_MIXTRAL),
    "granitemoe": replace(GATED, experts=_MIXTRAL),
    "granitemoeshared": replace(GATED, experts=_MIXTRAL, assumes=(("shared_intermediate_size", 0),)),
    "granitemoe_swa": replace(GATED, experts=_MIXTRAL, assumes=(("shared_intermediate_size", 0),)),
    "minimax": replace(GATED, experts=_MIXTRAL),
    "minimax_m2": replace(GATED, experts=replace(_MIXTRAL, sigmoid=True)),
    "olmoe": replace(GATED, experts=_OLMOE),
    "flex_olmo": replace(GATED, experts=_OLMOE),
    "gpt_oss": replace(GATED, experts=_GPT_OSS, acts_as="quick_gelu", assumes=(("swiglu_alpha", 1.702),)),
    "qwen2_moe": replace(GATED, experts=_QWEN_SHARED),
    "qwen3_moe": replace(GATED, experts=_QWEN),
    "qwen3_next": replace(GATED, experts=replace(_QWEN_SHARED, normalised=Or("norm_topk_prob", True))),
    "qwen3_5_moe_text": replace(GATED, experts=replace(_QWEN_SHARED, normalised=True, layout="all")),
    "qwen3_vl_moe_text": replace(GATED, experts=replace(_QWEN, normalised=True)),
    "qwen3_omni_moe_text": replace(GATED, experts=replace(_QWEN, normalised=Or("norm_topk_prob", True))),
    "deepseek_v2": replace(
        GATED_MLP_BIAS,
        experts=replace(_SHARED, normalised=Or("norm_topk_prob", False), layout="first_k_dense_replace"),
        assumes=(("mlp_bias", False), ("moe_layer_freq", 1)),
    ),
    "deepseek_v3": replace(GATED, experts=_DEEPSEEK, assumes=(("moe_layer_freq", 1),)),
    "deepseek_v32": replace(GATED, experts=replace(_DEEPSEEK, layout="mlp_layer_types")),
    "glm4_moe": replace(GATED, experts=_DEEPSEEK),
    "glm4v_moe_text": replace(GATED, experts=_DEEPSEEK),
    "glm4_moe_lite": replace(GATED, experts=replace(_DEEPSEEK, layout="mlp_layer_types")),
    "glm_moe_dsa": replace(GATED, experts=replace(_DEEPSEEK, layout="mlp_layer_types")),
    "jamba": replace(GATED, experts=_JAMBA),
    "aria_text": replace(GATED, experts=_ARIA, assumes=(("mlp_bias", False),)),
    "llama4_text": replace(GATED, d_ff="intermediate_size_mlp", experts=_LLAMA4),
}
