"""Configs of published models, written from their files, and by_exclusion: what in a
built model is an FFN.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

Data = dict[str, Any]
LLAMA: Data = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "hidden_act": "silu", "num_attention_heads": 32, "num_key_value_heads": 8,
}  # fmt: skip
NEMOTRON_H: Data = {
    "model_type": "nemotron_h", "hidden_size": 2688, "num_hidden_layers": 52, "intermediate_size": 1856,
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", "moe_intermediate_size": 1856,
    "moe_shared_expert_intermediate_size": 3712, "n_routed_experts": 128, "num_experts_per_tok": 6,
    "n_shared_experts": 1, "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128, "mamba_num_heads": 64,
    "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8, "vocab_size": 131072, "tie_word_embeddings": False,
    "mlp_hidden_act": "relu2",
}  # fmt: skip
HUNYUAN: Data = {
    "model_type": "hunyuan_v1_moe", "hidden_size": 4096, "intermediate_size": 3072,
    "moe_intermediate_size": [3072] * 32, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "num_experts": 64, "moe_topk": [8] * 32, "num_shared_expert": [1] * 32,
    "use_mixed_mlp_moe": True, "vocab_size": 128167, "tie_word_embeddings": True,
}  # fmt: skip
GEMMA_4: Data = {
    "model_type": "gemma4",
    "text_config": {
        "model_type": "gemma4_text", "hidden_size": 2816, "intermediate_size": 2112, "moe_intermediate_size": 704,
        "num_hidden_layers": 30, "num_attention_heads": 16, "num_key_value_heads": 8, "num_global_key_value_heads": 2,
        "head_dim": 256, "global_head_dim": 512, "attention_k_eq_v": True, "enable_moe_block": True,
        "num_experts": 128, "top_k_experts": 8, "vocab_size": 262144, "hidden_size_per_layer_input": 0,
        "num_kv_shared_layers": 0, "use_double_wide_mlp": False, "sliding_window": 1024, "tie_word_embeddings": True,
    },
}  # fmt: skip
GEMMA_3: Data = {
    "model_type": "gemma3_text", "hidden_size": 5376, "intermediate_size": 21504, "num_hidden_layers": 62,
    "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128, "sliding_window": 1024,
    "vocab_size": 262208, "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 10 + ["sliding_attention"] * 2,
}  # fmt: skip
NUMBERED = re.compile(r"(?:^|\.)\d+(?=\.)")
# What a layer holds beside FFNs, by the ends of the names of classes, and by names
# where it has no class of its own. All else in a numbered layer is an FFN: nothing here
# says how one is called.
OTHER = (
    "Attention", "Attn", "AttentionBlock", "MLA", "Mixer", "MambaLayer", "Conv", "Conv1d", "LSTM", "DeltaNet",
    "GatedDeltaNet", "Norm", "LayerNorm2d", "LayerScale", "Embedding", "Embeddings", "RotaryEmbedding",
    "RelativePositionBias", "SelfAttention2", "Indexer", "LayerNorm1P",
)  # fmt: skip
BARE = frozenset({"lambda_1", "lambda_2", "e_score_correction_bias", "layer_scale"})


def written(folder: Path, config: Data) -> str:
    """The folder, with a config.json of this content in it."""
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def by_exclusion(model: Any) -> int:
    """The parameters of a model's numbered layers that are of nothing else."""
    modules = dict(model.named_modules())
    total = 0
    for name, parameter in model.named_parameters():
        number = NUMBERED.search(name)
        if number is None:
            continue
        below = name[number.end() + 1 :].split(".")
        layer = name[: number.end()]
        owners = [".".join([layer, *below[:end]]) for end in range(1, len(below))]
        classes = [type(modules[owner]).__name__ for owner in owners]
        if not any(each.endswith(OTHER) for each in classes) and not BARE & set(below):
            total += parameter.numel()
    return total
