"""Our reading of a config.json beside transformers' own model of it, for one model type after another.

`python tests/hf.py exact TYPE...` or `attention TYPE...` prints one JSON line a type; `all` is every
type of transformers.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import sys
import warnings
from collections import Counter
from typing import Any

from ffnbench.errors import FfnbenchError
from ffnbench.ffn import cost
from ffnbench.models.configs import read_groups
from ffnbench.models.families import Stack, families
from ffnbench.models.transformers import build_empty, feed_forwards, left_over

Counts = Counter[int]  # parameters of an FFN -> how many layers have one like it

# What a layer holds beside FFNs, by the ends of class names, and by names where a layer holds it bare. The oracle: all
# else in a numbered layer is an FFN. Nothing here says how an FFN is called, and the reader's lists are not asked.
MIXES = (  # tokens, or channels by a convolution or a recurrence
    "Attention", "Attn", "AttentionBlock", "SelfAttention2", "Mixer", "MambaLayer", "Conv", "Conv1d", "Conv2d",
    "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvolutionModule", "LSTM", "LSTMLayer", "RecurrentBlock",
    "DeltaNet", "GatedDeltaNet", "DeltaAttention", "ShortConv", "FocalModulation", "FocalNetModulation",
    "PoolFormerPooling", "TimeMixer", "FourierTransform", "LRU", "PatchMerging", "PatchMerger", "PatchMixerBlock",
    "MLA", "LxmertSelfAttentionLayer", "LxmertCrossAttentionLayer", "LxmertAttentionOutput", "CausalConv2D",
    "TokenAssign",
)  # fmt: skip
SCALES = (  # and places: norms, scales, embeddings, positions
    "Norm", "Norm1", "Norm2d", "Norm1d", "BatchNorm2d", "BatchNorm1d", "LayerNorm2d", "LayerScale", "Embedding",
    "Embeddings", "RotaryEmbedding", "RelativePositionBias", "GRN", "Snake1d", "SnakeBeta", "AttentionResidual",
    "AltUp", "LaurelBlock", "PLEBlock", "HyperConnection", "ResidualUnit", "ConvNormLayer", "LayerNormZero",
    "ResidualGate", "BatchNorm3d", "ResidualScaling", "Adapter", "LayerNorm1P",
)  # fmt: skip
BARE = frozenset({  # attributes of a layer: attention without a class of its own, scales, a model's named adapters
    "q_proj", "k_proj", "v_proj", "o_proj", "temporal_dense", "message_fc", "per_layer_input_gate",
    "per_layer_projection", "bottleneck", "gamma", "ffn_gamma", "lambda_1", "lambda_2", "layer_scale_1",
    "layer_scale_2", "layer_scale_parameter", "layer_scalar", "scale", "per_expert_scale", "global_per_expert_scale",
    "e_score_correction_bias", "expert_bias", "gate_attn", "gate_ffn", "alpha_cross_attn", "alpha_dense",
    "input_residual", "post_attention_residual", "cls_token", "group_token", "vision_param", "text_param",
    "gamma_1", "gamma_2", "lambdas", "layer_scale", "global_scale", "router_states_scale", "cross_attn_attn_gate",
    "cross_attn_mlp_gate", "pwconv1", "pwconv2",
})  # fmt: skip
NUMBERED = re.compile(r"(?:^|\.)\d+(?=\.)")


def ours(data: dict[str, Any]) -> Counts:
    """By the table of families."""
    found: Counts = Counter()
    for group in read_groups(data):
        found[cost.params(group.ffn)] += group.count
    return found


def theirs(config: Any) -> Counts:
    """By building the model and leaving out what is no FFN."""
    return by_exclusion(build_empty(config))


def by_exclusion(model: Any) -> Counts:
    """What stands in numbered layers and is nothing else, summed by layer: the innermost that holds other parts too."""
    modules = dict(model.named_modules())
    layered: dict[str, list[str]] = {}  # parameter -> the numbered modules above it that have parts, outermost first
    for name, _ in model.named_parameters():
        if any(part.endswith(("merger", "mergers", "merger_list", "readout_projects")) for part in name.split(".")):
            continue  # between the towers, no layer
        above = [name[: match.end()] for match in NUMBERED.finditer(name)]
        if above := [path for path in above if any(True for _ in modules[path].children())]:
            layered[name] = above
    other = {name for name, above in layered.items() if is_other(name, above[0], modules)}
    whole = {path for name in other for path in layered[name]}
    sums: Counts = Counter()
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    of_layer: Counter[str] = Counter()
    for name in layered.keys() - other:
        of_layer[next((path for path in reversed(layered[name]) if path in whole), layered[name][0])] += sizes[name]
    for total in of_layer.values():
        sums[total] += 1
    return sums


def is_other(name: str, layer: str, modules: dict[str, Any]) -> bool:
    """Whether a parameter of a layer is no FFN's, by the modules from the layer down to it.

    A layer called after its attention or norm that holds norms beside other parts is a whole block all the same.
    """
    below = name[len(layer) + 1 :].split(".")
    owners = [".".join([layer, *below[: end + 1]]) for end in range(len(below) - 1)]
    block = any(type(part).__name__.endswith("Norm") for part in modules[layer].children())
    if not (block and type(modules[layer]).__name__.endswith(("Attention", "Norm"))):
        owners.append(layer)
    classes = [type(modules[owner]).__name__ for owner in owners]
    return any(kind.endswith((*MIXES, *SCALES)) for kind in classes) or bool(BARE & set(below))


def agree(found: Counts, expected: Counts) -> bool:
    """The same FFNs; where a layer holds several, which the oracle can't tell apart, the same sum."""
    if found.total() == expected.total():
        return found == expected
    return sum(k * n for k, n in found.items()) == sum(k * n for k, n in expected.items())


