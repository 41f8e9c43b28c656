"""Published models: one row each, with where its numbers were read.

d_ff is the width per branch (papers and packed weights may print twice of it).
Attention is one self-attention; the decoder layers of T5 and of the original
Transformer carry a second one, of the same size, to the encoder.
"""

from __future__ import annotations

import re
from dataclasses import replace

from ffnbench.common.names import Registry
from ffnbench.ffn.spec import (
    GATED,
    AttentionSpec,
    FFNSpec,
    MLASpec,
    MoESpec,
    Scores,
)
from ffnbench.models.model import AttentionWindow, LayerGroup, ModelSpec, Rest


def _ffn(
    form: str, d_model: int, d_ff: int, bias: bool = False, moe: MoESpec | None = None
) -> FFNSpec:
    if form not in GATED:
        return FFNSpec(d_model=d_model, d_ff=d_ff, activation=form, bias=bias, moe=moe)
    named = GATED.get(form).form
    return replace(named, d_model=d_model, d_ff=d_ff, bias=bias, moe=moe)


def _model(
    key: str,
    name: str,
    layers: dict[str, int],
    ffn: FFNSpec,
    heads: tuple[int, int, int],
    *,
    source: str,
    rest: Rest,
    qkv_bias: bool = False,
    out_bias: bool = False,
    windows: dict[int | None, int] | None = None,
    note: str = "",
) -> ModelSpec:
    """A row of the table: `layers` has the number of layers of each kind, which all
    have the same FFN and attention.

    `heads` are the number of heads of queries, that of keys and values, and the width
    of a head; `windows` has the number of layers by how far their tokens see.
    """
    count, kv_heads, head_dim = heads
    attention = AttentionSpec(
        d_model=ffn.d_model,
        heads=count,
        kv_heads=kv_heads,
        head_dim=head_dim,
        qkv_bias=qkv_bias,
        out_bias=out_bias,
    )
    attention_windows = []
    for tokens, number in (windows or {}).items():
        attention_windows.append(AttentionWindow(count=number, tokens=tokens))
    groups = []
    for kind, number in layers.items():
        groups.append(
            LayerGroup(
                kind=kind,
                count=number,
                ffn=ffn,
                attention=attention,
                windows=tuple(attention_windows),
            )
        )
    return ModelSpec(
        key=key,
        name=name,
        groups=tuple(groups),
        source=source,
        rest=rest,
        note=note,
    )


def _deepseek_v3() -> ModelSpec:
    mla = MLASpec(q_lora=1536, kv_lora=512, nope=128, rope=64, v=128)
    attention = AttentionSpec(
        d_model=7168, heads=128, kv_heads=128, head_dim=192, mla=mla
    )
    moe = MoESpec(
        experts=256,
        top_k=8,
        shared_d_ff=2048,
        scores=Scores.SIGMOID,
        routed_scale=2.5,
        groups=8,
        top_groups=4,
    )
    dense, sparse = _ffn("swiglu", 7168, 18432), _ffn("swiglu", 7168, 2048, moe=moe)
    return ModelSpec(
        key="deepseek-v3", name="DeepSeek-V3 and R1 671B",
        groups=(
            LayerGroup(kind="dense", count=3, ffn=dense, attention=attention),
            LayerGroup(kind="moe", count=58, ffn=sparse, attention=attention),
        ),
        source="transformers DeepseekV3Config; deepseek-ai/DeepSeek-V3",
        rest=Rest(embeddings=926_679_040, norms=1_006_592, head=926_679_040, note="the checkpoint has 14,848 correction biases of its routers as well, which are no trained weights"),
    )  # fmt: skip


def _dense(layers: int) -> dict[str, int]:
    return {"dense": layers}


