"""transformers' own models: built without data, their FFNs found and counted. Runs in a
worker; needs the extra `hf`.

An FFN is a module of a known name inside a numbered layer, or a pair of projections of
known names in the layer itself (BERT's intermediate and output, BART's fc1 and fc2).
Norms beside or inside it are not counted. A sum over all parameters is exact; which
part a parameter belongs to follows from the names of the classes around it.
"""

from __future__ import annotations

import importlib
import json
import re
import warnings
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields
from itertools import chain
from math import prod
from typing import Any

from ffnbench.common.errors import FfnbenchError
from ffnbench.extras.models.counting import (
    CountedLayers,
    CountedModel,
    WholeModel,
    sum_of,
)
from ffnbench.models.configs import (
    A_CONFIG,
    code_note,
    read_file,
    refuse_other_classes,
    type_of,
)
from ffnbench.models.family_reader import (
    INSTALL,
    TRANSFORMERS_NOT_INSTALLED,
    by_own_names,
    defaults_in_words,
    families,
    refuse_other_names,
)
from ffnbench.models.presets import config_path

# names of modules that are an FFN, or a list of FFNs; and the names of two projections
# that are an FFN where both stand in the layer itself
# fmt: off
FFN_MODULE_NAMES = frozenset({
    "mlp", "feed_forward", "ffn", "feedforward", "ff", "DenseReluDense", "block_sparse_moe", "moe", "ffn1", "ffn2",
    "ff1", "ff2", "feed_forward1", "feed_forward2", "feed_forward_in", "feed_forward_out", "ffw_layer_start",
    "ffw_layer_end", "audio_mlp", "shared_mlp", "mlp_block", "mlps", "cross_mlp", "self_mlp", "experts", "router",
    "channel_mlp",
})
PAIRS = (
    ("fc1", "fc2"), ("intermediate", "output"), ("intermediate_query", "output_query"), ("lin1", "lin2"),
    ("linear1", "linear2"), ("linear_1", "linear_2"), ("linear_fc1", "linear_fc2"), ("wi", "wo"), ("ffn", "ffn_output"),
    ("layout_intermediate", "layout_output"), ("lang_inter", "lang_output"), ("visn_inter", "visn_output"),
)
# fmt: on
# how the class of a module `mixer` ends where it is an FFN; others mix tokens
FFN_MIXER = re.compile(r"(MLP|MoE)$")
# what else a layer may hold: other mixers of tokens, norms, scales, positions, adapters
# of published models; by the names of its modules, and by how the names of their
# classes end (how they begin is the model's name)
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
# what merges patches between two parts of a model, or reads them out, is no layer
BETWEEN_MODALITIES = re.compile(r"merger|readout_project")
# a number that is the whole name of a module in a path
NUMBER_IN_PATH = re.compile(r"(?<![^.])\d+(?![^.])")
CAUSAL_LM = "MODEL_FOR_CAUSAL_LM_MAPPING"
# transformers' mappings of a config's class to a model with an output layer: the first
# that has the class is taken
OUTPUT_MAPPINGS = (
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING",
    CAUSAL_LM,
)
# paths of parameters that make vectors into an answer
HEAD_MODULES = re.compile(r"(^|\.)(\w*head|embed_out|pooler|classifier)\.")
Shapes = tuple[tuple[str, tuple[int, ...]], ...]  # the name and shape of parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFFN:
    """One FFN of a model: its path, its module, and the shapes of its parameters.

    Where two projections of the layer itself are the FFN, `module` is the layer, and
    `pair` has the names of the two.
    """

    path: str
    module: Any
    shapes: Shapes
    pair: tuple[str, ...] = ()

    @property
    def class_name(self) -> str:
        """The name of the module's class; for a pair, with the two projections."""
        name = type(self.module).__name__
        if self.pair:
            name += f".{'/'.join(self.pair)}"
        return name

    @property
    def params(self) -> int:
        """Elements of all parameters, norms left out."""
        return sum(prod(shape) for _, shape in self.shapes)

    @property
    def parameter_paths(self) -> list[str]:
        """The paths of its parameters in the model."""
        return [f"{self.path}.{name}" for name, _ in self.shapes]

    @property
    def layer_pattern(self) -> str:
        """The path with `*` for the number of the layer: equal for equal layers."""
        return NUMBER_IN_PATH.sub("*", self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What transformers makes of a file.

    `model_class` is the class of transformers that the file names. `note` is about code
    that it brings along, `defaults` about numbers that it leaves to its class.
    `untied`: the file says that its output's matrix is not the embedding's.
    """

    config: Any
    model_class: Any = None
    note: str = ""
    defaults: str = ""
    untied: bool = False


def load_config(source: str) -> Loaded:
    """transformers' config of a config.json, or of its folder."""
    try:
        import transformers
    except ImportError as problem:
        raise FfnbenchError(TRANSFORMERS_NOT_INSTALLED, INSTALL) from problem
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    try:
        data, _ = read_file(config_path(source))
        model_type = type_of(data)
        refuse_other_classes(data, model_type, transformers)
        config = transformers.CONFIG_MAPPING[model_type].from_dict(
            json.loads(json.dumps(data))
        )
        return Loaded(
            config=config,
            model_class=_class_of_file(data, config),
            note=code_note(data, f"transformers' {model_type}"),
            defaults=_defaults(config, data),
            untied=data.get("tie_word_embeddings") is False,
        )
    except FfnbenchError:
        raise
    except Exception as problem:
        raise FfnbenchError(
            f"transformers can't read {source!r}: {type(problem).__name__}: {problem}",
            A_CONFIG,
        ) from problem


def _class_of_file(data: dict[str, Any], config: Any) -> Any:
    """The first class that the file names under `architectures` and that takes this
    config; None where there is none.
    """
    import transformers

    for name in data.get("architectures") or ():
        model_class = getattr(transformers, name, None)
        if getattr(model_class, "config_class", None) is type(config):
            return model_class
    return None


def _defaults(config: Any, data: dict[str, Any]) -> str:
    """Say which sizes the file of a config leaves to its class, and each of its
    sub-configs to theirs; "" for none.

    Raises FfnbenchError for a size under a name that the class does not read.
    """
    sizes = {"num_attention_heads", "vocab_size", *chain(*families().sizes.values())}
    own = {}
    for field in fields(config):
        own[field.name] = getattr(config, field.name) if field.name in sizes else None
    sub_configs = {
        key: value
        for key, value in vars(config).items()
        if hasattr(value, "model_type")
    }
    other_names = _other_names(config, own)
    sizes_of_parts = [own, *map(vars, sub_configs.values())]
    refuse_other_names(data, config.model_type, own, other_names, sizes_of_parts)
    words = [defaults_in_words(by_own_names(data, other_names), config.model_type, own)]
    for key, sub_config in sub_configs.items():
        of_sub_config = data.get(f"{key}_dict") or data.get(key) or data
        words.append(_defaults(sub_config, of_sub_config))
    return "; ".join(filter(None, words))


def _other_names(config: Any, own: Collection[str]) -> dict[str, str]:
    """Further names of a config's fields -> the name that its class reads.

    A field may stand on either side of transformers' map: GPT-2's n_embd is in
    {"hidden_size": "n_embd"}, Qwen3-MoE's num_experts in {"num_experts":
    "num_local_experts"}.
    """
    attribute_map: dict[str, str] = config.attribute_map
    other_names = {
        target: name for name, target in attribute_map.items() if name in own
    }
    return other_names | attribute_map


def build_empty(config: Any, model_class: Any = None, tied: bool = False) -> Any:
    """The model of a config on torch's meta device: shapes and no data. The bare model,
    unless a class is given.

    `tied` makes one parameter of weights that the model shares. Raises FfnbenchError
    where it can't be built.
    """
    import torch
    from transformers import initialization

    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with initialization.no_init_weights():
                model = (model_class or _bare_class(config))(config)
            if tied:
                model.tie_weights()
            return model
        except Exception as problem:
            text = " ".join(str(problem).split())[:200]
            raise FfnbenchError(
                f"transformers can't build {config.model_type!r}: {type(problem).__name__}: {text}",
                "does AutoModel.from_config work with it?",
            ) from problem


def _bare_class(config: Any) -> Any:
    """The class of the bare model of a config; where there is none, the first class of
    its module that takes the config.
    """
    from transformers.models.auto.modeling_auto import MODEL_MAPPING

    if type(config) in MODEL_MAPPING:
        return _first(MODEL_MAPPING[type(config)])
    module = importlib.import_module(
        type(config).__module__.replace("configuration_", "modeling_")
    )
    for name, value in vars(module).items():
        if not isinstance(value, type) or "PreTrained" in name:
            continue
        if getattr(value, "config_class", None) is type(config):
            return value
    raise LookupError(f"no model class for {type(config).__name__}")


def _first(entry: Any) -> Any:
    """The class of an entry of a mapping; the first where it has several."""
    if isinstance(entry, tuple):
        return entry[0]
    return entry


def feed_forwards(model: Any) -> list[FoundFFN]:
    """Every FFN of a model's numbered layers, in their order; what stands inside an FFN
    is part of it.
    """
    ffns: list[FoundFFN] = []
    modules = dict(model.named_modules())
    claimed_prefix = None  # of the paths inside the last FFN
    for path, module in modules.items():
        if claimed_prefix is not None and path.startswith(claimed_prefix):
            continue
        if not _may_be_of_ffn(path, modules):
            continue
        if _has_ffn_name(path, modules):
            shapes = _shapes(module)
            if shapes:
                ffns.append(FoundFFN(path=path, module=module, shapes=shapes))
                claimed_prefix = f"{path}."
        else:
            ffns += _pairs_in(path, module)
    return ffns


def _pairs_in(path: str, owner: Any) -> list[FoundFFN]:
    """The FFNs whose two projections stand directly in a module."""
    ffns = []
    for pair in PAIRS:
        shapes = _pair_shapes(owner, pair)
        if shapes:
            ffns.append(FoundFFN(path=path, module=owner, shapes=shapes, pair=pair))
    return ffns


def _has_ffn_name(path: str, modules: dict[str, Any]) -> bool:
    """Whether a module has an FFN's name, or stands in a list that has one.

    One of a pair of projections is no FFN by itself: ALBERT's `ffn` stands beside an
    `ffn_output`.
    """
    owner, _, name = path.rpartition(".")
    if name.isdigit():
        if not _is_list(modules[owner]):
            return False
        name = owner.rpartition(".")[2]
    if name == "mixer":
        return bool(FFN_MIXER.search(type(modules[path]).__name__))
    if name not in FFN_MODULE_NAMES or _is_list(modules[path]):
        return False
    return not any(
        name in pair and all(hasattr(modules[owner], half) for half in pair)
        for pair in PAIRS
    )


def _is_list(module: Any) -> bool:
    return type(module).__name__ == "ModuleList"


def _may_be_of_ffn(path: str, modules: dict[str, Any]) -> bool:
    """Whether a path lies in a numbered layer, and in no part of it that is known to be
    something else than an FFN.
    """
    paths = _paths_from_layer(path, modules)
    return bool(paths) and not any(
        _is_other_part(each.rpartition(".")[2], modules.get(each)) for each in paths
    )


def _paths_from_layer(path: str, modules: dict[str, Any]) -> list[str]:
    """The paths from a numbered layer down to `path`, the layer's own first; none
    outside of all layers.

    A layer has a number for a name, and parts: a list of bare projections holds none.
    """
    if BETWEEN_MODALITIES.search(path):
        return []
    names = path.split(".")
    paths = [".".join(names[: depth + 1]) for depth in range(len(names))]
    for depth, name in enumerate(names):
        layer = modules.get(paths[depth])
        if name.isdigit() and layer is not None and list(layer.children()):
            return paths[depth:]
    return []


def _is_other_part(name: str, module: Any) -> bool:
    """Whether the name of a part of a layer, or its class, says that it is no FFN.

    The class of a block may be named after its attention alone: one that holds an FFN
    as well is not such a part.
    """
    if NO_FFN.search(name):
        return True
    if name == "mixer" and not FFN_MIXER.search(type(module).__name__):
        return True
    return _class_is_no_ffn(module) and not any(
        hasattr(module, ffn_name) for ffn_name in FFN_MODULE_NAMES
    )


def _class_is_no_ffn(module: Any) -> bool:
    return bool(NO_FFN_CLASS.search(type(module).__name__))


def unexplained(model: Any, ffns: Iterable[FoundFFN]) -> list[str]:
    """The parameters in numbered layers that are neither of an FFN nor of another part
    that is known: a model that has some can't be counted by names.

    Gives their paths with `*` for the numbers of layers, each once.
    """
    claimed = {path for ffn in ffns for path in ffn.parameter_paths}
    modules = dict(model.named_modules())
    paths = []
    for path, _ in model.named_parameters():
        if path not in claimed and _may_be_of_ffn(path, modules):
            paths.append(NUMBER_IN_PATH.sub("*", path))
    return list(dict.fromkeys(paths))


def counted_ffns(config: Any, model: Any) -> list[FoundFFN]:
    """All FFNs of a model. Raises FfnbenchError where none is found, or where a layer
    has parameters that may be of another one.
    """
    ffns = feed_forwards(model)
    paths = unexplained(model, ffns)
    if paths:
        shown = ", ".join(paths[:3])
        if len(paths) > 3:
            shown += f" and {len(paths) - 3} more"
        raise FfnbenchError(
            f"the layers of {config.model_type} hold what may be FFNs under names that nobody declared: {shown}",
            "count them by hand, or name the FFN's class as a variant",
        )
    if not ffns:
        raise FfnbenchError(
            f"the {config.model_type} model of transformers has no FFN that can be told by its name",
            "looked for modules called " + ", ".join(sorted(FFN_MODULE_NAMES)),
        )
    return ffns


def count_layers(source: str) -> CountedModel:
    """The FFNs of a config.json's model as transformers builds it, equal ones together;
    errors as in `counted_ffns`.
    """
    loaded = load_config(source)
    config = loaded.config
    ffns = counted_ffns(config, build_whole(config, loaded.model_class))
    equal_ffns = Counter(
        (ffn.layer_pattern, ffn.class_name, ffn.params, active_params(ffn))
        for ffn in ffns
    )
    layers = []
    for (pattern, class_name, total, active), count in equal_ffns.items():
        layers.append(
            CountedLayers(
                kind=pattern,
                count=count,
                params=total,
                params_active=active,
                name=class_name,
            )
        )
    return CountedModel(
        name=config.model_type,
        source=source,
        counted_by=f"{_version()}, which built it",
        note=loaded.note,
        defaults=loaded.defaults,
        layers=tuple(layers),
    )


def _version() -> str:
    import transformers

    return f"transformers {transformers.__version__}"


def active_params(ffn: FoundFFN) -> int | None:
    """The parameters that a token meets: of stacked experts as many as its router
    chooses, of the rest all.

    A weight of stacked experts is 3-D, and its first dimension counts them. None where
    the experts are modules of their own or stand in several stacks, or where no module
    says how many are chosen.
    """
    routed = {name: shape for name, shape in ffn.shapes if "shared" not in name}
    stacked: dict[str, tuple[int, ...]] = {
        name: shape for name, shape in routed.items() if len(shape) == 3
    }
    if not stacked:
        if any("experts." in name for name in routed):
            return None
        return ffn.params
    owners = {name.rpartition(".")[0] for name in stacked}
    if len(owners) > 1 and any("expert" in owner for owner in owners):
        return None
    for name, shape in routed.items():  # their biases are 2-D
        if name.removesuffix("_bias") in stacked:
            stacked[name] = shape
    expert_counts = {shape[0] for shape in stacked.values()}
    top_ks = {
        module.top_k
        for module in ffn.module.modules()
        if isinstance(getattr(module, "top_k", None), int)
    }
    if len(expert_counts) > 1 or len(top_ks) != 1:
        return None
    experts, top_k = expert_counts.pop(), int(top_ks.pop())
    of_one_expert = sum(prod(shape) for shape in stacked.values()) // max(1, experts)
    return ffn.params - of_one_expert * max(0, experts - top_k)


def _shapes(module: Any) -> Shapes:
    """The parameters of an FFN by name, without norms and scales inside it."""
    other_modules = tuple(
        f"{name}."
        for name, submodule in module.named_modules()
        if name and _class_is_no_ffn(submodule)
    )
    shapes = []
    for name, parameter in module.named_parameters():
        has_other_name = any(NO_FFN.search(part) for part in name.split("."))
        if not has_other_name and not name.startswith(other_modules):
            shapes.append((name, tuple(parameter.shape)))
    return tuple(shapes)


def _pair_shapes(owner: Any, pair: tuple[str, ...]) -> Shapes:
    """The parameters of two projections that stand directly in a module; none where it
    has not both.
    """
    shapes: list[tuple[str, tuple[int, ...]]] = []
    for name in pair:
        projection = getattr(owner, name, None)
        if not hasattr(projection, "named_parameters") or _class_is_no_ffn(projection):
            return ()
        shapes += [(f"{name}.{inner}", shape) for inner, shape in _shapes(projection)]
    return tuple(shapes)


def build_whole(config: Any, class_of_file: Any = None) -> Any:
    """The model with its output layer, where it has one, on torch's meta device, with
    its tied weights tied.

    The class that the file names is built in its place where its FFNs have other sizes.
    """
    model = build_empty(config, _class_with_output(config), tied=True)
    if class_of_file is None or isinstance(model, class_of_file):
        return model
    model_of_file = build_empty(config, class_of_file, tied=True)
    if _ffn_sizes(model_of_file) == _ffn_sizes(model):
        return model
    return model_of_file


def _ffn_sizes(model: Any) -> list[int]:
    return sorted(ffn.params for ffn in feed_forwards(model))


def _class_with_output(config: Any) -> Any:
    """The class with an output layer for a config; None where there is none. An encoder
    that fills masks is taken bare.
    """
    from transformers.models.auto import modeling_auto

    fills_masks = type(config) in modeling_auto.MODEL_FOR_MASKED_LM_MAPPING
    for name in OUTPUT_MAPPINGS:
        mapping = getattr(modeling_auto, name)
        if type(config) in mapping and not (fills_masks and name == CAUSAL_LM):
            return _first(mapping[type(config)])
    return None


def count_whole(source: str) -> WholeModel:
    """All parameters of a config.json's model; errors as for `counted_ffns`."""
    loaded = load_config(source)
    config = loaded.config
    model = build_whole(config, loaded.model_class)
    ffns = counted_ffns(config, model)
    ffn_paths = {path for ffn in ffns for path in ffn.parameter_paths}
    parts = params_by_part(model, ffn_paths)
    # T5's classes tie the output to the embedding until they have read the weights
    if loaded.untied and config.tie_word_embeddings:
        output = model.get_output_embeddings()
        if output is not None:
            parts["head"] += output.weight.numel()
    active = sum_of(active_params(ffn) for ffn in ffns)
    idle = None if active is None else sum(ffn.params for ffn in ffns) - active
    notes = (
        "parts are told by the names of modules",
        "FFN: with its routers",
        loaded.note,
    )
    return WholeModel(
        name=config.model_type,
        source=source,
        counted_by=f"{_version()}, which built {type(model).__name__}",
        note="; ".join(filter(None, notes)),
        defaults=loaded.defaults,
        embeddings=parts["embeddings"],
        attention=parts["attention"],
        ffn=parts["ffn"],
        router=0,  # within `ffn` here
        norms=parts["norms"],
        head=parts["head"],
        other=parts["other"],
        idle=idle,
    )


def params_by_part(model: Any, ffn_paths: Collection[str]) -> Counter[str]:
    """Count the parameters of each part of a model, each of them once.

    `ffn_paths` are the paths of the FFNs' parameters. The first rule that fits decides:
    a norm inside an FFN or an attention is a norm.
    """
    class_names = {
        path: type(module).__name__ for path, module in model.named_modules()
    }
    counts: Counter[str] = Counter()
    for path, parameter in model.named_parameters():
        names = path.split(".")
        around = [
            class_names[".".join(names[:depth])] for depth in range(1, len(names))
        ]
        if around and "norm" in around[-1].lower():
            part = "norms"
        elif path in ffn_paths:
            part = "ffn"
        elif any("Attention" in class_name for class_name in around):
            part = "attention"
        elif HEAD_MODULES.search(path):
            part = "head"
        elif any("Embed" in class_name for class_name in around):
            part = "embeddings"
        else:
            part = "other"
        counts[part] += parameter.numel()
    return counts
