"""Published models: one row each, with where its numbers were read.

d_ff is the width per branch (papers and packed weights may print twice of it). Attention is one self-attention;
the decoder layers of T5 and of the original Transformer carry a second one, of the same size, to the encoder.
"""

from __future__ import annotations

from pathlib import Path

from ffnbench.errors import FfnbenchError
from ffnbench.ffn.attention import AttentionSpec, MLASpec
from ffnbench.ffn.moe import MoESpec, Scores
from ffnbench.ffn.spec import FFNSpec, Gate, Scalar
from ffnbench.ffn.variants import GATED
from ffnbench.models.configs import read_config
from ffnbench.models.model import LayerGroup, ModelSpec
from ffnbench.names import Registry, did_you_mean


def _ffn(form: str, d_model: int, d_ff: int, bias: bool = False, moe: MoESpec | None = None) -> FFNSpec:
    if form not in GATED:
        return FFNSpec(d_model=d_model, d_ff=d_ff, activation=form, bias=bias, moe=moe)
    row = GATED.get(form)
    return FFNSpec(
        d_model=d_model, d_ff=d_ff, activation=row.activation, gate=Gate.INNER, bias=bias, moe=moe, limit=row.limit,
        up_offset=row.offset,
    )  # fmt: skip


def _attention(
    d_model: int, heads: int, kv_heads: int, head_dim: int, qkv_bias: bool = False, out_bias: bool = False
) -> AttentionSpec:
    return AttentionSpec(
        d_model=d_model, heads=heads, kv_heads=kv_heads, head_dim=head_dim, qkv_bias=qkv_bias, out_bias=out_bias
    )


def _groups(layers: dict[str, int], ffn: FFNSpec, attention: AttentionSpec) -> tuple[LayerGroup, ...]:
    return tuple(LayerGroup(kind=kind, count=count, ffn=ffn, attention=attention) for kind, count in layers.items())


def _deepseek_v3() -> tuple[LayerGroup, ...]:
    mla = MLASpec(q_lora=1536, kv_lora=512, nope=128, rope=64, v=128)
    attention = AttentionSpec(d_model=7168, heads=128, kv_heads=128, head_dim=192, mla=mla)
    moe = MoESpec(
        experts=256, top_k=8, shared_d_ff=2048, scores=Scores.SIGMOID, routed_scale=2.5, groups=8, top_groups=4
    )
    return (
        LayerGroup(kind="dense", count=3, ffn=_ffn("swiglu", 7168, 18432), attention=attention),
        LayerGroup(kind="moe", count=58, ffn=_ffn("swiglu", 7168, 2048, moe=moe), attention=attention),
    )


