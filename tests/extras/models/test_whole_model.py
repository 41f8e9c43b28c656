"""The whole model adds up: by our closed form, by transformers' count, and as
published.
"""

from __future__ import annotations

import json

import pytest
from frames import below
from hf import default, written
from model_configs import DEEPSEEK

from ffnbench.common.errors import FfnbenchError
from ffnbench.extras.models.by_length import InspectRequest, count_by_length
from ffnbench.extras.models.counting import WholeModel, count_whole_model
from ffnbench.extras.models.inspecting import inspect_whole
from ffnbench.extras.models.layers import layers_view
from ffnbench.extras.models.messages import CountWhole
from ffnbench.extras.models.table import in_words, parts_view
from ffnbench.extras.models.transformers import build_whole, count_whole
from ffnbench.messages import Failed
from ffnbench.models.configs import read_groups
from ffnbench.models.model import ModelSpec
from ffnbench.models.presets import PRESETS, model_of
from ffnbench.result import FailureKind
from ffnbench.run.world import World

# The safetensors index of the checkpoint on the hub, the paper, or transformers' count
# of the published config
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
ACTIVE = {
    "mixtral-8x7b": 12_879_925_248,
    "qwen3-30b-a3b": 3_353_032_704,
    "deepseek-v3": 37_552_282_624,
}
LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "hidden_act": "silu", "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
}  # fmt: skip
GEMMA_3 = {
    "model_type": "gemma3_text", "hidden_size": 5376, "intermediate_size": 21504, "num_hidden_layers": 62,
    "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128, "sliding_window": 1024,
}  # fmt: skip
QWEN_3_NEXT = {
    "model_type": "qwen3_next", "num_hidden_layers": 8, "hidden_size": 256, "hidden_act": "silu",
    "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "shared_expert_intermediate_size": 64,
}  # fmt: skip


def layers_of(name: str, length: int = 512) -> list[dict]:
    """The rows of its kinds of layers, their sum last."""
    return json.loads(
        layers_view(count_by_length(InspectRequest(model=name, length=length))).stdout[
            "json"
        ]()
    )


def ours(config: dict) -> WholeModel:
    model = ModelSpec(
        key="", name="", groups=tuple(read_groups(config)), source="", config=config
    )
    return count_whole_model(model)


@pytest.mark.parametrize("name", PRESETS.names())
def test_every_preset_adds_up_to_what_was_published(name: str) -> None:
    assert count_whole_model(PRESETS.get(name)).params == PUBLISHED[name]


def test_a_token_meets_fewer() -> None:
    for name, active in ACTIVE.items():
        assert count_whole_model(PRESETS.get(name)).active == active
    dense = count_whole_model(PRESETS.get("gpt2"))
    assert dense.active == dense.params


def test_kimi_k2_adds_up_to_what_was_published(tmp_path) -> None:
    """The safetensors index of moonshotai/Kimi-K2-Instruct, which has the routers'
    correction biases as well.
    """
    kimi = DEEPSEEK | {
        "model_type": "kimi_k2", "vocab_size": 163840, "num_attention_heads": 64, "num_key_value_heads": 64,
        "n_routed_experts": 384, "first_k_dense_replace": 1,
        "auto_map": {"AutoModelForCausalLM": "modeling_deepseek.DeepseekV3ForCausalLM"},
    }  # fmt: skip
    model = model_of(written(tmp_path, kimi))
    assert count_whole_model(model).params == 1_026_408_232_448 - 60 * 384
    assert (
        "code would be modeling_deepseek.DeepseekV3ForCausalLM; counted as deepseek_v3"
        in model.note
    )


def test_parts_by_hand() -> None:
    """Llama-3 8B, matrix by matrix; the output layer tied and not."""
    d, layers = 4096, 32
    found = ours(LLAMA)
    assert found.parts == {
        "embeddings": 128_256 * d, "attention": layers * (2 * d * d + 2 * d * 1024), "ffn": layers * 3 * d * 14336,
        "router": 0, "norms": layers * 2 * d + d, "head": 128_256 * d, "other": 0,
    }  # fmt: skip
    assert ours(LLAMA | {"tie_word_embeddings": True}).head == 0


@pytest.mark.parametrize(
    ("model_type", "change"),
    [("llama", {"vocab_size": None}), ("llama", {"vocab_size": "many"}), ("llama", {"tie_word_embeddings": "no"}),
     ("opt", {"word_embed_proj_dim": 512}), ("bart", {"tie_word_embeddings": False}), ("vit", {"image_size": [4, 4]}),
     ("marian", {"share_encoder_decoder_embeddings": False}), ("t5", {"architectures": ["T5EncoderModel"]})],
)  # fmt: skip
def test_what_the_config_does_not_tell_is_not_known(
    model_type: str, change: dict
) -> None:
    if model_type != "llama":
        pytest.importorskip("transformers")
    config = LLAMA if model_type == "llama" else default(model_type)
    assert ours(config).params is not None
    found = ours(config | change)
    assert (found.embeddings, found.params, found.active) == (None, None, None)
    assert found.ffn == ours(config).ffn or "architectures" in change


def test_what_is_not_known_has_no_number() -> None:
    unknown = ours(LLAMA | {"vocab_size": None})
    assert (
        in_words(unknown)
        == "FFNs hold 5.64 G parameters; those of the whole model are not known"
    )
    shown = parts_view(unknown).table
    assert below("params", shown) == ["-", "-", "5,637,144,576", "-", "-", "-"]
    assert any(
        note.startswith("embeddings, attention, norms, head: unknown")
        for note in shown.summary
    )


