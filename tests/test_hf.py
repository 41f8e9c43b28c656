"""Every type of the table beside transformers' own model of it: FFNs, attentions, all parameters."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable

import hf
import pytest
from hf_variations import variations

from ffnbench.errors import FfnbenchError
from ffnbench.models.family_reader import families

ONE_OF_EACH_FAMILY = sorted({str(stacks): name for name, stacks in families().stacks.items()}.values())
COMPOSITES = ["clip", "gemma3", "llava", "qwen2_5_vl"]


def compared(types: Iterable[str], *, default_alone: bool) -> tuple[list[str], Counter[str]]:
    """What differs, and how many files were read, refused or such as no model can be built of."""
    pytest.importorskip("transformers").logging.set_verbosity(100)
    wrong, tally = [], Counter[str]()
    for model_type in types:
        for name, data in [("default", hf.default(model_type))] if default_alone else hf.varied(model_type):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    said = hf.differences(name, data)
            except FfnbenchError:
                tally["refused"] += 1
                said = f"the default of {model_type} is refused" if name == "default" else ""
            except Exception:
                tally["unbuildable"] += 1
                said = f"the default of {model_type} can't be built" if name == "default" else ""
            else:
                tally["read"] += 1
            wrong += [said] if said else []
    return wrong, tally


def test_a_type_of_each_family_is_as_transformers_builds_it() -> None:
    wrong, tally = compared([*ONE_OF_EACH_FAMILY, *COMPOSITES], default_alone=True)
    assert wrong == []
    assert tally["read"] > 60


@pytest.mark.slow
def test_every_type_with_every_key_changed_turned_and_left_out() -> None:
    wrong, tally = compared(families().types, default_alone=False)
    assert wrong == []
    assert tally["read"] > 1500, tally


@pytest.mark.slow
def test_defaults_are_those_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    for model_type, values in families().defaults.items():
        config = transformers.CONFIG_MAPPING[model_type]()
        named = {key: value for key, value in values.items() if value is not None}
        assert {key: getattr(config, key, True) for key in named} == named, model_type
        if model_type in families().stacks:
            known = values.keys() & SIZES - ({"num_hidden_layers"} if model_type in T5 else set())
            assert known == set(config.__dataclass_fields__) & SIZES, model_type


@pytest.mark.slow
def test_other_names_are_those_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    for model_type in families().stacks:
        own = transformers.CONFIG_MAPPING[model_type].attribute_map
        pairs = {frozenset(pair) for pair in own.items() if SIZES & {*pair}}
        if model_type in T5:  # the decoder's layers are the default of the other name's
            pairs -= {frozenset(("num_layers", "num_hidden_layers"))}
        names = families().other_names.get(model_type, {})
        assert pairs == {frozenset(pair) for pair in names.items() if SIZES & {*pair}} - {frozenset(N_EMBED)}, (
            model_type
        )


T5 = ("mt5", "t5", "umt5")
SIZES = {
    "num_hidden_layers", "num_layers", "n_layers", "n_layer", "depth", "encoder_layers", "decoder_layers",
    "hidden_size", "d_model", "n_embd", "dim", "embed_dim", "intermediate_size", "d_ff", "n_inner", "ffn_dim",
    "hidden_dim", "encoder_ffn_dim", "decoder_ffn_dim", "moe_intermediate_size", "num_experts", "num_local_experts",
    "n_routed_experts",
}  # fmt: skip
N_EMBED = ("n_embed", "hidden_size")  # of bloom, whose class takes it by code
BY_OTHER_NAME = [  # the class's own key and another name for it; the vision towers have a default for the first
    ("qwen2_vl_vision", "depth", "num_hidden_layers"), ("qwen3_vl_vision", "depth", "num_hidden_layers"),
    ("distilbert", "dim", "hidden_size"), ("gpt2", "n_layer", "num_hidden_layers"), ("mpt", "d_model", "hidden_size"),
    ("bart", "encoder_layers", "num_hidden_layers"),
    ("mixtral", "num_local_experts", "num_experts"), ("qwen3_moe", "num_experts", "num_local_experts"),
    ("jamba", "num_experts", "num_local_experts"), ("deepseek_v3", "n_routed_experts", "num_local_experts"),
    ("bloom", "n_layer", "num_hidden_layers"), ("bloom", "hidden_size", "n_embed"),
]  # fmt: skip


@pytest.mark.parametrize(("model_type", "own", "other"), BY_OTHER_NAME)
def test_a_size_by_its_classs_other_name_is_that_size(model_type: str, own: str, other: str) -> None:
    """Alone, as transformers builds it; beside the class's own name only with the same number."""
    pytest.importorskip("transformers")
    data = {key: value for key, value in hf.default(model_type).items() if key not in (own, other)}
    number = 3 if "layer" in other else 16 if "experts" in other else 192
    assert hf.differences(f"{own} by {other}", data | {other: number}) == ""
    assert hf.ours(data | {own: number, other: number})[0] == hf.ours(data | {own: number})[0]
    with pytest.raises(FfnbenchError, match=f"config has {other} {number + 2}, not its class's name"):
        hf.ours(data | {own: number, other: number + 2})


