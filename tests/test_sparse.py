"""Files that leave keys out: read as transformers builds them, or left to it. The oracle is transformers' own count."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from conftest import ROOT, ffnbench
from hf import agree

from ffnbench import api
from ffnbench.api import world
from ffnbench.errors import FfnbenchError
from ffnbench.ffn import cost
from ffnbench.models.configs import LeftOut, Unanswered, read_config, read_groups
from ffnbench.models.defaults import defaults, defaults_of
from ffnbench.models.families import LAYOUT_KEYS, Layout, families, keys_read
from ffnbench.planning.block import plan_block
from ffnbench.request import BlockRequest

GOLDEN = json.loads((Path(__file__).parent / "golden" / "sparse.json").read_text(encoding="utf-8"))["files"]


def counted(config: dict) -> Counter[int]:
    found: Counter[int] = Counter()
    for group in read_groups(config):
        found[cost.params(group.ffn)] += group.count
    return found


def read_and_wrong(files: list[dict]) -> tuple[int, list[dict]]:
    """How many are read, and those that are read as something else than transformers builds."""
    read, wrong = 0, []
    for file in files:
        try:
            found = counted(file["config"])
        except FfnbenchError:
            continue
        read += 1
        if not agree(found, Counter({int(params): count for params, count in file["ffn"].items()})):
            wrong.append(file)
    return read, wrong


def test_a_hundred_types_at_their_defaults_are_as_transformers_builds_them() -> None:
    read, wrong = read_and_wrong(GOLDEN[:100])
    assert wrong == []
    assert read >= 95


def test_two_hundred_sparse_files_are_as_transformers_builds_them() -> None:
    assert len(GOLDEN) == 300
    read, wrong = read_and_wrong(GOLDEN[100:])
    assert wrong == []
    assert read >= 185


PUBLISHED = {  # as they stand on the hub, without what says nothing about the layers -> FFN parameters of all layers
    "gemma-3-1b": (
        {"model_type": "gemma3_text", "hidden_size": 1152, "intermediate_size": 6912, "num_hidden_layers": 26,
         "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256},
        {3 * 1152 * 6912: 26},
    ),
    "gemma-3-4b": (
        {"model_type": "gemma3",
         "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
                         "num_hidden_layers": 34, "sliding_window": 1024},
         "vision_config": {"hidden_size": 1152, "image_size": 896, "intermediate_size": 4304,
                           "model_type": "siglip_vision_model", "num_attention_heads": 16, "num_hidden_layers": 27,
                           "patch_size": 14, "vision_use_head": False}},
        {3 * 2560 * 10240: 34, 2 * 1152 * 4304 + 4304 + 1152: 27},
    ),
    "llava-1.5-7b": (
        {"model_type": "llava", "projector_hidden_act": "gelu",
         "text_config": {"_name_or_path": "lmsys/vicuna-7b-v1.5", "architectures": ["LlamaForCausalLM"],
                         "max_position_embeddings": 4096, "model_type": "llama", "rms_norm_eps": 1e-05,
                         "torch_dtype": "float16", "vocab_size": 32064},
         "vision_config": {"hidden_size": 1024, "image_size": 336, "intermediate_size": 4096,
                           "model_type": "clip_vision_model", "num_attention_heads": 16, "num_hidden_layers": 24,
                           "patch_size": 14, "projection_dim": 768, "vocab_size": 32000}},
        {3 * 4096 * 11008: 32, 2 * 1024 * 4096 + 4096 + 1024: 24},
    ),
    "paligemma-3b": (
        {"model_type": "paligemma", "hidden_size": 2048, "projection_dim": 2048,
         "text_config": {"hidden_size": 2048, "intermediate_size": 16384, "model_type": "gemma",
                         "num_attention_heads": 8, "num_hidden_layers": 18, "num_image_tokens": 256,
                         "num_key_value_heads": 1, "vocab_size": 257216},
         "vision_config": {"hidden_size": 1152, "intermediate_size": 4304, "model_type": "siglip_vision_model",
                           "num_attention_heads": 16, "num_hidden_layers": 27, "num_image_tokens": 256,
                           "patch_size": 14, "projection_dim": 2048, "projector_hidden_act": "gelu_fast",
                           "vision_use_head": False}},
        {3 * 2048 * 16384: 18, 2 * 1152 * 4304 + 4304 + 1152: 27},
    ),
    "qwen2.5-vl-7b": (  # its text model stands at the top
        {"model_type": "qwen2_5_vl", "hidden_act": "silu", "hidden_size": 3584, "intermediate_size": 18944,
         "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4, "vocab_size": 152064,
         "vision_config": {"depth": 32, "hidden_act": "silu", "hidden_size": 1280, "intermediate_size": 3420,
                           "num_heads": 16, "in_chans": 3, "out_hidden_size": 3584, "patch_size": 14,
                           "model_type": "qwen2_5_vl"}},
        {3 * 3584 * 18944: 28, 3 * 1280 * 3420 + 2 * 3420 + 1280: 32},
    ),
    "llama-4-maverick, its text": (  # every second layer has experts
        {"model_type": "llama4_text", "hidden_size": 5120, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
         "interleave_moe_layer_step": 2, "num_experts_per_tok": 1, "num_hidden_layers": 48, "num_local_experts": 128,
         "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128},
        {3 * 5120 * 16384: 24, 129 * 3 * 5120 * 8192 + 128 * 5120: 24},
    ),
    "clip-vit-large": (  # what is said twice counts the second time
        {"model_type": "clip",
         "text_config": {"hidden_size": 512, "model_type": "clip_text_model", "intermediate_size": 64},
         "text_config_dict": {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12,
                              "num_hidden_layers": 12, "projection_dim": 768},
         "vision_config": {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24},
         "vision_config_dict": {"hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16,
                                "num_hidden_layers": 24, "patch_size": 14, "projection_dim": 768}},
        {2 * 768 * 3072 + 3072 + 768: 12, 2 * 1024 * 4096 + 4096 + 1024: 24},
    ),
    "clip-vit-base": (
        {"model_type": "clip", "text_config": {"bos_token_id": 0}, "text_config_dict": None,
         "vision_config": {"dropout": 0.0}, "vision_config_dict": None},
        {2 * 512 * 2048 + 2048 + 512: 12, 2 * 768 * 3072 + 3072 + 768: 12},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_files_that_leave_keys_out_are_read(name: str) -> None:
    config, ffns = PUBLISHED[name]
    assert counted(config) == ffns


def test_published_files_are_read_as_transformers_builds_them() -> None:
    pytest.importorskip("transformers")
    code = (
        "import json, sys\nsys.path.insert(0, 'tests')\nfrom hf import theirs\nfrom test_sparse import PUBLISHED\n"
        "from transformers import CONFIG_MAPPING\n"
        "print(json.dumps([theirs(CONFIG_MAPPING[c['model_type']].from_dict(c)) for c, _ in PUBLISHED.values()]))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    built = [{int(params): count for params, count in each.items()} for each in json.loads(done.stdout)]
    assert built == [ffns for _, ffns in PUBLISHED.values()]


def test_a_key_that_is_absent_is_not_null() -> None:
    """Starcoder2's class has two heads of keys and values; null means as many as heads. GPT-2's null means 4 x 768."""
    assert read_groups({"model_type": "starcoder2"})[0].attention.kv_heads == 2
    assert read_groups({"model_type": "starcoder2", "num_key_value_heads": None})[0].attention.kv_heads == 24
    assert read_groups({"model_type": "gpt2"})[0].ffn.d_ff == 3072
    with pytest.raises(Unanswered, match="no hidden_act"):
        read_groups({"model_type": "llama", "hidden_act": None})


def test_another_name_is_the_same_key() -> None:
    """Under the other name alone it would be passed over, and the default taken."""
    for name in ("num_experts", "num_local_experts"):
        assert read_groups({"model_type": "qwen3_moe", name: 16})[0].ffn.moe.experts == 16
    for name in ("n_embd", "hidden_size"):
        assert read_groups({"model_type": "gpt2", name: 1600, "n_layer": 2})[0].ffn.d_model == 1600
    assert read_groups({"model_type": "gpt2", "n_embd": 1600, "hidden_size": 1600})[0].ffn.d_model == 1600
    with pytest.raises(FfnbenchError, match="contradicts itself: hidden_size 1024 and n_embd 1600"):
        read_groups({"model_type": "gpt2", "n_embd": 1600, "hidden_size": 1024})
    with pytest.raises(FfnbenchError, match="contradicts itself: num_hidden_layers 12 and encoder_layers 6"):
        read_groups({"model_type": "bart", "encoder_layers": 6, "num_hidden_layers": 12})


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"model_type": "vit_mae", "architectures": ["ViTMAEForPreTraining"]}, "class ViTMAEForPreTraining, which has"),
        ({"model_type": "depth_anything", "backbone": "x"}, "backbone, from which transformers"),
        ({"model_type": "falcon", "n_embed": 64}, "n_embed, from which transformers derives"),
        ({"model_type": "t5", "num_hidden_layers": 2}, "num_hidden_layers, from which transformers derives"),
        ({"model_type": "blt_local_encoder"}, "no intermediate_size"),
    ],
)
def test_what_only_transformers_can_tell_is_asked(config: dict, says: str) -> None:
    with pytest.raises(Unanswered, match=says) as caught:
        read_groups(config)
    assert "with transformers installed `ffnbench inspect` counts it" in caught.value.hint


def test_a_nested_config_is_of_the_type_that_the_class_takes() -> None:
    """Qwen2.5-VL builds its own vision model whatever the file calls it; LLaVA takes the type that the file names."""
    vision = {"model_type": "siglip_vision_model", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
    flat = {"model_type": "qwen2_5_vl", "vision_config": vision}
    assert {group.kind: group.ffn.gated for group in read_groups(flat)} == {"dense": True, "vision": True}
    found = read_groups({"model_type": "llava", "vision_config": vision})
    assert (found[1].ffn.d_ff, found[1].ffn.activation) == (96, "gelu_tanh")
    with pytest.raises(Unanswered, match="gemma4 config has a vision_config of type 'gemma4_vision'"):
        read_groups({"model_type": "gemma4", "vision_config": {"hidden_size": 64}})


def test_the_answer_says_what_was_left_out(tmp_path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "llava", "text_config": {"hidden_size": 64}}))
    note = read_config(str(file)).note
    assert note.startswith(f"left out and read as the defaults of transformers {defaults().version}: ")
    assert "text_config.num_hidden_layers" in note
    assert "hidden_size" not in note.replace("vision_config", "")
    done = ffnbench("inspect", str(file))
    assert " ".join(note.split()[:8]) in " ".join(done.stdout.split())
    whole = {key: value for key, value in defaults_of("llama").values.items() if value is not None}
    file.write_text(json.dumps({"model_type": "llama"} | whole))
    assert read_config(str(file)).note == ""


def test_a_long_list_of_left_out_keys_is_cut() -> None:
    left_out = LeftOut()
    read_groups({"model_type": "deepseek_v3"}, left_out)
    assert len(left_out.keys) > 8
    assert left_out.note().endswith(f"and {len(left_out.keys) - 8} more")


def test_inspect_asks_transformers_for_a_missing_key(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a worker; what plans a measurement shows the error, which names the key."""
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "blt_local_encoder", "hidden_size": 96, "num_hidden_layers": 2}))
    with pytest.raises(Unanswered, match="has no intermediate_size"):
        plan_block(BlockRequest(config=str(file)))
    asked = []

    class Worker:
        def ask(self, order: dict, timeout: float) -> dict:
            asked.append(order)
            return {"failure": "unsupported", "message": "transformers is not installed"}

        def close(self) -> None:
            asked.append("closed")

    monkeypatch.setattr(world, "MACHINE", world.Machine(launch=Worker))
    with pytest.raises(FfnbenchError, match="has no intermediate_size") as caught:
        api.inspect(str(file))
    assert asked == [{"do": "hf_layers", "source": str(file.resolve())}, "closed"]
    assert "looked for the keys: intermediate_size" in caught.value.hint
    assert "transformers is not installed" in caught.value.hint