# fmt: off
_ROWS = (
    ModelSpec(
        key="transformer-base", name="Transformer base",
        groups=_groups({"encoder": 6, "decoder": 6}, _ffn("relu", 512, 2048, bias=True), _attention(512, 8, 8, 64)),
        source="Vaswani et al. 2017, arXiv 1706.03762, table 3",
        note="attention without biases, as in the paper's equations",
    ),
    ModelSpec(
        key="bert-base", name="BERT-base",
        groups=_groups({"encoder": 12}, _ffn("gelu", 768, 3072, bias=True), _attention(768, 12, 12, 64, True, True)),
        source="transformers BertConfig; bert-base-uncased",
    ),
    ModelSpec(
        key="gpt2", name="GPT-2 124M",
        groups=_groups({"dense": 12}, _ffn("gelu_tanh", 768, 3072, bias=True), _attention(768, 12, 12, 64, True, True)),
        source="transformers GPT2Config; gpt2",
    ),
    ModelSpec(
        key="gpt3-175b", name="GPT-3 175B",
        groups=_groups(
            {"dense": 96}, _ffn("gelu", 12288, 49152, bias=True), _attention(12288, 96, 96, 128, True, True)
        ),
        source="Brown et al. 2020, arXiv 2005.14165, table 2.1",
        note="the paper states d_ff = 4 d_model; biases are assumed as in GPT-2",
    ),
    ModelSpec(
        key="t5-base", name="T5-base v1.0",
        groups=_groups({"encoder": 12, "decoder": 12}, _ffn("relu", 768, 3072), _attention(768, 12, 12, 64)),
        source="t5-base config.json; the baseline of Shazeer 2020, arXiv 2002.05202",
    ),
    ModelSpec(
        key="t5-v1.1-xxl", name="T5 v1.1 XXL",
        groups=_groups(
            {"encoder": 24, "decoder": 24}, _ffn("geglu_tanh", 4096, 10240), _attention(4096, 64, 64, 64)
        ),
        source="google/t5-v1_1-xxl config.json; torchtune t5_v1_1_xxl_encoder",
    ),
    ModelSpec(
        key="palm-540b", name="PaLM 540B",
        groups=_groups({"dense": 118}, _ffn("swiglu", 18432, 73728), _attention(18432, 48, 1, 256)),
        source="Chowdhery et al. 2022, arXiv 2204.02311, table 1 and section 2",
        note="three matrices at d_ff = 4 d_model, without the 2/3",
    ),
    ModelSpec(
        key="falcon-7b", name="Falcon 7B",
        groups=_groups({"dense": 32}, _ffn("gelu", 4544, 18176), _attention(4544, 71, 1, 64)),
        source="litgpt config.py, falcon-7b; transformers FalconConfig",
    ),
    ModelSpec(
        key="llama-7b", name="LLaMA 1 and 2 7B",
        groups=_groups({"dense": 32}, _ffn("swiglu", 4096, 11008), _attention(4096, 32, 32, 128)),
        source="transformers LlamaConfig; --rule llama",
    ),
    ModelSpec(
        key="llama2-70b", name="Llama-2 70B",
        groups=_groups({"dense": 80}, _ffn("swiglu", 8192, 28672), _attention(8192, 64, 8, 128)),
        source="litgpt config.py, Llama-2-70b-hf; ffn_dim_multiplier 1.3, multiple_of 4096",
    ),
    ModelSpec(
        key="llama3-8b", name="Llama-3 and 3.1 8B",
        groups=_groups({"dense": 32}, _ffn("swiglu", 4096, 14336), _attention(4096, 32, 8, 128)),
        source="litgpt config.py, Llama-3-8B; torchtune; ffn_dim_multiplier 1.3, multiple_of 1024",
    ),
    ModelSpec(
        key="llama3.1-405b", name="Llama-3.1 405B",
        groups=_groups({"dense": 126}, _ffn("swiglu", 16384, 53248), _attention(16384, 128, 8, 128)),
        source="litgpt config.py; torchtune llama3_1_405b; ffn_dim_multiplier 1.2, multiple_of 4096",
    ),
    ModelSpec(
        key="mistral-7b", name="Mistral 7B",
        groups=_groups({"dense": 32}, _ffn("swiglu", 4096, 14336), _attention(4096, 32, 8, 128)),
        source="transformers MistralConfig; torchtune mistral_7b",
    ),
    ModelSpec(
        key="gemma-7b", name="Gemma 7B",
        groups=_groups({"dense": 28}, _ffn("geglu_tanh", 3072, 24576), _attention(3072, 16, 16, 256)),
        source="transformers GemmaConfig; litgpt; torchtune",
        note="the paper prints both branches together: 49152",
    ),
    ModelSpec(
        key="phi-3-mini", name="Phi-3-mini 3.8B",
        groups=_groups({"dense": 32}, _ffn("swiglu", 3072, 8192), _attention(3072, 32, 32, 96)),
        source="transformers Phi3Config; litgpt; torchtune",
        note="gate and up packed in one weight of 16384 rows",
    ),
    ModelSpec(
        key="qwen2.5-7b", name="Qwen2.5 7B",
        groups=_groups({"dense": 28}, _ffn("swiglu", 3584, 18944), _attention(3584, 28, 4, 128, True)),
        source="litgpt config.py; torchtune qwen2_5_7b",
        note="biases on q, k and v only",
    ),
    ModelSpec(
        key="nemotron-4-340b", name="Nemotron-4 340B",
        groups=_groups({"dense": 96}, _ffn("relu2", 18432, 73728), _attention(18432, 96, 8, 192)),
        source="NVIDIA NeMo, Nemotron4Config340B",
    ),
    ModelSpec(
        key="modernbert-base", name="ModernBERT-base",
        groups=_groups({"encoder": 22}, _ffn("geglu", 768, 1152), _attention(768, 12, 12, 64)),
        source="transformers ModernBertConfig",
        note="gate and up packed in one weight of 2304 rows",
    ),
    ModelSpec(
        key="vit-b16", name="ViT-B/16",
        groups=_groups({"vision": 12}, _ffn("gelu", 768, 3072, bias=True), _attention(768, 12, 12, 64, True, True)),
        source="timm vit_base_patch16_224; transformers ViTConfig",
    ),
    ModelSpec(
        key="mixtral-8x7b", name="Mixtral 8x7B",
        groups=_groups(
            {"moe": 32}, _ffn("swiglu", 4096, 14336, moe=MoESpec(experts=8, top_k=2)), _attention(4096, 32, 8, 128)
        ),
        source="transformers MixtralConfig; litgpt",
    ),
    ModelSpec(
        key="qwen3-30b-a3b", name="Qwen3 30B-A3B",
        groups=_groups(
            {"moe": 48}, _ffn("swiglu", 2048, 768, moe=MoESpec(experts=128, top_k=8)), _attention(2048, 32, 4, 128)
        ),
        source="litgpt config.py, Qwen3-30B-A3B",
    ),
    ModelSpec(
        key="deepseek-v3", name="DeepSeek-V3 and R1 671B", groups=_deepseek_v3(),
        source="transformers DeepseekV3Config; deepseek-ai/DeepSeek-V3",
    ),
    ModelSpec(
        key="gpt-oss-120b", name="gpt-oss-120b",
        groups=_groups(
            {"moe": 36},
            _ffn("swiglu_oai", 2880, 2880, bias=True, moe=MoESpec(experts=128, top_k=4, router_bias=True)),
            _attention(2880, 64, 8, 64, True, True),
        ),
        source="transformers GptOssConfig; openai/gpt-oss-120b",
        note="clamped gate: quick_gelu(min(gate, 7)) * (clamp(up, -7, 7) + 1)",
    ),
    ModelSpec(
        key="apertus-8b", name="Apertus 8B",
        groups=_groups({"dense": 32}, _ffn("xielu", 4096, 21504), _attention(4096, 32, 8, 128)),
        source="swiss-ai/Apertus-8B-2509 config.json",
        note="the class's default intermediate_size, 14336, is not the checkpoint's; xielu learns two scalars a layer",
    ),
)
# fmt: on

