"""Models that are read off transformers' modules, held against what transformers builds
and against published sizes.
"""

from __future__ import annotations

import json
import random
from functools import cache
from typing import Any

import pytest
from model_configs import (
    GEMMA_3,
    HUNYUAN,
    LLAMA,
    NEMOTRON_H,
    PUBLISHED,
    Data,
    by_exclusion,
)

import ffnbench
from ffnbench.common.errors import FfnbenchError

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity(100)

# model type: the form of its FFNs as its paper or its code has it
FORMS = {
    "gpt2": "gelu_tanh", "bert": "gelu", "t5": "relu", "bart": "gelu", "llama": "swiglu", "gemma2": "geglu_tanh",
    "phi3": "swiglu", "mixtral": "swiglu@moe=8x2", "gpt_oss": "swiglu_oai@moe=128x4", "qwen2_moe": "swiglu@moe=60x4",
    "deepseek_v3": "swiglu@moe=256x8", "modernbert": "geglu", "bloom": "gelu_tanh", "falcon": "gelu", "vit": "gelu",
    "arcee": "relu2", "olmoe": "swiglu@moe=64x8", "opt": "relu", "llama4_text": "swiglu@moe=16x1",
}  # fmt: skip
IN_DEFAULT_RUN = (
    "gpt2",
    "bert",
    "t5",
    "phi3",
    "mixtral",
    "gpt_oss",
    "opt",
    "modernbert",
    "llama4_text",
)
MORE = [
    "albert", "aria_text", "bamba", "biogpt", "cohere", "cohere2", "codegen", "ctrl", "deberta",
    "distilbert", "electra", "ernie4_5_moe", "exaone4", "falcon_h1", "flex_olmo", "glm", "glm4_moe", "gpt_bigcode",
    "gpt_neox", "gptj", "granite", "granitemoe", "helium", "hubert", "jamba", "jetmoe", "lfm2", "llama4_text", "longt5",
    "mamba2", "marian", "minimax", "mistral", "mpt", "mt5", "nemotron_h", "olmo2", "olmo3", "persimmon", "phi",
    "phimoe", "qwen2", "qwen3", "qwen3_moe", "qwen3_next", "roberta", "roformer", "seed_oss",
    "smollm3", "stablelm", "starcoder2", "umt5", "whisper", "xglm",
]  # fmt: skip
NO_FFN = {"mamba2"}
STEP = PUBLISHED["Step-3.5-Flash"]["config"]


def default(model_type: str) -> Data:
    """A file with every key that the class of a type writes."""
    config = transformers.CONFIG_MAPPING[model_type]()
    data: Data = json.loads(json.dumps(config.to_dict(), default=str))
    return data


@cache
def read(content: str) -> Any:
    from ffnbench.models.read import read_model

    return read_model(json.loads(content), "config.json")


def model_of(data: Data) -> Any:
    return read(json.dumps(data))


def built(data: Data) -> Any:
    """The bare model, by transformers' own words."""
    import torch
    from transformers import AutoConfig, AutoModel

    with torch.device("meta"):
        return AutoModel.from_config(AutoConfig.for_model(**data))


def ffn_params(model: Any) -> int:
    return sum(group.count * group.params for group in model.groups)


@pytest.mark.parametrize(
    "model_type",
    [
        pytest.param(name, marks=() if name in IN_DEFAULT_RUN else pytest.mark.slow)
        for name in FORMS
    ],
)
def test_the_form_of_a_published_class_is_proven(model_type: str) -> None:
    data = default(model_type)
    model = model_of(data)
    assert model.main.ffn.name == FORMS[model_type]
    assert all(group.proven for group in model.groups)
    assert ffn_params(model) == by_exclusion(built(data))


@pytest.mark.slow
@pytest.mark.parametrize("model_type", MORE)
def test_ffns_are_what_else_a_layer_has(model_type: str) -> None:
    """Of the default file, and of two with other sizes."""
    draw = random.Random(model_type)
    data = default(model_type)
    files = [data]
    for factor in (2, 3):
        names = [
            n
            for n in ("intermediate_size", "moe_intermediate_size", "ffn_dim", "d_ff")
            if n in data
        ]
        if names:
            name = draw.choice(names)
            files.append(data | {name: factor * data[name]} if data[name] else data)
    for each in files:
        if model_type in NO_FFN:
            with pytest.raises(FfnbenchError, match="no FFN was found"):
                model_of(each)
        else:
            assert ffn_params(model_of(each)) == by_exclusion(built(each))


