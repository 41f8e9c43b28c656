"""The attention beside the FFN, for the model types where config.json's keys tell it: data, and how it is read.

What is not in the table, or lacks a key, has no known attention; the FFN of such a config is read all the same.
Every entry is held against transformers' own model (tests/test_configs.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ffnbench.ffn.attention import AttentionSpec, MLASpec
from ffnbench.models.families import Or

Value = Callable[[Any], Any]  # of a key, as configs.py reads it


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """The keys of multi-head attention. Without a key for `kv_heads` they are as many as `heads`.

    `head_dim` without a value is d_model / heads. A truth value is itself. `latent`: DeepSeek's keys instead.
    `assumes` are switches whose other setting is another attention; `present` are keys that may be null, but whose
    absence means something else than null.
    """

    heads: str = "num_attention_heads"
    kv_heads: str | Or | None = None
    head_dim: str | Or | None = None
    qkv_bias: bool | Or = False
    out_bias: bool | Or = False
    latent: bool = False
    assumes: tuple[tuple[str, object], ...] = ()
    present: frozenset[str] = frozenset()


def attention_of(keys: Heads, value: Value, d_model: int) -> AttentionSpec:
    """What the keys say; raises FfnbenchError where one is missing or the numbers can't be those of an attention."""
    heads = value(keys.heads)
    kv_heads = heads if keys.kv_heads is None else value(keys.kv_heads)
    mla = None
    if keys.latent:
        mla = MLASpec(
            q_lora=value(Or("q_lora_rank", None)), kv_lora=value("kv_lora_rank"), nope=value("qk_nope_head_dim"),
            rope=value("qk_rope_head_dim"), v=value("v_head_dim"),
        )  # fmt: skip
    own = None if keys.head_dim is None else value(keys.head_dim)
    return AttentionSpec(
        d_model=d_model,
        heads=heads,
        kv_heads=heads if kv_heads is None else kv_heads,
        head_dim=d_model // heads if own is None else own,
        qkv_bias=value(keys.qkv_bias),
        out_bias=value(keys.out_bias),
        mla=mla,
    )


_BERT = Heads(qkv_bias=True, out_bias=True)
_GROUPED = Heads(kv_heads=Or("num_key_value_heads", None), head_dim=Or("head_dim", None))
_SWITCHED = replace(_GROUPED, qkv_bias=Or("attention_bias", False), out_bias=Or("attention_bias", False))
_STATED = replace(_GROUPED, present=frozenset({"num_key_value_heads"}))  # whose class has a default other than `heads`
_STATED_SWITCHED = replace(_SWITCHED, present=frozenset({"num_key_value_heads"}))
_GPT2 = Heads(heads="n_head", qkv_bias=True, out_bias=True, assumes=(("add_cross_attention", False),))
_T5 = Heads(heads="num_heads", head_dim="d_kv")
_BART = (replace(_BERT, heads="encoder_attention_heads"), replace(_BERT, heads="decoder_attention_heads"))
_VIT = replace(_BERT, qkv_bias=Or("qkv_bias", True))
_LATENT = Heads(latent=True, assumes=(("attention_bias", False),), present=frozenset({"q_lora_rank"}))

_ATTENTIONS: tuple[tuple[str, tuple[Heads, ...]], ...] = (
    ("bert roberta camembert xlm-roberta electra ernie layoutlm megatron-bert roc_bert splinter", (_BERT,)),
    ("distilbert", (replace(_BERT, heads="n_heads"),)),
    ("gpt2 imagegpt", (_GPT2,)),
    ("gpt_neox", (replace(_BERT, qkv_bias=Or("attention_bias", True), out_bias=Or("attention_bias", True)),)),
    ("opt", (replace(_BERT, qkv_bias=Or("enable_bias", True), out_bias=Or("enable_bias", True)),)),
    ("t5 mt5 umt5 longt5", (_T5, _T5)),
    ("bart mbart blenderbot blenderbot-small marian pegasus plbart m2m_100", _BART),
    ("vit deit vit_msn yolos", (_VIT,)),
    ("clip_text_model clip_vision_model siglip_text_model siglip_vision_model", (_BERT,)),
    ("mistral mixtral ministral3", (_STATED,)),
    ("llama granite cohere olmo olmo2 olmo3 granitemoe olmoe", (_SWITCHED,)),
    ("smollm3 qwen3_moe", (_STATED_SWITCHED,)),
    ("glm glm4 glm4_moe", (replace(_STATED_SWITCHED, out_bias=False),)),
    ("qwen2", (replace(_GROUPED, qkv_bias=True),)),
    ("qwen2_moe", (replace(_GROUPED, qkv_bias=Or("qkv_bias", True)),)),
    ("qwen3", (replace(_SWITCHED, head_dim=Or("head_dim", 128)),)),
    ("gemma", (replace(_SWITCHED, head_dim=Or("head_dim", 256)),)),
    ("gemma2 gemma3_text", (replace(_STATED_SWITCHED, head_dim=Or("head_dim", 256)),)),
    ("phi3", (replace(_GROUPED, head_dim=None),)),
    ("starcoder2", (replace(_STATED, qkv_bias=Or("use_bias", True), out_bias=Or("use_bias", True)),)),
    ("stablelm", (replace(_GROUPED, qkv_bias=Or("use_qkv_bias", False)),)),
    (
        "gpt_oss",
        (replace(_STATED_SWITCHED, head_dim=Or("head_dim", 64), qkv_bias=Or("attention_bias", True),
                 out_bias=Or("attention_bias", True)),),
    ),
    ("deepseek_v3", (_LATENT,)),
)  # fmt: skip

ATTENTIONS: dict[str, tuple[Heads, ...]] = {name: found for names, found in _ATTENTIONS for name in names.split()}