def test_a_missing_key_is_counted_by_transformers(tmp_path) -> None:
    transformers = pytest.importorskip("transformers")
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "blt_local_encoder", "hidden_size": 96, "num_hidden_layers": 2}))
    done = ffnbench("inspect", str(file), "--format", "json")
    answer = json.loads(done.stdout)
    assert answer["counted_by"] == f"transformers {transformers.__version__}, which built it"
    assert [(each["count"], each["params"]) for each in answer["layers"]] == [(2, 3 * 96 * 256)]


class Asked(dict):
    """A file that knows which of its keys were looked for."""

    def __init__(self, *arguments: dict) -> None:
        super().__init__(*arguments)
        self.keys_asked: set[str] = set()

    def get(self, key, default=None):
        self.keys_asked.add(key)
        return super().get(key, default)


def test_the_defaults_hold_every_key_that_the_table_reads() -> None:
    """A new row of families.toml needs `python tests/hf_data.py`."""
    for model_type, family in families().by_type.items():
        known = defaults_of(model_type)
        keys = keys_read(model_type)
        if model_type in ("semantic", "coarse_acoustics", "fine_acoustics", "jina_bert_v2", "mosaic_bert"):
            continue  # parts of bark, and code that is not transformers' own
        assert keys == known.values.keys() | set(known.without) | (keys & known.names.keys()), model_type
        assert model_type == "rag" or set(family.parts) <= known.parts.keys(), model_type
    assert LAYOUT_KEYS.keys() == set(Layout)