@pytest.mark.slow
@pytest.mark.parametrize(
    "model_type",
    ["qwen3_moe", "glm4_moe", "olmoe", "granitemoe", "minimax_m2", "phimoe", "jamba", "flex_olmo", "deepseek_v3"],
)  # fmt: skip
def test_active_parameters_follow_from_the_config(model_type: str) -> None:
    """Of the default file, and of one with another top-k."""
    for top_k in (None, 3):
        data = default(model_type)
        data["num_experts_per_tok"] = top_k or data["num_experts_per_tok"]
        config = transformers.AutoConfig.for_model(**data)
        names = ("n_routed_experts", "num_local_experts", "num_experts")
        count = next(n for n in (getattr(config, name, None) for name in names) if n)
        parameters = built(data).named_parameters()
        in_experts = sum(p.numel() for name, p in parameters if ".experts." in name)
        idle = in_experts // count * (count - data["num_experts_per_tok"])
        model = model_of(data)
        assert model.params_active == model.params - idle


@pytest.mark.parametrize("name", PUBLISHED)
def test_whole_models_are_as_published(name: str) -> None:
    row = PUBLISHED[name]
    if "total" not in row:
        with pytest.raises(FfnbenchError, match="code that comes with a file"):
            model_of(row["config"])
        return
    model = model_of(row["config"])
    assert model.params == pytest.approx(1e9 * row["total"], rel=5e-3)
    if "active" in row:
        assert model.params_active == pytest.approx(1e9 * row["active"], rel=5e-3)


def test_gemma_4s_active_parameters() -> None:
    """All but the 120 of 128 experts of 3 x 2,816 x 704 that a token does not go to."""
    model = model_of(PUBLISHED["Gemma-4-26B-A4B"]["config"])
    assert model.params - model.params_active == 30 * 120 * 3 * 2816 * 704


def test_a_limit_that_is_infinite_clamps_nothing() -> None:
    """Step 3.5 has one in each of its FFNs."""
    groups = model_of(STEP).groups
    assert [(group.ffn.form_name, group.proven) for group in groups] == [
        ("swiglu", True),
        ("swiglu", True),
    ]


def test_longcats_ffns_to_the_parameter() -> None:
    """28 layers of 512 experts of 3 x 6,144 x 2,048, two dense FFNs of 12,288, and a
    router over 768.
    """
    layer = 512 * 3 * 6144 * 2048 + 2 * 3 * 6144 * 12288 + 768 * 6144
    model = model_of({"model_type": "longcat_flash"})
    assert ffn_params(model) == 28 * layer
    # of the 12 experts that a token goes to a third are zero experts
    expected = 8 * 3 * 6144 * 2048 + 2 * 3 * 6144 * 12288 + 768 * 6144
    assert model.main.params_active == expected


@pytest.mark.parametrize("model_type", ["bart", "t5", "whisper"])
def test_a_whole_model_has_the_parameters_that_transformers_builds(
    model_type: str,
) -> None:
    """With a second attention in each layer of a decoder beside an encoder, and the
    output layer.
    """
    import torch
    from transformers import AutoConfig

    name = f"{model_type.title()}ForConditionalGeneration"
    with torch.device("meta"):
        whole = getattr(transformers, name)(AutoConfig.for_model(model_type))
    total = sum(p.numel() for p in whole.parameters())
    assert model_of({"model_type": model_type}).params == total


def test_an_ffn_that_layers_share_is_counted_once() -> None:
    """Zamba's 13 hybrid layers have one: gate, up and down of its widths. The matrix
    that each layer has beside it is no part of it.
    """
    data = default("zamba")
    model = model_of(data)
    assert ffn_params(model) == 3 * data["hidden_size"] * data["intermediate_size"]
    total = sum(p.numel() for p in built(data).parameters())
    output = data["vocab_size"] * data["hidden_size"]
    assert model.params in (total, total + output)


SMALL = {"hidden_size": 32, "num_attention_heads": 4, "vocab_size": 50}
LATENT = NEMOTRON_H | SMALL | {
    "hybrid_override_pattern": "ME*E", "num_hidden_layers": 4, "moe_latent_size": 16, "moe_intermediate_size": 24,
    "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_shared_expert_intermediate_size": 40,
}  # fmt: skip
INKLING = SMALL | {
    "model_type": "inkling_text", "num_hidden_layers": 1, "mlp_layer_types": ["sparse"], "moe_intermediate_size": 24,
    "intermediate_size": 24, "n_routed_experts": 8, "num_experts_per_tok": 3, "n_shared_experts": 2,
    "num_key_value_heads": 2, "head_dim": 8,
}  # fmt: skip


