"""transformers' own models: built without data, their FFNs found and counted. Runs in a worker; needs the extra `hf`.

An FFN is a module of a known name inside a numbered layer, or a pair of projections of known names in the layer
itself (BERT's intermediate and output, BART's fc1 and fc2). Norms beside or inside it are not counted. A sum over all
parameters is exact; which part one belongs to follows from the names of the classes around it.
"""

from __future__ import annotations

import importlib
import json
import re
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, fields
from itertools import chain
from math import prod
from typing import Any

from ffnbench.common.errors import FfnbenchError
from ffnbench.extras.models.counting import CountedLayers, CountedModel, WholeModel
from ffnbench.models.configs import A_CONFIG, code_note, read_file, refuse_other_classes, type_of
from ffnbench.models.family_reader import INSTALL, NOT_INSTALLED, by_own_names, families
from ffnbench.models.presets import config_path

# attributes that hold an FFN, or a list of them; a pair of projections is one that stands in the layer itself
NAMES = frozenset({
    "mlp", "feed_forward", "ffn", "feedforward", "ff", "DenseReluDense", "block_sparse_moe", "moe", "ffn1", "ffn2",
    "ff1", "ff2", "feed_forward1", "feed_forward2", "feed_forward_in", "feed_forward_out", "ffw_layer_start",
    "ffw_layer_end", "audio_mlp", "shared_mlp", "mlp_block", "mlps", "cross_mlp", "self_mlp", "experts", "router",
    "channel_mlp",
})  # fmt: skip
PAIRS = (
    ("fc1", "fc2"), ("intermediate", "output"), ("intermediate_query", "output_query"), ("lin1", "lin2"),
    ("linear1", "linear2"), ("linear_1", "linear_2"), ("linear_fc1", "linear_fc2"), ("wi", "wo"), ("ffn", "ffn_output"),
    ("layout_intermediate", "layout_output"), ("lang_inter", "lang_output"), ("visn_inter", "visn_output"),
)  # fmt: skip
MIXED = re.compile(r"(MLP|MoE)$")  # the class of a `mixer` that is an FFN; of other classes it mixes tokens
# what else a layer may hold: other mixers of tokens, norms, scales, positions, adapters of published models; by the
# names of its modules, and by how the names of their classes end (how they begin is the model's name)
NO_FFN = re.compile(
    r"attn|attention|norm|conv(?!_blocks)|mamba|ssm|scale$|scalar$|^gamma|^lambda|position|pos_|rotary|rope|embed|relative|rel_pos|"
    r"lora|adapter|bottleneck|correction_bias$|^expert_bias$|^temporal_(block|dense)$|^patch_mixer$|_att$|lstm|^modulation$|"
    r"^snake|^altup$|^laurel$|_hc$|_token$|_residual$|_param$|residual_gate$|_gamma$|layer_scale|^grn$|^gate_ffn$|"
    r"^alpha_(dense|cross_attn)$|^message_fc$|^(ple_block|per_layer_input_gate|per_layer_projection)$",
    re.IGNORECASE,
)
NO_FFN_CLASS = re.compile(
    r"(Attention|Norm\d*d?|Conv(Transpose)?(\dd)?|Mixer|Mamba\w{0,5}|Embeddings?|LRU|RNN|LSTM|DeltaNet|RecurrentBlock|LayerScale|"
    r"PatchMerg(ing|er)|HyperConnection|TokenAssign|ResidualUnit|Snake\w*|AttentionResidual)$"
)
BETWEEN = re.compile(r"merger|readout_project")
NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")
# Of the classes with an output layer the first that a config has; an encoder's, which fills masks, is taken bare
WITH_OUTPUT = (
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING", "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING", "MODEL_FOR_CAUSAL_LM_MAPPING",
)  # fmt: skip
HEAD = re.compile(r"(^|\.)(\w*head|embed_out|pooler|classifier)\.")
Shapes = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFFN:
    """One FFN of a model: where it stands, its class, its parameters. `pair` names projections that are the layer's."""

    path: str
    module: Any
    shapes: Shapes
    pair: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Of its class; of the layer's and its projections where it has none."""
        kind = type(self.module).__name__
        return f"{kind}.{'/'.join(self.pair)}" if self.pair else kind

    @property
    def params(self) -> int:
        """Elements of all parameters, norms left out."""
        return sum(prod(shape) for _, shape in self.shapes)

    @property
    def stack(self) -> str:
        """The path without the number of the layer."""
        return NUMBER.sub("*", self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What transformers makes of a file.

    `kind` is the class of transformers that the file names. `note` is about code that it brings along, `defaults` about
    numbers that it leaves to its class. `output_apart`: the file says that its output's matrix is not the embedding's.
    """

    config: Any
    kind: Any = None
    note: str = ""
    defaults: str = ""
    output_apart: bool = False


def load(source: str) -> Loaded:
    """transformers' config of a config.json, or of its folder."""
    try:
        import transformers
    except ImportError as problem:
        raise FfnbenchError(NOT_INSTALLED, INSTALL) from problem
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    try:
        data, _ = read_file(config_path(source))
        model_type = type_of(data)
        refuse_other_classes(data, model_type, transformers)
        config = transformers.CONFIG_MAPPING[model_type].from_dict(json.loads(json.dumps(data)))
        named = [getattr(transformers, name, None) for name in data.get("architectures") or ()]
        own = next((each for each in named if getattr(each, "config_class", None) is type(config)), None)
        return Loaded(
            config=config,
            kind=own,
            note=code_note(data, f"transformers' {model_type}"),
            defaults=_defaults(config, data),
            output_apart=data.get("tie_word_embeddings") is False,
        )
    except FfnbenchError:
        raise
    except Exception as problem:
        raise FfnbenchError(
            f"transformers can't read {source!r}: {type(problem).__name__}: {problem}",
            A_CONFIG,
        ) from problem


def _defaults(config: Any, data: dict[str, Any]) -> str:
    """The sizes that the file of a config leaves to its class, or its parts to theirs, in words; "" for none.

    Raises FfnbenchError for a size under a name that the class does not read.
    """
    named = ["num_attention_heads", "vocab_size", *chain(*families().sizes.values())]
    own = {field.name: getattr(config, field.name) if field.name in named else None for field in fields(config)}
    parts = {key: part for key, part in vars(config).items() if hasattr(part, "model_type")}
    known = [own, *map(vars, parts.values())]
    others = {name: other for other, name in config.attribute_map.items() if other in own} | config.attribute_map
    words = by_own_names(data, config.model_type, own, others, known)[1]
    nested = [_defaults(part, data.get(f"{key}_dict") or data.get(key) or data) for key, part in parts.items()]
    return "; ".join(filter(None, (words, *nested)))


def build_empty(config: Any, kind: Any = None, tied: bool = False) -> Any:
    """The model of a config on torch's meta device: shapes and no data. The bare model, unless a class is given.

    `tied` makes one parameter of weights that the model shares. Raises FfnbenchError where it can't be built.
    """
    import torch
    from transformers import initialization

    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with initialization.no_init_weights():
                model = (kind or _model_class(config))(config)
            if tied:
                model.tie_weights()
            return model
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


def feed_forwards(model: Any) -> list[FoundFFN]:
    """Every FFN of a model's numbered layers, in their order; what stands inside one is part of it."""
    found: list[FoundFFN] = []
    modules = dict(model.named_modules())
    for path, module in modules.items():
        if not below_layer(path, modules) or elsewhere(path, modules):
            continue
        if found and not found[-1].pair and path.startswith(f"{found[-1].path}."):
            continue
        if _is_ffn(path, module, modules):
            if shapes := _shapes(module):
                found.append(FoundFFN(path=path, module=module, shapes=shapes))
        else:
            found += [FoundFFN(path=path, module=module, shapes=shapes, pair=pair) for pair, shapes in _pairs(module)]
    return found


def _is_ffn(path: str, module: Any, modules: dict[str, Any]) -> bool:
    """Whether it has an FFN's name, or is one of a list that has."""
    parent, _, name = path.rpartition(".")
    several = type(module).__name__ == "ModuleList"
    if name.isdigit():
        name = parent.rpartition(".")[2] if type(modules[parent]).__name__ == "ModuleList" else ""
    if name == "mixer":
        return bool(MIXED.search(type(module).__name__))
    half = any(name in names and all(hasattr(modules[parent], each) for each in names) for names in PAIRS)
    return name in NAMES and not several and not half


def below_layer(path: str, modules: dict[str, Any]) -> list[str] | None:
    """The paths from a numbered layer down to `path`, the layer's own first; None outside of all layers.

    A layer has a number for a name, and parts: a list of bare projections holds none. What merges patches between two
    parts of a model, or reads them out, is no layer.
    """
    parts = path.split(".")
    if BETWEEN.search(path):
        return None
    for depth, part in enumerate(parts):
        layer = modules.get(".".join(parts[: depth + 1]))
        if part.isdigit() and layer is not None and any(True for _ in layer.children()):
            return [".".join(parts[: end + 1]) for end in range(depth, len(parts))]
    return None


def elsewhere(path: str, modules: dict[str, Any]) -> bool:
    """Whether a path in a numbered layer is, or lies in, a part that is no FFN."""
    layer, *inside = below_layer(path, modules) or [path]
    if _is_other(modules.get(layer)):
        return True
    for owner in inside:
        name, part = owner.rpartition(".")[2], modules.get(owner)
        if NO_FFN.search(name) or _is_other(part) or (name == "mixer" and not MIXED.search(type(part).__name__)):
            return True
    return False


def _is_other(module: Any) -> bool:
    """Whether its class is no FFN's; a block that holds one beside its attention is called after the attention only."""
    return bool(NO_FFN_CLASS.search(type(module).__name__)) and not any(hasattr(module, name) for name in NAMES)


def left_over(model: Any, found: Iterable[FoundFFN]) -> list[str]:
    """What stands in a numbered layer and is nothing known: neither part of an FFN that was found nor another part.

    Paths without the numbers of layers, each once: such a model can't be counted by names.
    """
    claimed = {f"{one.path}.{name}" for one in found for name, _ in one.shapes}
    modules = dict(model.named_modules())
    names = [name for name, _ in model.named_parameters() if name not in claimed and below_layer(name, modules)]
    return list(dict.fromkeys(NUMBER.sub("*", name) for name in names if not elsewhere(name, modules)))


def counted_ffns(config: Any, model: Any) -> list[FoundFFN]:
    """All FFNs of a model. Raises FfnbenchError where none is found, or something is left over that may be one's."""
    found = feed_forwards(model)
    if left := left_over(model, found):
        shown = ", ".join(left[:3]) + (f" and {len(left) - 3} more" if len(left) > 3 else "")
        raise FfnbenchError(
            f"the layers of {config.model_type} hold what may be FFNs under names that nobody declared: {shown}",
            "count them by hand, or name the FFN's class as a variant",
        )
    if not found:
        raise FfnbenchError(
            f"the {config.model_type} model of transformers has no FFN that can be told by its name",
            "looked for modules called " + ", ".join(sorted(NAMES)),
        )
    return found


def count_layers(source: str) -> CountedModel:
    """The FFNs of a config.json's model as transformers builds it, equal ones together; errors as in `counted_ffns`."""
    loaded = load(source)
    config = loaded.config
    import transformers

    kinds = Counter(
        (found.stack, found.name, found.params, active_params(found))
        for found in counted_ffns(config, build_whole(config, loaded.kind))
    )
    return CountedModel(
        name=config.model_type,
        source=source,
        counted_by=f"transformers {transformers.__version__}, which built it",
        note=loaded.note,
        defaults=loaded.defaults,
        layers=tuple(
            CountedLayers(kind=stack, count=count, params=total, params_active=active, name=name)
            for (stack, name, total, active), count in kinds.items()
        ),
    )


def active_params(found: FoundFFN) -> int | None:
    """The parameters that a token meets: of stacked experts as many as its router chooses, of the rest all.

    None where there are experts that are not one stack of each weight, or where no module says how many are chosen.
    """
    routable = {name: shape for name, shape in found.shapes if "shared" not in name}
    stacked: dict[str, tuple[int, ...]] = {name: shape for name, shape in routable.items() if len(shape) == 3}
    if not stacked:
        return None if any("experts." in name for name in routable) else found.params
    stacked |= {name: routable[name] for name in routable if name.removesuffix("_bias") in stacked}
    owners, sizes = {name.rpartition(".")[0] for name in stacked}, {shape[0] for shape in stacked.values()}
    chosen = {module.top_k for module in found.module.modules() if isinstance(getattr(module, "top_k", None), int)}
    if (len(owners) > 1 and any("expert" in owner for owner in owners)) or len(sizes) > 1 or len(chosen) != 1:
        return None
    routed, experts = sum(prod(shape) for shape in stacked.values()), sizes.pop()
    return found.params - routed // max(1, experts) * max(0, experts - int(chosen.pop()))


def _shapes(module: Any, prefix: str = "") -> Shapes:
    """The parameters of an FFN, without norms and scales inside it."""
    others = {name for name, part in module.named_modules() if name and NO_FFN_CLASS.search(type(part).__name__)}
    return tuple(
        (prefix + name, tuple(p.shape))
        for name, p in module.named_parameters()
        if not any(NO_FFN.search(part) for part in name.split("."))
        and not any(name.startswith(f"{other}.") for other in others)
    )


def _pairs(module: Any) -> Iterator[tuple[tuple[str, ...], Shapes]]:
    for names in PAIRS:
        pair = [getattr(module, name, None) for name in names]
        if all(hasattr(half, "named_parameters") and not NO_FFN_CLASS.search(type(half).__name__) for half in pair):
            yield names, tuple(s for half, name in zip(pair, names, strict=True) for s in _shapes(half, f"{name}."))


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
    """All parameters of a config.json's model; errors as for `counted_ffns`."""
    loaded = load(source)
    config = loaded.config
    import transformers

    model = build_whole(config, loaded.kind)
    ffns = counted_ffns(config, model)
    parts = sorted_parts(model, {f"{found.path}.{name}" for found in ffns for name, _ in found.shapes})
    if loaded.output_apart and config.tie_word_embeddings:  # T5's classes tie the two until they have read the weights
        output = model.get_output_embeddings()
        parts["head"] += 0 if output is None else output.weight.numel()
    idle = [None if (active := active_params(found)) is None else found.params - active for found in ffns]
    return WholeModel(
        name=config.model_type,
        source=source,
        counted_by=f"transformers {transformers.__version__}, which built {type(model).__name__}",
        note="; ".join(filter(None, ("parts are told by the names of modules", "FFN: with its routers", loaded.note))),
        defaults=loaded.defaults,
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