OF_ATTENTION = (  # windows, whose defaults stand with their rules: tests/test_windows.py holds these to transformers
    "encoder_attention_type", "full_attention_interval", "layer_types", "max_window_layers", "no_rope_layer_interval",
    "no_rope_layers", "sliding_window", "sliding_window_pattern", "use_bidirectional_attention", "use_sliding_window",
)  # fmt: skip


def test_the_table_reads_no_key_that_it_does_not_name(monkeypatch: pytest.MonkeyPatch) -> None:
    from ffnbench.models import configs

    read = []

    class Recorder(configs._Reader):
        def __init__(self, config, *rest, **named) -> None:
            super().__init__(Asked(config), *rest, **named)
            read.append(self)

    monkeypatch.setattr(configs, "_Reader", Recorder)
    for model_type, family in families().by_type.items():
        if family.stacks:
            read.clear()
            try:
                read_groups({"model_type": model_type})
            except FfnbenchError:
                continue
            keys = keys_read(model_type)
            known = keys | {"per_layer_config", "dense_act_fn", *OF_ATTENTION}
            assert read[0].config.keys_asked <= known, model_type


@pytest.mark.slow
def test_the_defaults_are_those_of_transformers() -> None:
    pytest.importorskip("transformers")
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "hf_data.py"), "--check"],
        capture_output=True, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_sparse_files_are_read_as_transformers_builds_them() -> None:
    pytest.importorskip("transformers")
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "hf_sparse.py"), "17", "1", "all"],
        capture_output=True, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=3600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each for each in found if each["status"] == "wrong"] == []
    assert sum(each.get("tally", {}).get("same", 0) for each in found) > 350
