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
# models of 2025 and 2026: the sizes of their config.json; parameters in all and active,
# in billions, of a count that agrees with their cards as far as these round them, and
# counts embeddings as active; no sum where transformers has no class
PUBLISHED: dict[str, Data] = {
    row["name"]: row
    for row in json.loads(
        Path(__file__, "../models/published.json").resolve().read_text()
    )
}
NEMOTRON_H: Data = PUBLISHED["Nemotron-3-Nano-30B-A3B"]["config"]
HUNYUAN: Data = PUBLISHED["Hunyuan-A13B"]["config"]
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
