"""config.json -> ModelSpec: what is read, what is refused, and that it is what transformers builds."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections import Counter

import pytest
from conftest import ROOT, ffnbench

from ffnbench.activations.table import ACTIVATIONS
from ffnbench.errors import FfnbenchError
from ffnbench.ffn import cost
from ffnbench.ffn.spec import Gate
from ffnbench.models.configs import LAYOUTS, UnknownFamily, read_config, read_groups
from ffnbench.models.families import FILE, Layout, families, parse
from ffnbench.models.presets import PRESETS, model_of

LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "hidden_act": "silu",
}  # fmt: skip
GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_inner": None, "activation_function": "gelu_new"}
QWEN = LLAMA | {
    "model_type": "qwen2_moe", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 1408,
    "shared_expert_intermediate_size": 5632, "decoder_sparse_step": 2, "mlp_only_layers": [3], "num_hidden_layers": 6,
}  # fmt: skip
T5 = {"model_type": "t5", "d_model": 512, "d_ff": 1024, "num_layers": 8, "num_decoder_layers": 6}
VITDET = {"model_type": "vitdet", "hidden_size": 64, "num_hidden_layers": 2, "hidden_act": "gelu", "mlp_ratio": 4}
SAMPLE = (  # every shape of the table, and the families that most people have
    "llama mistral qwen2 qwen3 gemma gemma2 phi3 gpt2 gpt_neox falcon opt bert roberta distilbert modernbert t5 mt5 "
    "bart whisper vit dinov2 clip llava qwen2_5_vl mixtral qwen2_moe qwen3_moe deepseek_v3 gpt_oss llama4_text"
)


def counted(config: dict) -> list[tuple[str, int, int, int]]:
    return [(g.kind, g.count, cost.params(g.ffn), cost.params_active(g.ffn)) for g in read_groups(config)]


def test_a_gated_family() -> None:
    assert counted(LLAMA) == [("dense", 32, 176_160_768, 176_160_768)]
    assert read_groups(LLAMA | {"mlp_bias": True})[0].ffn.bias


def test_null_means_four_times() -> None:
    assert counted(GPT2) == [("dense", 12, 4_722_432, 4_722_432)]
    assert read_groups(GPT2 | {"n_inner": 1000})[0].ffn.d_ff == 1000
    assert read_groups(GPT2)[0].ffn.activation == "gelu_tanh"


def test_t5_says_gate_and_activation_in_one_word() -> None:
    encoder, decoder = read_groups(T5 | {"feed_forward_proj": "gated-gelu", "dense_act_fn": "gelu_new"})
    assert (encoder.kind, encoder.count, decoder.kind, decoder.count) == ("encoder", 8, "decoder", 6)
    assert (encoder.ffn.gate, encoder.ffn.activation) == (Gate.INNER, "gelu_tanh")
    assert read_groups(T5 | {"feed_forward_proj": "relu"})[0].ffn.gate is Gate.NONE


def test_the_first_t5_left_keys_out() -> None:
    """t5-base's own config.json names neither the decoder's layers, which are as many, nor the activation, relu."""
    encoder, decoder = read_groups({"model_type": "t5", "d_model": 768, "d_ff": 3072, "num_layers": 12})
    assert (encoder.count, decoder.count, decoder.ffn.activation) == (12, 12, "relu")
    assert cost.params(decoder.ffn) == 4_718_592


def test_families_whose_activation_is_not_what_its_name_says() -> None:
    """OpenAI GPT has names of its own, Aria's routed experts are SiLU whatever the shared ones are."""
    gpt = {"model_type": "openai-gpt", "n_embd": 768, "n_layer": 12, "afn": "gelu"}
    aria = LLAMA | {
        "model_type": "aria_text", "moe_num_experts": 8, "moe_topk": 2, "moe_num_shared_experts": 2, "mlp_bias": False,
    }  # fmt: skip
    assert [read_groups(config)[0].ffn.activation for config in (gpt, aria)] == ["gelu_tanh", "silu"]
    for config in (gpt | {"afn": "relu2"}, aria | {"hidden_act": "gelu"}):
        with pytest.raises(UnknownFamily, match="only, not"):
            read_groups(config)


