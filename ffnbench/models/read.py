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
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ffnbench.common.errors import FfnbenchError
from ffnbench.common.jsonable import encode
from ffnbench.ffn.activations import ACTIVATIONS, HF_ACTIVATIONS
from ffnbench.ffn.proof import (
    SMALL_D_MODEL,
    Proof,
    prove,
    small_copy,
    small_sizes,
)
from ffnbench.ffn.spec import (
    CLAMPED,
    AttentionSpec,
    FFNSpec,
    Gate,
    MLASpec,
    MoESpec,
    Scores,
)
from ffnbench.models.model import (
    AttentionWindow,
    LayerGroup,
    ModelSpec,
    ReadFFN,
    Rest,
    attention_params,
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
    r"RecurrentBlock|LayerScale|PatchMerg(ing|er)|HyperConnection|TokenAssign|ResidualUnit|Snake\w*|"
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


class ShapeOfFFN(NamedTuple):
    """What the matrices of an FFN tell by their shapes alone.

    `experts` is their number, 0 for none, `unused` how many of the stored ones are of
    experts that do nothing.
    """

    gated: bool
    d_ff: int
    experts: int = 0
    unused: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FFNPart:
    """Matrices of a layer that are together of the shape of an FFN, or of experts.

    `module` computes it alone; None where its matrices stand in the layer itself.
    `shapes` are those of its parameters by their paths in the layer. `gated`, `d_ff`,
    `experts` and `unused` are as in ShapeOfFFN.
    """

    path: str
    module: Any
    shapes: Mapping[str, Shape]
    d_model: int
    gated: bool
    d_ff: int
    experts: int
    unused: int

    @property
    def params(self) -> int:
        """Elements of all parameters but those of unused experts."""
        total = 0
        for shape in self.shapes.values():
            if self.experts and len(shape) > 1 and shape[0] > self.experts:
                shape = (self.experts, *shape[1:])
            total += prod(shape)
        return total


@dataclass(slots=True)
class LayerFFN:
    """The FFN of one numbered layer: its parts, and parameters that belong to it by
    exclusion, such as those of a router.
    """

    parts: list[FFNPart] = field(default_factory=list)
    loose: dict[str, Shape] = field(default_factory=dict)


def read_layer(layer: Any, d_models: Iterable[int]) -> LayerFFN:
    """Find the FFNs of a layer, around one of the model's widths."""
    for d_model in d_models:
        ffn = _visit(layer, "", d_model)
        if ffn.parts:
            return ffn
    return LayerFFN()


def _visit(module: Any, path: str, d_model: int) -> LayerFFN:
    ffn = LayerFFN()
    for name, parameter in module.named_parameters(recurse=False):
        if not NO_FFN.search(name):
            ffn.loose[path + name] = tuple(parameter.shape)
    for name, child in module.named_children():
        if is_no_ffn(name, child):
            continue
        part = _part_of(child, path + name, d_model)
        inside = _visit(child, f"{path}{name}.", d_model)
        is_inside = not inside.loose and any(each.module for each in inside.parts)
        if part is not None and not is_inside:
            ffn.parts.append(part)
            continue
        ffn.parts += inside.parts
        ffn.loose |= inside.loose
    # beside matrices of experts the flat ones are those of a router
    stacked = {name: size for name, size in ffn.loose.items() if len(size) == 3}
    shapes = stacked or ffn.loose
    shape = _shape_of(shapes, d_model)
    if shape is not None:
        ffn.parts.append(
            FFNPart(
                path=path.rstrip("."),
                module=None,
                shapes=shapes,
                d_model=d_model,
                **shape._asdict(),
            )
        )
        ffn.loose = {n: size for n, size in ffn.loose.items() if n not in shapes}
    return ffn


def is_no_ffn(name: str, module: Any) -> bool:
    """Whether a part of a layer is something else than an FFN, by its name or class."""
    return bool(NO_FFN.search(name) or NO_FFN_CLASS.search(type(module).__name__))


def _part_of(module: Any, path: str, d_model: int) -> FFNPart | None:
    """A module as one FFN, or as the experts of a layer; None where it is neither."""
    shapes = _shapes_in(module, path)
    shape = None
    if not isinstance(module, nn.ModuleList):
        shape = _shape_of(shapes, d_model)
    elif "expert" in path:
        shape = _shape_of(_shapes_in(module[0], ""), d_model)
        if shape is not None:
            shape = shape._replace(experts=len(module))
    if shape is None:
        return None
    return FFNPart(
        path=path, module=module, shapes=shapes, d_model=d_model, **shape._asdict()
    )


def _shapes_in(module: Any, path: str) -> dict[str, Shape]:
    """The parameters of a module by their paths, without norms and scales inside it."""
    shapes: dict[str, Shape] = {}
    for name, parameter in module.named_parameters(recurse=False):
        if not NO_FFN.search(name):
            shapes[f"{path}.{name}"] = tuple(parameter.shape)
    for name, child in module.named_children():
        if not is_no_ffn(name, child):
            shapes |= _shapes_in(child, f"{path}.{name}")
    return shapes


def _shape_of(shapes: Mapping[str, Shape], d_model: int) -> ShapeOfFFN | None:
    """What matrices around a width are by their shapes; None where they are no FFN."""
    stacked = [shape for shape in shapes.values() if len(shape) == 3]
    flat = {name: shape for name, shape in shapes.items() if len(shape) == 2}
    if stacked and not all("bias" in name for name in flat):
        return None
    inner = []
    for shape in stacked or flat.values():
        rows, columns = shape[-2:]
        if d_model not in (rows, columns):
            return None
        inner.append(rows if columns == d_model else columns)
    if len(inner) not in (2, 3):
        return None
    narrow, wide = min(inner), max(inner)
    is_packed = len(inner) == 2 and wide == 2 * narrow
    if wide != narrow and not is_packed:
        return None
    gated = is_packed or len(inner) == 3
    if not stacked:
        return ShapeOfFFN(gated, narrow)
    experts, *more = sorted({shape[0] for shape in stacked})
    if len(more) > 1:
        return None
    unused = more[0] - experts if more else 0
    return ShapeOfFFN(gated, narrow, experts, unused)


class Projections(nn.Module):
    """The two projections of a layer that has them itself, as one module: the first is
    a module with its activation, or a linear layer that the layer's follows.
    """

    def __init__(self, first: Any, act: Any, second: Any) -> None:
        super().__init__()
        self.first, self.act, self.second = first, act, second

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x)
        if self.act is not None:
            hidden = self.act(hidden)
        y: Tensor = self.second(hidden)
        return y


