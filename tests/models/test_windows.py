"""Windows of attention: what the reader makes of a config.json, beside the masks that
transformers hands its layers.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
import torch

from ffnbench.ffn.attention import pairs
from ffnbench.models.configs import read_groups

TOKENS, LAYERS = 24, 6
SMALL = {
    "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": LAYERS, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 8, "vocab_size": 32, "pad_token_id": 0,
    "hidden_act": "silu", "hidden_activation": "gelu_pytorch_tanh",
}  # fmt: skip
FEW = {"num_local_experts": 2, "num_experts_per_tok": 1}
NARROW = {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 8}
EXPERTS = {
    "gpt_oss": FEW, "mixtral": FEW, "qwen2_moe": NARROW | {"shared_expert_intermediate_size": 8}, "qwen3_moe": NARROW,
}  # fmt: skip
TYPES = (
    "gemma2", "gemma3_text", "gpt_oss", "llama", "ministral3", "mistral", "mixtral", "olmo3", "phi3", "qwen2",
    "qwen2_moe", "qwen3", "qwen3_moe", "smollm3", "starcoder2",
)  # fmt: skip


def drawn(model_type: str, rng: random.Random) -> dict:
    """A small model with keys about windows, or without them, whether they are its own
    or not.
    """
    words = ("sliding_attention", "full_attention")
    keys = {
        "sliding_window": [3, 7, 30, None], "use_sliding_window": [True, False], "max_window_layers": [2, 4, 28],
        "sliding_window_pattern": [2, 3], "layer_types": [[rng.choice(words) for _ in range(LAYERS)], None],
        "no_rope_layer_interval": [2, 3],
    }  # fmt: skip
    chosen = {
        key: rng.choice(values) for key, values in keys.items() if rng.random() < 0.6
    }
    return SMALL | EXPERTS.get(model_type, {}) | chosen | {"model_type": model_type}


def ours(data: dict) -> Counter[int] | None:
    """Pairs that a layer computes -> how many layers do, by the reader and the closed
    form.
    """
    found: Counter[int] = Counter()
    for group in read_groups(data):
        if group.attention is None:
            return None
        for window in group.all_windows:
            found[
                pairs(
                    replace(group.attention, causal=True, window=window.tokens), TOKENS
                )
            ] += window.count
    return found


def theirs(data: dict) -> Counter[int] | None:
    """The same by the masks that the layers of the built model are handed; None where
    it can't be run.
    """
    from transformers import AutoConfig, AutoModel

    found: Counter[int] = Counter()

    def count(module: object, args: tuple, kwargs: dict) -> None:
        found[int((kwargs["attention_mask"] == 0).sum())] += 1

    try:
        config = AutoConfig.for_model(**data)
        model = AutoModel.from_config(config, attn_implementation="eager").eval()
        for name, module in model.named_modules():
            if name.endswith("self_attn"):
                module.register_forward_pre_hook(count, with_kwargs=True)
        with torch.no_grad():
            model(torch.ones(1, TOKENS, dtype=torch.long), use_cache=False)
    except (ValueError, TypeError, KeyError):
        return None
    return found


def both(
    types: tuple[str, ...], each: int, seed: str
) -> list[tuple[dict, Counter[int], Counter[int] | None]]:
    pytest.importorskip("transformers").logging.set_verbosity_error()
    files = [
        drawn(name, random.Random(f"{seed} {name} {i}"))
        for name in types
        for i in range(each)
    ]
    return [
        (data, built, ours(data))
        for data in files
        if (built := theirs(data)) is not None
    ]


def test_windows_are_those_of_the_masks_of_transformers() -> None:
    found = both(("mistral", "qwen2", "gemma3_text", "gpt_oss"), 5, "few")
    assert [(data, built, read) for data, built, read in found if built != read] == []
    assert len(found) > 12
    assert len({frozenset(built) for _, built, _ in found}) > 3


@pytest.mark.parametrize(
    ("model_type", "windowed"),
    [("qwen2", 2), ("qwen2_moe", 2), ("mistral", 6), ("gemma2", 3), ("gemma3_text", 5)],
)
def test_which_layers_have_a_window_by_hand(model_type: str, windowed: int) -> None:
    """Six layers, max_window_layers 4. qwen2: those from it on; qwen2_moe: every second
    one before it; gemma2: every second one, gemma3: five of six.
    """
    keys = {
        "sliding_window": 7,
        "use_sliding_window": True,
        "max_window_layers": 4,
        "model_type": model_type,
    }
    seen = Counter()
    for group in read_groups(SMALL | EXPERTS.get(model_type, {}) | keys):
        for window in group.all_windows:
            seen[window.tokens] += window.count
    assert seen == Counter({7: windowed, None: LAYERS - windowed})


@pytest.mark.slow
def test_windows_of_every_type_are_those_of_the_masks_of_transformers() -> None:
    """A window of no tokens, which Qwen2-MoE makes of a switch that is off, is refused:
    it is no attention.
    """
    found = [each for each in both(TYPES, 40, "many") if 0 not in each[1]]
    assert [(data, built, read) for data, built, read in found if built != read] == []
    assert {data["model_type"] for data, _, _ in found} == set(TYPES)
