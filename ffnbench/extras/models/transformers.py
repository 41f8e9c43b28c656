"""transformers' own models: built without data, their FFNs found and counted. Runs in a
worker; needs the extra `hf`.

An FFN is a module of a known name inside a numbered layer, or a pair of projections of
known names in the layer itself (BERT's intermediate and output, BART's fc1 and fc2).
Norms beside or inside it are not counted. A sum over all parameters is exact; which
part one belongs to follows from the names of the classes around it.
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

# attributes that hold an FFN, or a list of them; a pair of projections is one that
# stands in the layer itself
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
# the class of a `mixer` that is an FFN; of other classes it mixes tokens
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
BETWEEN_MODALITIES = re.compile(r"merger|readout_project")
NUMBER_IN_NAME = re.compile(r"(?<![^.])\d+(?![^.])")
# the mappings to classes with an output layer, of which the first counts that has a
# config
SEQ_TO_SEQ_OUTPUTS = (
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING",
)
TEXT_OUTPUTS = ("MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING", "MODEL_FOR_CAUSAL_LM_MAPPING")
HEAD_MODULES = re.compile(r"(^|\.)(\w*head|embed_out|pooler|classifier)\.")
Shapes = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFFN:
    """One FFN of a model: where it stands, its class, its parameters. `pair` names
    projections that are the layer's.
    """

    path: str
    module: Any
    shapes: Shapes
    pair: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Of its class; of the layer's and its projections where it has none."""
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
        """Of its parameters in the model."""
        return [f"{self.path}.{name}" for name, _ in self.shapes]

    @property
    def stack(self) -> str:
        """The path without the number of the layer."""
        return NUMBER_IN_NAME.sub("*", self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What transformers makes of a file.

    `kind` is the class of transformers that the file names. `note` is about code that
    it brings along, `defaults` about numbers that it leaves to its class.
    `output_apart`: the file says that its output's matrix is not the embedding's.
    """

    config: Any
    kind: Any = None
    note: str = ""
    defaults: str = ""
    output_apart: bool = False


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
        kind = None
        for name in data.get("architectures") or ():
            named = getattr(transformers, name, None)
            if kind is None and getattr(named, "config_class", None) is type(config):
                kind = named
        return Loaded(
            config=config,
            kind=kind,
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
    """The sizes that the file of a config leaves to its class, or its parts to theirs,
    in words; "" for none.

    Raises FfnbenchError for a size under a name that the class does not read.
    """
    sizes = {"num_attention_heads", "vocab_size", *chain(*families().sizes.values())}
    own = {}
    for field in fields(config):
        own[field.name] = getattr(config, field.name) if field.name in sizes else None
    parts = {
        key: part for key, part in vars(config).items() if hasattr(part, "model_type")
    }
    other_names = {
        name: other for other, name in config.attribute_map.items() if other in own
    }
    other_names |= config.attribute_map
    sizes_of_parts = [vars(part) for part in parts.values()]
    refuse_other_names(
        data, config.model_type, own, other_names, [own, *sizes_of_parts]
    )
    words = [defaults_in_words(by_own_names(data, other_names), config.model_type, own)]
    for key, part in parts.items():
        words.append(_defaults(part, data.get(f"{key}_dict") or data.get(key) or data))
    return "; ".join(filter(None, words))


def build_empty(config: Any, kind: Any = None, tied: bool = False) -> Any:
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
    """The bare model of a config's class; where there is none, the first class of its
    module that takes it.
    """
    from transformers.models.auto.modeling_auto import MODEL_MAPPING

    if type(config) in MODEL_MAPPING:
        return _first(MODEL_MAPPING[type(config)])
    module = importlib.import_module(
        type(config).__module__.replace("configuration_", "modeling_")
    )
    for name, kind in vars(module).items():
        takes_it = isinstance(kind, type) and getattr(
            kind, "config_class", None
        ) is type(config)
        if takes_it and "PreTrained" not in name:
            return kind
    raise LookupError(f"no model class for {type(config).__name__}")


def _first(kind: Any) -> Any:
    """A class, or the first of several."""
    if isinstance(kind, tuple):
        return kind[0]
    return kind


def feed_forwards(model: Any) -> list[FoundFFN]:
    """Every FFN of a model's numbered layers, in their order; what stands inside one is
    part of it.
    """
    ffns: list[FoundFFN] = []
    modules = dict(model.named_modules())
    inside = None  # the last FFN that is a module, and what its parts begin with
    for path, module in modules.items():
        if inside is not None and path.startswith(inside):
            continue
        if not path_in_layer(path, modules) or is_other_part(path, modules):
            continue
        if _has_ffn_name(path, modules):
            shapes = _shapes(module)
            if shapes:
                ffns.append(FoundFFN(path=path, module=module, shapes=shapes))
                inside = f"{path}."
        else:
            ffns += _pairs_in(path, module)
    return ffns


def _pairs_in(path: str, layer: Any) -> list[FoundFFN]:
    """The FFNs whose two projections stand in the layer itself."""
    ffns = []
    for pair in PAIRS:
        shapes = _pair_shapes(layer, pair)
        if shapes:
            ffns.append(FoundFFN(path=path, module=layer, shapes=shapes, pair=pair))
    return ffns


def _has_ffn_name(path: str, modules: dict[str, Any]) -> bool:
    """Whether it has an FFN's name, or is one of a list that has; not as a half of a
    pair of projections.
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
    for first, second in PAIRS:
        if (
            name in (first, second)
            and hasattr(modules[owner], first)
            and hasattr(modules[owner], second)
        ):
            return False
    return True


def _is_list(module: Any) -> bool:
    return type(module).__name__ == "ModuleList"


def path_in_layer(path: str, modules: dict[str, Any]) -> list[str]:
    """The paths from a numbered layer down to `path`, the layer's own first; none
    outside of all layers.

    A layer has a number for a name, and parts: a list of bare projections holds none.
    What merges patches between two parts of a model, or reads them out, is no layer.
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


def is_other_part(path: str, modules: dict[str, Any]) -> bool:
    """Whether a path in a numbered layer is, or lies in, a part that is no FFN."""
    layer, *inside = path_in_layer(path, modules)
    if _has_other_class(modules.get(layer)):
        return True
    for owner in inside:
        name, module = owner.rpartition(".")[2], modules.get(owner)
        if NO_FFN.search(name) or _has_other_class(module):
            return True
        if name == "mixer" and not FFN_MIXER.search(type(module).__name__):
            return True
    return False


def _has_other_class(module: Any) -> bool:
    """Whether its class is no FFN's; a block that holds one beside its attention is
    called after the attention only.
    """
    if not _is_no_ffn(module):
        return False
    return not any(hasattr(module, name) for name in FFN_MODULE_NAMES)


def left_over(model: Any, ffns: Iterable[FoundFFN]) -> list[str]:
    """What stands in a numbered layer and is nothing known: neither part of an FFN nor
    another part.

    Paths without the numbers of layers, each once: such a model can't be counted by
    names.
    """
    claimed = {path for ffn in ffns for path in ffn.parameter_paths}
    modules = dict(model.named_modules())
    left = []
    for path, _ in model.named_parameters():
        if (
            path not in claimed
            and path_in_layer(path, modules)
            and not is_other_part(path, modules)
        ):
            left.append(NUMBER_IN_NAME.sub("*", path))
    return list(dict.fromkeys(left))


def counted_ffns(config: Any, model: Any) -> list[FoundFFN]:
    """All FFNs of a model. Raises FfnbenchError where none is found, or something is
    left over that may be one's.
    """
    ffns = feed_forwards(model)
    left = left_over(model, ffns)
    if left:
        shown = ", ".join(left[:3])
        if len(left) > 3:
            shown += f" and {len(left) - 3} more"
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
    ffns = counted_ffns(config, build_whole(config, loaded.kind))
    kinds = Counter(
        (ffn.stack, ffn.name, ffn.params, active_params(ffn)) for ffn in ffns
    )
    layers = []
    for (stack, name, total, active), count in kinds.items():
        layers.append(
            CountedLayers(
                kind=stack, count=count, params=total, params_active=active, name=name
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

    None where there are experts that are not one stack of each weight, or where no
    module says how many are chosen.
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
    for name, shape in routed.items():
        if name.removesuffix("_bias") in stacked:
            stacked[name] = shape
    experts = {shape[0] for shape in stacked.values()}
    chosen = {
        module.top_k
        for module in ffn.module.modules()
        if isinstance(getattr(module, "top_k", None), int)
    }
    if len(experts) > 1 or len(chosen) != 1:
        return None
    count, top_k = experts.pop(), int(chosen.pop())
    of_one_expert = sum(prod(shape) for shape in stacked.values()) // max(1, count)
    return ffn.params - of_one_expert * max(0, count - top_k)


def _shapes(module: Any) -> Shapes:
    """The parameters of an FFN by name, without norms and scales inside it."""
    others = tuple(
        f"{name}." for name, part in module.named_modules() if name and _is_no_ffn(part)
    )
    shapes = []
    for name, parameter in module.named_parameters():
        has_other_name = any(NO_FFN.search(part) for part in name.split("."))
        if not has_other_name and not name.startswith(others):
            shapes.append((name, tuple(parameter.shape)))
    return tuple(shapes)


def _is_no_ffn(module: Any) -> bool:
    return bool(NO_FFN_CLASS.search(type(module).__name__))


def _pair_shapes(layer: Any, pair: tuple[str, ...]) -> Shapes:
    """The parameters of two projections that stand in the layer itself; none where it
    has not both.
    """
    shapes: list[tuple[str, tuple[int, ...]]] = []
    for name in pair:
        half = getattr(layer, name, None)
        if not hasattr(half, "named_parameters") or _is_no_ffn(half):
            return ()
        shapes += [(f"{name}.{inner}", shape) for inner, shape in _shapes(half)]
    return tuple(shapes)


def build_whole(config: Any, named: Any = None) -> Any:
    """The model with its output layer, where it has one, on torch's meta device, with
    its tied weights tied.

    A class that the file names is built in its place where its FFNs are not those of
    the bare model.
    """
    model = build_empty(config, _with_output(config), tied=True)
    if named is None or isinstance(model, named):
        return model
    model_of_file = build_empty(config, named, tied=True)
    if _ffn_sizes(model_of_file) == _ffn_sizes(model):
        return model
    return model_of_file


def _ffn_sizes(model: Any) -> list[int]:
    return sorted(ffn.params for ffn in feed_forwards(model))


def _with_output(config: Any) -> Any:
    """The class with an output layer; None where there is none, or only one of an
    encoder.
    """
    from transformers.models.auto import modeling_auto

    names: tuple[str, ...] = SEQ_TO_SEQ_OUTPUTS + TEXT_OUTPUTS
    if type(config) in modeling_auto.MODEL_FOR_MASKED_LM_MAPPING:
        names = names[:-1]  # an encoder that fills masks is taken bare
    for name in names:
        mapping = getattr(modeling_auto, name)
        if type(config) in mapping:
            return _first(mapping[type(config)])
    return None


def count_whole(source: str) -> WholeModel:
    """All parameters of a config.json's model; errors as for `counted_ffns`."""
    loaded = load_config(source)
    config = loaded.config
    model = build_whole(config, loaded.kind)
    ffns = counted_ffns(config, model)
    parts = sorted_parts(model, {path for ffn in ffns for path in ffn.parameter_paths})
    # T5's classes tie the two until they have read the weights
    if loaded.output_apart and config.tie_word_embeddings:
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
        **{
            name: parts[name]
            for name in ("embeddings", "attention", "ffn", "norms", "head", "other")
        },
        router=0,
        idle=idle,
    )


def sorted_parts(model: Any, of_ffns: Collection[str]) -> Counter[str]:
    """Part -> parameters, each of them once. `of_ffns` are the paths of the FFNs'
    parameters.
    """
    kinds = {path: type(module).__name__ for path, module in model.named_modules()}
    counts: Counter[str] = Counter()
    for path, parameter in model.named_parameters():
        owners = path.split(".")[:-1]
        around = [
            kinds[".".join(owners[:depth])] for depth in range(1, len(owners) + 1)
        ]
        if around and "norm" in around[-1].lower():
            part = "norms"
        elif path in of_ffns:
            part = "ffn"
        elif any("Attention" in kind for kind in around):
            part = "attention"
        elif HEAD_MODULES.search(path):
            part = "head"
        elif any("Embed" in kind for kind in around):
            part = "embeddings"
        else:
            part = "other"
        counts[part] += parameter.numel()
    return counts