# fmt: off
_ROWS = (
    _model(
        "transformer-base", "Transformer base", {"encoder": 6, "decoder": 6}, _ffn("relu", 512, 2048, bias=True),
        (8, 8, 64), rest=Rest(embeddings=18_944_000, norms=30_720, head=0, tied=18_944_000, note="one matrix embeds both languages and is the output's; the paper says about 37,000 tokens"),
        source="Vaswani et al. 2017, arXiv 1706.03762, table 3",
        note="attention without biases, as in the paper's equations",
    ),
    _model(
        "bert-base", "BERT-base", {"encoder": 12}, _ffn("gelu", 768, 3072, bias=True), (12, 12, 64), qkv_bias=True,
        out_bias=True, rest=Rest(embeddings=23_835_648, norms=38_400, head=590_592, note="the bare model with its pooler"),
        source="transformers BertConfig; bert-base-uncased",
    ),
    _model(
        "gpt2", "GPT-2 124M", _dense(12), _ffn("gelu_tanh", 768, 3072, bias=True), (12, 12, 64), qkv_bias=True,
        out_bias=True, rest=Rest(embeddings=39_383_808, norms=38_400, head=0, tied=38_597_376),
        source="transformers GPT2Config; gpt2",
    ),
    _model(
        "gpt3-175b", "GPT-3 175B", _dense(96), _ffn("gelu", 12288, 49152, bias=True), (96, 96, 128), qkv_bias=True,
        out_bias=True, rest=Rest(embeddings=642_723_840, norms=4_743_168, head=0, tied=617_558_016, note="GPT-2's vocabulary, norms and tied output are assumed, 2,048 positions are the paper's"),
        source="Brown et al. 2020, arXiv 2005.14165, table 2.1",
        note="the paper states d_ff = 4 d_model; biases are assumed as in GPT-2",
    ),
    _model(
        "t5-base", "T5-base v1.0", {"encoder": 12, "decoder": 12}, _ffn("relu", 768, 3072), (12, 12, 64),
        rest=Rest(embeddings=24_674_304, attention=768, norms=47_616, head=0, tied=24_674_304),
        source="t5-base config.json; the baseline of Shazeer 2020, arXiv 2002.05202",
    ),
    _model(
        "t5-v1.1-xxl", "T5 v1.1 XXL", {"encoder": 24, "decoder": 24}, _ffn("geglu_tanh", 4096, 10240), (64, 64, 64),
        rest=Rest(embeddings=131_596_288, attention=4_096, norms=499_712, head=131_596_288),
        source="google/t5-v1_1-xxl config.json; torchtune t5_v1_1_xxl_encoder",
    ),
    _model(
        "palm-540b", "PaLM 540B", _dense(118), _ffn("swiglu", 18432, 73728), (48, 1, 256),
        rest=Rest(embeddings=4_718_592_000, norms=2_193_408, head=0, tied=4_718_592_000, note="one norm a layer, without a bias, since FFN and attention stand in parallel"),
        source="Chowdhery et al. 2022, arXiv 2204.02311, table 1 and section 2",
        note="three matrices at d_ff = 4 d_model, without the 2/3",
    ),
    _model(
        "falcon-7b", "Falcon 7B", _dense(32), _ffn("gelu", 4544, 18176), (71, 1, 64),
        rest=Rest(embeddings=295_469_056, norms=299_904, head=0, tied=295_469_056),
        source="litgpt config.py, falcon-7b; transformers FalconConfig",
    ),
    _model(
        "llama-7b", "LLaMA 1 and 2 7B", _dense(32), _ffn("swiglu", 4096, 11008), (32, 32, 128),
        rest=Rest(embeddings=131_072_000, norms=266_240, head=131_072_000),
        source="transformers LlamaConfig; @rule=llama",
    ),
    _model(
        "llama2-70b", "Llama-2 70B", _dense(80), _ffn("swiglu", 8192, 28672), (64, 8, 128),
        rest=Rest(embeddings=262_144_000, norms=1_318_912, head=262_144_000),
        source="litgpt config.py, Llama-2-70b-hf; ffn_dim_multiplier 1.3, multiple_of 4096",
    ),
    _model(
        "llama3-8b", "Llama-3 and 3.1 8B", _dense(32), _ffn("swiglu", 4096, 14336), (32, 8, 128),
        rest=Rest(embeddings=525_336_576, norms=266_240, head=525_336_576),
        source="litgpt config.py, Llama-3-8B; torchtune; ffn_dim_multiplier 1.3, multiple_of 1024",
    ),
    _model(
        "llama3.1-405b", "Llama-3.1 405B", _dense(126), _ffn("swiglu", 16384, 53248), (128, 8, 128),
        rest=Rest(embeddings=2_101_346_304, norms=4_145_152, head=2_101_346_304),
        source="litgpt config.py; torchtune llama3_1_405b; ffn_dim_multiplier 1.2, multiple_of 4096",
    ),
    _model(
        "mistral-7b", "Mistral 7B v0.1", _dense(32), _ffn("swiglu", 4096, 14336), (32, 8, 128), windows={4096: 32},
        rest=Rest(embeddings=131_072_000, norms=266_240, head=131_072_000, note="versions 0.2 and 0.3 have no window, and 0.3 has 32,768 tokens"),
        source="transformers MistralConfig; torchtune mistral_7b",
    ),
    _model(
        "gemma-7b", "Gemma 7B", _dense(28), _ffn("geglu_tanh", 3072, 24576), (16, 16, 256),
        rest=Rest(embeddings=786_432_000, norms=175_104, head=0, tied=786_432_000),
        source="transformers GemmaConfig; litgpt; torchtune", note="the paper prints both branches together: 49152",
    ),
    _model(
        "phi-3-mini", "Phi-3-mini 3.8B 4k", _dense(32), _ffn("swiglu", 3072, 8192), (32, 32, 96), windows={2047: 32},
        rest=Rest(embeddings=98_500_608, norms=199_680, head=98_500_608),
        source="transformers Phi3Config; litgpt; torchtune",
        note="gate and up packed in one weight of 16384 rows",
    ),
    _model(
        "qwen2.5-7b", "Qwen2.5 7B", _dense(28), _ffn("swiglu", 3584, 18944), (28, 4, 128), qkv_bias=True,
        rest=Rest(embeddings=544_997_376, norms=204_288, head=544_997_376),
        source="litgpt config.py; torchtune qwen2_5_7b", note="biases on q, k and v only",
    ),
    _model(
        "nemotron-4-340b", "Nemotron-4 340B", _dense(96), _ffn("relu2", 18432, 73728), (96, 8, 192),
        rest=Rest(embeddings=4_718_592_000, norms=7_114_752, head=4_718_592_000),
        source="NVIDIA NeMo, Nemotron4Config340B; NVIDIA 2024, arXiv 2406.11704, table 1",
    ),
    _model(
        "modernbert-base", "ModernBERT-base", {"encoder": 22}, _ffn("geglu", 768, 1152), (12, 12, 64),
        windows={None: 8, 64: 14}, rest=Rest(embeddings=38_682_624, norms=34_560, head=0, note="the bare model; its first layer has one norm, and the embeddings have one"),
        source="transformers ModernBertConfig",
        note="gate and up packed in one weight of 2304 rows",
    ),
    _model(
        "vit-b16", "ViT-B/16", {"vision": 12}, _ffn("gelu", 768, 3072, bias=True), (12, 12, 64), qkv_bias=True,
        out_bias=True, rest=Rest(embeddings=742_656, norms=38_400, head=590_592, note="the bare model with its pooler, which timm's has not"),
        source="timm vit_base_patch16_224; transformers ViTConfig",
    ),
    _model(
        "mixtral-8x7b", "Mixtral 8x7B", {"moe": 32}, _ffn("swiglu", 4096, 14336, moe=MoESpec(experts=8, top_k=2)),
        (32, 8, 128), rest=Rest(embeddings=131_072_000, norms=266_240, head=131_072_000),
        source="transformers MixtralConfig; litgpt",
    ),
    _model(
        "qwen3-30b-a3b", "Qwen3 30B-A3B", {"moe": 48}, _ffn("swiglu", 2048, 768, moe=MoESpec(experts=128, top_k=8)),
        (32, 4, 128), rest=Rest(embeddings=311_164_928, norms=210_944, head=311_164_928),
        source="litgpt config.py, Qwen3-30B-A3B",
    ),
    _deepseek_v3(),
    _model(
        "gpt-oss-120b", "gpt-oss-120b", {"moe": 36},
        _ffn("swiglu_oai", 2880, 2880, bias=True, moe=MoESpec(experts=128, top_k=4, router_bias=True)), (64, 8, 64),
        qkv_bias=True, out_bias=True, windows={None: 18, 128: 18},
        rest=Rest(embeddings=579_133_440, attention=2_304, norms=210_240, head=579_133_440),
        source="transformers GptOssConfig; openai/gpt-oss-120b",
        note="clamped gate: quick_gelu(min(gate, 7)) * (clamp(up, -7, 7) + 1)",
    ),
    _model(
        "apertus-8b", "Apertus 8B", _dense(32), _ffn("xielu", 4096, 21504), (32, 8, 128),
        rest=Rest(embeddings=536_870_912, norms=274_432, head=536_870_912),
        source="swiss-ai/Apertus-8B-2509 config.json",
        note="the class's default intermediate_size, 14336, is not the checkpoint's; xielu learns two scalars a layer",
    ),
)
# fmt: on