def module_of(layer: Any, part: FFNPart) -> Any:
    """The module that computes a part; None where there is none."""
    if part.module is not None:
        if isinstance(part.module, nn.ModuleList):
            return part.module[0]
        return part.module
    matrices = [name for name, shape in part.shapes.items() if len(shape) == 2]
    if part.gated or len(matrices) != 2:
        return None
    owners = [name.rpartition(".")[0] for name in matrices]
    base = f"{part.path}." if part.path else ""
    child = owners[0].removeprefix(base).partition(".")[0]
    first, act = layer.get_submodule(base + child), None
    if list(first.children()) == []:
        act = _activation_of(layer.get_submodule(part.path) if part.path else layer)
        if act is None:
            return None
    return Projections(first, act, layer.get_submodule(owners[1]))


def _activation_of(module: Any) -> Any:
    """The activation that a module keeps as a function or module; None without one."""
    for name, value in [*vars(module).items(), *module.named_children()]:
        if "act" in name and callable(value):
            return value
    return None


def call_alone(module: Any, x: Tensor) -> Tensor:
    """The output of an FFN's module that may take more than an input: a residual, which
    is zero, or a routing, by which all tokens go to the first expert.
    """
    more: dict[str, Tensor] = {}
    parameters = list(inspect.signature(module.forward).parameters.values())[1:]
    for parameter in parameters:
        if parameter.default not in (parameter.empty, None):
            continue
        if "residual" in parameter.name or "input_tensor" in parameter.name:
            more[parameter.name] = torch.zeros_like(x)
        elif "ind" in parameter.name or "selected" in parameter.name:
            more[parameter.name] = torch.zeros(len(x), 1, dtype=torch.long)
        elif "weight" in parameter.name or "scores" in parameter.name:
            more[parameter.name] = torch.ones(len(x), 1, dtype=x.dtype)
    y = module(x, **more)
    answer: Tensor = y[0] if isinstance(y, tuple) else y
    return answer