def attention(model_type: str) -> dict[str, Any]:
    """The attention of the default config, and of such as differ from it in one key: same, unknown, wrong."""
    from transformers import CONFIG_MAPPING

    kind = CONFIG_MAPPING[model_type]
    default = json.loads(kind().to_json_string())
    if "head_dim" in default and default["head_dim"] is None:
        default |= {"head_dim": 48}
    tally: Counter[str] = Counter()
    wrong = []
    for name, data in [("default", default), *heads_varied(model_type, default)]:
        try:
            expected = built_attentions(kind.from_dict(json.loads(json.dumps(data))))
            found: Counts = Counter()
            groups = read_groups(data)
        except Exception:
            tally["unbuildable"] += 1
            continue
        if any(group.attention is None for group in groups):
            tally["unknown"] += 1
            continue
        for group in groups:
            crosses = group.kind == "decoder" and any(other.kind == "encoder" for other in groups)
            found[group.attention.params] += group.count * (2 if crosses else 1)  # type: ignore[union-attr]
        tally["same" if found == expected else "wrong"] += 1
        if found != expected:
            wrong.append(f"{name}: {dict(found)} against {dict(expected)}")
    return {"status": "wrong" if wrong or not tally["same"] else "exact", "tally": tally, "wrong": wrong}


def heads_varied(model_type: str, default: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Every truth value turned, every key of the attention changed and left out."""
    keys = {"head_dim", "num_key_value_heads", "kv_lora_rank", "q_lora_rank", "qk_rope_head_dim", "v_head_dim"}
    keys |= {stack.attention.heads for stack in stacks_of(model_type) if stack.attention} | {"d_kv"}
    found = [(f"{k}={not v}", default | {k: not v}) for k, v in default.items() if isinstance(v, bool)]
    for key in sorted(keys & default.keys()):
        value = default[key]
        if isinstance(value, int):
            found += [(f"{key}={new}", default | {key: new}) for new in (value * 2, value // 2, 2, 1) if new]
        found.append((f"without {key}", {k: v for k, v in default.items() if k != key}))
        found.append((f"{key}=null", default | {key: None}))
    return found


def built_attentions(config: Any) -> Counts:
    """Parameters of the attentions of a built model, without norms and tables of positions."""
    from torch import nn

    found: Counts = Counter()
    inside: tuple[str, ...] = ()
    for name, module in build_empty(config).named_modules():
        named = type(module).__name__.endswith("Attention") and NUMBERED.search(name)
        if not named or (inside and name.startswith(inside)):
            continue
        inside = (*inside, f"{name}.")
        parts = [m for m in module.modules() if not isinstance(m, nn.Embedding) and "Norm" not in type(m).__name__]
        found[sum(p.numel() for m in parts for n, p in m.named_parameters(recurse=False) if n != "sinks")] += 1
    return found


def exact(model_type: str) -> dict[str, Any]:
    """The default config as transformers writes it: `exact`, `refused`, `wrong`, or `unbuildable`; `by` whom.

    The table answers; where it has no answer the names of transformers' modules do, as in `ffnbench inspect`.
    """
    from transformers import CONFIG_MAPPING

    try:
        config = CONFIG_MAPPING[model_type]()
        data, model = json.loads(config.to_json_string()), build_empty(config)
    except Exception as problem:
        return {"status": "unbuildable", "why": str(problem)[:200]}
    expected, by = by_exclusion(model), "table"
    try:
        found = ours(data)
    except FfnbenchError as problem:
        by, ffns = "names", feed_forwards(model)
        if not ffns or left_over(model, ffns):
            return {
                "status": "refused" if expected else "no FFN",
                "why": problem.message,
                "left": left_over(model, ffns),
            }
        found = Counter(ffn.params for ffn in ffns)
    return {"status": "exact" if agree(found, expected) else "wrong", "by": by, "ours": found, "theirs": expected}


def stacks_of(model_type: str) -> tuple[Stack, ...]:
    """Its stacks by the table of families."""
    return families().by_type[model_type].stacks


def apart(work: Any, model_type: str, seconds: float = 120) -> dict[str, Any]:
    """One type in a fork of its own, so that a hang or a crash costs that type alone."""
    fork = multiprocessing.get_context("fork")
    read, write = fork.Pipe(False)

    def child() -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        warnings.simplefilter("ignore")
        try:
            write.send(work(model_type))
        except BaseException as problem:
            write.send({"status": "crashed", "why": f"{type(problem).__name__}: {problem}"[:200]})

    process = fork.Process(target=child)
    process.start()
    result: dict[str, Any] = read.recv() if read.poll(seconds) else {"status": "timeout"}
    process.kill()
    process.join()
    return {"type": model_type, **result}


if __name__ == "__main__":
    import torch  # noqa: F401 - before the forks, which then need not
    import transformers.modeling_utils

    transformers.logging.set_verbosity_error()
    work, types = {"exact": exact, "attention": attention}[sys.argv[1]], sys.argv[2:]
    for name in sorted(transformers.CONFIG_MAPPING.keys()) if types == ["all"] else types:
        print(json.dumps(apart(work, name)), flush=True)
