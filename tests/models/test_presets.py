"""The published models, held to their sources. Golden values: FFN of one layer,
attention of one layer.
"""

from __future__ import annotations

from operator import attrgetter

import pytest

from ffnbench.common.choices import Convention
from ffnbench.ffn import cost
from ffnbench.inspecting.flops import model_flops
from ffnbench.models.presets import PRESETS

# key: layers, attention, FFN of the main kind of layer; its active part where it has
# experts
EXACT = {
    "transformer-base": (12, 1_048_576, 2_099_712),
    "bert-base": (12, 2_362_368, 4_722_432),
    "gpt2": (12, 2_362_368, 4_722_432),
    "gpt3-175b": (96, 604_028_928, 1_208_020_992),
    "t5-base": (24, 2_359_296, 4_718_592),
    "t5-v1.1-xxl": (48, 67_108_864, 125_829_120),
    "palm-540b": (118, 462_422_016, 4_076_863_488),
    "falcon-7b": (32, 41_877_504, 165_183_488),
    "llama-7b": (32, 67_108_864, 135_266_304),
    "llama2-70b": (80, 150_994_944, 704_643_072),
    "llama3-8b": (32, 41_943_040, 176_160_768),
    "llama3.1-405b": (126, 570_425_344, 2_617_245_696),
    "mistral-7b": (32, 41_943_040, 176_160_768),
    "gemma-7b": (28, 50_331_648, 226_492_416),
    "phi-3-mini": (32, 37_748_736, 75_497_472),
    "qwen2.5-7b": (28, 29_364_736, 203_685_888),
    "nemotron-4-340b": (96, 736_100_352, 2_717_908_992),
    "apertus-8b": (32, 41_943_040, 176_160_768 + 2),  # xIELU learns two scalars
    "modernbert-base": (22, 2_359_296, 2_654_208),
    "vit-b16": (12, 2_362_368, 4_722_432),
    "mixtral-8x7b": (32, 41_943_040, 1_409_318_912),
    "qwen3-30b-a3b": (48, 18_874_368, 604_241_920),
    "deepseek-v3": (61, 187_105_280, 11_320_164_352),
    "gpt-oss-120b": (36, 26_550_080, 3_186_524_288),
}
ACTIVE = {
    "mixtral-8x7b": 352_354_304,
    "qwen3-30b-a3b": 38_010_880,
    "deepseek-v3": 398_196_736,
    "gpt-oss-120b": 99_936_128,
}

# all parameters of a model: of transformers' class, built from the published config
PUBLISHED = {
    "llama3-8b": 8_030_261_248, "mixtral-8x7b": 46_702_792_704, "gpt2": 124_439_808, "bert-base": 109_482_240,
    "mistral-7b": 7_241_732_096, "gemma-7b": 8_537_680_896, "qwen2.5-7b": 7_615_616_512, "t5-base": 222_903_552,
    # the published sum has the correction biases of the routers
    "deepseek-v3": 671_026_419_200 - 58 * 256,
    "palm-540b": 540_356_474_880,  # the paper says 540.35 B, without norms
    # the paper says 65 M, with a vocabulary of about 37,000
    "transformer-base": 63_045_632,
    "gpt3-175b": 174_604_259_328, "falcon-7b": 6_921_720_704, "llama-7b": 6_738_415_616,
    "llama2-70b": 68_976_648_192, "llama3.1-405b": 405_853_388_800, "phi-3-mini": 3_821_079_552,
    "nemotron-4-340b": 341_029_195_776, "modernbert-base": 149_014_272, "vit-b16": 86_389_248,
    "qwen3-30b-a3b": 30_532_122_624, "gpt-oss-120b": 116_829_156_672, "apertus-8b": 8_053_338_176,
    # T5 v1.1 has an output matrix of its own; transformers ties it until it has read a
    # file
    "t5-v1.1-xxl": 11_003_736_064 + 32128 * 4096,
}  # fmt: skip
ACTIVE_OF_ALL = {
    "mixtral-8x7b": 12_879_925_248,
    "qwen3-30b-a3b": 3_353_032_704,
    "deepseek-v3": 37_552_282_624,
}


def test_every_row_is_held_here() -> None:
    assert set(PRESETS.names()) == set(EXACT)


@pytest.mark.parametrize("key", PRESETS.names())
def test_parameters_are_those_of_the_source(key: str) -> None:
    model, (layers, attention, ffn) = PRESETS.get(key), EXACT[key]
    assert sum(group.count for group in model.groups) == layers
    assert {group.attention.params for group in model.groups} == {attention}
    assert cost.params(model.main.ffn) == ffn
    assert cost.params_active(model.main.ffn) == ACTIVE.get(key, ffn)
    for group in model.groups:
        assert group.params == cost.params(group.ffn)
        assert group.params_active == cost.params_active(group.ffn)
    assert model.source


