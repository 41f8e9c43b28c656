"""transformers' own models: built without data, their FFNs found and counted. Runs in a worker; needs the extra `hf`.

An FFN is a module of a known name inside a numbered layer, or a pair of projections of known names in the layer
itself (BERT's intermediate and output, BART's fc1 and fc2). Norms beside or inside it are not counted.
"""

from __future__ import annotations

import importlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from ffnbench.errors import FfnbenchError
from ffnbench.ffn.model import CountedLayers, CountedModel

NAMES = frozenset({"mlp", "feed_forward", "ffn", "feedforward", "ff", "DenseReluDense", "block_sparse_moe", "moe"})
PAIRS = (("fc1", "fc2"), ("intermediate", "output"), ("lin1", "lin2"), ("linear1", "linear2"), ("wi", "wo"))
IN_A_LAYER = re.compile(r"(^|\.)\d+(\.|$)")
Shapes = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One FFN of a model: where it stands, its class, its parameters. `own` is False for a pair of projections."""

    path: str
    module: Any
    shapes: Shapes
    own: bool

    @property
    def params(self) -> int:
        """Elements of all parameters, norms left out."""
        return sum(prod(shape) for _, shape in self.shapes)

    @property
    def stack(self) -> str:
        """The path without the number of the layer."""
        return re.sub(r"(?<![^.])\d+(?![^.])", "*", self.path)


def load_config(source: str) -> Any:
    """transformers' config object of a config.json, of its folder, or of a model type with its defaults."""
    transformers = _transformers()
    path = Path(source).expanduser()
    try:
        if not path.exists() and source in transformers.CONFIG_MAPPING:
            return transformers.CONFIG_MAPPING[source]()
        path = path / "config.json" if path.is_dir() else path
        data = json.loads(path.read_text(encoding="utf-8"))
        return transformers.CONFIG_MAPPING[data["model_type"]].from_dict(data)
    except Exception as problem:
        raise FfnbenchError(
            f"transformers can't read {source!r}: {type(problem).__name__}: {problem}",
            "give a config.json, the folder that holds one, or a model type such as llama",
        ) from problem


def build_empty(config: Any) -> Any:
    """The model of a config on torch's meta device: shapes and no data."""
    import torch

    with torch.device("meta"), _quiet():
        try:
            return _model_class(config)(config)
        except Exception as problem:
            text = " ".join(str(problem).split())[:200]
            raise FfnbenchError(
                f"transformers can't build {config.model_type!r}: {type(problem).__name__}: {text}",
                "does AutoModel.from_config work with it?",
            ) from problem


def _model_class(config: Any) -> Any:
    """The bare model of a config's class; where there is none, the first class of its module that takes it."""
    from transformers.models.auto.modeling_auto import MODEL_MAPPING

    if type(config) in MODEL_MAPPING:
        found = MODEL_MAPPING[type(config)]
        return found[0] if isinstance(found, tuple) else found
    module = importlib.import_module(type(config).__module__.replace("configuration_", "modeling_"))
    kinds = [kind for name, kind in vars(module).items() if isinstance(kind, type) and "PreTrained" not in name]
    for kind in kinds:
        if getattr(kind, "config_class", None) is type(config):
            return kind
    raise LookupError(f"no model class for {type(config).__name__}")


def feed_forwards(model: Any) -> list[Found]:
    """Every FFN of a model's numbered layers, in their order; what stands inside one is part of it."""
    found: list[Found] = []
    for path, module in model.named_modules():
        if not IN_A_LAYER.search(path) or (found and path.startswith(f"{found[-1].path}.")):
            continue
        if path.rpartition(".")[2] in NAMES:
            if shapes := _shapes(module):
                found.append(Found(path=path, module=module, shapes=shapes, own=True))
        elif shapes := _pair(module):
            found.append(Found(path=path, module=module, shapes=shapes, own=False))
    return found


def count_layers(source: str) -> CountedModel:
    """The FFNs of a config.json's model as transformers builds it, equal ones together."""
    transformers = _transformers()
    config = load_config(source)
    kinds: Counter[tuple[str, str, Shapes]] = Counter(
        (found.stack, type(found.module).__name__, found.shapes) for found in feed_forwards(build_empty(config))
    )
    if not kinds:
        raise FfnbenchError(
            f"the {config.model_type} model of transformers has no FFN that can be told by its name",
            "looked for modules called " + ", ".join(sorted(NAMES)),
        )
    return CountedModel(
        name=config.model_type,
        source=source,
        counted_by=f"transformers {transformers.__version__}, which built it",
        note="keys that the file leaves out have the defaults of transformers' class",
        layers=tuple(_counted(*kind, count) for kind, count in kinds.items()),
    )


def _counted(stack: str, name: str, shapes: Shapes, count: int) -> CountedLayers:
    total = sum(prod(shape) for _, shape in shapes)
    experts = any("expert" in key or len(shape) > 2 for key, shape in shapes)
    return CountedLayers(kind=stack, count=count, params=total, params_active=None if experts else total, name=name)


def _shapes(module: Any, prefix: str = "") -> Shapes:
    norms = {name for name, child in module.named_modules() if "norm" in type(child).__name__.lower()}
    return tuple(
        (prefix + name, tuple(p.shape)) for name, p in module.named_parameters() if name.rpartition(".")[0] not in norms
    )


def _pair(module: Any) -> Shapes:
    for names in PAIRS:
        pair = [getattr(module, name, None) for name in names]
        if all(hasattr(half, "named_parameters") for half in pair):
            return tuple(s for half, name in zip(pair, names, strict=True) for s in _shapes(half, f"{name}."))
    return ()


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as problem:
        raise FfnbenchError("transformers is not installed", "pip install 'ffnbench[hf]'") from problem
    transformers.logging.set_verbosity_error()
    return transformers


@contextmanager
def _quiet() -> Iterator[None]:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
