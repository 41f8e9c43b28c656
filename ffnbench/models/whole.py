"""All parameters of a model as transformers builds it, sorted by where they stand. Runs in a worker; needs `hf`.

The sum is exact, since it is over all parameters of the built model, each once. Which part one belongs to follows from
names: of the modules around it, and of their classes. What stands in a numbered layer under names that tell no part may
be an FFN's, and is counted as untold.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from typing import Any

from ffnbench.models.model import WholeModel
from ffnbench.models.transformers import active_params, below_layer, build_empty, elsewhere, feed_forwards, load

# Of the classes with an output layer the first that a config has; an encoder's, which fills masks, is taken bare
WITH_OUTPUT = (
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING", "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING", "MODEL_FOR_CAUSAL_LM_MAPPING",
)  # fmt: skip
NORM = re.compile(r"norm|(^|[._])ln([._]|_?\d|$)")
ATTENTION = re.compile(r"att(entio)?n|(^|[._])(q|k|v|o|qkv|out)_proj([._]|$)", re.I)
ROUTER = re.compile(r"(^|\.)(gate|router|shared_expert_gate|wg)\.|(^|\.)router")
CONVOLUTION = re.compile(r"Conv(Transpose)?[123]d")  # transformers' own Conv1D is a linear layer
MIXER = re.compile(r"Mamba|(?<!TS)Mixer$|ShortConv|GatedDelta|Lightning|RgLru|Recurrent|Convolution|ConvModule")
SCALE = re.compile(r"scale|gamma|lambda|alpha|(^|\.)(skip|gate|cls_token)$", re.I)
EMBEDDING = re.compile(r"embed|(^|\.)(wte|wpe|shared)(\.|$)|position|patch|(cls|class|mask|distillation)_token")
HEAD = re.compile(r"(^|\.)(\w*lm_head|\w*head|pooler|embed_out|classifier|output_projection|predictions?|cls)(\.|$)")


def build_whole(config: Any, named: Any = None) -> Any:
    """The model with its output layer, where it has one, on torch's meta device, with its tied weights tied.

    A class that the file names is built in its place where its FFNs are not those of the bare model.
    """
    model = build_empty(config, _with_output(config), tied=True)
    if named is None or isinstance(model, named):
        return model
    own = build_empty(config, named, tied=True)
    ffns = [sorted(found.params for found in feed_forwards(each)) for each in (model, own)]
    return model if ffns[0] == ffns[1] else own


def _with_output(config: Any) -> Any:
    """The class with an output layer; None where there is none, or only one of an encoder."""
    from transformers.models.auto import modeling_auto

    fills_masks = type(config) in modeling_auto.MODEL_FOR_MASKED_LM_MAPPING
    for name in WITH_OUTPUT[:-1] if fills_masks else WITH_OUTPUT:
        mapping = getattr(modeling_auto, name)
        if type(config) in mapping:
            found = mapping[type(config)]
            return found[0] if isinstance(found, tuple) else found
    return None


def count_whole(source: str) -> WholeModel:
    """All parameters of a config.json's model, or of a model type's with its defaults."""
    config, named, note = load(source)
    import transformers

    model = build_whole(config, named)
    parts = sorted_parts(model)
    idle = [
        None if (active := active_params(found)) is None else found.params - active for found in feed_forwards(model)
    ]
    return WholeModel(
        name=config.model_type,
        source=source,
        counted_by=f"transformers {transformers.__version__}, which built {type(model).__name__}",
        note="; ".join(filter(None, ("parts are told by the names of modules", note))),
        **{name: parts[name] for name in ("embeddings", "attention", "ffn", "router", "norms", "head")},
        other=parts["other"] + parts["untold"],
        untold=parts["untold"],
        idle=None if None in idle else sum(filter(None, idle)),
    )


def sorted_parts(model: Any) -> Counter[str]:
    """Part -> parameters, each of them once; `untold` stand in layers, under names that tell no part."""
    modules = dict(model.named_modules())
    kinds = {path: type(module).__name__ for path, module in modules.items()}
    networks = {
        f"{found.path}.{name}" if found.path else name for found in feed_forwards(model) for name, _ in found.shapes
    }
    ends = {id(p): part for part, module in _ends(model).items() for p in module.parameters()}
    count: Counter[str] = Counter()
    for path, parameter in model.named_parameters():
        part = ends.get(id(parameter)) or _part(path, kinds, networks, below_layer(path, modules) is not None)
        count["other" if part == "untold" and elsewhere(path, modules) else part] += parameter.numel()
    return count


def _ends(model: Any) -> dict[str, Any]:
    """What the model itself names as its output layer and its embedding; one that is tied is the embedding."""
    found = {}
    for part, name in (("head", "get_output_embeddings"), ("embeddings", "get_input_embeddings")):
        try:
            module = getattr(model, name)()
        except Exception:  # a model without one raises what its author chose
            continue
        if hasattr(module, "parameters"):
            found[part] = module
    return found


def _part(path: str, kinds: dict[str, str], networks: Collection[str], in_a_layer: bool) -> str:
    """The part of one parameter: by its own module first, then by those around it."""
    owner = path.rpartition(".")[0]
    if "norm" in kinds.get(owner, "").lower() or NORM.search(owner.rpartition(".")[2].lower()):
        return "norms"
    if path in networks:
        return "router" if ROUTER.search(path) and _has_experts(path, networks) else "ffn"
    if in_a_layer:
        return _part_in_layer(path, owner, kinds)
    if kinds.get(owner) == "Embedding" or EMBEDDING.search(path.lower()):
        return "embeddings"
    return "head" if HEAD.search(path) else "other"


def _part_in_layer(path: str, owner: str, kinds: dict[str, str]) -> str:
    """Of what stands in a numbered layer, and is neither a norm nor of an FFN that is known by its name."""
    steps = owner.split(".")
    around = [kinds.get(".".join(steps[: n + 1]), "") for n in range(len(steps))][-4:]
    if CONVOLUTION.search(kinds.get(owner, "")) or any(MIXER.search(name) for name in around[-2:]):
        return "other"
    if any("Attention" in name for name in around) or ATTENTION.search(path):
        return "attention"
    if kinds.get(owner) == "Embedding":
        return "embeddings"
    return "other" if SCALE.search(path) else "untold"


def _has_experts(path: str, networks: Collection[str]) -> bool:
    block = re.split(r"\.(?:gate|router|shared_expert_gate|wg)\b", path)[0]
    return any(name.startswith(f"{block}.experts") for name in networks) or "router" in path