def candidates(part: FFNPart, config: Any, module: Any) -> Iterator[FFNSpec]:
    """The forms that a part may be: with the activation of the config first, and with
    the limits that its module has.
    """
    named = [
        HF_ACTIVATIONS[value]
        for value in vars(config).values()
        if isinstance(value, str) and value in HF_ACTIVATIONS
    ]
    plain = [row.name for row in ACTIVATIONS if not row.learned and row.beta is None]
    gate = Gate.INNER if part.gated else Gate.NONE
    base = FFNSpec(d_model=SMALL_D_MODEL, d_ff=1, activation=plain[0], gate=gate)
    limits: set[float] = {
        float(value)
        for owner in module.modules()
        for name, value in vars(owner).items()
        if "limit" in name and isinstance(value, int | float) and value
    }
    if part.gated:
        for row in CLAMPED:
            for limit in limits or [row.limit]:
                yield replace(
                    base, activation=row.activation, limit=limit, up_offset=row.offset
                )
        for limit in limits:
            for activation in dict.fromkeys(named):
                yield replace(base, activation=activation, limit=limit)
    for activation in dict.fromkeys([*named, *plain]):
        yield replace(base, activation=activation)


def prove_part(layer: Any, part: FFNPart, config: Any) -> Proof | None:
    """The proof of a part's form on a small copy; None where it can't be proven."""
    module = module_of(layer, part)
    if module is None:
        return None
    sizes = small_sizes(part.d_model, part.d_ff)
    try:
        copied = small_copy(module, sizes)
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


def build_empty(config: Any, tied: bool = True) -> Any:
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
            if tied:
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
    fills_masks = kind in modeling_auto.MODEL_FOR_MASKED_LM_MAPPING
    for name in (*OUTPUT_MAPPINGS, "MODEL_MAPPING"):
        mapping = getattr(modeling_auto, name)
        if kind not in mapping or (fills_masks and name == OUTPUT_MAPPINGS[-1]):
            continue
        model_class = mapping[kind]
        if isinstance(model_class, tuple):
            return model_class[0]
        return model_class
    modeling = import_module(kind.__module__.replace("configuration_", "modeling_"))
    classes = [
        value
        for value in vars(modeling).values()
        if getattr(value, "config_class", None) is kind
    ]
    for model_class in classes:
        if "PreTrained" not in model_class.__name__:
            return model_class
    raise LookupError(f"no model class for {kind.__name__}")


def language_part(config: Any, model: Any) -> tuple[Any, Any, str]:
    """The config, the module and the path of a model's language part: of all, unless
    the model is made of several.
    """
    text = config.get_text_config()
    if text is config:
        return config, model, ""
    for path, module in model.named_modules():
        if path and getattr(module, "config", None) is text:
            return text, module, path
    return text, model, ""


def layers_of(model: Any) -> Iterator[tuple[str, Any]]:
    """The numbered layers of a model with their paths: the elements of lists, where
    these hold more than an FFN; those of stages, not the stages themselves.
    """

    def visit(module: Any, path: str) -> Iterator[tuple[str, Any]]:
        for name, child in module.named_children():
            inner = f"{path}{name}"
            if not isinstance(child, nn.ModuleList):
                yield from visit(child, f"{inner}.")
                continue
            for number, layer in child.named_children():
                stages = [
                    each
                    for each_name, each in layer.named_children()
                    if isinstance(each, nn.ModuleList)
                    and not is_no_ffn(each_name, each)
                    and len({type(one) for one in each}) == 1
                    and any(is_no_ffn(n, m) for n, m in each[0].named_children())
                ]
                if stages:
                    yield from visit(layer, f"{inner}.{number}.")
                else:
                    yield f"{inner}.{number}", layer

    return visit(model, "")


