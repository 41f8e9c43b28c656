"""All parameters of a model by our closed form beside transformers' own count of the model that it builds.

`python tests/whole.py vary TYPE...` prints one JSON line a type: its default config, and such as differ from it in one
key; `all` is every type that has a row of `rest`. `python tests/whole.py golden` writes tests/golden/whole_model.json.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from hf import apart

from ffnbench.errors import FfnbenchError
from ffnbench.models.configs import read_groups, read_rest
from ffnbench.models.families import families
from ffnbench.models.model import ModelSpec, WholeModel, whole_model

GOLDEN = Path(__file__).parent / "golden" / "whole_model.json"
KEYS = (  # of numbers that the rest depends on; truth values are all turned
    "vocab_size", "max_position_embeddings", "n_positions", "type_vocab_size", "hidden_size", "d_model", "n_embd",
    "num_hidden_layers", "relative_attention_num_buckets", "image_size", "patch_size", "num_channels",
    "num_attention_heads", "num_key_value_heads", "head_dim", "q_lora_rank", "kv_lora_rank", "word_embed_proj_dim",
    "embedding_size", "projection_size", "pooler_output_size", "decoder_layers", "encoder_layers", "n_layer",
)  # fmt: skip
TIES_ALWAYS = {"mt5", "t5", "umt5"}  # transformers' class, until it has read a file whose two matrices differ
LEFT_OUT = {"id2label", "label2id", "transformers_version", "task_specific_params", "dtype", "architectures"}
PRESETS = {  # as configs of transformers: what differs from the default of the class
    "bert-base": {"model_type": "bert"},
    "gpt2": {"model_type": "gpt2"},
    "gpt3-175b": {"model_type": "gpt2", "n_embd": 12288, "n_layer": 96, "n_head": 96, "n_positions": 2048},
    "t5-base": {"model_type": "t5", "d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12},
    "t5-v1.1-xxl": {
        "model_type": "t5", "d_model": 4096, "d_ff": 10240, "num_layers": 24, "num_heads": 64,
        "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False,
    },
    "falcon-7b": {"model_type": "falcon", "vocab_size": 65024},
    "llama-7b": {"model_type": "llama"},
    "llama2-70b": {
        "model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
        "num_attention_heads": 64, "num_key_value_heads": 8,
    },
    "llama3-8b": {
        "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_key_value_heads": 8,
        "vocab_size": 128256,
    },
    "llama3.1-405b": {
        "model_type": "llama", "hidden_size": 16384, "intermediate_size": 53248, "num_hidden_layers": 126,
        "num_attention_heads": 128, "num_key_value_heads": 8, "vocab_size": 128256,
    },
    "mistral-7b": {"model_type": "mistral"},
    "gemma-7b": {"model_type": "gemma"},
    "phi-3-mini": {"model_type": "phi3"},
    "qwen2.5-7b": {
        "model_type": "qwen2", "vocab_size": 152064, "hidden_size": 3584, "intermediate_size": 18944,
        "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4, "tie_word_embeddings": False,
    },
    "nemotron-4-340b": {
        "model_type": "nemotron", "vocab_size": 256000, "hidden_size": 18432, "intermediate_size": 73728,
        "num_hidden_layers": 96, "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 192,
    },
    "modernbert-base": {"model_type": "modernbert"},
    "vit-b16": {"model_type": "vit"},
    "mixtral-8x7b": {"model_type": "mixtral"},
    "qwen3-30b-a3b": {
        "model_type": "qwen3_moe", "vocab_size": 151936, "num_hidden_layers": 48, "hidden_size": 2048,
        "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
    },
    "deepseek-v3": {"model_type": "deepseek_v3"},
    "gpt-oss-120b": {"model_type": "gpt_oss"},
    "apertus-8b": {"model_type": "apertus", "intermediate_size": 21504, "num_key_value_heads": 8},
}  # fmt: skip


def ours(data: dict[str, Any]) -> WholeModel:
    """By the table of families."""
    groups = tuple(read_groups(data))
    return whole_model(ModelSpec(key="", name="", groups=groups, source="", rest=read_rest(data)))


def theirs(data: dict[str, Any]) -> tuple[int, Counter[str]]:
    """transformers' own number of parameters, and our sorting of them."""
    from transformers import CONFIG_MAPPING

    from ffnbench.models.whole import build_whole, sorted_parts

    model = build_whole(CONFIG_MAPPING[data["model_type"]].from_dict(json.loads(json.dumps(data))))
    return model.num_parameters(), sorted_parts(model)


def default(model_type: str) -> dict[str, Any]:
    """The config of a type as transformers writes it."""
    from transformers import CONFIG_MAPPING

    data: dict[str, Any] = json.loads(CONFIG_MAPPING[model_type]().to_json_string())
    return data


def varied(data: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Every truth value turned and left out, every number of KEYS changed, left out and null."""
    found = [("default", data)]
    for key, value in data.items():
        if isinstance(value, bool):
            found += [(f"{key}={not value}", data | {key: not value})]
        if isinstance(value, bool) or key in KEYS:
            found += [
                (f"without {key}", {k: v for k, v in data.items() if k != key}),
                (f"{key}=null", {**data, key: None}),
            ]
        if key in KEYS and isinstance(value, int):
            found += [(f"{key}={new}", data | {key: new}) for new in (value * 2, value + 2, 2)]
    return found


def vary(model_type: str) -> dict[str, Any]:
    """How many configs are as built, unknown or unbuildable, and which are wrong: in the sum, or in a part."""
    tally: Counter[str] = Counter()
    wrong = []
    for name, data in varied(default(model_type)):
        try:
            found = ours(data)
        except FfnbenchError:
            tally["refused"] += 1
            continue
        if found.params is None:
            tally["unknown"] += 1
            if name == "default":
                wrong.append("the default is unknown")
            continue
        try:
            expected, parts = theirs(data)
        except Exception:
            tally["unbuildable"] += 1
            continue
        if model_type in TIES_ALWAYS and data.get("tie_word_embeddings") is False:
            expected += data["vocab_size"] * data["d_model"]
            parts["head"] += data["vocab_size"] * data["d_model"]
        same = found.params == expected
        tally["same" if same else "wrong"] += 1
        if not same:
            wrong.append(f"{name}: {found.params} against {expected}, {found.parts} against {dict(parts)}")
        elif parts["untold"] or any((found.parts[part] or 0) != parts[part] for part in found.parts):
            tally["same, other parts"] += 1
            if name == "default":
                wrong.append(f"parts: {found.parts} against {dict(parts)}")
    return {"status": "wrong" if wrong else "exact", "tally": tally, "wrong": wrong}


def golden() -> dict[str, Any]:
    """The counts of transformers for every type with a row of `rest`, and for the presets."""
    import transformers

    kept: dict[str, Any] = {}
    for model_type in sorted(families().outside):
        data = {k: v for k, v in default(model_type).items() if k not in LEFT_OUT}
        kept[model_type] = {"params": theirs(data)[0], "config": data}
    presets = {name: theirs(data)[0] for name, data in PRESETS.items()}
    return {"transformers": transformers.__version__, "presets": presets, "types": kept}


if __name__ == "__main__":
    import torch  # noqa: F401 - before the forks, which then need not
    import transformers.modeling_utils

    transformers.logging.set_verbosity_error()
    if sys.argv[1] == "golden":
        GOLDEN.write_text(json.dumps(golden(), indent=None).replace('}}, "', '}},\n"') + "\n", encoding="utf-8")
    else:
        names = sys.argv[2:]
        for name in sorted(families().outside) if names == ["all"] else names:
            print(json.dumps(apart(vary, name)), flush=True)