def test_the_row_of_all_layers_has_every_part() -> None:
    mixtral, last = (
        count_whole_model(PRESETS.get("mixtral-8x7b")),
        layers_of("mixtral-8x7b")[-1],
    )
    assert (last["params"], last["params_active"], last["router_params"]) == (
        mixtral.params, mixtral.active, mixtral.router,
    )  # fmt: skip
    parts = (
        "embedding_params",
        "ffn_params",
        "attention_params",
        "norm_params",
        "head_params",
    )
    assert (
        sum(last[part] for part in parts) == last["params"]
    )  # the FFNs' have their routers here


def test_the_whole_model_is_the_published_one() -> None:
    """Without embeddings and norms: GPT-2 124 M has 85 M in its layers, DeepSeek-V3 671
    B less two of 0.93 B.
    """
    gpt2, deepseek, t5 = (layers_of(n)[-1] for n in ("gpt2", "deepseek-v3", "t5-base"))
    norms = 12 * 4 * 768
    assert gpt2["ffn_params"] + gpt2["attention_params"] + norms == 85_054_464
    embeddings = 2 * 129_280 * 7168
    total = deepseek["ffn_params"] + deepseek["attention_params"] + embeddings
    assert total == pytest.approx(671.025e9, rel=1e-5)
    assert (
        t5["attention_params"] == 3 * 12 * 2_359_296
    )  # 24 of their own, 12 to the encoder
    _, decoder, _ = layers_of("t5-base")
    seen = (
        256.5 + 512
    )  # of its own tokens on average those before it, of the encoder's all
    assert decoder["flops_attention"] == 12 * (2 * 2 * 2_359_296 + 4 * 12 * 64 * seen)


def test_windows_are_counted_by_kind_of_layer(tmp_path) -> None:
    """Sums over the positions of 32,768 tokens; the model is Gemma 3 27B: 52 of its 62
    layers see 1,024 tokens.
    """
    seen = {
        window: sum(min(i + 1, window) for i in range(32768))
        for window in (1024, 32768)
    }
    ffn, projections, per_pair = 6 * 5376 * 21504, 4 * 5376 * 6144, 4 * 32 * 128
    pairs = (52 * seen[1024] + 10 * seen[32768]) / 62 / 32768
    total = layers_of(written(tmp_path, GEMMA_3), 32768)[-1]
    assert total["ffn_share_flops"] == pytest.approx(
        ffn / (ffn + projections + per_pair * pairs), rel=1e-6
    )
    assert total["kv_bytes"] == 52 * 16 * 2**20 + 10 * 512 * 2**20


def test_attention_that_is_not_counted_has_no_number(tmp_path) -> None:
    *_, linear, total = layers_of(written(tmp_path, QWEN_3_NEXT))
    assert linear["layers"] == 6
    for row in (linear, total):
        assert (row["flops_attention"], row["kv_bytes"], row["ffn_share_flops"]) == (
            None,
            None,
            None,
        )
    assert total["flops_ffn"] == 8 / 6 * linear["flops_ffn"]


def test_a_length_is_a_positive_number(in_process) -> None:
    assert in_process("inspect", "gpt2", "--length", "0")[0] == 2


class Counting:
    """A worker that answers as transformers would, or that has no transformers."""

    def __init__(self, answer: dict) -> None:
        self.answer = answer
        self.asked: list[dict] = []

    def ask(self, request: dict, timeout_s: float) -> dict:
        self.asked.append(request)
        return self.answer

    def close(self) -> None:
        pass


def test_transformers_counts_what_the_table_does_not_know(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(LLAMA | {"vocab_size": None}))
    counted = WholeModel(
        name="llama", source="x", counted_by="transformers", embeddings=1, attention=2, ffn=3, router=0, norms=4,
        head=5, idle=0,
    )  # fmt: skip
    worker = Counting(counted)
    machine = World(launch=lambda: worker)
    found = inspect_whole(str(file), machine)
    assert (found.params, found.active, found.counted_by) == (15, 15, "transformers")
    assert worker.asked == [CountWhole(source=str(file))]
    worker.answer = Failed(
        kind=FailureKind.UNSUPPORTED, message="transformers is not installed"
    )
    assert inspect_whole(str(file), machine).params is None
    file.write_text(json.dumps(LLAMA | {"model_type": "nobody"}))
    with pytest.raises(FfnbenchError, match="'nobody' is not in the table") as caught:
        inspect_whole(str(file), machine)
    assert "transformers is not installed" in caught.value.hint


def test_a_sum_is_that_of_every_parameter_of_the_built_model(tmp_path) -> None:
    """A type that the table has no rest of, and a class that has other layers than its
    type's.
    """
    transformers = pytest.importorskip("transformers")
    found = count_whole(
        written(tmp_path, {"model_type": "bloom", "hidden_size": 64, "n_layer": 3})
    )
    assert (
        found.params
        == build_whole(
            transformers.BloomConfig(hidden_size=64, n_layer=3)
        ).num_parameters()
    )
    assert found.other == 0
    small = {
        "d_model": 32,
        "d_ff": 48,
        "num_layers": 2,
        "num_heads": 2,
        "d_kv": 16,
        "vocab_size": 64,
    }
    encoder = count_whole(
        written(
            tmp_path, {"model_type": "t5", "architectures": ["T5EncoderModel"]} | small
        )
    )
    assert (
        encoder.params
        == transformers.T5EncoderModel(transformers.T5Config(**small)).num_parameters()
    )
