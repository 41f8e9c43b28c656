"""A published model read off transformers' own modules, built on the meta device: its
layers, the form of their FFNs, their attentions, and all parameters by part. Needs
torch and transformers (the extra `hf`); the parent runs it as a process of its own.

In a numbered layer all that is no attention, norm, scale, position or convolution is
its FFN. Its shape says which form that is, and a small copy of the module proves it
(ffn/proof.py).
"""

from __future__ import annotations

import inspect
import json
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import product
from math import inf, prod
from typing import Any

import torch
from torch import Tensor, nn

from ffnbench.common.errors import FfnbenchError
from ffnbench.common.jsonable import encode
from ffnbench.ffn.activations import ACTIVATIONS, HF_ACTIVATIONS
from ffnbench.ffn.proof import (
    EXPERT,
    SMALL_D_MODEL,
    Proof,
    prove,
    small_copy,
    small_sizes,
)
from ffnbench.ffn.spec import (
    AttentionSpec,
    FFNSpec,
    Gate,
    MLASpec,
    MoESpec,
    Scores,
    act,
)
from ffnbench.models.model import (
    AttentionWindow,
    LayerGroup,
    ModelSpec,
)

Shape = tuple[int, ...]
# what else a layer holds, by the names of its modules and parameters
NO_FFN = re.compile(
    r"attn|attention|norm|conv(?!_blocks)|mamba|ssm|scale$|scalar$|^gamma|^lambda|position|pos_|rotary|rope|embed|"
    r"relative|rel_pos|lora|adapter|bottleneck|correction_bias$|^expert_bias$|temporal_block$|^patch_mixer$|_att$|lstm|"
    r"^modulation$|^snake|^altup$|^laurel$|_hc$|_token$|_residual$|_param$|residual_gate$|_gamma$|^grn$|^gate_ffn$|"
    r"^alpha_(dense|cross_attn)|^message_fc$|^ple_block$|^per_layer_|^tid2eid$",
    re.IGNORECASE,
)
# and by how the names of their classes end (how they begin is the model's name)
NO_FFN_CLASS = re.compile(
    r"(Attention|Attn|Norm\d*d?|Conv(Transpose)?(\dd)?|Mixer|Mamba\w{0,8}|Embeddings?|LRU|RNN|LSTM|DeltaNet|"
    r"RecurrentBlock|LayerScale|AttentionSubsample|PatchMerg(ing|er)|HyperConnection|TokenAssign|ResidualUnit|Snake\w*|"
    r"AttentionResidual|Indexer|MLA)$"
)
ATTENTION_CLASS = re.compile(r"(Attention|Attn|MLA)$")
# transformers' mappings of a config's class to a model with an output layer: the first
# that has the class is taken
OUTPUT_MAPPINGS = (
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING",
    "MODEL_FOR_CAUSAL_LM_MAPPING",
)
# paths of parameters that make vectors into an answer
HEAD = re.compile(r"(^|\.)(\w*head|embed_out|pooler|classifier)\.")
# names of classes that end in an output layer
WRITES_TEXT = re.compile("CausalLM|LMHead|ConditionalGeneration")
A_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")  # that is a whole name in a path
TOP_K = (
    "top_k",
    "num_experts_per_tok",
    "num_experts_per_token",
    "moe_topk",
    "moe_top_k",
    "top_k_experts",
    "moe_k",
)
# a router that has it in the name of its class alone
ROUTER_CLASS = re.compile(r"Top(\d+)Router$")
# keys of every config.json, which are none of the model's
OF_EVERY_FILE = (
    "architectures", "auto_map", "dtype", "model_type", "torch_dtype", "transformers_version", "_name_or_path",
)  # fmt: skip
WIDTH_KEY = re.compile(
    r"(hidden|intermediate|inner|ffn|feed_?forward|mlp|embd?|model)_?(size|dim|width)?$|^(d|n)_(ff|model|embd|inner)$"
)
SIZE_KEY = re.compile(
    r"^(hidden_size|d_model|n_embd|\w*intermediate_size|d_ff|\w*ffn_dim|n_inner|num_hidden_layers|num_layers|n_layer|"
    r"num_attention_heads|n_head|vocab_size|num_(local_)?experts|n_routed_experts)$"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FFNPart:
    """Matrices of a layer that are together of the shape of an FFN, or of its experts,
    with their biases.

    `path` is that of the module in the layer that has them, with `*` for the number of
    an expert. `shapes` are those of the parameters by their names in the layer.
    `experts` is their number, 0 for none; `unused` how many of the stored ones are of
    experts that do nothing.
    """

    path: str
    shapes: Mapping[str, Shape]
    d_model: int
    gated: bool
    d_ff: int
    experts: int = 0
    unused: int = 0

    @property
    def is_routed(self) -> bool:
        """Whether a token goes to some of its experts; to shared ones all do."""
        return self.experts > 0 and "shared" not in self.path

    @property
    def params(self) -> int:
        """Elements of all parameters but those of unused experts."""
        total = 0
        for shape in self.shapes.values():
            if self.experts and len(shape) > 1:
                shape = (self.experts, *shape[1:])
            total += prod(shape)
        return total


@dataclass(slots=True)
class Layer:
    """A numbered layer of a model. `parameters` are those of its FFN, by exclusion, by
    their names in the layer; those of several experts stand under one name, with `*`
    for the number. `parts` are FFNs among them, and `loose` the shapes of the others,
    such as a router.
    """

    path: str
    module: Any
    attentions: list[Any]
    parameters: dict[str, list[Any]] = field(default_factory=dict)
    parts: list[FFNPart] = field(default_factory=list)
    loose: dict[str, Shape] = field(default_factory=dict)

    @property
    def number(self) -> int:
        """Its number in the model's list of layers."""
        return int(A_NUMBER.findall(self.path)[0])


def layers_of(model: Any, config: Any) -> list[Layer]:
    """The numbered layers of a model that have an FFN.

    A layer is the innermost numbered module around a parameter that has an attention in
    it; where none has, the outermost.
    """
    classes = {path: type(module).__name__ for path, module in model.named_modules()}
    attentions = [path for path, each in classes.items() if is_attention(each)]
    around_attention = {prefix for path in attentions for prefix in prefixes_of(path)}
    layers: dict[str, Layer] = {}
    for name, parameter in model.named_parameters():
        numbered = [p for p in prefixes_of(name) if p.rpartition(".")[2].isdigit()]
        if not numbered:
            continue
        with_attention = [p for p in numbered if p in around_attention]
        path = with_attention[-1] if with_attention else numbered[0]
        inside = [p for p in prefixes_of(name) if len(p) > len(path)]
        if any(is_no_ffn(p.rpartition(".")[2], classes[p]) for p in inside):
            continue
        if NO_FFN.search(name.rpartition(".")[2]):
            continue
        if path not in layers:
            inner = [p for p in attentions if p.startswith(f"{path}.")]
            layers[path] = Layer(
                path, model.get_submodule(path), [*map(model.get_submodule, inner)]
            )
        in_layer = EXPERT.sub(r"\1*", name[len(path) + 1 :], count=1)
        layers[path].parameters.setdefault(in_layer, []).append(parameter)
    for layer in layers.values():
        find_parts(layer, widths(config, layer.module))
        leave_out_others(layer)
    return [layer for layer in layers.values() if layer.parts]


def prefixes_of(path: str) -> list[str]:
    """The paths of the modules around a module or parameter, the outermost first."""
    names = path.split(".")[:-1]
    return [".".join(names[:end]) for end in range(1, len(names) + 1)]


def is_attention(class_name: str) -> bool:
    """Whether a class is an attention by its name."""
    return bool(ATTENTION_CLASS.search(class_name))


def is_no_ffn(name: str, class_name: str) -> bool:
    """Whether a part of a layer is something else than an FFN, by its name or class."""
    return bool(NO_FFN.search(name) or NO_FFN_CLASS.search(class_name))


def leave_out_others(layer: Layer) -> None:
    """Leave out of a layer what stands beside its FFNs and their routers, such as a
    projection of the layer's output.
    """
    of_ffns = {"router", *(part.path.partition(".")[0] for part in layer.parts)}
    for name in list(layer.loose):
        if name.partition(".")[0] not in of_ffns:
            del layer.loose[name], layer.parameters[name]


def find_parts(layer: Layer, d_models: Iterable[int]) -> None:
    """Find the FFNs among the parameters of a layer, around one of the model's widths,
    the first that fits; and the experts around a width to which a matrix beside them
    leads.
    """
    shapes = {}
    for name, parameters in layer.parameters.items():
        shape = tuple(parameters[0].shape)
        shapes[name] = (len(parameters), *shape) if "*" in name else shape
    owners = ["", *(prefix for name in shapes for prefix in prefixes_of(name))]
    owners = sorted(dict.fromkeys(owners), key=lambda path: path.count("."))
    for d_model in d_models:
        layer.loose = dict(shapes)
        take_parts(layer, [*owners, ""], d_model)
        if layer.parts:
            break
    matrices = [shape for shape in layer.loose.values() if len(shape) == 2]
    for latent in sorted({size for shape in matrices for size in shape}):
        if any(map(has_experts, layer.loose.values())):
            take_parts(layer, owners, latent)


def has_experts(shape: Shape) -> bool:
    """Whether it is the shape of the stacked matrices of experts."""
    return len(shape) == 3 and min(shape[1:]) > 1


def take_parts(layer: Layer, owners: Iterable[str], d_model: int) -> None:
    """Make parts of the loose parameters below some modules, in their order, that are
    FFNs around a width.
    """
    for owner in owners:
        part = part_in(owner, layer.loose, d_model)
        if part is not None:
            layer.parts.append(part)
            for name in part.shapes:
                del layer.loose[name]


def part_in(owner: str, shapes: Mapping[str, Shape], d_model: int) -> FFNPart | None:
    """All matrices below a module as one FFN around a width, or as its experts; None
    where they are no such. Beside stacked matrices of experts flat ones are those of
    a router.
    """
    below = {n: s for n, s in shapes.items() if not owner or owner in prefixes_of(n)}
    stacked: dict[str, Shape] = {n: s for n, s in below.items() if has_experts(s)}
    matrices = stacked or {n: s for n, s in below.items() if len(s) == 2}
    squares = [n for n, shape in matrices.items() if shape == (d_model, d_model)]
    if len(matrices) == 3 and len(squares) == 1:  # RWKV's gate, which is on the output
        del matrices[squares[0]]
    inner = []
    for *_, rows, columns in matrices.values():
        if d_model not in (rows, columns):
            return None
        inner.append(rows if columns == d_model else columns)
    if len(inner) not in (2, 3):
        return None
    is_packed = len(inner) == 2 and max(inner) == 2 * min(inner)
    if min(inner) != max(inner) and not is_packed:
        return None
    numbers = {shape[0] for shape in stacked.values()}
    around_all = set.intersection(*({"", *prefixes_of(name)} for name in matrices))
    path = max(around_all, key=len)
    biases = {}
    for name, shape in below.items():
        is_bias = "bias" in name and len(shape) == 2 if stacked else len(shape) == 1
        if is_bias and (not path or path in prefixes_of(name)):
            biases[name] = shape
    return FFNPart(
        path=path,
        shapes=matrices | biases,
        d_model=d_model,
        gated=is_packed or len(inner) == 3,
        d_ff=min(inner),
        experts=min(numbers, default=0),
        unused=max(numbers, default=0) - min(numbers, default=0),
    )


def owner_of(layer: Layer, part: FFNPart) -> Any:
    """The module, or one of its experts, in which the matrices of a part are: the
    innermost that is no list, which computes nothing.
    """
    path = part.path.replace("*", "0")
    owner = layer.module.get_submodule(path)
    while isinstance(owner, nn.ModuleList):
        path = path.rpartition(".")[0]
        owner = layer.module.get_submodule(path)
    return owner


def module_of(layer: Layer, part: FFNPart) -> Any:
    """The module that computes a part, or one of its experts; None where there is none.

    Where its two projections stand in the layer itself they are one module: the first
    has its activation in the module around it, or the layer has one.
    """
    owner = owner_of(layer, part)
    if owner is not layer.module:
        return owner
    if part.gated or part.experts:
        return None
    paths = [
        n.rpartition(".")[0] for n, shape in part.shapes.items() if len(shape) == 2
    ]
    first = layer.module.get_submodule(paths[0].partition(".")[0])
    second = layer.module.get_submodule(paths[1])
    if not isinstance(first, nn.Linear):
        return nn.Sequential(first, second)
    members = [*layer.module.named_children(), *vars(layer.module).items()]
    for name, value in members:
        if "act" in name and callable(value):
            activation: Any = nn.Identity()
            activation.forward = getattr(value, "forward", value)
            return nn.Sequential(first, activation, second)
    return None


def call_alone(module: Any, x: Tensor) -> Tensor:
    """The output of an FFN's module that may take more than an input: a residual, which
    is zero, or a routing, by which all tokens go to the first expert. Where tokens are
    sorted by expert, each expert has all of them.
    """
    experts = max([p.shape[0] for p in module.parameters() if p.ndim == 3], default=1)
    first = torch.zeros(len(x), 1, dtype=torch.long)
    ones = torch.ones(len(x), 1, dtype=x.dtype)
    calls = (
        (x.repeat(experts, 1),), (x, torch.zeros_like(x)), (x, first, ones), (x, ones, first),
    )  # fmt: skip
    for arguments in calls:
        with suppress(Exception):  # it takes others
            y = module(*arguments)
            output: Tensor = y[0] if isinstance(y, tuple) else y
            return output[: len(x)]
    raise FfnbenchError(f"{type(module).__name__} can't be called alone")


def candidates(part: FFNPart, config: Any, module: Any) -> Iterator[FFNSpec]:
    """The forms that a part may be: with the limits that its module has, and with the
    activation of the config first.
    """
    limits = [
        float(value)
        for owner in module.modules()
        for name, value in vars(owner).items()
        if "limit" in name and isinstance(value, int | float) and 0 < value < inf
    ]
    gate = Gate.INNER if part.gated else Gate.NONE
    names = [row.name for row in ACTIVATIONS if not row.learned]
    if not part.gated:
        names.remove("identity")  # two matrices without a function between are no FFN
    forms = [
        FFNSpec(d_model=SMALL_D_MODEL, d_ff=1, activation=name, gate=gate)
        for name in dict.fromkeys([*activations_of(config), *names])
    ]
    if part.gated:
        for limit, offset in product(limits, (0.0, 1.0)):
            up = act("clamp", limit=limit, offset=offset)
            parameters = (("limit", limit),)
            yield from [replace(f, parameters=parameters, up=up) for f in forms]
    yield from forms


def activations_of(config: Any) -> list[str]:
    """The activations that a config names."""
    texts = [value for value in vars(config).values() if isinstance(value, str)]
    return [HF_ACTIVATIONS[text] for text in texts if text in HF_ACTIVATIONS]


def prove_part(layer: Layer, part: FFNPart, config: Any) -> Proof | None:
    """The proof of a part's form on a small copy; None where it can't be proven."""
    module = module_of(layer, part)
    if module is None:
        return None
    try:
        copied = small_copy(module, small_sizes(part.d_model, part.d_ff))
        return prove(copied, candidates(part, config, copied), call_alone)
    except Exception:  # a module of its own ways
        return None


def load_config(data: dict[str, Any]) -> Any:
    """transformers' config of the content of a config.json; raises FfnbenchError."""
    import transformers

    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    model_type = data.get("model_type")
    if not isinstance(model_type, str):
        raise FfnbenchError(
            "the config has no model_type",
            'add the model\'s own, such as "model_type": "llama"',
        )
    if model_type not in transformers.CONFIG_MAPPING:
        message = (
            f"transformers {transformers.__version__} has no model type {model_type!r}"
        )
        if "auto_map" in data:
            message += ", and code that comes with a file is never run"
        raise FfnbenchError(message, "count it from --d-model and --d-ff")
    config_class = transformers.CONFIG_MAPPING[model_type]
    problem: Exception | None = None
    for readable in _readable(data, config_class):
        try:
            # a copy: the class may change it
            return config_class.from_dict(json.loads(json.dumps(readable)))
        except Exception as caught:  # what a config class raises is its own
            problem = problem or caught
    text = " ".join(str(problem).split())[:200]
    raise FfnbenchError(
        f"transformers can't read it as {model_type}: {type(problem).__name__}: {text}",
        "give the config.json as it was published",
    ) from problem


def _readable(data: dict[str, Any], config_class: Any) -> Iterator[dict[str, Any]]:
    """The content as it is, and as a class may want it that is stricter than published
    files: one number for a list of equal ones, and no number of layers beside the
    pattern from which the class has it.
    """
    yield data
    plain = {}
    for key, value in data.items():
        is_list = isinstance(value, list) and value and type(value[0]) is int
        if is_list and set(value) == {value[0]}:
            value = value[0]
        if isinstance(getattr(config_class, key, None), property):
            continue
        plain[key] = value
    yield plain


def build_empty(config: Any) -> Any:
    """The model of a config on torch's meta device, with its output layer where it
    writes text; raises FfnbenchError where it can't be built.
    """
    from transformers import initialization

    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with suppress(TypeError):  # a config that leaves a part of it out
                config._experts_implementation = "eager"
            with initialization.no_init_weights():
                model = _class_of(config)(config)
            model.tie_weights()
            return model.eval()
        except Exception as problem:
            text = " ".join(str(problem).split())[:200]
            raise FfnbenchError(
                f"transformers can't build {config.model_type!r}: {type(problem).__name__}: {text}",
                "does AutoModel.from_config work with it?",
            ) from problem


def _class_of(config: Any) -> Any:
    """The class of a config's model: with an output layer, where there is one; an
    encoder that fills masks is taken bare.
    """
    from transformers.models.auto import modeling_auto

    kind = type(config)
    names = list(OUTPUT_MAPPINGS)
    if kind in modeling_auto.MODEL_FOR_MASKED_LM_MAPPING:
        names.remove("MODEL_FOR_CAUSAL_LM_MAPPING")
    for name in (*names, "MODEL_MAPPING"):
        mapping = getattr(modeling_auto, name)
        if kind in mapping:
            model_class = mapping[kind]
            return model_class[0] if isinstance(model_class, tuple) else model_class
    modeling = import_module(kind.__module__.replace("configuration_", "modeling_"))
    for model_class in vars(modeling).values():
        is_of_config = getattr(model_class, "config_class", None) is kind
        if is_of_config and "PreTrained" not in model_class.__name__:
            return model_class
    raise LookupError(f"no model class for {kind.__name__}")


def language_part(config: Any, model: Any) -> tuple[Any, Any, str]:
    """The config, the module and the path of a model's language part: of all, unless
    the model is made of several.
    """
    text = config.get_text_config()
    if text is not config:
        for path, module in model.named_modules():
            if path and getattr(module, "config", None) is text:
                return text, module, path
    return text, model, ""


def read_model(data: dict[str, Any], source: str) -> ModelSpec:
    """Read the model of a config.json's content; raises FfnbenchError."""
    import transformers

    config = load_config(data)
    whole = build_empty(config)
    text, model, path = language_part(config, whole)
    layers = layers_of(model, text)
    if not layers:
        raise FfnbenchError(
            f"no FFN was found in the layers of {type(model).__name__}",
            "count it from --d-model and --d-ff",
        )
    kinds: dict[Any, list[Layer]] = {}
    for layer in layers:
        shapes = [(part.path, *part.shapes.items()) for part in layer.parts]
        attention = attention_of(layer, text)
        key = (A_NUMBER.sub("*", layer.path), *shapes, *layer.loose.items(), attention)
        kinds.setdefault(key, []).append(layer)
    groups = [group_of(equal, text) for equal in kinds.values()]
    counts, tied = other_parts(whole, path, layers, data)
    ignored = ignored_keys(data, config, whole)
    notes = []
    if path:
        notes.append(
            f"the language part of {config.model_type}: {path}, {text.model_type}"
        )
    if "auto_map" in data:
        notes.append("auto_map: the code that comes with the file is never run")
    if ignored:
        notes.append(f"{config.model_type} does not read: {', '.join(ignored)}")
    return ModelSpec(
        key=config.model_type,
        name=config.model_type,
        groups=tuple(groups),
        source=source,
        counted_by=f"transformers {transformers.__version__}, which built {type(whole).__name__}",
        note="; ".join(notes),
        defaults=sizes_left_out(data, config),
        other_parts=counts,
        tied=tied,
    )


def widths(config: Any, layer: Any) -> list[int]:
    """The widths that tokens may have in a layer: the config's, and those of its norms,
    which come first where the config's are not among them.
    """
    names = ("hidden_size", "d_model", "n_embd", "dim", "embed_dim")
    values = [attribute(config, name) for name in names]
    of_config = [value for value in values if type(value) is int]
    norms = Counter(
        parameter.shape[0]
        for name, parameter in layer.named_parameters()
        if "norm" in name.lower() and parameter.ndim == 1
    )
    of_norms = [width for width, _ in norms.most_common()]
    of_norms.sort(key=lambda width: width not in of_config)
    return list(dict.fromkeys([*of_norms, *of_config]))


def group_of(layers: list[Layer], config: Any) -> LayerGroup:
    """A row of equal layers: their FFN as a form where it is one, its parameters, and
    the attention beside it.
    """
    layer = layers[0]
    routed = [part for part in layer.parts if part.is_routed]
    params = sum(part.params for part in layer.parts)
    params += sum(map(prod, layer.loose.values()))
    others = [parameter for each in layer.attentions for parameter in each.parameters()]
    of_attention = {parameter.shape[0] for parameter in others if parameter.ndim == 3}
    active: int | None = params
    if any(map(has_experts, layer.loose.values())) or len(routed) > 1:
        active = None  # a token may meet experts of one kind alone
    elif routed and routed[0].experts in of_attention:
        active = None
    elif routed:
        top_k = experts_of_token(layer, config)
        active = params - round(idle_params(routed[0], top_k)) if top_k else None
    kind = "moe" if routed else "dense"
    if getattr(config, "is_encoder_decoder", False):
        stack = "decoder" if "decoder" in layer.path else "encoder"
        kind = stack if kind == "dense" else f"{stack} moe"
    spec, proofs = form_of(layer, config)
    names = [type(owner_of(layer, part)).__name__ for part in layer.parts]
    return LayerGroup(
        kind=kind,
        count=len(layers),
        params=params,
        params_active=active,
        ffn=spec,
        module=" and ".join(dict.fromkeys(names)),
        proven=spec is not None and None not in proofs,
        attention=attention_of(layer, config),
        windows=windows_of(layers, config),
    )


def idle_params(part: FFNPart, top_k: int) -> float:
    """The parameters of the experts that a token does not go to. Where some experts do
    nothing, this is an expectation over all of them, chosen alike.
    """
    chosen = top_k * part.experts / (part.experts + part.unused)
    return part.params * (1 - chosen / part.experts)


def experts_of_token(layer: Layer, config: Any) -> int:
    """How many experts a token goes to; 0 where it is not known."""
    for place in [*layer.module.modules(), config]:
        for name in TOP_K:
            value = attribute(place, name)
            if type(value) is int and value > 0:
                return value
        if in_name := ROUTER_CLASS.search(type(place).__name__):
            return int(in_name[1])
    return 0


def form_of(layer: Layer, config: Any) -> tuple[FFNSpec | None, list[Proof | None]]:
    """All parts of a layer as one form, None where they are none of ours; and the proof
    of each part. Beside experts the other parts are the shared expert.
    """
    proofs = [prove_part(layer, part, config) for part in layer.parts]
    routed = [each for each in layer.parts if each.experts]
    part = (routed or layer.parts)[0]
    others = [each for each in layer.parts if each is not part]
    forms = [proof.form for proof in proofs if proof is not None]
    if not forms and activations_of(config):
        forms = [next(candidates(part, config, nn.Module()))]
    is_plain = not others and not layer.loose
    if len({form.activation for form in forms}) != 1 or part.unused:
        return None, proofs
    if len(routed) > 1 or not (routed or is_plain):
        return None, proofs
    vectors = 2 if routed else 1
    form = replace(
        forms[0],
        gate=Gate.INNER if part.gated else Gate.NONE,
        d_model=part.d_model,
        d_ff=part.d_ff,
        bias=any(len(s) == vectors and s[-1] > 1 for s in part.shapes.values()),
    )
    if not routed:
        return form, proofs
    moe = moe_of(layer, part, others, config)
    return (None if moe is None else replace(form, moe=moe)), proofs


def moe_of(
    layer: Layer, part: FFNPart, others: list[FFNPart], config: Any
) -> MoESpec | None:
    """The experts of a part; None where its layer has something else beside."""
    router, gate = (part.experts, part.d_model), (1, part.d_model)
    bias = (part.experts,)
    counts = Counter(layer.loose.values())
    if counts[router] != 1 or counts.keys() - {router, gate, bias}:
        return None
    words = [attribute(config, name) for name in ("scoring_func", "topk_method")]
    has_sigmoid = "sigmoid" in words or any(
        hasattr(module, "e_score_correction_bias") for module in layer.module.modules()
    )
    try:
        return MoESpec(
            experts=part.experts,
            top_k=experts_of_token(layer, config),
            shared_d_ff=sum(other.d_ff for other in others),
            shared_gate=bool(counts[gate] and others),
            router_bias=bool(counts[bias]),
            scores=Scores.SIGMOID if has_sigmoid else Scores.SOFTMAX,
            normalised=attribute(config, "norm_topk_prob") is not False,
            routed_scale=attribute(config, "routed_scaling_factor") or 1.0,
            groups=attribute(config, "n_group") or 1,
            top_groups=attribute(config, "topk_group") or 1,
        )
    except FfnbenchError:
        return None


def attribute(place: Any, name: str) -> Any:
    """An attribute of a module or a config; None where it has none, or where it differs
    by layer.
    """
    try:
        return getattr(place, name, None)
    except Exception:  # a config's own error
        return None


def attention_of(layer: Layer, config: Any) -> AttentionSpec | None:
    """The attention of a layer, by its own attributes and the config's, where its
    matrices have just these sizes; None where they have others.
    """
    if not layer.attentions:
        return None
    module, d_model = layer.attentions[0], layer.parts[0].d_model
    shapes = [
        tuple(parameter.shape)
        for name, parameter in module.named_parameters()
        if not re.search("norm|sink|relative|rel_", name.lower())
    ]
    matrices = sum(prod(shape) for shape in shapes if len(shape) == 2)
    vectors = sum(prod(shape) for shape in shapes if len(shape) == 1)

    def number(*names: str) -> int | None:
        for place in (module, config):
            for name in names:
                value = attribute(place, name)
                if type(value) is int and value > 0:
                    return value
        return None

    heads = number("num_heads", "num_attention_heads", "n_heads", "n_head")
    if heads is None:
        return None
    mla = None
    if kv_lora := number("kv_lora_rank"):
        nope, rope, v = (number(f"{n}_head_dim") for n in ("qk_nope", "qk_rope", "v"))
        q_lora = number("q_lora_rank")
        if nope and rope and v:
            mla = MLASpec(q_lora=q_lora, kv_lora=kv_lora, nope=nope, rope=rope, v=v)
    for qkv_bias, out_bias in product((False, True), repeat=2):
        with suppress(FfnbenchError):  # no such heads
            spec = AttentionSpec(
                d_model=d_model,
                heads=heads,
                kv_heads=number("num_key_value_heads", "num_kv_heads") or heads,
                head_dim=number("head_dim", "attention_head_size") or d_model // heads,
                mla=mla,
                qkv_bias=qkv_bias,
                out_bias=out_bias,
            )
            biases = sum(spec.biases.values())
            if (spec.params - biases, biases) == (matrices, vectors):
                return spec
    return None


def windows_of(layers: list[Layer], config: Any) -> tuple[AttentionWindow, ...]:
    """How many of the layers have which window; none where all see every token."""
    counts: Counter[AttentionWindow] = Counter()
    for layer in layers:
        window = window_of(layer, config)
        if layer.attentions or "attention" in window.other:
            counts[window] += 1
    if not counts.keys() - {AttentionWindow(count=1)}:
        return ()
    windows = [replace(window, count=count) for window, count in counts.items()]
    return tuple(sorted(windows, key=lambda window: (window.tokens or 0, window.other)))


def window_of(layer: Layer, config: Any) -> AttentionWindow:
    """How many tokens the attention of one layer sees, or what it does instead."""
    kinds = attribute(config, "layer_types")
    kind = ""
    if isinstance(kinds, list) and layer.number < len(kinds):
        kind = str(kinds[layer.number])
    places = [*layer.attentions, config]
    if kind:
        places.reverse()
    elif attribute(config, "use_sliding_window") is False:
        places.remove(config)
    sizes = [attribute(place, "sliding_window") for place in places]
    if kind.startswith(("full", "global")) or kind == "attention":
        return AttentionWindow(count=1)
    if kind and not kind.startswith(("sliding", "local")):
        return AttentionWindow(count=1, other=kind)
    tokens = next((size for size in sizes if type(size) is int and size > 0), None)
    return AttentionWindow(count=1, tokens=tokens)


def ignored_keys(data: Mapping[str, Any], config: Any, model: Any) -> list[str]:
    """The keys of a file that its class keeps without reading them. Raises
    FfnbenchError for a width among them that no module has.
    """
    read = {
        *inspect.signature(type(config)).parameters,
        *config.attribute_map,
        *config.attribute_map.values(),
        *OF_EVERY_FILE,
    }
    ignored = [key for key in data if key not in read | set(dir(type(config)))]
    has = {size for p in model.parameters() for size in p.shape}
    for key in ignored:
        values = data[key] if isinstance(data[key], list) else [data[key]]
        value = next((v for v in values if type(v) is int and v not in has), None)
        if value is not None and WIDTH_KEY.search(key):
            matrices = [p.shape for p in model.parameters() if p.ndim == 2]
            sizes = Counter(size for shape in matrices for size in shape)
            texts = [f"{size:,}" for size in sorted(dict(sizes.most_common(4)))]
            raise FfnbenchError(
                f"{key} {value:,} is the width of no module of {type(model).__name__}, whose class does not read that key",
                f"its widths are {', '.join(texts)}",
            )
    return ignored


def sizes_left_out(data: Mapping[str, Any], config: Any) -> str:
    """The sizes that a file leaves to its class, in words; "" for none."""
    text = config.get_text_config()
    written = json.dumps(data)
    left_out = []
    for name in sorted(inspect.signature(type(text)).parameters):
        value = attribute(text, name)
        is_size = SIZE_KEY.search(name) and type(value) is int and value > 1
        # the file may set it by another name, which its class knows
        if is_size and not re.search(rf'"{name}"|\b{value}\b', written):
            left_out.append(f"{name} {value:,}")
    if not left_out:
        return ""
    return f"defaults of {text.model_type}, which the file does not set: {', '.join(left_out)}"


def other_parts(
    whole: Any, path: str, layers: list[Layer], data: Mapping[str, Any]
) -> tuple[dict[str, int], int]:
    """All parameters that are not those of FFNs, by part; what other models a composite
    has are `other`. And those of the embedding that are the output layer too.
    """
    of_ffns = set()
    for layer in layers:
        for parameters in layer.parameters.values():
            of_ffns |= {id(parameter) for parameter in parameters}
    classes = {name: type(module).__name__ for name, module in whole.named_modules()}
    output = attribute(whole.get_output_embeddings(), "weight")
    counts: Counter[str] = Counter()
    for name, parameter in whole.named_parameters():
        around = [classes[prefix] for prefix in prefixes_of(name)]
        owner = around[-1] if around else ""
        is_output = parameter is output and "Embed" not in owner
        if id(parameter) in of_ffns:
            part = "ffn"
        elif is_output or (HEAD.search(name) and "attn" not in name):
            part = "head"
        elif path and not name.startswith(f"{path}."):
            part = "other"
        elif "norm" in owner.lower() and "Embed" not in owner:
            part = "norms"
        elif any(map(is_attention, around)):
            part = "attention"
        elif any("Embed" in each for each in around):
            part = "embeddings"
        else:
            part = "other"
        counts[part] += parameter.numel()
    # a class may tie them until it has read the weights, or be the bare model's
    written = [type(whole).__name__, *(data.get("architectures") or ())]
    is_untied = data.get("tie_word_embeddings") is False
    if is_untied and not counts["head"] and WRITES_TEXT.search(" ".join(written)):
        inputs = whole.get_input_embeddings().weight
        if output is None or output is inputs:
            counts["head"] = inputs.numel()
    tied = 0
    if output is not None and not counts["head"]:
        tied = output.numel()
    del counts["ffn"]
    return dict(counts), tied


def main() -> None:
    """Print the model of the config.json on stdin, or why there is none, as JSON."""
    source = sys.argv[1]
    try:
        answer = {"model": encode(read_model(json.load(sys.stdin), source))}
    except FfnbenchError as problem:
        answer = {"error": problem.message, "hint": problem.hint}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
