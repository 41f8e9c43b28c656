"""Whole models beside transformers' own: all parameters by our tables, and what is
counted in the model it builds.
"""

from __future__ import annotations

import json
from collections import Counter

import hf
import pytest

from ffnbench.common.errors import FfnbenchError
from ffnbench.extras.models.counting import count_whole_model
from ffnbench.extras.models.rest import table
from ffnbench.extras.models.transformers import (
    active_params,
    build_empty,
    build_whole,
    count_layers,
    count_whole,
    feed_forwards,
)
from ffnbench.ffn import cost
from ffnbench.models.configs import read_groups
from ffnbench.models.family_reader import families
from ffnbench.models.model import ModelSpec
from ffnbench.models.presets import model_of

# transformers' class, until it has read a file whose two matrices differ
TIES_ALWAYS = {"mt5", "t5", "umt5"}
ONE_OF_EACH_ROW = sorted(
    {str(rows): name for name, rows in table().types.items()}.values()
)


def differences(name: str, data: hf.Data) -> str:
    """Our sum of all parameters where it is not transformers'; "" where it is, or where
    we have none.
    """
    from transformers import CONFIG_MAPPING

    found = count_whole_model(
        ModelSpec(
            key="", name="", groups=tuple(read_groups(data)), source="", config=data
        )
    ).params
    if found is None:
        return ""
    config = CONFIG_MAPPING[data["model_type"]].from_dict(json.loads(json.dumps(data)))
    built = build_whole(config).num_parameters()
    if data["model_type"] in TIES_ALWAYS and data.get("tie_word_embeddings") is False:
        built += data["vocab_size"] * data["d_model"]
    return (
        ""
        if found == built
        else f"{data['model_type']}, {name}: {found} against {built}"
    )


def test_a_type_of_each_row_has_as_many_parameters_as_transformers_builds() -> None:
    wrong, tally = hf.compared(
        [*ONE_OF_EACH_ROW, *hf.COMPOSITES], differences, hf.default_alone
    )
    assert wrong == []
    assert tally["read"] > 30


@pytest.mark.slow
def test_every_type_with_every_key_changed_has_as_many_parameters() -> None:
    def files(model_type: str):
        return hf.varied(model_type, table().types.get(model_type, ()))

    wrong, tally = hf.compared(families().types, differences, files)
    assert wrong == []
    assert tally["read"] > 1500, tally


def test_a_file_without_a_class_is_one_model_for_both_counts(tmp_path) -> None:
    """pop2piano has T5's layers, six in each stack; the bare model of seamless_m4t_v2
    is less than what answers.
    """
    pytest.importorskip("transformers")
    for data in ({"model_type": "pop2piano"}, {"model_type": "seamless_m4t_v2"}):
        path = hf.written(tmp_path, data)
        found = sum(
            layers.count * layers.params for layers in count_layers(path).layers
        )
        assert found == count_whole(path).ffn, data
        if data["model_type"] == "pop2piano":
            assert found == 12 * 3 * 512 * 2048


# in the format of another library, or of another class: what transformers builds of
# them is nobody's model
ELSEWHERE = [
    {
        "model_type": "nomic_bert",
        "n_embd": 256,
        "n_inner": 1024,
        "n_layer": 12,
        "num_experts": 8,
        "moe_top_k": 2,
    },
    {
        "model_type": "llava",
        "hidden_size": 5120,
        "intermediate_size": 13824,
        "num_hidden_layers": 40,
    },
    {"model_type": "jetmoe", "hidden_size": 32, "ffn_dim": 48, "num_hidden_layers": 2},
    {"model_type": "jetmoe", "hidden_size": 32, "intermediate_size": 48, "n_layers": 2},
]


@pytest.mark.parametrize(
    "data", ELSEWHERE, ids=lambda data: "-".join(map(str, data.values()))
)
def test_transformers_is_not_asked_about_sizes_that_it_would_ignore(
    tmp_path, data: dict
) -> None:
    pytest.importorskip("transformers")
    for count in (count_layers, count_whole):
        with pytest.raises(FfnbenchError, match="not its class's name"):
            count(hf.written(tmp_path, data))


@pytest.mark.parametrize("model_type", ["llama", "bert", "gpt2", "olmo2"])
def test_parts_are_those_of_the_closed_form(tmp_path, model_type: str) -> None:
    pytest.importorskip("transformers")
    path = hf.written(tmp_path, hf.default(model_type))
    assert count_whole(path).parts == count_whole_model(model_of(path)).parts


def test_sizes_that_transformers_took_from_its_class_are_named(tmp_path) -> None:
    pytest.importorskip("transformers")
    path = hf.written(
        tmp_path,
        {"model_type": "jetmoe", "num_local_experts": 6, "num_hidden_layers": 2},
    )
    for found in (count_layers(path), count_whole(path)):
        assert "hidden_size 2,048" in found.defaults
        assert "intermediate_size 5,632" in found.defaults
        assert "num_hidden_layers" not in found.defaults