@pytest.mark.parametrize("key", PRESETS.names())
def test_a_whole_model_has_as_many_parameters_as_was_published(key: str) -> None:
    whole = PRESETS.get(key)
    assert whole.params == PUBLISHED[key]
    assert whole.params_active == ACTIVE_OF_ALL.get(key, whole.params_active)


# presets whose published config.json is the default of its class, or these sizes
CONFIGS: dict[str, dict[str, object]] = {
    "bert-base": {"model_type": "bert"}, "gpt2": {"model_type": "gpt2"}, "falcon-7b": {"model_type": "falcon"},
    "llama-7b": {"model_type": "llama"}, "mistral-7b": {"model_type": "mistral"}, "gemma-7b": {"model_type": "gemma"},
    "modernbert-base": {"model_type": "modernbert"}, "vit-b16": {"model_type": "vit"},
    "mixtral-8x7b": {"model_type": "mixtral"}, "deepseek-v3": {"model_type": "deepseek_v3"},
    "gpt-oss-120b": {"model_type": "gpt_oss"},
    "t5-base": {"model_type": "t5", "d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12},
    "llama2-70b": {"model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
                   "num_attention_heads": 64, "num_key_value_heads": 8},
    "llama3-8b": {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
                  "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256},
    "llama3.1-405b": {"model_type": "llama", "hidden_size": 16384, "intermediate_size": 53248, "num_hidden_layers": 126,
                      "num_attention_heads": 128, "num_key_value_heads": 8, "vocab_size": 128256},
    "phi-3-mini": {"model_type": "phi3", "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32,
                   "num_attention_heads": 32, "vocab_size": 32064},
    "qwen2.5-7b": {"model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
                   "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064},
    "qwen3-30b-a3b": {"model_type": "qwen3_moe", "hidden_size": 2048, "moe_intermediate_size": 768, "num_hidden_layers": 48,
                      "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128,
                      "num_experts_per_tok": 8, "vocab_size": 151936, "tie_word_embeddings": False,
                      "norm_topk_prob": True},
}  # fmt: skip


@pytest.mark.parametrize("key", CONFIGS)
def test_a_preset_is_what_transformers_builds_of_its_config(key: str) -> None:
    pytest.importorskip("transformers")
    from ffnbench.models.read import read_model

    preset, read = PRESETS.get(key), read_model(dict(CONFIGS[key]), "config.json")
    layer = attrgetter("count", "ffn", "is_causal")
    assert [*map(layer, read.groups)] == [*map(layer, preset.groups)]
    assert read.params == preset.params
    assert read.params_active == preset.params_active


def test_flops_of_a_token_are_those_of_others() -> None:
    """gpt-oss-120b in training at 4,096 tokens: 3 x (FFNs and projections, scores of
    18 layers among all tokens before and 18 among 128, output layer), and what
    torchtitan#4300 reports. Llama 7B by Megatron-LM's formula.
    """
    ours = PRESETS.get("gpt-oss-120b")
    seen = [sum(min(n, window) for n in range(1, 4097)) for window in (4096, 128)]
    scores = 18 * 4 * 64 * 64 * sum(seen) / 4096
    attention = 2 * (2880 * 64 * 64 * 2 + 2880 * 8 * 64 * 2)
    ffn = 2 * (4 * 3 * 2880 * 2880 + 128 * 2880)
    causal = 3 * (36 * (attention + ffn) + scores + 2 * 2880 * 201_088)
    found = {each: model_flops(ours, 4096, each).training for each in Convention}
    assert found[Convention.CAUSAL] == pytest.approx(causal, abs=60)
    assert found[Convention.CAUSAL] == 32_710_473_216
    assert found[Convention.SQUARE] == 34_534_221_696
    h, t, layers = 4096, 2048, 32
    of_layer = 4 * h * (h + h + t / 2) + 6 * h * 11008
    megatron = 3 * (layers * of_layer + 2 * h * 32_000)
    llama = model_flops(PRESETS.get("llama-7b"), t, Convention.MEGATRON)
    assert llama.training == megatron


def test_of_as_many_layers_of_two_kinds_the_later_kind_is_the_models() -> None:
    model = PRESETS.get("t5-base")
    encoder, decoder = model.groups
    assert encoder.count == decoder.count
    assert model.main is decoder
