"""The model types that are made of others: the keys under which the configs of their parts stand. Data alone."""

from __future__ import annotations

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
