"""Every key that the classes of a type's layers read is read by its row, assumed, or declared not to matter."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from conftest import ROOT
from hf_keys import told, undeclared
from hf_vary import GOLDEN

from ffnbench.errors import FfnbenchError
from ffnbench.ffn import cost
from ffnbench.models.configs import UnknownFamily, read_groups
from ffnbench.models.families import families, parse

FOUND = {name: set(keys.split()) for name, keys in json.loads(GOLDEN.read_text(encoding="utf-8"))["keys"].items()}
NOT_LOOKED_AT = {  # no model of transformers is one of these: parts, whose classes stand in the model around them
    "coarse_acoustics",  # Bark's config has them under this name, and transformers under no type
    "fine_acoustics",
    "jina_bert_v2",  # code that is not transformers' own
    "mosaic_bert",
    "sam3_geometry_encoder",
    "semantic",
    "t5_gemma_module",
}
TYPES = sorted(name for name, family in families().by_type.items() if family.stacks and name not in NOT_LOOKED_AT)
STAGES = {"num_hidden_layers"}, {"num_layers"}  # refused where it is not the length of the list of stages
UNREAD = {  # what a row reads, though the classes of transformers don't
    "clap_audio_model": STAGES[0],
    "cvt": STAGES[0],
    "dbrx": {"intermediate_size"},  # of dense layers, of which there are none
    "deepseek_v2": {"norm_topk_prob", "moe_layer_freq"},  # the published code does
    "deepseek_v3": {"moe_layer_freq"},
    "deepseek_v4": {"intermediate_size", "n_shared_experts"},  # refused: a name of moe_intermediate_size; it makes one
    "donut-swin": STAGES[1],
    "dpt": {"backbone_config"},  # another model in its place
    "esm": {"is_folding_model"},  # layers beside these
    "florence_vision": STAGES[0],
    "focalnet": STAGES[1],
    "gpt_oss": {"hidden_act"},  # acts_as
    "llama4_vision_model": {"hidden_act"},
    "maskformer-swin": STAGES[1],
    "mimo_v2_flash": {"n_shared_experts"},  # the published code does
    "mpt": {"expansion_ratio", "no_bias"},  # the published code does
    "nemotron_h": {"layer_types", "n_shared_experts", "num_hidden_layers"},  # other names, and one that makes one
    "qwen3_5_moe_text": {"intermediate_size"},  # as dbrx
    # its model for units has a config of its own, in which these have other names
    "seamless_m4t": {f"t2u_{part}_{key}" for part in ("encoder", "decoder") for key in ("layers", "ffn_dim")},
    "seamless_m4t_v2": {"t2u_encoder_ffn_dim", "t2u_encoder_layers"},
    "solar_open": {"first_k_dense_replace"},  # the published code does
    "swin": STAGES[1],
    "swin2sr": STAGES[1],
    "swinv2": STAGES[1],
    "wav2vec2-conformer": {"use_intermediate_ffn_before_adapter"},  # of wav2vec2-bert, whose row it shares
}
LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "hidden_act": "silu",
}


def test_every_type_was_looked_at() -> None:
    """Another type in the table: `python tests/hf_keys.py --write new`."""
    assert sorted(FOUND) == TYPES
    assert families().by_type.keys() >= NOT_LOOKED_AT


def test_every_key_that_matters_is_known() -> None:
    assert {name: left for name in TYPES if (left := undeclared(name, FOUND[name]))} == {}


def test_the_classes_read_what_the_rows_read() -> None:
    """A row that reads a key that nothing reads gives another number as soon as a file has that key."""
    asked = {name: told(name, strictly=True) - FOUND[name] - UNREAD.get(name, set()) for name in TYPES}
    assert {name: left for name, left in asked.items() if left} == {}


def test_what_is_declared_not_to_matter_is_read_by_no_row() -> None:
    assert {name: left for name in TYPES if (left := told(name) & families().harmless_in(name))} == {}


def test_nothing_is_declared_that_nothing_reads() -> None:
    of_layers = {"kv_lora_rank"}  # of attention alone, but changed for single layers
    assert families().harmless - set().union(*FOUND.values()) <= of_layers
    for name, keys in families().harmless_for.items():
        assert keys <= FOUND[name], name
        assert not keys & families().harmless, name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("harmless = 3", "harmless"),
        ('[harmless_for]\nuse_bias = ["lama"]', "harmless_for: use_bias: 'lama' is no model type of the table"),
    ],
)
def test_a_wrong_declaration_is_named(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(text)


def test_single_layers_may_change_what_no_ffn_depends_on() -> None:
    assert [group.count for group in read_groups(LLAMA | {"per_layer_config": {"0": {"head_dim": 32}}})] == [2]
    for change in ({"mlp_bias": True}, {"intermediate_size": 8}, {"skip": ["mlp"]}, {"unheard_of": 1}):
        with pytest.raises(UnknownFamily, match=f"changes {next(iter(change))} for single layers"):
            read_groups(LLAMA | {"per_layer_config": {"1": change}})


def test_layers_with_an_attention_of_their_own_leave_it_unknown() -> None:
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4}
    assert read_groups(LLAMA | heads)[0].attention is not None
    assert read_groups(LLAMA | heads | {"per_layer_config": {"0": {"num_key_value_heads": 2}}})[0].attention is None


BART = {
    "model_type": "bart", "d_model": 64, "encoder_layers": 2, "decoder_layers": 1, "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 96, "activation_function": "gelu",
}  # fmt: skip


def test_two_names_of_one_key() -> None:
    """transformers takes num_hidden_layers, wherever it stands; whoever wrote the file may have meant the other."""
    assert [group.count for group in read_groups(BART | {"num_hidden_layers": 2})] == [2, 1]
    for change in ({"num_hidden_layers": 3}, {"encoder_layers": None, "num_hidden_layers": 2}):
        with pytest.raises(FfnbenchError, match=r"contradicts itself: num_hidden_layers .* and encoder_layers"):
            read_groups(BART | change)


@pytest.mark.parametrize(
    ("config", "params"),
    [
        (
            LLAMA | {"model_type": "gpt_neox_japanese", "intermediate_multiple_size": 2, "intermediate_size": None},
            2 * 64 * 128,
        ),
        (LLAMA | {"model_type": "emu3_text_model", "mlp_bias": True}, 3 * 64 * 96 + 2 * 96 + 64),
    ],
)
def test_keys_that_were_missed(config: dict, params: int) -> None:
    assert [cost.params(group.ffn) for group in read_groups(config)] == [params]


@pytest.mark.parametrize(
    "config",
    [
        LLAMA
        | {
            "model_type": "deepseek_v3", "n_routed_experts": 4, "n_shared_experts": 0, "num_experts_per_tok": 2,
            "moe_intermediate_size": 32, "first_k_dense_replace": 1, "hidden_act": "prelu", "n_group": 1,
            "topk_group": 1,
        },
        LLAMA | {"model_type": "vitpose_backbone", "mlp_ratio": 4, "num_experts": 2},
        BART | {
            "model_type": "nllb-moe", "encoder_sparse_step": 2, "decoder_sparse_step": 2, "num_experts": 4,
            "activation_function": "prelu",
        },
        {"model_type": "udop", "d_model": 64, "d_ff": 96, "num_layers": 2, "feed_forward_proj": "gated-gelu"},
    ],
    ids=lambda config: config["model_type"],
)  # fmt: skip
def test_another_form_is_refused(config: dict) -> None:
    with pytest.raises(UnknownFamily):
        read_groups(config)


@pytest.mark.parametrize(
    ("model_type", "dense"),
    [
        ("beam", 3), ("flint", 2), ("glm5_next_text", 3), ("hy_v3", 1), ("laguna", 1), ("mellum", 0),
        ("mimo_v2_flash", 1), ("minimax_m3_vl_text", 0), ("step3p5", 3),
    ],
)  # fmt: skip
def test_first_dense_layers_that_the_code_sets(model_type: str, dense: int) -> None:
    """Without a list of their own these classes make so many dense, and first_k_dense_replace is no key of theirs."""
    config = {"model_type": model_type, "num_hidden_layers": 6}
    groups = read_groups(config | {"first_k_dense_replace": dense})
    assert {group.kind: group.count for group in groups} == {"moe": 6 - dense} | ({"dense": dense} if dense else {})
    with pytest.raises(FfnbenchError, match="first_k_dense_replace 4, which is no key of its class"):
        read_groups(config | {"first_k_dense_replace": 4})


def test_an_activation_that_the_code_sets() -> None:
    assert read_groups(LLAMA | {"model_type": "llama4_vision_model"})[0].ffn.activation == "gelu"
    assert read_groups(LLAMA | {"model_type": "glm5_next_vision", "depth": 2})[0].ffn.limit == 10


def run(script: str, *arguments: str) -> list[dict]:
    pytest.importorskip("transformers")
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / script), *arguments],
        capture_output=True, text=True, timeout=1800, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_the_classes_of_transformers_read_these_keys() -> None:
    transformers = pytest.importorskip("transformers")
    made_by = json.loads(GOLDEN.read_text(encoding="utf-8"))["transformers"]
    if transformers.__version__ != made_by:
        pytest.skip(f"the list is that of transformers {made_by}")
    lines = run("hf_keys.py", "all")
    assert {each["type"] for each in lines if "keys" not in each} == NOT_LOOKED_AT
    assert {each["type"]: set(each["keys"]) for each in lines if "keys" in each} == FOUND


@pytest.mark.slow
def test_random_changes_are_read_as_built_or_refused() -> None:
    """A share of the variations that tests/hf_vary.py can make; all keys of the default configs, 2 to 6 at once."""
    *lines, total = run("hf_vary.py", "random", "all", "--seed", "17", "--count", "4")
    assert [each for each in lines if each["status"] == "wrong"] == []
    assert total["tally"]["same"] > 500, total
