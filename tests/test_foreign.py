"""What a file says that its class does not read, and the class that it names: refused, or counted as it is built."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter

import pytest
from conftest import ROOT, ffnbench
from hf_vary import FOREIGN

from ffnbench import api
from ffnbench.api import world
from ffnbench.errors import FfnbenchError
from ffnbench.ffn import cost
from ffnbench.models.configs import Unanswered, read_groups
from ffnbench.models.model import count_model, whole_model
from ffnbench.models.presets import model_of

BERT = {"model_type": "bert", "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12}
JINA = BERT | {
    "architectures": ["JinaBertForMaskedLM"], "feed_forward_type": "geglu",
    "auto_map": {"AutoModel": "jinaai/jina-bert-implementation--modeling_bert.JinaBertModel"},
}  # fmt: skip
MOSAIC = BERT | {
    "architectures": ["BertForMaskedLM"],
    "auto_map": {"AutoModelForMaskedLM": "mosaicml/mosaic-bert-base--bert_layers.BertForMaskedLM"},
}
KIMI = {
    "model_type": "kimi_k2", "architectures": ["DeepseekV3ForCausalLM"], "vocab_size": 163840, "hidden_size": 7168,
    "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 64,
    "num_key_value_heads": 64, "n_shared_experts": 1, "n_routed_experts": 384, "kv_lora_rank": 512, "q_lora_rank": 1536,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "qk_nope_head_dim": 128, "n_group": 1, "topk_group": 1,
    "num_experts_per_tok": 8, "first_k_dense_replace": 1, "norm_topk_prob": True, "routed_scaling_factor": 2.827,
    "moe_layer_freq": 1, "hidden_act": "silu", "attention_bias": False, "tie_word_embeddings": False,
    "auto_map": {"AutoModelForCausalLM": "modeling_deepseek.DeepseekV3ForCausalLM"},
}  # fmt: skip
LLAMA = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}


def counted(config: dict) -> list[tuple[int, int]]:
    return [(group.count, cost.params(group.ffn) + group.more) for group in read_groups(config)]


def written(folder, config: dict) -> str:
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def test_a_key_of_another_family_is_refused_by_name() -> None:
    """Keys that change models of their own family, in files whose class passes over them: as transformers has both."""
    files = json.loads(FOREIGN.read_text(encoding="utf-8"))["files"]
    assert len(files) > 150
    for file in files:
        if file["config"]["model_type"] != "deepseek_v2":  # whose default is no model's
            with pytest.raises(FfnbenchError, match=rf" {file['key']} .* no key of its class"):
                read_groups(file["config"])


@pytest.mark.parametrize(
    "more",
    [{"d_model": 64}, {"ffn_dim": 96, "n_layer": 2}, {"num_experts": 0, "moe_k": None}, {"mlp_ratio": 1.5},
     {"n_layer": 0}, {"projector_config": {"hidden_size": 7}}, {"use_gated_mlp": True},
     {"architectures": ["LLaMAForCausalLM"]}, {"architectures": ["LlamaForRewardModel"]}, {"architectures": []}],
)  # fmt: skip
def test_what_says_the_same_or_nothing_is_passed_over(more: dict) -> None:
    assert counted(LLAMA | more) == [(2, 3 * 64 * 96)]


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (LLAMA | {"feed_forward_proj": "relu"}, 'feed_forward_proj "relu", which is no key'),
        (LLAMA | {"mlp_only_layers": [1]}, r"mlp_only_layers \[1\]"),
        (LLAMA | {"vision_config": {"num_hidden_layers": 3}}, "vision_config with layers of its own"),
        ({"model_type": "llava", "hidden_size": 2048}, "hidden_size 2048, which is no key"),
        (LLAMA | {"architectures": ["MixtralForCausalLM"]}, "class MixtralForCausalLM, which is none of llama's"),
        (LLAMA | {"architectures": "LlamaModel"}, 'architectures "LlamaModel"'),
        (LLAMA | {"model_type": "gemma3", "architectures": ["Gemma3TextModel"]}, "none of gemma3's"),
        (JINA | {"architectures": ["X"], "auto_map": {"AutoModel": "a--b.X"}}, "auto_map says whose code .*: b.X"),
    ],
)
def test_what_says_otherwise_is_refused(config: dict, says: str) -> None:
    with pytest.raises(FfnbenchError, match=says) as caught:
        read_groups(config)
    assert not isinstance(caught.value, Unanswered)


def test_classes_are_counted_as_they_are_built() -> None:
    """jina-embeddings-v2-base, MosaicBERT, T5 v1.1 XXL's encoder and BLIP's answerer, by hand."""
    glu = 768 * 2 * 3072 + 3072 * 768 + 768
    assert counted(JINA) == counted(MOSAIC) == [(12, glu)]
    t5 = {"model_type": "t5", "d_model": 4096, "d_ff": 10240, "num_layers": 24, "feed_forward_proj": "gated-gelu"}
    for model_type in ("t5", "umt5"):
        config = t5 | {"model_type": model_type, "architectures": [f"{model_type.upper()}EncoderModel"]}
        assert counted(config) == [(24, 3 * 4096 * 10240)]
    part = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12}
    blip = {"model_type": "blip", "text_config": part, "vision_config": part}
    assert sum(count for count, _ in counted(blip)) == 24
    assert sum(count for count, _ in counted(blip | {"architectures": ["BlipForQuestionAnswering"]})) == 36


def test_a_form_that_ffnbench_lacks_is_counted_and_not_compared(tmp_path) -> None:
    model = model_of(written(tmp_path, JINA))
    layers = count_model(model).layers[0]
    assert (layers.params, layers.spec) == (7_078_656, None)
    assert whole_model(model).ffn == 12 * 7_078_656
    assert "jina_bert_v2" in model.note
    with pytest.raises(FfnbenchError, match="bias on its last matrix alone"):
        _ = model.main


def test_kimi_k2_adds_up_to_what_was_published(tmp_path) -> None:
    """The safetensors index of moonshotai/Kimi-K2-Instruct, which has the routers' correction biases as well."""
    found = whole_model(model_of(written(tmp_path, KIMI)))
    assert found.params == 1_026_408_232_448 - 60 * 384
    assert found.active is not None