@pytest.mark.parametrize(
    "model_type", ["phi3", "vit", "deit", "vit_msn", "yolos", "stablelm", "olmoe", "llama", "qwen3", "gpt_neox", "t5"]
)
def test_head_dim_counts_where_its_class_reads_it(model_type: str) -> None:
    pytest.importorskip("transformers")
    assert hf.differences("head_dim 48", hf.default(model_type) | {"head_dim": 48}) == ""


@pytest.mark.parametrize("model_type", ["glm", "glm4", "ministral3", "qwen2_moe", "stablelm", "mistral", "llama"])
@pytest.mark.parametrize("key", ["head_dim", "num_key_value_heads"])
def test_heads_that_a_file_leaves_out_are_the_classs_own(model_type: str, key: str) -> None:
    pytest.importorskip("transformers")
    data = hf.default(model_type)
    data["num_attention_heads"] *= 2
    assert hf.differences(f"without {key}", {name: value for name, value in data.items() if name != key}) == ""


@pytest.mark.parametrize("layers", [{"num_layers": 3}, {"num_layers": 3, "num_decoder_layers": 5}, {}])
def test_t5s_layers_by_another_name_are_not_its_decoders(layers: dict) -> None:
    """Its class makes the decoder as deep as the encoder before it has seen that name."""
    pytest.importorskip("transformers")
    data = hf.default("t5")
    del data["num_layers"], data["num_decoder_layers"]
    data |= {"num_hidden_layers": 5, **layers}
    if layers:
        assert hf.differences(str(layers), data) == ""
    else:
        with pytest.raises(FfnbenchError, match="no num_layers"):
            hf.ours(data)


@pytest.mark.parametrize("words", [{"is_gated_act": True}, {"dense_act_fn": "silu"}, {"is_gated_act": False}])
@pytest.mark.parametrize("model_type", ["t5", "mt5"])
def test_what_t5_makes_of_its_word_wins_over_the_word(model_type: str, words: dict) -> None:
    pytest.importorskip("transformers")
    from transformers import CONFIG_MAPPING

    from ffnbench.models.configs import read_groups

    data = hf.default(model_type) | words
    assert hf.differences(str(words), data) == ""
    built = CONFIG_MAPPING[model_type].from_dict(dict(data))
    assert read_groups(data)[0].ffn.activation == {"relu": "relu", "silu": "silu", "gelu_new": "gelu_tanh"}[
        built.dense_act_fn
    ]  # fmt: skip


def test_a_file_without_a_class_is_one_model_for_both_counts(tmp_path) -> None:
    """pop2piano has T5's layers, six in each stack; the bare model of seamless_m4t_v2 is less than what answers."""
    pytest.importorskip("transformers")
    from ffnbench.extras.models.transformers import count_layers, count_whole

    for data in ({"model_type": "pop2piano"}, {"model_type": "seamless_m4t_v2"}):
        path = hf.written(tmp_path, data)
        found = sum(layers.count * layers.params for layers in count_layers(path).layers)
        assert found == count_whole(path).ffn, data
        if data["model_type"] == "pop2piano":
            assert found == 12 * 3 * 512 * 2048


# in the format of another library, or of another class: what transformers builds of them is nobody's model
ELSEWHERE = [
    {"model_type": "nomic_bert", "n_embd": 256, "n_inner": 1024, "n_layer": 12, "num_experts": 8, "moe_top_k": 2},
    {"model_type": "llava", "hidden_size": 5120, "intermediate_size": 13824, "num_hidden_layers": 40},
    {"model_type": "jetmoe", "hidden_size": 32, "ffn_dim": 48, "num_hidden_layers": 2},
    {"model_type": "jetmoe", "hidden_size": 32, "intermediate_size": 48, "n_layers": 2},
]


@pytest.mark.parametrize("data", ELSEWHERE, ids=lambda data: "-".join(map(str, data.values())))
def test_transformers_is_not_asked_about_sizes_that_it_would_ignore(tmp_path, data: dict) -> None:
    pytest.importorskip("transformers")
    from ffnbench.extras.models.transformers import count_layers, count_whole

    for count in (count_layers, count_whole):
        with pytest.raises(FfnbenchError, match="not its class's name"):
            count(hf.written(tmp_path, data))