def read_model(data: dict[str, Any], source: str) -> ModelSpec:
    """Read the model of a config.json's content; raises FfnbenchError."""
    import transformers

    config = load_config(data)
    whole = build_empty(config)
    text, model, path = language_part(config, whole)
    groups = _Groups(text)
    for layer_path, layer in layers_of(model):
        groups.add(layer_path, layer)
    if not groups.rows:
        raise FfnbenchError(
            f"no FFN was found in the layers of {type(model).__name__}",
            "count it from --d-model and --d-ff",
        )
    ignored = ignored_keys(data, config, whole)
    notes = []
    if path:
        notes.append(
            f"the language part of {config.model_type}: {path}, {text.model_type}"
        )
    if groups.sharing:
        notes.append(f"{groups.sharing} more layers use the FFN of an earlier one")
    if "auto_map" in data:
        notes.append("auto_map: the code that comes with the file is never run")
    if ignored:
        notes.append(f"{config.model_type} does not read: {', '.join(ignored)}")
    return ModelSpec(
        key=config.model_type,
        name=config.model_type,
        groups=tuple(groups.rows),
        source=source,
        counted_by=f"transformers {transformers.__version__}, which built {type(whole).__name__}",
        note="; ".join(notes),
        defaults=sizes_left_out(data, config),
        rest=_rest(whole, path, groups, config, data),
    )


class _Groups:
    """The layers of a model by kind: equal ones are one row, with their number. An FFN
    that several layers share is counted once.
    """

    def __init__(self, config: Any) -> None:
        self.config = config
        self.paths: set[str] = set()  # of the parameters of all FFNs
        self._counted: set[int] = set()  # by identity
        self.sharing = 0  # layers whose FFN is that of an earlier one
        self._first: dict[Any, LayerGroup] = {}
        self._counts: Counter[Any] = Counter()
        self._windows: dict[Any, Counter[Any]] = {}

    def add(self, path: str, layer: Any) -> None:
        """Count one layer; one without an FFN is not counted."""
        ffn = read_layer(layer, widths(self.config, layer))
        if not ffn.parts:
            return
        of_parts = [name for part in ffn.parts for name in part.shapes]
        parameters = {id(layer.get_parameter(name)) for name in of_parts}
        if parameters <= self._counted:
            self.sharing += 1
            return
        self._counted |= parameters
        self.paths |= {f"{path}.{name}" for name in [*ffn.loose, *of_parts]}
        attention = _attention_modules(layer)
        spec = attention_spec(attention, self.config, ffn.parts[0].d_model)
        key = (
            A_NUMBER.sub("*", path),
            tuple((part.path, tuple(part.shapes.items())) for part in ffn.parts),
            tuple(ffn.loose.items()),
            spec,
        )
        if key not in self._first:
            self._first[key] = group_of(path, layer, ffn, spec, self.config)
            self._windows[key] = Counter()
        self._counts[key] += 1
        number = int(A_NUMBER.findall(path)[0])
        window = window_of(self.config, number, attention)
        if attention or "attention" in window[1]:
            self._windows[key][window] += 1

    @property
    def rows(self) -> list[LayerGroup]:
        """A row for each kind of layer."""
        rows = []
        for key, group in self._first.items():
            windows = tuple(
                AttentionWindow(count=count, tokens=tokens, other=other)
                for (tokens, other), count in sorted(
                    self._windows[key].items(),
                    key=lambda item: (item[0][0] is not None, item[0][1]),
                )
            )
            if windows == (AttentionWindow(count=self._counts[key]),):
                windows = ()
            rows.append(replace(group, count=self._counts[key], windows=windows))
        return rows


def widths(config: Any, layer: Any) -> list[int]:
    """The widths that tokens may have in a layer: the config's, and those of its norms,
    which come first where the config's are not among them.
    """
    own = [
        attribute(config, name)
        for name in ("hidden_size", "d_model", "n_embd", "dim", "embed_dim")
    ]
    norms = Counter(
        parameter.shape[0]
        for name, parameter in layer.named_parameters()
        if "norm" in name.lower() and parameter.ndim == 1
    )
    of_norms = [width for width, _ in norms.most_common()]
    of_config = [width for width in own if isinstance(width, int)]
    of_norms.sort(key=lambda width: width not in of_config)
    return list(dict.fromkeys([*of_norms, *of_config]))