def test_experts_in_every_second_layer_but_one() -> None:
    """Layers 1, 3 and 5 would have experts (from 0); 3 is named as dense."""
    dense, moe = read_groups(QWEN)
    assert (dense.kind, dense.count, moe.kind, moe.count) == ("dense", 4, "moe", 2)
    shared, router = 3 * 4096 * 5632, 8 * 4096 + 4096
    assert cost.params(moe.ffn) == 8 * 3 * 4096 * 1408 + shared + router
    assert cost.params_active(moe.ffn) == 2 * 3 * 4096 * 1408 + shared + router


def test_a_shared_expert_of_no_width_is_none() -> None:
    """It does not take the width of the others."""
    dots = LLAMA | {
        "model_type": "dots3_note_text", "n_routed_experts": 8, "shared_experts_intermediate_size": 0,
        "n_shared_experts": 1, "first_k_dense_replace": 0, "num_hidden_layers": 2, "mlp_layer_types": None,
        "moe_intermediate_size": 1408, "num_experts_per_tok": 2,
    }  # fmt: skip
    assert [cost.params(group.ffn) for group in read_groups(dots)] == [8 * 3 * 4096 * 1408 + 8 * 4096]


def test_parts_are_read_by_their_own_type() -> None:
    vision = {
        "model_type": "clip_vision_model", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
        "hidden_act": "quick_gelu",
    }  # fmt: skip
    llava = {"model_type": "llava", "text_config": LLAMA, "vision_config": vision}
    assert [(kind, count) for kind, count, _, _ in counted(llava)] == [("dense", 32), ("vision", 24)]
    with pytest.raises(UnknownFamily, match="audio_config"):
        read_groups(llava | {"audio_config": {"model_type": "whisper"}})


NEMOTRON_H = {
    "model_type": "nemotron_h", "hidden_size": 64, "intermediate_size": 96, "mlp_hidden_act": "relu2",
    "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48,
    "moe_shared_expert_intermediate_size": 80, "hybrid_override_pattern": "M-E*-", "num_hidden_layers": 52,
}  # fmt: skip
GEMMA3N = {
    "model_type": "gemma3n_text", "hidden_size": 64, "num_hidden_layers": 3, "intermediate_size": [64, 96, 96],
    "hidden_activation": "gelu_pytorch_tanh",
}  # fmt: skip
LFM2 = {"model_type": "lfm2", "hidden_size": 1024, "num_hidden_layers": 16, "block_ff_dim": 6656}
SWIN = {"model_type": "swin", "embed_dim": 96, "depths": [2, 2, 6, 2], "mlp_ratio": 4.0, "hidden_act": "gelu"}
PVT = {
    "model_type": "pvt", "hidden_sizes": [64, 128], "depths": [2, 3], "mlp_ratios": [8, 4], "num_encoder_blocks": 2,
    "hidden_act": "gelu",
}  # fmt: skip
DBRX = {
    "model_type": "dbrx", "d_model": 6144, "n_layers": 40,
    "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4},
}  # fmt: skip
HUNYUAN = LLAMA | {"model_type": "hunyuan_v1_moe", "num_experts": 4, "moe_topk": [2] * 32}


def test_layers_that_are_an_ffn_or_none() -> None:
    """Of the five one is a Mamba and one attention; num_hidden_layers is not asked."""
    expected = [("dense", 2, 2 * 64 * 96, 2 * 64 * 96), ("moe", 1, 35_072, 22_784)]
    assert counted(NEMOTRON_H) == expected
    words = ["mamba", "mlp", "moe", "full_attention", "mlp"]
    assert counted(NEMOTRON_H | {"hybrid_override_pattern": None, "layers_block_type": words}) == expected
    assert counted({k: v for k, v in NEMOTRON_H.items() if "moe" not in k} | {"hybrid_override_pattern": "M-"})