def test_the_text_and_sound_of_gemma_3n_are_counted() -> None:
    config = {
        "model_type": "gemma3n", "vision_config": {"model_type": "gemma3n_vision"},
        "text_config": {"hidden_size": 64, "intermediate_size": [96] * 3, "num_hidden_layers": 3},
        "audio_config": {"hidden_size": 32, "conf_num_hidden_layers": 2},
    }  # fmt: skip
    assert sorted(counted(config)) == [(2, 2 * 32 * 128), (2, 2 * 32 * 128), (3, 3 * 64 * 96)]


def test_why_transformers_can_not_count_is_said(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Worker:
        def ask(self, order: dict, timeout: float) -> dict:
            return {"failure": "unsupported", "message": "transformers is not installed"}

        def close(self) -> None:
            pass

    monkeypatch.setattr(world, "MACHINE", world.Machine(launch=Worker))
    found = api.inspect_whole(written(tmp_path, LLAMA | {"vocab_size": None}))
    assert (found.params, "transformers is not installed" in found.note) == (None, True)


def test_transformers_refuses_the_same(tmp_path) -> None:
    pytest.importorskip("transformers")
    from ffnbench.models.transformers import load

    nomic = {"model_type": "nomic_bert", "n_embd": 384, "n_layer": 6, "n_inner": 1536}
    both = [
        LLAMA | more for more in ({"n_layer": 8}, {"d_model": 1024, "d_ff": 4096}, {"architectures": ["BertModel"]})
    ]
    for config in (*both, nomic):
        with pytest.raises(FfnbenchError, match=r"no key of its class|none of llama's"):
            load(written(tmp_path, config))
    with pytest.raises(FfnbenchError, match="transformers has no class JinaBertForMaskedLM"):
        load(written(tmp_path, JINA))
    bart = {"model_type": "bart", "architectures": ["BartForCausalLM"], "d_ff": None}
    assert load(written(tmp_path, bart))[1].__name__ == "BartForCausalLM"


MIXTURES = (
    "mixtral", "qwen2_moe", "deepseek_v3", "gpt_oss", "olmoe", "jamba", "granitemoe", "ernie4_5_moe", "llama4_text",
)  # fmt: skip


def test_no_experts_are_none_that_are_active() -> None:
    pytest.importorskip("transformers")
    from transformers import CONFIG_MAPPING

    from ffnbench.models.transformers import active_params, build_empty, feed_forwards

    config = CONFIG_MAPPING["flex_olmo"](num_hidden_layers=1, num_experts=0)
    assert [active_params(found) for found in feed_forwards(build_empty(config))] == [0]


@pytest.mark.parametrize("model_type", MIXTURES)
def test_the_router_tells_what_the_closed_form_does(model_type: str) -> None:
    pytest.importorskip("transformers")
    from transformers import CONFIG_MAPPING

    from ffnbench.models.transformers import active_params, build_empty, feed_forwards

    config = CONFIG_MAPPING[model_type](num_hidden_layers=4)
    built = Counter((found.params, active_params(found)) for found in feed_forwards(build_empty(config)))
    read: Counter[tuple[int, int | None]] = Counter()
    for group in read_groups(json.loads(config.to_json_string())):
        read[cost.params(group.ffn), cost.params_active(group.ffn)] += group.count
    assert built == read


def test_the_blocks_of_muse_spark_have_an_mlp() -> None:
    """A convolution and an MLP each: 256 wide in its first stage."""
    pytest.importorskip("transformers")
    from transformers import CONFIG_MAPPING

    from ffnbench.models.transformers import build_empty, feed_forwards

    found = feed_forwards(build_empty(CONFIG_MAPPING["muse_spark"]()))
    sizes = [each.params for each in found if each.stack == "audio_tower.layers.*.conv_blocks.*.mlp"]
    assert sizes == [8 * d * d + 5 * d for d in (256, 512, 1024, 2048) for _ in range(2)]


def varied(*arguments: str) -> tuple[list[dict], dict]:
    pytest.importorskip("transformers")
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "hf_vary.py"), *arguments], capture_output=True, text=True, timeout=7200,
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    *lines, total = [json.loads(line) for line in done.stdout.splitlines()]
    return [line for line in lines if line["status"] in ("wrong", "crashed", "timeout")], total["tally"]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["foreign", "classes"])
def test_keys_of_others_and_classes_by_both_routes(mode: str) -> None:
    wrong, tally = varied(mode, "all", "--seed", "23", "--count", "2", "--routes", "both")
    assert wrong == []
    assert tally["built"] > 500, tally


@pytest.mark.slow
def test_a_whole_model_is_that_of_the_class_that_is_named(tmp_path) -> None:
    transformers = pytest.importorskip("transformers")
    from ffnbench.models.whole import count_whole

    small = {"d_model": 32, "d_ff": 48, "num_layers": 2, "num_heads": 2, "d_kv": 16, "vocab_size": 64}
    found = count_whole(written(tmp_path, {"model_type": "t5", "architectures": ["T5EncoderModel"]} | small))
    assert found.params == transformers.T5EncoderModel(transformers.T5Config(**small)).num_parameters()


def test_the_command_names_the_key(tmp_path) -> None:
    done = ffnbench("inspect", written(tmp_path, LLAMA | {"n_layer": 8}))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: the llama config has n_layer 8, which is no key of its class")
    assert "\nhint: its class has num_hidden_layers" in done.stderr