def test_sizes_that_transformers_took_from_its_class_are_named(tmp_path) -> None:
    pytest.importorskip("transformers")
    from ffnbench.extras.models.transformers import count_layers, count_whole

    path = hf.written(tmp_path, {"model_type": "jetmoe", "num_local_experts": 6, "num_hidden_layers": 2})
    for found in (count_layers(path), count_whole(path)):
        assert "hidden_size 2,048" in found.defaults
        assert "intermediate_size 5,632" in found.defaults
        assert "num_hidden_layers" not in found.defaults


def test_the_output_of_mt5_is_a_matrix_of_its_own(tmp_path) -> None:
    """google/mt5-small has 300,176,768 parameters; its class ties the two until it has read the weights."""
    pytest.importorskip("transformers")
    from ffnbench.extras.models.counting import whole_model
    from ffnbench.extras.models.transformers import count_whole
    from ffnbench.models.presets import model_of

    small = {"model_type": "mt5", "d_ff": 1024, "d_kv": 64, "d_model": 512, "feed_forward_proj": "gated-gelu",
             "num_decoder_layers": 8, "num_heads": 6, "num_layers": 8, "tie_word_embeddings": False,
             "vocab_size": 250112}  # fmt: skip
    path = hf.written(tmp_path, small)
    assert count_whole(path).params == whole_model(model_of(path)).params == 300_176_768


@pytest.mark.parametrize(
    ("route", "count"),
    [
        ("table", 60),
        pytest.param("table", 600, marks=pytest.mark.slow),
        pytest.param("transformers", 150, marks=pytest.mark.slow),
    ],
)
def test_no_changed_size_is_counted_wrongly_in_silence(tmp_path, route: str, count: int) -> None:
    pytest.importorskip("transformers").logging.set_verbosity(100)
    found = [(kind, file.done, said) for kind, file, said in variations(f"test-{count}", count, route, tmp_path)]
    assert [one for one in found if one[2].startswith("WRONG")] == []
    assert {"refused", "right", "named"} <= {said for _, _, said in found}


# in the tail, or with switches that the table leaves to it; worked out by hand from papers and classes
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
    ({"model_type": "swin", "embed_dim": 96, "depths": [2, 2, 6, 2]},  # twice as wide from stage to stage
     2 * 74_208 + 2 * 295_872 + 6 * 1_181_568 + 2 * 4_722_432),
    ({"model_type": "t5", "architectures": ["T5EncoderModel"], "num_layers": 3}, 3 * 2 * 512 * 2048),
]  # fmt: skip


@pytest.mark.parametrize(("config", "params"), BUILT, ids=[config["model_type"] for config, _ in BUILT])
def test_every_ffn_of_a_layer_is_counted_by_names_and_nothing_else(tmp_path, config: dict, params: int) -> None:
    pytest.importorskip("transformers")
    from ffnbench.extras.models.transformers import count_layers

    assert sum(layers.count * layers.params for layers in count_layers(hf.written(tmp_path, config)).layers) == params


@pytest.mark.parametrize("kind", ["zamba", "sam2_hiera_det_model"])
def test_what_is_left_over_in_a_layer_refuses_the_model_by_name(tmp_path, kind: str) -> None:
    pytest.importorskip("transformers")
    from ffnbench.extras.models.transformers import count_layers

    left = {"zamba": "linear", "sam2_hiera_det_model": "proj"}[kind]
    with pytest.raises(FfnbenchError, match=rf"under names that nobody declared: .*{left}"):
        count_layers(hf.written(tmp_path, {"model_type": kind}))


@pytest.mark.parametrize("model_type", ["mixtral", "qwen2_moe", "deepseek_v3", "gpt_oss", "jamba", "llama4_text"])
def test_the_router_tells_what_the_closed_form_does(model_type: str) -> None:
    pytest.importorskip("transformers")
    from transformers import CONFIG_MAPPING

    from ffnbench.extras.models.transformers import active_params, build_empty, feed_forwards
    from ffnbench.ffn import cost
    from ffnbench.models.configs import read_groups

    config = CONFIG_MAPPING[model_type](num_hidden_layers=4)
    built = Counter((found.params, active_params(found)) for found in feed_forwards(build_empty(config)))
    read: Counter[tuple[int, int | None]] = Counter()
    for group in read_groups(config.to_dict()):
        read[cost.params(group.ffn), cost.params_active(group.ffn)] += group.count
    assert built == read