def test_a_width_for_each_layer() -> None:
    assert [each[:3] for each in counted(GEMMA3N)] == [("dense", 1, 3 * 64 * 64), ("dense", 2, 3 * 64 * 96)]
    assert [each[:3] for each in counted(GEMMA3N | {"intermediate_size": 96})] == [("dense", 3, 3 * 64 * 96)]


def test_widths_that_follow_from_others() -> None:
    """LFM2-350M is 4608 wide: two thirds of 6656, up to a multiple of 256."""
    (group,) = read_groups(LFM2)
    assert (group.ffn.d_ff, group.ffn.activation) == (4608, "silu")
    assert read_groups(LFM2 | {"block_auto_adjust_ff_dim": False})[0].ffn.d_ff == 6656
    assert read_groups(LFM2 | {"block_ffn_dim_multiplier": 1.5, "block_multiple_of": 100})[0].ffn.d_ff == 6700
    recurrent = {"model_type": "recurrent_gemma", "hidden_size": 2560, "intermediate_size": 15360}
    recurrent |= {"num_hidden_layers": 26, "hidden_activation": "gelu_pytorch_tanh"}
    assert read_groups(recurrent)[0].ffn.d_ff == 7680


def test_stages() -> None:
    """Swin-T by hand: 8 d^2 + 5 d for d = 96, 192, 384 and 768."""
    assert [each[1:3] for each in counted(SWIN)] == [(2, 74_208), (2, 295_872), (6, 1_181_568), (2, 4_722_432)]
    assert [each[1:3] for each in counted(PVT)] == [(2, 16 * 64**2 + 9 * 64), (3, 8 * 128**2 + 5 * 128)]


def test_keys_inside_a_table() -> None:
    """DBRX has 132 G parameters, 36 G of them active."""
    ((kind, count, total, active),) = counted(DBRX)
    assert (kind, count, total) == ("moe", 40, 16 * 3 * 6144 * 10752 + 16 * 6144)
    assert active == 4 * 3 * 6144 * 10752 + 16 * 6144


def test_layouts_of_experts() -> None:
    """By hand: of 12 layers Switch takes every 4th from the second on, ERNIE 4.5 all but the first."""
    switch = {"model_type": "switch_transformers", "d_model": 64, "d_ff": 96, "num_layers": 12, "num_decoder_layers": 6}
    switch |= {"num_sparse_encoder_layers": 3, "num_sparse_decoder_layers": 6, "num_experts": 4, "dense_act_fn": "relu"}
    assert [each[:3] for each in counted(switch)] == [
        ("encoder", 9, 12_288), ("encoder moe", 3, 49_408), ("decoder moe", 6, 49_408),
    ]  # fmt: skip
    assert [each[1] for each in counted(switch | {"encoder_sparse_step": 2})] == [6, 6, 6]
    ernie = LLAMA | {"model_type": "ernie4_5_moe", "moe_num_experts": 64, "moe_k": 6, "moe_num_shared_experts": 2}
    ernie |= {"moe_layer_interval": 1, "moe_layer_start_index": 1, "moe_layer_end_index": -1}
    ernie |= {"moe_intermediate_size": 1536}
    assert [each[:2] for each in counted(ernie)] == [("dense", 1), ("moe", 31)]
    assert [each[:2] for each in counted(ernie | {"moe_layer_end_index": 3, "moe_layer_interval": 2})] == [
        ("dense", 30), ("moe", 2),
    ]  # fmt: skip
    assert read_groups(HUNYUAN)[0].ffn.moe.top_k == 2