def group_of(
    path: str, layer: Any, ffn: LayerFFN, attention: AttentionSpec | None, config: Any
) -> LayerGroup:
    """A row of one layer: its FFN as a form where it is one, and its parameters."""
    proofs = [prove_part(layer, part, config) for part in ffn.parts]
    routed = [part for part in ffn.parts if part.experts]
    of_parts = sum(part.params for part in ffn.parts)
    params = of_parts + sum(map(prod, ffn.loose.values()))
    top_k = experts_of_token(layer, config) if routed else 0
    active: int | None = params
    if routed and not top_k:
        active = None
    elif routed:
        active = params - round(sum(idle_params(part, top_k) for part in routed))
    kind = "moe" if routed else "dense"
    if getattr(config, "is_encoder_decoder", False):
        stack = "decoder" if "decoder" in path else "encoder"
        kind = stack if kind == "dense" else f"{stack} moe"
    spec = _spec_of(layer, ffn, proofs, top_k, config)
    if spec is None:
        proofs = []
    names = [type(part.module or layer).__name__ for part in ffn.parts]
    return LayerGroup(
        kind=kind,
        count=1,
        ffn=spec,
        attention=attention,
        read=ReadFFN(
            params=params,
            params_active=active,
            name=" and ".join(dict.fromkeys(names)),
            proven=bool(proofs) and all(proof is not None for proof in proofs),
        ),
    )


def idle_params(part: FFNPart, top_k: int) -> float:
    """The parameters of the experts that a token does not go to. Where some experts do
    nothing, this is an expectation over all of them, chosen alike.
    """
    chosen = top_k * part.experts / (part.experts + part.unused)
    return part.params * (1 - chosen / part.experts)


def experts_of_token(layer: Any, config: Any) -> int:
    """How many experts a token goes to; 0 where it is not known."""
    places = [*layer.modules(), config]
    for name in TOP_K:
        for place in places:
            value = attribute(place, name)
            if isinstance(value, list) and value and len(set(value)) == 1:
                value = value[0]
            if type(value) is int and value > 0:
                return value
    return 0


def _spec_of(
    layer: Any,
    ffn: LayerFFN,
    proofs: list[Proof | None],
    top_k: int,
    config: Any,
) -> FFNSpec | None:
    """All parts of a layer as one form; None where they are none of ours.

    Beside experts the other parts are the shared expert.
    """
    routed = [place for place, part in enumerate(ffn.parts) if part.experts]
    main = routed[0] if routed else 0
    part, proof = ffn.parts[main], proofs[main]
    others = [place for place in range(len(ffn.parts)) if place != main]
    if len(routed) > 1 or (others and not routed) or part.unused:
        return None
    form = proof.form if proof is not None else _read_form(part, config)
    if form is None:
        return None
    is_stacked = any(len(shape) == 3 for shape in part.shapes.values())
    biased = any(
        len(shape) == (2 if is_stacked else 1) and shape[-1] > 1
        for shape in part.shapes.values()
    )
    spec = replace(form, d_model=part.d_model, d_ff=part.d_ff, bias=biased)
    if not routed:
        return spec if not ffn.loose else None
    for place in others:
        other = proofs[place]
        if other is not None and other.form.activation != form.activation:
            return None
    moe = _moe_of(layer, ffn, part, others, top_k, config)
    if moe is None:
        return None
    return replace(spec, moe=moe)


def _read_form(part: FFNPart, config: Any) -> FFNSpec | None:
    """The form that shape and config name, where there is no proof."""
    for value in vars(config).values():
        if isinstance(value, str) and value in HF_ACTIVATIONS:
            return FFNSpec(
                d_model=part.d_model,
                d_ff=part.d_ff,
                activation=HF_ACTIVATIONS[value],
                gate=Gate.INNER if part.gated else Gate.NONE,
            )
    return None


