"""Our reading of a config.json beside transformers' own model of it, built without
data.
"""

from __future__ import annotations

import json
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from ffnbench.common.errors import FfnbenchError
from ffnbench.ffn import cost
from ffnbench.models.configs import read_groups
from ffnbench.models.family_reader import FamilyRow, families
from ffnbench.models.model import ModelSpec, crosses

Counts = Counter[
    int
]  # parameters of an FFN, or an attention -> how many layers have one like it
Data = dict[str, Any]

# What a layer holds beside FFNs, by the ends of class names, and by names where a layer
# holds it bare. The oracle: all else in a numbered layer is an FFN. Nothing here says
# how an FFN is called, and the reader's lists are not asked.
OTHER = (
    "Attention", "Attn", "AttentionBlock", "MLA", "Mixer", "MambaLayer", "Conv", "Conv1d", "LSTM", "DeltaNet",
    "GatedDeltaNet", "Norm", "LayerNorm2d", "LayerScale", "Embedding", "Embeddings", "RotaryEmbedding",
    "RelativePositionBias", "ConvNormLayer", "SelfAttention2", "LxmertAttentionOutput", "Indexer", "LayerNorm1P",
)  # fmt: skip
# attributes of a layer: attention without a class of its own, scales
BARE = frozenset({
    "q_proj", "k_proj", "v_proj", "o_proj", "lambda_1", "lambda_2", "layer_scale_1", "layer_scale_2", "gamma_1",
    "gamma_2", "e_score_correction_bias", "gate_attn", "gate_ffn", "cross_attn_attn_gate", "cross_attn_mlp_gate",
    "layer_scale", "residual_scale",
})  # fmt: skip
IMPLIED = {  # keys that go with a field, or with the layout of this name
    "patches": ("image_size", "patch_size", "num_channels"),
    "latent": ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"),
    "decoder_sparse_step": ("mlp_only_layers",), "expert_layer_period": ("expert_layer_offset",),
    "moe_layers": ("interleave_moe_layer_step",),
    "composite": ("multimodal_projector_bias", "projection_dim", "tie_word_embeddings", "vision_feature_layer"),
}  # fmt: skip
NUMBERED = re.compile(r"(?:^|\.)\d+(?=\.)")
LAYERS = 4
COMPOSITES = ["clip", "gemma3", "llava", "qwen2_5_vl"]
FILLED: dict[str, Data] = {  # what no model can be built without
    "deepseek_v2": {"num_experts_per_tok": 2},
    "esm": {"vocab_size": 33, "pad_token_id": 1, "mask_token_id": 2},
    "gpt_neo": {"attention_types": [[["global", "local"], LAYERS // 2]]},
    "hunyuan_v1_dense": {"head_dim": 128},
    "ministral": {"head_dim": 128},
    "nemotron": {"head_dim": 128, "num_key_value_heads": 8},
    "siglip_vision_model": {
        "vision_use_head": False
    },  # as published beside a text model
    "videomae": {"image_size": 32},  # its table of positions is made by Python
}


def written(folder: Path, config: Data) -> str:
    """The folder, with a config.json of this content in it."""
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def default(model_type: str) -> Data:
    """A file with every key that the class of a type writes, of few layers."""
    from transformers import CONFIG_MAPPING

    table = families()
    if model_type in table.composites:
        names = zip(
            ("text_config", "vision_config"), table.composites[model_type], strict=True
        )
        config = CONFIG_MAPPING[model_type](
            **{key: default(name) for key, name in names}
        )
    else:
        layers = [stack["layers"] for stack in table.stacks[model_type]]
        few = {
            key: LAYERS
            for told in layers
            for key in ([told] if isinstance(told, str) else told)
        }
        config = CONFIG_MAPPING[model_type](**FILLED.get(model_type, {}), **few)
    data: Data = json.loads(json.dumps(config.to_dict(), default=str))
    return data


def keys_of(row: FamilyRow) -> Iterator[str]:
    """Every key of config.json that a row of the table names."""
    for name, told in row.items():
        if (
            isinstance(told, dict)
            and "key" not in told
            and name in ("experts", "attention")
        ):
            yield from keys_of(told)
        elif name in ("assumes", "equal"):
            yield from told
        elif isinstance(told, dict):
            yield told["key"]
        elif isinstance(told, list | tuple):
            yield from told
        elif isinstance(told, str) and name not in (
            "kind",
            "acts_as",
            "head",
            "head_norms",
        ):
            yield from (told, *IMPLIED.get(told, ()))
        elif told is True:
            yield from IMPLIED.get(name, ())


def varied(
    model_type: str, more: Iterable[FamilyRow] = ()
) -> Iterator[tuple[str, Data]]:
    """The default file, and such as differ from it in one key of the table, or of
    `more` rows: left out, turned, doubled.
    """
    data, table = default(model_type), families()
    yield "default", data
    yield "head_dim 48", data | {"head_dim": 48}
    for doubled, without in product(
        ("num_attention_heads", "hidden_size"), ("num_key_value_heads", "head_dim")
    ):
        if doubled in data and without in data:
            fewer = {name: value for name, value in data.items() if name != without}
            yield (
                f"{doubled} doubled without {without}",
                fewer | {doubled: 2 * data[doubled]},
            )
    rows = (*table.stacks.get(model_type, ()), *more)
    layers = {
        key
        for stack in table.stacks.get(model_type, ())
        for key in keys_of({"layers": stack["layers"]})
    }
    keys = {key for row in rows for key in keys_of(row)} or {*IMPLIED["composite"]}
    for key in sorted(keys & data.keys()):
        if key not in layers:
            yield (
                f"without {key}",
                {name: value for name, value in data.items() if name != key},
            )
        if isinstance(data[key], bool):
            yield f"{key} turned", data | {key: not data[key]}
        elif isinstance(data[key], int):
            yield f"{key} {2 * data[key]}", data | {key: 2 * data[key]}


def ours(data: Data) -> tuple[Counts, Counts | None]:
    """By the table: FFNs, and attentions where all are known."""
    groups = tuple(read_groups(data))
    model = ModelSpec(key="", name="", groups=groups, source="")
    ffns: Counts = Counter()
    attentions: Counts = Counter()
    for group in groups:
        ffns[cost.params(group.ffn)] += group.count
        if group.attention:
            attentions[group.attention.params] += group.count * (
                2 if crosses(model, group) else 1
            )
    return ffns, attentions if all(group.attention for group in groups) else None


def theirs(data: Data) -> tuple[Counts, Counts]:
    """The same by building the bare model, without data."""
    import torch
    from transformers import CONFIG_MAPPING, initialization

    config = CONFIG_MAPPING[data["model_type"]].from_dict(json.loads(json.dumps(data)))
    with torch.device("meta"), initialization.no_init_weights():
        model = bare_class(config)(config)
    return by_exclusion(model), built_attentions(model)


def bare_class(config: Any) -> Any:
    """AutoModel's class for a config; a vision tower has none, and the first class of
    its module is its model's.
    """
    from transformers.models.auto.modeling_auto import MODEL_MAPPING

    if type(config) in MODEL_MAPPING:
        found = MODEL_MAPPING[type(config)]
        return found[0] if isinstance(found, tuple) else found
    module = import_module(
        type(config).__module__.replace("configuration_", "modeling_")
    )
    return next(
        kind
        for name, kind in vars(module).items()
        if "PreTrained" not in name
        and getattr(kind, "config_class", None) is type(config)
    )


def by_exclusion(model: Any) -> Counts:
    """What stands in numbered layers and is nothing else, summed by layer: the
    innermost that holds other parts too.
    """
    modules = dict(model.named_modules())
    # parameter -> the numbered modules above it that have parts, outermost first
    layered: dict[str, list[str]] = {}
    for name, _ in model.named_parameters():
        if any(
            part.endswith(("merger", "mergers", "merger_list"))
            for part in name.split(".")
        ):
            continue  # between the towers, no layer
        above = [name[: match.end()] for match in NUMBERED.finditer(name)]
        if above := [
            path for path in above if any(True for _ in modules[path].children())
        ]:
            layered[name] = above
    other = {
        name for name, above in layered.items() if is_other(name, above[0], modules)
    }
    whole = {path for name in other for path in layered[name]}
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    of_layer: Counter[str] = Counter()
    for name in layered.keys() - other:
        of_layer[
            next(
                (path for path in reversed(layered[name]) if path in whole),
                layered[name][0],
            )
        ] += sizes[name]
    return Counter(of_layer.values())


def is_other(name: str, layer: str, modules: dict[str, Any]) -> bool:
    """Whether a parameter of a layer is no FFN's, by the modules between the layer and
    it.
    """
    below = name[len(layer) + 1 :].split(".")
    owners = [".".join([layer, *below[: end + 1]]) for end in range(len(below) - 1)]
    return any(
        type(modules[owner]).__name__.endswith(OTHER) for owner in owners
    ) or bool(BARE & set(below))


def built_attentions(model: Any) -> Counts:
    """Parameters of the attentions of a built model, without norms and tables of
    positions.
    """
    from torch import nn

    found: Counts = Counter()
    inside: tuple[str, ...] = ()
    for name, module in model.named_modules():
        named = type(module).__name__.endswith("Attention") and NUMBERED.search(name)
        if not named or (inside and name.startswith(inside)):
            continue
        inside = (*inside, f"{name}.")
        parts = [
            m
            for m in module.modules()
            if not isinstance(m, nn.Embedding) and "Norm" not in type(m).__name__
        ]
        found[
            sum(
                p.numel()
                for m in parts
                for n, p in m.named_parameters(recurse=False)
                if n != "sinks"
            )
        ] += 1
    return found


def agree(found: Counts, expected: Counts) -> bool:
    """The same FFNs; where a layer holds several, which the oracle can't tell apart,
    the same sum.
    """
    if found.total() == expected.total():
        return found == expected
    return sum(k * n for k, n in found.items()) == sum(
        k * n for k, n in expected.items()
    )


def differences(name: str, data: Data) -> str:
    """What of a file is read otherwise than transformers builds it; "" for nothing.
    Raises where it is refused.
    """
    ffns, attentions = ours(data)
    built = theirs(data)
    wrong = [] if agree(ffns, built[0]) else [f"FFNs {ffns} against {built[0]}"]
    if attentions not in (None, built[1]):
        wrong.append(f"attentions {attentions} against {built[1]}")
    return f"{data['model_type']}, {name}: {'; '.join(wrong)}" if wrong else ""


def compared(
    types: Iterable[str],
    differ: Callable[[str, Data], str],
    files: Callable[[str], Iterable[tuple[str, Data]]],
) -> tuple[list[str], Counter[str]]:
    """What differs in the files of some types, and how many were read, refused or such
    as no model can be built of.
    """
    pytest.importorskip("transformers").logging.set_verbosity(100)
    wrong, tally = [], Counter[str]()
    for model_type in types:
        for name, data in files(model_type):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    said = differ(name, data)
            except FfnbenchError:
                tally["refused"] += 1
                said = (
                    f"the default of {model_type} is refused"
                    if name == "default"
                    else ""
                )
            except Exception:
                tally["unbuildable"] += 1
                said = (
                    f"the default of {model_type} can't be built"
                    if name == "default"
                    else ""
                )
            else:
                tally["read"] += 1
            wrong += [said] if said else []
    return wrong, tally


def default_alone(model_type: str) -> list[tuple[str, Data]]:
    """The default file of a type, as `varied` names it."""
    return [("default", default(model_type))]