def test_a_composite_may_have_layers_of_its_own() -> None:
    vision = {"model_type": "git_vision_model", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    git = {
        "model_type": "git",
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "hidden_act": "gelu",
    }
    found = counted(git | {"vision_config": vision | {"hidden_act": "quick_gelu"}})
    assert [each[:3] for each in found] == [("dense", 3, 12_448), ("vision", 2, 4_192)]


@pytest.mark.parametrize(
    ("config", "message", "hint"),
    [
        (LLAMA | {"intermediate_size": None}, "no intermediate_size", "looked for the keys: intermediate_size"),
        ({"model_type": "llama", "d_model": 512}, "d_model 512, which is no key of its class", "hidden_size"),
        (NEMOTRON_H | {"moe_latent_size": 32}, "moe_latent_size null only", "moe_latent_size"),
        (
            NEMOTRON_H | {"moe_shared_expert_intermediate_size": 0},
            "moe_shared_expert_intermediate_size 0",
            "whole number",
        ),
        (NEMOTRON_H | {"hybrid_override_pattern": "M-X"}, "says more than -, E, M", "hybrid_override_pattern"),
        (NEMOTRON_H | {"hybrid_override_pattern": ["-", 3]}, "says more than -, E, M", "hybrid_override_pattern"),
        (GEMMA3N | {"num_hidden_layers": 4}, "3 intermediate_size for 4 layers", "one a layer"),
        (GEMMA3N | {"intermediate_size": [64, 0, 96]}, "width 0", "whole number"),
        (SWIN | {"num_layers": 3}, "4 stages by depths", "num_layers"),
        (SWIN | {"depths": 4}, "depths 4", ""),
        (SWIN | {"depths": [2, "2"]}, "depths '2'", "whole number"),
        (PVT | {"mlp_ratios": [8]}, "2 stages by depths", "mlp_ratios"),
        (DBRX | {"ffn_config": 3}, "no ffn_config.ffn_hidden_size", "ffn_config.ffn_hidden_size"),
        (HUNYUAN | {"moe_topk": [1, 2]}, r"moe_topk \[1, 2\]", "whole number"),
        (LLAMA | {"ffn_dim": 11008}, "ffn_dim 11008, which is no key of its class", "its class has intermediate_size"),
        (GPT2 | {"hidden_size": 1024}, "contradicts itself: hidden_size 1024 and n_embd 768", "keep"),
        (LLAMA | {"hidden_act": "silo"}, "the activation 'silo'", "did you mean 'silu'?"),
        (LLAMA | {"hidden_act": "ReLU"}, "the activation 'ReLU'", "transformers calls it 'relu'"),
        (LLAMA | {"hidden_act": "relu_squared"}, "the activation 'relu_squared'", "transformers calls it 'relu2'"),
        (LLAMA | {"hidden_act": "x"}, "the activation 'x'", "it has linear, relu"),
        (LLAMA | {"hidden_act": ["relu"]}, r"the activation \['relu'\]", "relu"),
        (T5 | {"feed_forward_proj": "gated-gelu", "dense_act_fn": "relu"}, "gated-gelu and dense_act_fn relu", "keep"),
        (T5 | {"feed_forward_proj": "relu", "is_gated_act": True}, "relu and is_gated_act True", "keep"),
        (LLAMA | {"hidden_size": "4096"}, "hidden_size '4096'", "whole number"),
        (LLAMA | {"intermediate_size": [1, 2]}, r"intermediate_size \[1, 2\]", "whole number"),
        (LLAMA | {"num_hidden_layers": -1}, "num_hidden_layers -1", "whole number"),
        (LLAMA | {"mlp_bias": "yes"}, "mlp_bias 'yes'", "true or false"),
        (QWEN | {"num_experts_per_tok": 9}, "9 of 8 experts: top_k is above", "num_experts_per_tok"),
        (LLAMA | {"model_type": "lama"}, "'lama' is not in the table", "did you mean 'llama'"),
        ({"hidden_size": 768}, "no model_type", "model_type"),
        ({"model_type": "rag", "generator": LLAMA}, "no question_encoder", "question_encoder"),
        ({"model_type": "llava", "text_config": [1]}, r"a text_config that is no object: \[1\]", "text_config"),
        (LLAMA | {"hidden_size": 10**12}, "hidden_size 1000000000000", "at most 10,000,000"),
        ({"model_type": "doge"} | {"is_moe": True}, "is_moe false only", "is_moe"),
        (LLAMA | {"num_hidden_layers": 10**12}, "num_hidden_layers 1000000000000", "at most 100,000"),
        (LLAMA | {"num_hidden_layers": 10**400}, "num_hidden_layers 1000", "at most 100,000"),
        (LLAMA | {"per_layer_config": [1]}, "per_layer_config that is no table of tables", "one table a layer"),
        (LLAMA | {"per_layer_config": {"0": 1}}, "per_layer_config that is no table of tables", "one table a layer"),
        (QWEN | {"mlp_only_layers": 3}, "mlp_only_layers 3", "layer numbers"),
        (QWEN | {"model_type": "llama4_text", "moe_layers": "1"}, "moe_layers", ""),
        (VITDET | {"mlp_ratio": math.inf}, "mlp_ratio must be a positive number, not inf", "for example 4"),
        (VITDET | {"mlp_ratio": math.nan}, "mlp_ratio must be a positive number, not nan", "for example 4"),
        (
            {"model_type": "llava", "text_config": LLAMA, "vision_config": VITDET, "x": {"model_type": ["y"]}},
            "a x of type \\[.y.\\]",
            "text_config",
        ),
    ],
)
def test_what_is_not_known_is_refused(config: dict, message: str, hint: str) -> None:
    with pytest.raises(FfnbenchError, match=message) as caught:
        read_groups(config)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("text", "message"), [("{", "is not JSON"), ("[]", "holds no object"), ("{}", "no model_type")]
)
def test_files_that_are_no_config(tmp_path, text: str, message: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(FfnbenchError, match=message):
        read_config(str(tmp_path))
    with pytest.raises(FfnbenchError, match="cannot read"):
        read_config(str(tmp_path / "nothing"))


def test_the_table_holds_together() -> None:
    table = families()
    stacks = [stack for family in table.by_type.values() for stack in family.stacks]
    assert all(family.stacks or family.parts for family in table.by_type.values())
    assert {stack.acts_as for stack in stacks} - {None} <= set(ACTIVATIONS.names())
    assert LAYOUTS.keys() == set(Layout)
    assert len(table.by_type) >= 590


@pytest.mark.parametrize(
    ("block", "says"),
    [
        ("[family.new]\ntypes = ['new']\nbais = true", "family 'new': Stack: unknown field 'bais'"),
        ("[family.new]\ntypes = ['new']\nbias = 3", "family 'new': Stack.bias: expected bool or str or Or, found 3"),
        ("[family.new]\ntypes = ['new']\nbias = { key = 'b' }", "family 'new': Stack.bias.default: expected bool"),
        ("[family.new]\ntypes = ['new']\nbias = { kye = 'b' }", "family 'new': Stack.bias: unknown field 'kye'"),
        ("[family.new]\ntypes = ['new']\nassumes = 'b'", "family 'new': assumes: expected a table"),
        ("[family.new]\ntypes = ['new']\nlike = 'gate'", "family 'new': like: no stack 'gate' .* did you mean 'gated'"),
        ("[family.new]\ntypes = ['new']\nexperts = { like = 'x' }", "family 'new': experts: like: no experts 'x'"),
        ("[family.new]\ntypes = ['new']\nexperts = { layout = 'al' }", "family 'new': Stack.experts.layout: .*'al'"),
        ("[family.new]\ntypes = ['new']\nattention = 'x'", "family 'new': attention: expected a table"),
        ("[family.new]\ntypes = ['new']\nstacks = 2", "family 'new': stacks: expected a list"),
        ("[family.new]\ntypes = ['new']\nparts = ['text_config']\nbias = true", "family 'new': 'bias' .*beside parts"),
        ("[family.new]\ntypes = 'new'", "family 'new': Family.types: expected a list"),
        ("[family.new]\nbias = true", "family 'new': .*types"),
        ("[family.new]\ntypes = ['new', 'bert']", "family 'new': types: 'bert' stands in family 'bert' already"),
        ("[family.new]\ntypes = ['new', 'new']", "family 'new': types: 'new' stands in family 'new' already"),
        ("[family.new]\ntypes = ['dac']", "without_ffn: 'dac' stands in family 'new' already"),
        ("[stack.new]\nd_model = true", "stack 'new': Stack.d_model: expected str"),
        ("[family.new]\ntypes = ['new']\nparts = []", "family 'new': it is empty"),
        ("[family.new]\ntypes = ['new']\nlike = 'gated'\n[family.new]", "'family', 'new'"),
        ("[stacks.new]", "unknown key 'stacks'"),
    ],
)
def test_a_wrong_row_of_the_table_is_named(block: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse(FILE.read_text(encoding="utf-8") + block)


@pytest.mark.parametrize("arguments", [["--help"], ["list", "presets"], ["cost"]])
def test_the_table_is_read_when_a_config_is(arguments: list[str]) -> None:
    code = (
        f"import sys; sys.argv = ['ffnbench', *{arguments!r}]\nfrom ffnbench.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "for name in ('families', 'defaults'):\n"
        "    known = sys.modules.get(f'ffnbench.models.{name}')\n"
        "    assert known is None or not getattr(known, name).cache_info().currsize"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def against_transformers(mode: str, *types: str) -> list[dict]:
    pytest.importorskip("transformers")
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "hf.py"), mode, *types],
        capture_output=True, text=True, timeout=3600, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_thirty_model_types_are_as_transformers_builds_them() -> None:
    found = against_transformers("exact", *SAMPLE.split())
    assert [each for each in found if each["status"] != "exact"] == []
    assert len(found) == 30


@pytest.mark.slow
def test_every_model_type_is_exact_or_refused() -> None:
    found = Counter()
    for each in against_transformers("exact", "all"):
        found[each["status"]] += 1
        assert each["status"] != "wrong", each
    assert found["exact"] >= 560, found


ATTENTION = {
    "llama3-8b": LLAMA | {"num_attention_heads": 32, "num_key_value_heads": 8},
    "gpt2": GPT2 | {"n_head": 12},
    "bert-base": {
        "model_type": "bert", "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
        "hidden_act": "gelu", "num_attention_heads": 12,
    },
    "t5-base": {"model_type": "t5", "d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12, "d_kv": 64},
    "deepseek-v3": {
        "model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048,
        "num_hidden_layers": 61, "first_k_dense_replace": 3, "n_routed_experts": 256, "n_shared_experts": 1,
        "num_experts_per_tok": 8, "hidden_act": "silu", "num_attention_heads": 128, "num_key_value_heads": 128,
        "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_is_that_of_the_published_model(name: str) -> None:
    published = PRESETS.get(name)
    found = read_groups(ATTENTION[name])
    assert [group.attention.params for group in found] == [g.attention.params for g in published.groups]
    assert [group.attention.kv_per_token for group in found] == [g.attention.kv_per_token for g in published.groups]


@pytest.mark.parametrize(
    "config",
    [LLAMA | {"num_attention_heads": None}, ATTENTION["llama3-8b"] | {"num_key_value_heads": 7},
     LLAMA | {"num_attention_heads": "32"}, LLAMA | {"num_attention_heads": 0},
     ATTENTION["deepseek-v3"] | {"attention_bias": True}],
)  # fmt: skip
def test_attention_that_the_config_does_not_tell_is_unknown(config: dict) -> None:
    """Null, impossible or of another form. Its FFN is read all the same."""
    assert [group.attention for group in read_groups(config)] == [None] * len(read_groups(config))


def test_attentions_are_as_transformers_builds_them() -> None:
    found = against_transformers("attention", "llama", "qwen2", "gpt2", "bert", "t5", "deepseek_v3", "gpt_oss")
    assert [each for each in found if each["status"] != "exact"] == []


@pytest.mark.slow
def test_every_attention_of_the_table_is_as_transformers_builds_it() -> None:
    known = [name for name, family in families().by_type.items() if any(stack.attention for stack in family.stacks)]
    found = against_transformers("attention", *known)
    assert [each for each in found if each["status"] != "exact"] == []
    assert sum(each["tally"]["same"] for each in found) > 300


def test_inspect_in_json(tmp_path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(QWEN))
    done = ffnbench("inspect", str(tmp_path), "--format", "json")
    assert done.returncode == 0, done.stderr
    layers = json.loads(done.stdout)["layers"]
    assert [(each["kind"], each["count"]) for each in layers] == [("dense", 4), ("moe", 2)]
    assert set(layers[0]) == {"kind", "count", "params", "params_active", "spec"}
    assert isinstance(layers[1]["params"], int)
    assert layers[1]["spec"]["moe"]["experts"] == 8


JETMOE = {"model_type": "jetmoe", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}


def test_inspect_counts_an_unknown_family_by_transformers(tmp_path) -> None:
    """By hand: 2 of 6 experts, gated and without biases, a router, and a bias behind them."""
    pytest.importorskip("transformers")
    (tmp_path / "config.json").write_text(json.dumps(JETMOE | {"num_local_experts": 6}))
    done = ffnbench("inspect", str(tmp_path / "config.json"), "--format", "json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert "transformers" in answer["counted_by"]
    assert answer["note"].endswith(": num_experts_per_tok")
    every, expert = 6 * 32 + 32, 3 * 32 * 48
    assert [(each["count"], each["params"], each["params_active"], each["spec"]) for each in answer["layers"]] == [
        (2, 6 * expert + every, 2 * expert + every, None)
    ]  # fmt: skip


BUILT = [  # worked out by hand from the shapes that the models' papers and classes state
    ({"model_type": "albert", "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4}, 2 * 64 * 96 + 160),
    ({"model_type": "mobilebert", "num_hidden_layers": 3}, 3 * 4 * (2 * 128 * 512 + 640)),
    ({"model_type": "lxmert"}, (9 + 5 + 2 * 5) * (2 * 768 * 3072 + 3840)),
    ({"model_type": "wav2vec2-bert", "num_hidden_layers": 3}, 3 * 2 * (2 * 1024 * 4096 + 5120)),
    ({"model_type": "recurrent_gemma", "num_hidden_layers": 3, "hidden_size": 64, "intermediate_size": 192,
      "num_attention_heads": 4, "lru_width": 64}, 3 * (3 * 64 * 96 + 2 * 96 + 64)),
    ({"model_type": "bridgetower_vision_model", "num_hidden_layers": 2}, 2 * (2 * 768 * 3072 + 3840)),
    ({"model_type": "qwen3_omni_moe_vision_encoder", "depth": 2}, 2 * (2 * 1152 * 4304 + 4304 + 1152)),
]  # fmt: skip


@pytest.mark.parametrize(("config", "params"), BUILT, ids=[config["model_type"] for config, _ in BUILT])
def test_every_ffn_of_a_layer_is_counted_and_nothing_else(tmp_path, config: dict, params: int) -> None:
    pytest.importorskip("transformers")
    from ffnbench.models.transformers import count_layers

    (tmp_path / "config.json").write_text(json.dumps(config))
    assert sum(layers.count * layers.params for layers in count_layers(str(tmp_path)).layers) == params


@pytest.mark.parametrize("kind", ["zamba", "sam2_hiera_det_model", "esmfold2"])
def test_what_is_left_over_in_a_layer_refuses_the_model_by_name(kind: str) -> None:
    pytest.importorskip("transformers")
    from ffnbench.models.transformers import count_layers

    left = {"zamba": "linear", "sam2_hiera_det_model": "proj", "esmfold2": "tri_mul_out.proj_bundle"}[kind]
    with pytest.raises(FfnbenchError, match=rf"under names that nobody declared: .*{left}") as caught:
        count_layers(kind)
    assert "by hand" in caught.value.hint


def test_inspect_refuses_in_one_voice(tmp_path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | {"hidden_act": "silo"}))
    for argument in (str(tmp_path), "lama3-8b", str(tmp_path / "none.json")):
        done = ffnbench("inspect", argument)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("error: ")
        assert "\nhint: " in done.stderr


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"num_hidden_layers": 10**12}, "num_hidden_layers 1000000000000"),
        ({"per_layer_config": [1, 2]}, "per_layer_config that is no table of tables"),
        ({"per_layer_config": "text"}, "per_layer_config that is no table of tables"),
        ({"per_layer_config": {"3": [1]}}, "per_layer_config that is no table of tables"),
    ],
)
def test_what_no_model_has_is_an_error(change: dict, says: str) -> None:
    with pytest.raises(FfnbenchError, match=says):
        read_groups(LLAMA | change)


@pytest.mark.parametrize("name", ["x" * 5000, "~nobody-is-called-so/config.json", "~nobody-is-called-so", "loop"])
def test_a_path_that_can_not_be_is_one_error(tmp_path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(FfnbenchError, match=r"cannot read|neither a preset nor a file"):
        model_of(name)


def test_a_config_that_nests_its_parts_is_refused(tmp_path) -> None:
    nested: dict = LLAMA
    for _ in range(600):
        nested = {"model_type": "llava", "text_config": nested, "vision_config": LLAMA}
    (tmp_path / "config.json").write_text(json.dumps(nested))
    with pytest.raises(FfnbenchError, match=r"text_config\.text_config.* is nested too deep"):
        read_config(str(tmp_path))


TEXT = json.dumps(LLAMA)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (TEXT[:-1] + ', "ffn_dim": 11008}', "ffn_dim 11008, which is no key of its class"),
        (TEXT.replace("4096", "1000000000000"), "hidden_size 1000000000000"),
        (TEXT.replace("14336", "1" + "0" * 12), "intermediate_size 1000000000000"),
        (TEXT.replace(" 32", " 1000000000000"), "num_hidden_layers 1000000000000"),
        (TEXT.replace("4096", "[4096]"), r"hidden_size \[4096\]"),
        (TEXT.replace(" 32", " [32]"), r"num_hidden_layers \[32\]"),
        (TEXT.replace('"silu"', '["silu"]'), r"activation \['silu'\]"),
        (TEXT.replace("4096", "[" * 50_000 + "]" * 50_000), "nested too deep"),
        (TEXT[:-1] + ', "hidden_size": 2048}', "'hidden_size' is given twice"),
        ('{"model_type": "llava", "text_config": {"a": 1, "a": 1}}', "'a' is given twice"),
        (b"\xef\xbb\xbf" + TEXT.encode(), None),
    ],
)
def test_bad_input_is_one_error_that_names_the_key(tmp_path, content: str | bytes, says: str | None) -> None:
    """A byte order mark is none."""
    (tmp_path / "config.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    if says is None:
        assert model_of(str(tmp_path)).groups == tuple(read_groups(LLAMA))
        return
    with pytest.raises(FfnbenchError, match=says):
        model_of(str(tmp_path))


@pytest.mark.parametrize("change", [{"kv_lora_rank": "512"}, {"qk_rope_head_dim": -1}, {"v_head_dim": 1.5}])
def test_latent_attention_of_odd_sizes_is_unknown(change: dict) -> None:
    assert [group.attention for group in read_groups(ATTENTION["deepseek-v3"] | change)] == [None, None]


def test_a_bias_that_is_neither_true_nor_false_is_no_bias_that_is_known() -> None:
    config = ATTENTION["llama3-8b"] | {"attention_bias": "no"}
    assert [group.attention for group in read_groups(config)] == [None]