def _moe_of(
    layer: Any,
    ffn: LayerFFN,
    part: FFNPart,
    others: list[int],
    top_k: int,
    config: Any,
) -> MoESpec | None:
    """The experts around a part; None where its layer has something else beside."""
    router = [s for s in ffn.loose.values() if s == (part.experts, part.d_model)]
    gates = [s for s in ffn.loose.values() if s == (1, part.d_model)]
    biases = [s for s in ffn.loose.values() if s == (part.experts,)]
    if len(router) != 1 or len(router) + len(gates) + len(biases) != len(ffn.loose):
        return None
    text = " ".join(
        str(getattr(config, name, "")) for name in ("scoring_func", "topk_method")
    )
    sigmoid = "sigmoid" in text or any(
        hasattr(module, "e_score_correction_bias") for module in layer.modules()
    )
    groups = getattr(config, "n_group", None) or 1
    top_groups = getattr(config, "topk_group", None) or 1
    try:
        return MoESpec(
            experts=part.experts,
            top_k=top_k,
            shared_d_ff=sum(ffn.parts[place].d_ff for place in others),
            shared_gate=bool(gates and others),
            router_bias=bool(biases),
            scores=Scores.SIGMOID if sigmoid else Scores.SOFTMAX,
            normalised=getattr(config, "norm_topk_prob", True) is not False,
            routed_scale=float(getattr(config, "routed_scaling_factor", None) or 1.0),
            groups=groups,
            top_groups=top_groups,
        )
    except FfnbenchError:
        return None


def _attention_modules(layer: Any) -> list[Any]:
    """The attentions of a layer, none inside another."""
    attentions: list[Any] = []
    for module in layer.children():
        if ATTENTION_CLASS.search(type(module).__name__):
            attentions.append(module)
        else:
            attentions += _attention_modules(module)
    return attentions


def attribute(place: Any, name: str) -> Any:
    """An attribute of a module or a config; None where it has none, or where it differs
    by layer.
    """
    try:
        return getattr(place, name, None)
    except Exception:  # a config's own error
        return None


def attention_spec(
    modules: list[Any], config: Any, d_model: int
) -> AttentionSpec | None:
    """The attention of a layer, by its own attributes and the config's, where its
    matrices have just these sizes; None where they have others.
    """
    if not modules:
        return None
    module = modules[0]
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
    kv_heads = number("num_key_value_heads", "num_kv_heads") or heads
    head_dim = number("head_dim", "attention_head_size") or d_model // heads
    mla = None
    kv_lora = number("kv_lora_rank")
    if kv_lora:
        nope, rope, v = (number(f"{n}_head_dim") for n in ("qk_nope", "qk_rope", "v"))
        if nope and rope and v:
            mla = MLASpec(
                q_lora=number("q_lora_rank"), kv_lora=kv_lora, nope=nope, rope=rope, v=v
            )
    try:
        plain = AttentionSpec(
            d_model=d_model, heads=heads, kv_heads=kv_heads, head_dim=head_dim, mla=mla
        )
    except FfnbenchError:
        return None
    if plain.params != matrices:
        return None
    for qkv_bias, out_bias in (
        (False, False),
        (True, True),
        (True, False),
        (False, True),
    ):
        if qkv_bias and mla is not None:
            continue
        spec = replace(plain, qkv_bias=qkv_bias, out_bias=out_bias)
        if sum(spec.biases.values()) == vectors:
            return spec
    return None