def test_sizes_by_other_names_are_set_and_those_of_parts_are_named(tmp_path) -> None:
    """gpt2 calls its width n_embd; clip's vision is as its class has it."""
    pytest.importorskip("transformers")
    gpt2 = {"model_type": "gpt2", "hidden_size": 64, "num_attention_heads": 4}
    found = count_layers(hf.written(tmp_path, gpt2))
    assert found.layers[0].params == 2 * 64 * 256 + 256 + 64
    assert "n_embd" not in found.defaults
    assert "n_layer 12" in found.defaults
    clip = {"model_type": "clip", "text_config": {"num_hidden_layers": 2}}
    defaults = count_layers(hf.written(tmp_path, clip)).defaults
    assert "num_hidden_layers 12" in defaults.partition("clip_vision_model")[2]


def test_the_output_of_mt5_is_a_matrix_of_its_own(tmp_path) -> None:
    """google/mt5-small has 300,176,768 parameters; its class ties the two until it has
    read the weights.
    """
    pytest.importorskip("transformers")
    small = {"model_type": "mt5", "d_ff": 1024, "d_kv": 64, "d_model": 512, "feed_forward_proj": "gated-gelu",
             "num_decoder_layers": 8, "num_heads": 6, "num_layers": 8, "tie_word_embeddings": False,
             "vocab_size": 250112}  # fmt: skip
    path = hf.written(tmp_path, small)
    assert (
        count_whole(path).params
        == count_whole_model(model_of(path)).params
        == 300_176_768
    )


# in the tail, or with switches that the table leaves to it; worked out by hand from
# papers and classes
BUILT = [
    ({"model_type": "jetmoe", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
      "num_local_experts": 6}, 2 * (6 * (3 * 32 * 48 + 32) + 32)),
    ({"model_type": "albert", "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4}, 2 * 64 * 96 + 160),
    ({"model_type": "mobilebert", "num_hidden_layers": 3}, 3 * 4 * (2 * 128 * 512 + 640)),
    ({"model_type": "lxmert"}, (9 + 5 + 2 * 5) * (2 * 768 * 3072 + 3840)),
    ({"model_type": "wav2vec2-bert", "num_hidden_layers": 3}, 3 * 2 * (2 * 1024 * 4096 + 5120)),
    ({"model_type": "recurrent_gemma", "num_hidden_layers": 3, "hidden_size": 64, "intermediate_size": 192,
      "num_attention_heads": 4, "lru_width": 64}, 3 * (3 * 64 * 96 + 2 * 96 + 64)),
    ({"model_type": "qwen3_omni_moe_vision_encoder", "depth": 2}, 2 * (2 * 1152 * 4304 + 4304 + 1152)),
    # twice as wide from stage to stage
    ({"model_type": "swin", "embed_dim": 96, "depths": [2, 2, 6, 2]},
     2 * 74_208 + 2 * 295_872 + 6 * 1_181_568 + 2 * 4_722_432),
    ({"model_type": "t5", "architectures": ["T5EncoderModel"], "num_layers": 3}, 3 * 2 * 512 * 2048),
]  # fmt: skip


@pytest.mark.parametrize(
    ("config", "params"), BUILT, ids=[config["model_type"] for config, _ in BUILT]
)
def test_every_ffn_of_a_layer_is_counted_by_names_and_nothing_else(
    tmp_path, config: dict, params: int
) -> None:
    pytest.importorskip("transformers")
    assert (
        sum(
            layers.count * layers.params
            for layers in count_layers(hf.written(tmp_path, config)).layers
        )
        == params
    )


@pytest.mark.parametrize("kind", ["zamba", "sam2_hiera_det_model"])
def test_what_is_left_over_in_a_layer_refuses_the_model_by_name(
    tmp_path, kind: str
) -> None:
    pytest.importorskip("transformers")
    left = {"zamba": "linear", "sam2_hiera_det_model": "proj"}[kind]
    with pytest.raises(
        FfnbenchError, match=rf"under names that nobody declared: .*{left}"
    ):
        count_layers(hf.written(tmp_path, {"model_type": kind}))


@pytest.mark.parametrize(
    "model_type",
    ["mixtral", "qwen2_moe", "deepseek_v3", "gpt_oss", "jamba", "llama4_text"],
)
def test_the_router_tells_what_the_closed_form_does(model_type: str) -> None:
    pytest.importorskip("transformers")
    from transformers import CONFIG_MAPPING

    config = CONFIG_MAPPING[model_type](num_hidden_layers=4)
    built = Counter(
        (found.params, active_params(found))
        for found in feed_forwards(build_empty(config))
    )
    read: Counter[tuple[int, int | None]] = Counter()
    for group in read_groups(config.to_dict()):
        read[cost.params(group.ffn), cost.params_active(group.ffn)] += group.count
    assert built == read
