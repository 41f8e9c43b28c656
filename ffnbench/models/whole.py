"""All parameters of a model as transformers builds it, sorted by where they stand. Runs in a worker; needs `hf`.

The sum is exact, since it is over all parameters of the built model, each once. Which part one belongs to follows from
the names of the classes around it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from typing import Any

from ffnbench.models.model import WholeModel
from ffnbench.models.transformers import active_params, build_empty, counted_ffns, feed_forwards, load

# Of the classes with an output layer the first that a config has; an encoder's, which fills masks, is taken bare
WITH_OUTPUT = (
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING", "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING", "MODEL_FOR_CAUSAL_LM_MAPPING",
)  # fmt: skip
HEAD = re.compile(r"(^|\.)(\w*head|embed_out|pooler|classifier)\.")


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
    """All parameters of a config.json's model, or of a model type's with its defaults; errors as for `counted_ffns`."""
    config, named, note = load(source)
    import transformers

    model = build_whole(config, named)
    ffns = counted_ffns(config, model)
    parts = sorted_parts(model, {f"{found.path}.{name}" for found in ffns for name, _ in found.shapes})
    idle = [None if (active := active_params(found)) is None else found.params - active for found in ffns]
    return WholeModel(
        name=config.model_type,
        source=source,
        counted_by=f"transformers {transformers.__version__}, which built {type(model).__name__}",
        note="; ".join(filter(None, ("parts are told by the names of modules", "FFN: with its routers", note))),
        **{name: parts[name] for name in ("embeddings", "attention", "ffn", "norms", "head", "other")},
        router=0,
        idle=None if None in idle else sum(filter(None, idle)),
    )


def sorted_parts(model: Any, networks: Collection[str]) -> Counter[str]:
    """Part -> parameters, each of them once. `networks` are the paths of the FFNs' parameters."""
    kinds = {path: type(module).__name__ for path, module in model.named_modules()}
    count: Counter[str] = Counter()
    for path, parameter in model.named_parameters():
        steps = path.split(".")[:-1]
        around = [kinds[".".join(steps[: n + 1])] for n in range(len(steps))] or [""]
        if "norm" in around[-1].lower():
            part = "norms"
        elif path in networks:
            part = "ffn"
        elif any("Attention" in kind for kind in around):
            part = "attention"
        elif HEAD.search(path):
            part = "head"
        else:
            part = "embeddings" if any("Embed" in kind for kind in around) else "other"
        count[part] += parameter.numel()
    return count