PRESETS: Registry[ModelSpec] = Registry("preset", "`ffnbench list presets` shows all")
for _row in _ROWS:
    PRESETS.add(_row.key, _row)


def model_of(name: str) -> ModelSpec:
    """A preset by its name, or the model of a config.json; raises FfnbenchError where it is neither."""
    if name in PRESETS:
        return PRESETS.get(name)
    if not _is_path(name):
        near = did_you_mean(name, PRESETS.names())
        raise FfnbenchError(
            f"{name!r} is neither a preset nor a file",
            " ".join(filter(None, (near, "give a config.json, or one of `ffnbench list presets`"))),
        )
    return read_config(name)


def _is_path(name: str) -> bool:
    """Whether it looks like a file or a folder, or is one."""
    if Path(name).suffix == ".json" or "/" in name:
        return True
    try:
        return Path(name).expanduser().exists()
    except (OSError, RuntimeError):  # a name too long, a home that is not there
        return False


def variant_keys(spec: FFNSpec) -> dict[str, Scalar]:
    """The keys that make the form of a spec's name into that spec; those that say nothing are left out."""
    keys: dict[str, Scalar] = {"d_ff": spec.d_ff, "bias": spec.bias}
    if spec.limit is not None:
        keys["limit"] = spec.limit
    if spec.up_offset:
        keys["offset"] = spec.up_offset
    return keys | (_of_experts(spec.moe) if spec.moe else {})


def _of_experts(moe: MoESpec) -> dict[str, Scalar]:
    default = MoESpec(experts=moe.experts, top_k=moe.top_k)
    keys: dict[str, Scalar] = {"moe": f"{moe.experts}x{moe.top_k}"}
    if moe.shared_d_ff:
        keys["shared"] = moe.shared_d_ff
    if moe.scores is not default.scores:
        keys["scores"] = moe.scores.value
    if moe.groups > 1:
        keys["groups"] = f"{moe.groups}x{moe.top_groups}"
    for name in ("shared_gate", "router_bias", "normalised", "routed_scale"):
        if getattr(moe, name) != getattr(default, name):
            keys[name] = getattr(moe, name)
    return keys


def as_text(spec: FFNSpec, keys: dict[str, Scalar]) -> str:
    """A variant that can be typed again."""
    name = f"{spec.activation}_glu" if spec.gate is Gate.INNER else spec.activation
    words = {True: "true", False: "false", None: "none"}
    return "@".join(
        [name, *(f"{k}={words[v] if isinstance(v, bool) or v is None else v}" for k, v in keys.items())]
    )  # fmt: skip