def window_of(
    config: Any, number: int, attentions: list[Any]
) -> tuple[int | None, str]:
    """How many tokens an attention sees, None for all, and what it does in place of
    that; "" for nothing else.
    """
    size = attribute(config, "sliding_window")
    kinds = attribute(config, "layer_types")
    own = getattr(attentions[0], "sliding_window", None) if attentions else None
    if isinstance(kinds, list) and number < len(kinds):
        kind = str(kinds[number])
        if kind.startswith("sliding") or kind == "local":
            return (size if isinstance(size, int) else own), ""
        if kind.startswith("full") or kind in ("global", "attention"):
            return None, ""
        return None, kind
    if isinstance(own, int) and own > 0:
        return own, ""
    if (
        isinstance(size, int)
        and size > 0
        and getattr(config, "use_sliding_window", True)
    ):
        return size, ""
    return None, ""


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
        value = data[key]
        if type(value) is int and WIDTH_KEY.search(key) and value not in has:
            sizes = Counter(
                size for p in model.parameters() if p.ndim == 2 for size in p.shape
            )
            main = {*widths(config.get_text_config(), model)} & has
            common = {size for size, _ in sizes.most_common(4)}
            texts = [f"{size:,}" for size in sorted(main | common)]
            raise FfnbenchError(
                f"{key} {value:,} is the width of no module of {type(model).__name__}, whose class does not read that key",
                f"its widths are {', '.join(texts)}",
            )
    return ignored


def sizes_left_out(data: Mapping[str, Any], config: Any) -> str:
    """The sizes that a file leaves to its class, in words; "" for none."""
    text = config.get_text_config()
    parts = [data, *(value for value in data.values() if isinstance(value, dict))]
    written = {key for part in parts for key in part}
    numbers = [value for part in parts for value in part.values() if type(value) is int]
    names = {*inspect.signature(type(text)).parameters}
    left_out = []
    for name in sorted(names):
        value = attribute(text, name)
        others = [key for key, target in text.attribute_map.items() if target == name]
        is_size = SIZE_KEY.search(name) and type(value) is int and value > 1
        if is_size and not written & {name, *others} and value not in numbers:
            left_out.append(f"{name} {value:,}")
    if not left_out:
        return ""
    return f"defaults of {text.model_type}, which the file does not set: {', '.join(left_out)}"


def _weight_of(embeddings: Callable[[], Any]) -> Any:
    """The matrix of a model's embeddings; None where it has none."""
    try:
        return getattr(embeddings(), "weight", None)
    except NotImplementedError:
        return None


def writes_text(data: Mapping[str, Any]) -> bool:
    """Whether a file names a class with an output layer."""
    classes = data.get("architectures") or ()
    return any("CausalLM" in str(name) for name in classes)


def _rest(
    whole: Any, path: str, groups: _Groups, config: Any, data: Mapping[str, Any]
) -> Rest:
    """All parameters that are not those of FFNs, by part; what other models a composite
    has are `other`.
    """
    prefix = f"{path}." if path else ""
    ffn_paths = {prefix + name for name in groups.paths}
    classes = {name: type(module).__name__ for name, module in whole.named_modules()}
    counts: Counter[str] = Counter()
    inputs = _weight_of(whole.get_input_embeddings)
    outputs = _weight_of(whole.get_output_embeddings)
    output = None if outputs is inputs else outputs
    for name, parameter in whole.named_parameters():
        parts = name.split(".")
        around = [classes[".".join(parts[:n])] for n in range(1, len(parts))]
        if name in ffn_paths:
            continue
        if parameter is output or (HEAD.search(name) and "attn" not in name):
            counts["head"] += parameter.numel()
        elif prefix and not name.startswith(prefix):
            counts["other"] += parameter.numel()
        elif around and "norm" in around[-1].lower():
            counts["norms"] += parameter.numel()
        elif any(ATTENTION_CLASS.search(each) for each in around):
            counts["attention"] += parameter.numel()
        elif any("Embed" in each for each in around):
            counts["embeddings"] += parameter.numel()
        else:
            counts["other"] += parameter.numel()
    says_untied = data.get("tie_word_embeddings") is False
    # a class may tie them until it has read the weights, or be the bare model's
    may_untie = outputs is not None and attribute(config, "tie_word_embeddings")
    has_own_output = may_untie or writes_text(data)
    if says_untied and has_own_output and inputs is not None and not counts["head"]:
        counts["head"] += inputs.numel()
    return Rest(
        embeddings=counts["embeddings"],
        attention=counts["attention"] - attention_params(groups.rows),
        norms=counts["norms"],
        head=counts["head"],
        other=counts["other"],
    )


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
