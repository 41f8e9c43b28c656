"""What a table of config.json's keys can say of a model: stacks of layers, and the keys where their numbers stand."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Or:
    """A key, and what its absence or null means."""

    key: str
    default: object


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """The keys of a layer with experts. `shared` is a number of shared experts, `shared_d_ff` the width of one.

    Several keys are names of one number. `layout` says which layers have experts: a name of LAYOUTS in configs.py.
    """

    experts: str | tuple[str, ...] = "num_experts"
    top_k: str = "num_experts_per_tok"
    d_ff: str = "moe_intermediate_size"
    shared: str | Or | int = 0
    shared_d_ff: str | Or | None = None
    shared_gate: bool = False
    router_bias: bool = False
    sigmoid: bool = False
    normalised: bool | Or = True
    bias: bool | Or = False
    limit: Or | None = None
    up_offset: float = 0.0
    layout: str = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """One stack of layers: under which keys its numbers stand. A number or a truth value is itself.

    Where d_ff has no key, or its key is absent or null, it is int(`ratio` * d_model). `acts_as` is the activation
    that the code computes whatever the key says; `assumes` are switches whose other setting is another form.
    """

    kind: str = "dense"
    layers: str | tuple[str, ...] | Or = "num_hidden_layers"
    d_model: str = "hidden_size"
    d_ff: str | Or | None = "intermediate_size"
    ratio: str | float | Or | None = None
    activation: str | Or = "hidden_act"
    acts_as: str | None = None
    gated: bool | str | Or = False
    bias: bool | str | Or = True
    experts: Experts | None = None
    assumes: tuple[tuple[str, object], ...] = ()


CLASSIC = Stack()  # BERT's: two matrices with biases
GATED = Stack(gated=True, bias=False)  # Llama's: three without
GATED_MLP_BIAS = Stack(gated=True, bias=Or("mlp_bias", False))


_SHARED = Experts(experts="n_routed_experts", shared="n_shared_experts", normalised=Or("norm_topk_prob", True))
_DEEPSEEK = replace(_SHARED, sigmoid=True, layout="first_k_dense_replace")
_QWEN = Experts(
    experts=("num_experts", "num_local_experts"),
    normalised=Or("norm_topk_prob", False),
    layout="decoder_sparse_step",
)
_QWEN_SHARED = replace(_QWEN, shared_d_ff="shared_expert_intermediate_size", shared_gate=True)
_MIXTRAL = Experts(experts="num_local_experts", d_ff="intermediate_size")
_OLMOE = Experts(d_ff="intermediate_size", normalised=Or("norm_topk_prob", False))
_GPT_OSS = Experts(
    experts="num_local_experts", d_ff="intermediate_size", bias=True, router_bias=True, up_offset=1.0,
    limit=Or("swiglu_limit", 7.0),
)  # fmt: skip
_LLAMA4 = Experts(
    experts="num_local_experts", d_ff="intermediate_size", shared=1, sigmoid=True, normalised=False, layout="moe_layers"
)
_ARIA = Experts(experts="moe_num_experts", top_k="moe_topk", d_ff="intermediate_size", shared="moe_num_shared_experts")
_JAMBA = Experts(d_ff="intermediate_size", normalised=False, layout="expert_layer_period")

WITH_EXPERTS: dict[str, Stack] = {
    "mixtral": replace(GATED, experts=_MIXTRAL),
    "granitemoe": replace(GATED, experts=_MIXTRAL),
    "granitemoeshared": replace(GATED, experts=_MIXTRAL, assumes=(("shared_intermediate_size", 0),)),
    "granitemoe_swa": replace(GATED, experts=_MIXTRAL, assumes=(("shared_intermediate_size", 0),)),
    "minimax": replace(GATED, experts=_MIXTRAL),
    "minimax_m2": replace(GATED, experts=replace(_MIXTRAL, sigmoid=True)),
    "olmoe": replace(GATED, experts=_OLMOE),
    "flex_olmo": replace(GATED, experts=_OLMOE),
    "gpt_oss": replace(GATED, experts=_GPT_OSS, acts_as="quick_gelu", assumes=(("swiglu_alpha", 1.702),)),
    "qwen2_moe": replace(GATED, experts=_QWEN_SHARED),
    "qwen3_moe": replace(GATED, experts=_QWEN),
    "qwen3_next": replace(GATED, experts=replace(_QWEN_SHARED, normalised=Or("norm_topk_prob", True))),
    "qwen3_5_moe_text": replace(GATED, experts=replace(_QWEN_SHARED, normalised=True, layout="all")),
    "qwen3_vl_moe_text": replace(GATED, experts=replace(_QWEN, normalised=True)),
    "qwen3_omni_moe_text": replace(GATED, experts=replace(_QWEN, normalised=Or("norm_topk_prob", True))),
    "deepseek_v2": replace(
        GATED_MLP_BIAS,
        experts=replace(_SHARED, normalised=Or("norm_topk_prob", False), layout="first_k_dense_replace"),
        assumes=(("mlp_bias", False), ("moe_layer_freq", 1)),
    ),
    "deepseek_v3": replace(GATED, experts=_DEEPSEEK, assumes=(("moe_layer_freq", 1),)),
    "deepseek_v32": replace(GATED, experts=replace(_DEEPSEEK, layout="mlp_layer_types")),
    "glm4_moe": replace(GATED, experts=_DEEPSEEK),
    "glm4v_moe_text": replace(GATED, experts=_DEEPSEEK),
    "glm4_moe_lite": replace(GATED, experts=replace(_DEEPSEEK, layout="mlp_layer_types")),
    "glm_moe_dsa": replace(GATED, experts=replace(_DEEPSEEK, layout="mlp_layer_types")),
    "jamba": replace(GATED, experts=_JAMBA),
    "aria_text": replace(GATED, experts=_ARIA, assumes=(("mlp_bias", False),)),
    "llama4_text": replace(GATED, d_ff="intermediate_size_mlp", experts=_LLAMA4),
}


VISION = Stack(kind="vision")
AUDIO = Stack(kind="audio")
VISION_RATIO = Stack(kind="vision", d_ff=None, ratio="mlp_ratio")
ENCODER = Stack(
    kind="encoder", layers="encoder_layers", d_model="d_model", d_ff="encoder_ffn_dim", activation="activation_function"
)
DECODER = Stack(
    kind="decoder", layers="decoder_layers", d_model="d_model", d_ff="decoder_ffn_dim", activation="activation_function"
)
GPT2 = Stack(layers="n_layer", d_model="n_embd", d_ff="n_inner", ratio=4, activation="activation_function")
T5 = Stack(
    kind="encoder", layers="num_layers", d_model="d_model", d_ff="d_ff", bias=False,
    activation=Or("feed_forward_proj", "relu"),
)  # fmt: skip
T5_DECODER = replace(T5, kind="decoder", layers=("num_decoder_layers", "num_layers"))
MT5 = replace(T5, activation=Or("feed_forward_proj", "gated-gelu"))
MT5_DECODER = replace(T5_DECODER, activation=Or("feed_forward_proj", "gated-gelu"))
FALCON = replace(CLASSIC, d_ff="ffn_hidden_size", ratio=4, activation=Or("activation", "gelu"), bias=Or("bias", False))

_FAMILIES: tuple[tuple[str, tuple[Stack, ...]], ...] = (
    (
        "dinov2 dinov2_with_registers eomt radio rf_detr_dinov2 tipsv2_vision_model videomt",
        (replace(VISION_RATIO, assumes=(("use_swiglu_ffn", False),)),),
    ),
    ("dinov3_vit eomt_dinov3", (replace(VISION, gated=Or("use_gated_mlp", False), bias=Or("mlp_bias", True)),)),
    (
        "glm4v_vision glm4v_moe_vision",
        (replace(VISION, layers="depth", d_ff="out_hidden_size", gated=True, bias=False),),
    ),
    (
        "glm5_next_vision glm_ocr_vision",
        (replace(VISION, layers="depth", gated=True, bias=Or("attention_bias", True)),),
    ),
    ("opt", (replace(CLASSIC, d_ff="ffn_dim", activation="activation_function", bias=Or("enable_bias", True)),)),
    (
        "patchtst",
        (Stack(d_model="d_model", d_ff="ffn_dim", activation="activation_function", bias=Or("bias", True)),),
    ),
    ("starcoder2", (replace(CLASSIC, bias=Or("use_bias", True)),)),
    ("timesfm2_5", (replace(CLASSIC, activation="activation", bias=Or("use_bias", False)),)),
    ("doge", (replace(GATED_MLP_BIAS, assumes=(("is_moe", False),)),)),
    ("ernie4_5 paddleocr_vl_text", (replace(GATED, bias=Or("use_bias", False)),)),
    ("falcon", (FALCON,)),
    ("dpt", (replace(VISION, assumes=(("backbone_config", None),)),)),
    (
        "align_text_model altclip_text_model bert bert-generation big_bird biogpt blip_text_model "
        "bridgetower_text_model bros camembert canary_decoder chinese_clip_text_model clap_text_model clip_text_model "
        "clipseg_text_model convbert data2vec-audio data2vec-text deberta deberta-v2 dpr electra ernie "
        "flava_multimodal_model flava_text_model fnet gpt_neox groupvit_text_model ibert "
        "jina_embeddings_v3 layoutlm lilt longformer luke markuplm megatron-bert "
        "metaclip_2_text_model moonshine_streaming_encoder mpnet mra nemotron3_5_transcribe_word_timestamp "
        "nystromformer owlv2_text_model owlvit_text_model persimmon phi rembert roberta roberta-prelayernorm roc_bert "
        "roformer siglip2_text_model siglip_text_model splinter tapas tipsv2_text_model "
        "videoprism_text_model visual_bert xclip_text_model xlm-roberta xlm-roberta-xl yoso",
        (CLASSIC,),
    ),
    (
        "altclip_vision_model audio-spectrogram-transformer beit blip_2_vision_model blip_vision_model "
        "chinese_clip_vision_model clip_vision_model clipseg_vision_model cosmos3_edge_vision data2vec-vision deit "
        "flava_image_model git_vision_model granite_docling_vision hunyuan_vl_vision idefics2_vision "
        "idefics3_vision ijepa inkling2_vision instructblip_vision_model instructblipvideo_vision_model "
        "internvl_vision kimi_k25_vision kosmos_2_vision_model layoutlmv3 llama4_vision_model metaclip_2_vision_model "
        "minicpm_ocr_vision minicpmv4_6_vision minicpmv4_7_vision minimax_m3_vl_vision mlcd mlcd_vision_model "
        "molmo2_vision muse_glimmer_vision muse_spark_vision owlv2_vision_model owlvit_vision_model "
        "paddleocr_vl_vision phi4_multimodal_vision qianfan_ocr_vision sam3_vit_model siglip2_vision_model "
        "siglip_vision_model smolvlm_vision timesformer unlimited_ocr_vision_encoder "
        "video_llama_3_vision videomae vilt vit vit_mae vit_msn vivit xclip_vision_model yolos",
        (VISION,),
    ),
    (
        "bitnet blt_global_transformer blt_local_decoder blt_local_encoder blt_patcher cohere cohere2 "
        "deepseek_ocr2_encoder dia_decoder dia_encoder diffllama emu3_text_model exaone4 gemma glm glm4 "
        "glm4v_text glm_image_text glm_ocr_text ministral3 mistral mllama_text_model molmo2_text "
        "muse_glimmer_assistant nomic_bert olmo olmo2 olmo3 olmo_hybrid phi3 qwen2 "
        "qwen2_5_omni_text qwen2_5_vl_text qwen2_vl_text qwen3 qwen3_5_text qwen3_omni_moe_talker_code_predictor "
        "qwen3_vl_text stablelm youtu",
        (GATED,),
    ),
    (
        "aimv2_text_model bamba csm_depth_decoder_model cwm esmc eurobert falcon_h1 granite granite4_vision_text "
        "granite_docling_text granite_swa helium hyperclovax internlm3 iquestcoder llama minicpm3 seed_oss smollm3 "
        "ultrabert",
        (GATED_MLP_BIAS,),
    ),
    (
        "bart bigbird_pegasus blenderbot blenderbot-small fsmt led m2m_100 marian mbart mvp pegasus pegasus_x plbart "
        "speech_to_text whisper",
        (
            ENCODER,
            DECODER,
        ),
    ),
    (
        "janus_vision_model lw_detr_vit pixio vitdet vitpose_backbone",
        (VISION_RATIO,),
    ),
    (
        "fun_asr_nano_encoder glmasr_encoder hubert nemotron3_5_transcribe_asr_audio nemotron3_diarization_audio sew "
        "sew-d unispeech unispeech-sat wav2vec2 wavlm",
        (AUDIO,),
    ),
    (
        "cohere_compass_vision ernie4_5_vl_moe_vision glm_image_vision qwen3_5_moe_vision qwen3_5_vision "
        "qwen3_vl_moe_vision qwen3_vl_vision qwen4_exp_vision",
        (replace(VISION, layers="depth"),),
    ),
    (
        "deepseek_ocr2_sam_vision_model got_ocr2_vision pp_formulanet_vision sam_hq_vision_model sam_vision_model "
        "seggpt slanext_vision unlimited_ocr_sam_vision_model",
        (replace(VISION, d_ff="mlp_dim"),),
    ),
    (
        "embedding_gemma2_text gemma2 gemma3_text gemma4_text gemma4_unified_text muse_glimmer_text vaultgemma",
        (replace(GATED, activation="hidden_activation"),),
    ),
    ("codegen gpt-sw3 gpt2 gpt_bigcode gptj imagegpt", (GPT2,)),
    ("longt5 t5 udop", (T5, T5_DECODER)),
    ("mt5 umt5", (MT5, MT5_DECODER)),
    (
        "exaone4_5_vision qwen2_5_omni_vision_encoder qwen2_5_vl_vision",
        (replace(VISION, gated=True, layers="depth"),),
    ),
    (
        "mimi_decoder mimi_encoder pocket_tts_audio_tokenizer_decoder pocket_tts_audio_tokenizer_encoder",
        (replace(AUDIO, bias=False),),
    ),
    (
        "qwen2_5_omni_audio_encoder qwen2_audio_encoder qwen3_asr_encoder qwen3_omni_moe_audio_encoder",
        (replace(ENCODER, kind="audio"),),
    ),
    (
        "sam3_detr_decoder sam3_detr_encoder sam3_lite_text_detr_decoder sam3_lite_text_detr_encoder",
        (replace(CLASSIC, layers="num_layers"),),
    ),
    (
        "audioflamingo3_encoder moss_transcribe_diarize_audio voxtral_encoder",
        (replace(AUDIO, activation="activation_function"),),
    ),
    ("modernbert modernbert-decoder", (replace(GATED_MLP_BIAS, activation="hidden_activation"),)),
    ("aimv2_vision_model ovis2_vision", (replace(GATED_MLP_BIAS, kind="vision"),)),
    ("arcee cosmos3_edge_text", (replace(CLASSIC, bias=Or("mlp_bias", False)),)),
    ("clvp_encoder dots3_note_audio_encoder", (replace(CLASSIC, gated=True),)),
    (
        "mimi pocket_tts_audio_tokenizer",
        (
            replace(CLASSIC, bias=False, kind="encoder"),
            replace(CLASSIC, bias=False, kind="decoder"),
        ),
    ),
    (
        "musicgen_decoder musicgen_melody_decoder",
        (replace(AUDIO, activation="activation_function", bias=False, d_ff="ffn_dim"),),
    ),
    (
        "pp_formulanet_text trocr",
        (
            replace(
                CLASSIC,
                activation="activation_function",
                d_ff="decoder_ffn_dim",
                d_model="d_model",
                layers="decoder_layers",
            ),
        ),
    ),
    ("jais2", (replace(CLASSIC, bias=Or("mlp_bias", True)),)),
    ("pixtral", (replace(GATED, kind="vision"),)),
    ("nanochat", (replace(CLASSIC, bias=False),)),
    ("higgs_audio_v2", (replace(GATED_MLP_BIAS, kind="audio"),)),
    ("qwen2_5_omni_talker", (replace(GATED, kind="audio"),)),
    ("clvp_decoder", (replace(AUDIO, activation="activation_function", d_ff=None, ratio=4),)),
    (
        "decision_transformer",
        (replace(CLASSIC, activation="activation_function", d_ff="n_inner", layers="n_layer", ratio=4),),
    ),
    (
        "distilbert",
        (replace(CLASSIC, activation="activation", d_ff="hidden_dim", d_model="dim", layers="n_layers"),),
    ),
    ("gemma4_vision", (replace(GATED, activation="hidden_activation", kind="vision"),)),
    (
        "gpt_neo",
        (replace(CLASSIC, activation="activation_function", d_ff="intermediate_size", layers="num_layers", ratio=4),),
    ),
    ("gpt_neox_japanese", (replace(CLASSIC, bias=False, d_ff=None, ratio=4),)),
    ("kosmos_2_5_vision_model", (replace(GATED, activation="dense_act_fn", kind="vision"),)),
    ("neomme", (replace(VISION, bias=Or("mlp_bias", False)),)),
    ("openai-gpt", (replace(GPT2, activation="afn", d_ff=None),)),
    ("pix2struct_text_model", (replace(GATED, activation="dense_act_fn", d_ff="d_ff", layers="num_layers"),)),
    ("pix2struct_vision_model", (replace(GATED, activation="dense_act_fn", d_ff="d_ff", kind="vision"),)),
    (
        "prophetnet",
        (
            replace(
                CLASSIC,
                activation="activation_function",
                d_ff="encoder_ffn_dim",
                kind="encoder",
                layers="num_encoder_layers",
            ),
            replace(
                CLASSIC,
                activation="activation_function",
                d_ff="decoder_ffn_dim",
                kind="decoder",
                layers="num_decoder_layers",
            ),
        ),
    ),
    ("qwen2_vl_vision", (replace(VISION_RATIO, d_model="embed_dim", layers="depth"),)),
    (
        "speecht5",
        (
            replace(CLASSIC, d_ff="encoder_ffn_dim", kind="encoder", layers="encoder_layers"),
            replace(CLASSIC, d_ff="decoder_ffn_dim", kind="decoder", layers="decoder_layers"),
        ),
    ),
    (
        "xglm",
        (replace(CLASSIC, activation="activation_function", d_ff="ffn_dim", d_model="d_model", layers="num_layers"),),
    ),
)

FAMILIES: dict[str, tuple[Stack, ...]] = {name: stacks for names, stacks in _FAMILIES for name in names.split()} | {
    name: (stack,) for name, stack in WITH_EXPERTS.items()
}


_COMPOSITES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "aimv2 altclip aria blip chinese_clip clip clipseg cohere2_vision cosmos3_edge cosmos3_omni "
        "deepseek_vl exaone4_5 gemma3 glm46v glm4v glm4v_moe glm_image glm_ocr glmga got_ocr2 granite_docling "
        "hyperclovax_vision_v2 idefics3 internvl janus kimi_k25 lighton_ocr llama4 llava llava_next llava_next_video "
        "llava_onevision metaclip_2 minicpm_ocr minicpmv4_6 minicpmv4_7 mistral3 modernvbert muse_glimmer "
        "ovis2 owlv2 owlvit paddleocr_vl paligemma pix2struct pp_formulanet qianfan_ocr qwen2_5_vl qwen2_vl qwen3_5 "
        "qwen3_5_moe qwen3_vl qwen3_vl_moe shieldgemma2 siglip siglip2 smolvlm tipsv2 ultravbert video_llama_3 "
        "vipllava vision-text-dual-encoder ",
        (
            "text_config",
            "vision_config",
        ),
    ),
    (
        "chmv2 depth_anything prompt_depth_anything sam3_vision_model tipsv2_dpt vitpose zoedepth",
        ("backbone_config",),
    ),
    (
        "align embedding_gemma2 fuyu gemma4 gemma4_unified jev",
        ("text_config",),
    ),
    (
        "audioflamingo3 glmasr moss_transcribe_diarize musicflamingo qwen2_audio qwen3_asr voxtral",
        (
            "audio_config",
            "text_config",
        ),
    ),
    ("slanext", ("vision_config",)),
    (
        "encoder-decoder speech-encoder-decoder vision-encoder-decoder",
        (
            "decoder",
            "encoder",
        ),
    ),
    ("colmodernvbert colpali colqwen2", ("vlm_config",)),
    (
        "deepseek_ocr2_vision unlimited_ocr_vision",
        (
            "encoder_config",
            "sam_config",
        ),
    ),
    (
        "blt",
        (
            "decoder_config",
            "encoder_config",
            "global_config",
            "patcher_config",
        ),
    ),
    (
        "clvp",
        (
            "decoder_config",
            "speech_config",
            "text_config",
        ),
    ),
    (
        "deepseek_vl_hybrid",
        (
            "high_res_vision_config",
            "text_config",
            "vision_config",
        ),
    ),
    (
        "dia",
        (
            "decoder_config",
            "encoder_config",
        ),
    ),
    (
        "flava",
        (
            "image_config",
            "multimodal_config",
            "text_config",
        ),
    ),
    (
        "pi0",
        (
            "dit_config",
            "vlm_config",
        ),
    ),
    (
        "qwen2_5_omni_thinker",
        (
            "audio_config",
            "text_config",
            "vision_config",
        ),
    ),
    (
        "rag",
        (
            "generator",
            "question_encoder",
        ),
    ),
    ("xcodec", ("semantic_model_config",)),
)

COMPOSITES: dict[str, tuple[str, ...]] = {name: parts for names, parts in _COMPOSITES for name in names.split()}
WITHOUT_FFN = frozenset({"align_vision_model", "dac", "flava_image_codebook", "glm_image_vqmodel", "janus_vqgan"})