PUBLISHERS = (
    "meta-llama", "huggyllama", "mistralai", "openai", "openai-community", "google", "google-bert", "google-t5",
    "tiiuae", "microsoft", "qwen", "nvidia", "answerdotai", "deepseek-ai", "swiss-ai",
)  # fmt: skip
# Other names of exactly the same sizes, spelled as `plain_name` gives them. A later
# version with other sizes is not among them.
OTHER_NAMES = {
    "bert-base": ("bert", "bert-base-uncased"), "gpt2": ("gpt2-124m", "gpt2-small"), "gpt3-175b": ("gpt3",),
    "t5-v1.1-xxl": ("t5-v1-1-xxl",), "palm-540b": ("palm",), "falcon-7b": ("falcon",),
    "llama-7b": ("llama1-7b", "llama2-7b"), "llama3-8b": ("llama3.1-8b", "meta-llama3-8b", "meta-llama3.1-8b"),
    "mistral-7b": ("mistral", "mistral-7b-v0.1"), "gemma-7b": ("gemma",), "phi-3-mini": ("phi-3-mini-4k",),
    "nemotron-4-340b": ("nemotron",), "modernbert-base": ("modernbert",), "mixtral-8x7b": ("mixtral",
    "mixtral-8x7b-v0.1"), "deepseek-v3": ("deepseek-r1",), "vit-b16": ("vit-base-patch16-224", "vit"),
    "apertus-8b": ("apertus-8b-2509",),
}  # fmt: skip
_TUNED = re.compile(r"[-_ ]?(?<![a-z])(instruct|chat|hf|it)\b")
_NOT_BETWEEN_DIGITS = re.compile(r"(?<!\d)-|-(?!\d)")


def plain_name(name: str) -> str:
    """One spelling for the names of one model: `llama3.1-8b` for `llama 3.1 8b` and for
    `meta-llama/Llama-3.1-8B-Instruct`. Dots, and a dash between two digits, tell models
    apart and are kept; a word for tuning does not.
    """
    publisher, _, model = name.strip().lower().rpartition("/")
    if publisher and publisher not in PUBLISHERS:
        return name
    joined = re.sub("[-_ ]+", "-", _TUNED.sub("", model))
    return _NOT_BETWEEN_DIGITS.sub("", joined)


PRESETS: Registry[ModelSpec] = Registry(
    "preset", "`ffnbench list presets` shows all", plain_name
)
for _row in _ROWS:
    PRESETS.add(_row.key, _row, OTHER_NAMES.get(_row.key, ()))
