"""config.json -> ModelSpec: what is read, what is refused, and what is left to
transformers.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from hf import written
from model_configs import BERT, DEEPSEEK, LLAMA
from paths import ROOT

from ffnbench.cli import run_command_line
from ffnbench.common.errors import FfnbenchError
from ffnbench.ffn import cost
from ffnbench.ffn.spec import Gate
from ffnbench.models.configs import read_config, read_groups
from ffnbench.models.family_reader import Unanswered, refuse_other_names
from ffnbench.models.presets import model_of

GPT2 = {
    "model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_inner": None, "activation_function": "gelu_new",
    "n_head": 12,
}  # fmt: skip
QWEN = LLAMA | {
    "model_type": "qwen2_moe", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 1408,
    "shared_expert_intermediate_size": 5632, "decoder_sparse_step": 2, "mlp_only_layers": [3], "num_hidden_layers": 6,
}  # fmt: skip
T5 = {
    "model_type": "t5",
    "d_model": 768,
    "d_ff": 3072,
    "num_layers": 12,
    "num_heads": 12,
    "d_kv": 64,
}
CLIP = {
    "model_type": "clip",
    "text_config": {"model_type": "clip_text_model"},
    "vision_config": {},
}


def counted(config: dict) -> list[tuple[str, int, int, int]]:
    return [
        (g.kind, g.count, cost.params(g.ffn), cost.params_active(g.ffn))
        for g in read_groups(config)
    ]


def test_t5_says_gate_and_activation_in_one_word() -> None:
    """t5-base's own config.json names neither the decoder's layers, which are as many,
    nor the activation, relu.
    """
    encoder, decoder = read_groups(
        T5 | {"feed_forward_proj": "gated-gelu", "num_decoder_layers": 6}
    )
    assert (encoder.kind, encoder.count, decoder.kind, decoder.count) == (
        "encoder",
        12,
        "decoder",
        6,
    )
    assert (encoder.ffn.gate, encoder.ffn.activation) == (Gate.INNER, "gelu_tanh")
    encoder, decoder = read_groups(T5)
    assert (encoder.count, decoder.count, decoder.ffn.activation, decoder.ffn.gate) == (
        12,
        12,
        "relu",
        Gate.NONE,
    )


def test_experts_in_every_second_layer_but_one() -> None:
    """Layers 1, 3 and 5 would have experts (from 0); 3 is named as dense."""
    dense, moe = read_groups(QWEN)
    assert (dense.kind, dense.count, moe.kind, moe.count) == ("dense", 4, "moe", 2)
    shared, router = 3 * 4096 * 5632, 8 * 4096 + 4096
    assert cost.params(moe.ffn) == 8 * 3 * 4096 * 1408 + shared + router
    assert cost.params_active(moe.ffn) == 2 * 3 * 4096 * 1408 + shared + router


def test_classes_are_counted_as_they_are_built() -> None:
    assert [
        each[:2] for each in counted(T5 | {"architectures": ["T5EncoderModel"]})
    ] == [("encoder", 12)]
    assert [
        each[:2] for each in counted(LLAMA | {"architectures": ["LlamaForCausalLM"]})
    ] == [("dense", 32)]


# as they stand on the hub, without what says nothing about the layers -> FFN parameters
# of all layers
PUBLISHED = {
    "gemma-3-4b": (
        {"model_type": "gemma3",
         "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
                         "num_hidden_layers": 34, "sliding_window": 1024},
         "vision_config": {"hidden_size": 1152, "image_size": 896, "intermediate_size": 4304,
                           "model_type": "siglip_vision_model", "num_attention_heads": 16, "num_hidden_layers": 27,
                           "patch_size": 14, "vision_use_head": False}},
        [(34, 3 * 2560 * 10240), (27, 2 * 1152 * 4304 + 4304 + 1152)],
    ),
    "llava-1.5-7b": (
        {"model_type": "llava", "projector_hidden_act": "gelu",
         "text_config": {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 32064},
         "vision_config": {"hidden_size": 1024, "image_size": 336, "intermediate_size": 4096,
                           "model_type": "clip_vision_model", "num_attention_heads": 16, "num_hidden_layers": 24,
                           "patch_size": 14, "projection_dim": 768, "vocab_size": 32000}},
        [(32, 3 * 4096 * 11008), (24, 2 * 1024 * 4096 + 4096 + 1024)],
    ),
    "qwen2.5-vl-7b": (  # its text model stands at the top
        {"model_type": "qwen2_5_vl", "hidden_act": "silu", "hidden_size": 3584, "intermediate_size": 18944,
         "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4, "vocab_size": 152064,
         "vision_config": {"depth": 32, "hidden_act": "silu", "hidden_size": 1280, "intermediate_size": 3420,
                           "num_heads": 16, "in_chans": 3, "out_hidden_size": 3584, "patch_size": 14,
                           "model_type": "qwen2_5_vl"}},
        [(28, 3 * 3584 * 18944), (32, 3 * 1280 * 3420 + 2 * 3420 + 1280)],
    ),
    "llama-4-maverick, its text": (  # every second layer has experts
        {"model_type": "llama4_text", "hidden_size": 5120, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
         "interleave_moe_layer_step": 2, "num_experts_per_tok": 1, "num_hidden_layers": 48, "num_local_experts": 128,
         "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128},
        [(24, 3 * 5120 * 16384), (24, 129 * 3 * 5120 * 8192 + 128 * 5120)],
    ),
    "clip-vit-large": (  # what is said twice counts the second time
        {"model_type": "clip",
         "text_config": {"hidden_size": 512, "model_type": "clip_text_model", "intermediate_size": 64},
         "text_config_dict": {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12,
                              "num_hidden_layers": 12, "projection_dim": 768},
         "vision_config": {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24}},
        [(12, 2 * 768 * 3072 + 3072 + 768), (24, 2 * 1024 * 4096 + 4096 + 1024)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_files_that_leave_keys_out_are_read(name: str) -> None:
    config, ffns = PUBLISHED[name]
    assert [each[1:3] for each in counted(config)] == ffns


@pytest.mark.parametrize(
    ("config", "message", "hint"),
    [
        (GPT2 | {"n_layer": None}, "no n_layer", "looked for the keys: n_layer; inspect counts it by transformers"),
        ({"model_type": "bert", "vocab_size": 512}, "no num_hidden_layers", "by transformers"),
        (LLAMA | {"model_type": "jetmoe"}, "'jetmoe' is not in the table", "by transformers"),
        (LLAMA | {"model_type": "lama"}, "'lama' is not in the table", "`ffnbench cost swiglu --d-model 1024 --d-ff 2816`"),
        (LLAMA | {"per_layer_config": {"1": {"mlp_bias": True}}}, "keys for single layers", "by transformers"),
        (CLIP | {"vision_config": None}, "no vision_config", "vision_config"),
        (CLIP | {"audio_config": {"model_type": "x"}}, "audio_config", ""),
        (CLIP | {"vision_config": {"model_type": "convnext"}}, "'convnext' is not in the table", "by transformers"),
        ({"model_type": "openai-gpt", "n_embd": 8, "n_layer": 1, "afn": "relu2"}, "with afn 'gelu' only", "afn"),
        (BERT | {"architectures": ["JinaBertForMaskedLM"]}, "whose layers are others than bert", "variant"),
        (BERT | {"auto_map": {"AutoModelForMaskedLM": "mosaicml/mosaic-bert-base--bert_layers.BertForMaskedLM"}},
         "class bert_layers.BertForMaskedLM", "variant"),
        ({"model_type": "vit_mae", "architectures": ["ViTMAEForPreTraining"]} | BERT | {"model_type": "vit_mae"},
         "class ViTMAEForPreTraining, whose layers are others", "by transformers"),
    ],
)  # fmt: skip
def test_what_only_transformers_can_tell_is_left_to_it(
    config: dict, message: str, hint: str
) -> None:
    with pytest.raises(Unanswered, match=message) as caught:
        read_groups(config)
    assert re.search(hint, caught.value.hint)


@pytest.mark.parametrize(
    ("config", "message", "hint"),
    [
        (LLAMA | {"hidden_act": "silo"}, "the activation 'silo'", "did you mean 'silu'?"),
        (LLAMA | {"hidden_act": "relu_squared"}, "the activation 'relu_squared'", "relu2"),
        (LLAMA | {"hidden_act": ["relu"]}, r"the activation \['relu'\]", "relu"),
        (LLAMA | {"hidden_size": "4096"}, "hidden_size '4096'", "whole number"),
        (LLAMA | {"intermediate_size": [1, 2]}, r"intermediate_size \[1, 2\]", "whole number"),
        (LLAMA | {"num_hidden_layers": -1}, "num_hidden_layers -1", "whole number"),
        (LLAMA | {"num_hidden_layers": 0}, "the llama config has no layers", "number of layers"),
        (LLAMA | {"num_hidden_layers": 10**400}, "num_hidden_layers 1000", "at most 10,000,000"),
        (LLAMA | {"hidden_size": 10**12}, "hidden_size 1000000000000", "at most 10,000,000"),
        (LLAMA | {"mlp_bias": "yes"}, "mlp_bias 'yes'", "true or false"),
        (LLAMA | {"architectures": "LlamaModel"}, "architectures 'LlamaModel'", "a list"),
        (QWEN | {"num_experts_per_tok": 9}, "top_k 9 is above the number of experts, 8", "published"),
        (QWEN | {"mlp_only_layers": 3}, "mlp_only_layers 3", "list of layers"),
        ({"hidden_size": 768}, "no model_type", "model_type"),
        ({"model_type": "llava", "text_config": [1]}, "a text_config that is no object", "config.json"),
        ({"model_type": "dinov2", "hidden_size": 8, "num_hidden_layers": 1, "hidden_act": "gelu", "mlp_ratio": -1},
         "mlp_ratio must be a positive number, not -1", "for example 4"),
    ],
)  # fmt: skip
def test_what_can_not_be_is_refused(config: dict, message: str, hint: str) -> None:
    with pytest.raises(FfnbenchError, match=message) as caught:
        read_groups(config)
    assert hint in caught.value.hint
    assert not isinstance(caught.value, Unanswered)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (
            {"model_type": "llama", "dim": 2048, "n_layers": 22, "n_heads": 32},
            "n_layers 22, .* the number of layers",
        ),
        (
            {"model_type": "llama", "dim": 2048, "num_hidden_layers": 22},
            "dim 2048, .* the width of the model",
        ),
        (
            LLAMA | {"num_local_experts": 8},
            "num_local_experts 8, .* the number of experts",
        ),
        (LLAMA | {"ffn_dim": 512}, "ffn_dim 512, .* the width of the FFN"),
        (BERT | {"n_inner": 512}, "n_inner 512, .* the width of the FFN"),
        (
            CLIP | {"vision_config": {"depth": 3}},
            "the clip_vision_model config has depth 3",
        ),
        (CLIP | {"hidden_size": 640}, "the clip config has hidden_size 640"),
    ],
)
def test_a_size_under_the_name_of_another_class_is_refused(
    config: dict, says: str
) -> None:
    with pytest.raises(FfnbenchError, match=says) as caught:
        read_groups(config)
    assert not isinstance(caught.value, Unanswered)
    assert re.search(r" reads: \w|model_type", caught.value.hint)
    assert "none" not in caught.value.hint


@pytest.mark.parametrize(
    ("name", "d_model", "params"),
    [
        ("qwen2.5-vl-7b", 3584, 203_685_888),
        ("gemma-3-4b", 2560, 3 * 2560 * 10240),
        ("llava-1.5-7b", 4096, 135_266_304),
    ],
)
def test_of_several_towers_the_language_model_is_taken(
    tmp_path, capsys, name: str, d_model: int, params: int
) -> None:
    path = written(tmp_path, PUBLISHED[name][0])
    assert cost.params(model_of(path).main.ffn) == params
    for words in (["cost"], ["cost", "--hardware", "h100"]):
        assert run_command_line([*words, "--preset", path, "--variants", "preset"]) == 0
        shown = capsys.readouterr().out
        assert f"d_model {d_model:,}" in shown
        assert f"{params:,}" in shown
        assert "the language model of" in " ".join(shown.split())


TEXT = json.dumps(LLAMA)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "is not JSON"),
        ("[]", "holds no object"),
        ("{}", "no model_type"),
        (TEXT.replace("4096", "[" * 50_000 + "]" * 50_000), "nested too deep"),
        (TEXT[:-1] + ', "hidden_size": 2048}', "'hidden_size' is given twice"),
        (b"\xef\xbb\xbf" + TEXT.encode(), None),
    ],
)
def test_files_that_are_no_config(
    tmp_path, content: str | bytes, says: str | None
) -> None:
    """A byte order mark is none."""
    (tmp_path / "config.json").write_bytes(
        content if isinstance(content, bytes) else content.encode()
    )
    if says is None:
        assert model_of(str(tmp_path)).groups == tuple(read_groups(LLAMA))
        return
    with pytest.raises(FfnbenchError, match=says):
        read_config(str(tmp_path))


@pytest.mark.parametrize(
    "arguments",
    [
        ["list", "presets"],
        ["cost", "--preset", "llama3-8b"],
        ["cost", "--variants", "gpt2@d_ff=64,relu"],
    ],
)
def test_what_reads_a_config_is_loaded_when_one_is_named(arguments: list[str]) -> None:
    code = (
        f"import sys\nsys.argv = ['ffnbench', *{arguments!r}]\nfrom ffnbench.cli import main\n"
        "try: main()\nexcept SystemExit as e: assert not e.code\n"
        "assert not sys.modules.keys() & {'ffnbench.models.family_reader', 'ffnbench.models.configs'}"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "config",
    [LLAMA | {"num_attention_heads": None}, LLAMA | {"num_key_value_heads": 7}, LLAMA | {"num_attention_heads": "32"},
     LLAMA | {"num_attention_heads": 0}, LLAMA | {"attention_bias": "no"}, DEEPSEEK | {"attention_bias": True},
     DEEPSEEK | {"kv_lora_rank": "512"}, DEEPSEEK | {"qk_rope_head_dim": -1}],
)  # fmt: skip
def test_attention_that_the_config_does_not_tell_is_unknown(config: dict) -> None:
    """Null, impossible or of another form. Its FFN is read all the same."""
    known = LLAMA if config["model_type"] == "llama" else DEEPSEEK
    found = read_groups(config)
    assert {group.attention for group in found} == {None}
    assert [group.ffn for group in found] == [group.ffn for group in read_groups(known)]


@pytest.mark.parametrize("installed", [True, False])
def test_what_measures_has_the_pip_line_only_without_transformers(
    tmp_path, installed: bool
) -> None:
    path = written(tmp_path, BERT | {"intermediate_size": None})
    found = "object()" if installed else "None"
    code = f"""
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: {found} if name == "transformers" else find(name, *more)
from ffnbench.cli import run_command_line
run_command_line(["block", "--preset", {path!r}])
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    hint = done.stderr.partition("hint: ")[2]
    assert "inspect counts it by transformers" in hint, done.stderr
    assert ("pip install" in hint) is not installed


def test_a_class_that_reads_no_name_of_a_size_has_no_hint_of_none() -> None:
    with pytest.raises(
        FfnbenchError, match="not its class's name for the width"
    ) as caught:
        refuse_other_names({"hidden_size": 64}, "some", {}, {}, [])
    assert "reads" not in caught.value.hint