@pytest.mark.parametrize(
    ("data", "params", "active"),
    [
        # experts of a width of their own, two projections to it, router, shared expert
        (LATENT, 8 * 2 * 16 * 24 + 2 * 32 * 16 + 8 * 32 + 2 * 32 * 40, 3 * 2 * 16 * 24 + 2 * 32 * 16 + 8 * 32 + 2 * 32 * 40),
        # all tokens go to shared experts, which the router weighs
        (INKLING, 10 * 3 * 32 * 24 + 10 * 32, 5 * 3 * 32 * 24 + 10 * 32),
    ],
    ids=["latent", "shared"],
)  # fmt: skip
def test_a_token_meets_its_experts_and_all_that_is_beside_them(
    data: Data, params: int, active: int
) -> None:
    groups = [group for group in model_of(data).groups if group.kind.endswith("moe")]
    counts = {(group.params, group.params_active) for group in groups}
    assert counts == {(params, active)}


@pytest.mark.parametrize(
    "data",
    [
        {"model_type": "jetmoe", "num_hidden_layers": 1},
        {"model_type": "ernie4_5_vl_moe_text", "num_hidden_layers": 2, "mlp_layer_types": ["dense", "sparse"]},
    ],
    ids=["experts in the attention", "experts of text and of pictures"],
)  # fmt: skip
def test_what_a_token_meets_is_not_told_where_it_is_not_known(data: Data) -> None:
    assert model_of(data).params_active is None


def test_what_stands_beside_the_ffn_is_read_too() -> None:
    llama = model_of(LLAMA).main.attention
    assert (llama.heads, llama.kv_heads, llama.head_dim) == (32, 8, 128)
    mla = model_of({"model_type": "deepseek_v3"}).main.attention.mla
    assert (mla.q_lora, mla.kv_lora, mla.nope, mla.rope, mla.v) == (
        1536,
        512,
        128,
        64,
        128,
    )
    windows = {w.tokens: w.count for w in model_of(GEMMA_3).main.windows}
    assert windows == {1024: 52, None: 10}
    assert model_of(default("gpt2")).main.attention.params == 4 * 768 * 768 + 4 * 768


def test_the_language_part_of_a_composite_is_taken_and_named() -> None:
    model = model_of({"model_type": "llava"})
    assert model.main.ffn.d_model == 4096
    assert "language part of llava" in model.note
    assert "llama" in model.note


def test_a_form_that_is_not_proven_says_so_and_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """BitNet has a norm before its down projection."""
    model = model_of({"model_type": "bitnet"})
    monkeypatch.setattr("ffnbench.inspecting.table.model_of", lambda name: model)
    shown = ffnbench.inspect("config.json")
    assert "form not proven" in str(shown)
    config = transformers.BitNetConfig()
    layer = 3 * config.hidden_size * config.intermediate_size
    assert layer in shown.frame()["params_layer"].tolist()


def test_sizes_that_a_class_does_not_read_are_named() -> None:
    assert "llama does not read d_ff" in model_of(LLAMA | {"d_ff": 999}).defaults
    by_heart = model_of(LLAMA | {"dim": 2048, "n_layers": 22})
    assert "llama does not read dim, n_layers" in by_heart.defaults
    other_width = HUNYUAN | {"moe_intermediate_size": [1536] * 32}
    assert "does not read moe_intermediate_size" in model_of(other_width).defaults


def test_sizes_that_a_file_leaves_to_its_class_are_named_and_no_others() -> None:
    left = {
        name: LLAMA[name] for name in ("model_type", "hidden_size", "num_hidden_layers")
    }
    assert "intermediate_size 11,008" in model_of(left).defaults
    assert "hidden_size" not in model_of(left).defaults
    lfm2 = {"model_type": "lfm2", "block_ff_dim": 6656}
    assert "6,656" not in model_of(lfm2).defaults


@pytest.mark.parametrize(
    ("data", "message", "hint"),
    [
        ({"hidden_size": 8}, "has no model_type", '"model_type": "llama"'),
        ({"model_type": "kimi_k9", "auto_map": {}}, "code that comes with a file is never run", "--d-model and --d-ff"),
        ({"model_type": "kimi_k9"}, "has no model type 'kimi_k9'", "--d-model and --d-ff"),
        (LLAMA | {"hidden_act": "nonsense"}, "nonsense", "as it was published"),
    ],
)  # fmt: skip
def test_what_can_not_be_read_is_one_line_and_a_hint(
    data: Data, message: str, hint: str
) -> None:
    with pytest.raises(FfnbenchError, match=message) as refused:
        model_of(data)
    assert hint in refused.value.hint
    assert "\n" not in refused.value.message


@pytest.mark.parametrize("model_type", ["gpt2", "clip", "paligemma", "vit", "mpnet"])
def test_an_encoder_sees_all_tokens(model_type: str) -> None:
    """As the papers have it; clip is read by its tower for text."""
    group, *_ = model_of(default(model_type)).groups
    assert group.is_causal == (model_type not in ("vit", "mpnet"))
