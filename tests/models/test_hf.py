"""Every type of the table beside transformers' own model of it: FFNs, attentions, all
parameters.
"""

from __future__ import annotations

import hf
import pytest

from ffnbench.common.errors import FfnbenchError
from ffnbench.models.family_reader import families

ONE_OF_EACH_FAMILY = sorted(
    {str(stacks): name for name, stacks in families().stacks.items()}.values()
)


def test_a_type_of_each_family_is_as_transformers_builds_it() -> None:
    wrong, tally = hf.compared(
        [*ONE_OF_EACH_FAMILY, *hf.COMPOSITES], hf.differences, hf.default_alone
    )
    assert wrong == []
    assert tally["read"] > 60


@pytest.mark.slow
def test_every_type_with_every_key_changed_turned_and_left_out() -> None:
    wrong, tally = hf.compared(families().types, hf.differences, hf.varied)
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
            known = values.keys() & SIZES - (
                {"num_hidden_layers"} if model_type in T5 else set()
            )
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
        assert pairs == {
            frozenset(pair) for pair in names.items() if SIZES & {*pair}
        } - {frozenset(N_EMBED)}, model_type


T5 = ("mt5", "t5", "umt5")
SIZES = {
    "num_hidden_layers", "num_layers", "n_layers", "n_layer", "depth", "encoder_layers", "decoder_layers",
    "hidden_size", "d_model", "n_embd", "dim", "embed_dim", "intermediate_size", "d_ff", "n_inner", "ffn_dim",
    "hidden_dim", "encoder_ffn_dim", "decoder_ffn_dim", "moe_intermediate_size", "num_experts", "num_local_experts",
    "n_routed_experts",
}  # fmt: skip
N_EMBED = ("n_embed", "hidden_size")  # of bloom, whose class takes it by code
# the class's own key and another name for it; the vision towers have a default for the
# first
BY_OTHER_NAME = [
    ("qwen2_vl_vision", "depth", "num_hidden_layers"), ("qwen3_vl_vision", "depth", "num_hidden_layers"),
    ("distilbert", "dim", "hidden_size"), ("gpt2", "n_layer", "num_hidden_layers"), ("mpt", "d_model", "hidden_size"),
    ("bart", "encoder_layers", "num_hidden_layers"),
    ("mixtral", "num_local_experts", "num_experts"), ("qwen3_moe", "num_experts", "num_local_experts"),
    ("jamba", "num_experts", "num_local_experts"), ("deepseek_v3", "n_routed_experts", "num_local_experts"),
    ("bloom", "n_layer", "num_hidden_layers"), ("bloom", "hidden_size", "n_embed"),
]  # fmt: skip


@pytest.mark.parametrize(("model_type", "own", "other"), BY_OTHER_NAME)
def test_a_size_by_its_classs_other_name_is_that_size(
    model_type: str, own: str, other: str
) -> None:
    """Alone, as transformers builds it; beside the class's own name only with the same
    number.
    """
    pytest.importorskip("transformers")
    data = {
        key: value
        for key, value in hf.default(model_type).items()
        if key not in (own, other)
    }
    number = 3 if "layer" in other else 16 if "experts" in other else 192
    assert hf.differences(f"{own} by {other}", data | {other: number}) == ""
    assert (
        hf.ours(data | {own: number, other: number})[0]
        == hf.ours(data | {own: number})[0]
    )
    with pytest.raises(
        FfnbenchError, match=f"config has {other} {number + 2}, not its class's name"
    ):
        hf.ours(data | {own: number, other: number + 2})


@pytest.mark.parametrize(
    "layers", [{"num_layers": 3}, {"num_layers": 3, "num_decoder_layers": 5}, {}]
)
def test_t5s_layers_by_another_name_are_not_its_decoders(layers: dict) -> None:
    """Its class makes the decoder as deep as the encoder before it has seen that
    name.
    """
    pytest.importorskip("transformers")
    data = hf.default("t5")
    del data["num_layers"], data["num_decoder_layers"]
    data |= {"num_hidden_layers": 5, **layers}
    if layers:
        assert hf.differences(str(layers), data) == ""
    else:
        with pytest.raises(FfnbenchError, match="no num_layers"):
            hf.ours(data)


@pytest.mark.parametrize(
    "words", [{"is_gated_act": True}, {"dense_act_fn": "silu"}, {"is_gated_act": False}]
)
@pytest.mark.parametrize("model_type", ["t5", "mt5"])
def test_what_t5_makes_of_its_word_wins_over_the_word(
    model_type: str, words: dict
) -> None:
    pytest.importorskip("transformers")
    from transformers import CONFIG_MAPPING

    from ffnbench.models.configs import read_groups

    data = hf.default(model_type) | words
    assert hf.differences(str(words), data) == ""
    built = CONFIG_MAPPING[model_type].from_dict(dict(data))
    assert read_groups(data)[0].ffn.activation == {"relu": "relu", "silu": "silu", "gelu_new": "gelu_tanh"}[
        built.dense_act_fn
    ]  # fmt: skip
