"""transformers' own models: built without data, their FFNs found and counted. Runs in a worker; needs the extra `hf`.

An FFN is a module of a known name inside a numbered layer, or a pair of projections of known names in the layer
itself (BERT's intermediate and output, BART's fc1 and fc2). Norms beside or inside it are not counted.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from ffnbench.errors import FfnbenchError
from ffnbench.ffn.cost import params
from ffnbench.ffn.moe import MoESpec
from ffnbench.ffn.spec import HF, FFNSpec, Gate
from ffnbench.ffn.weight_names import DOWN, GATE, PACKED, UP
from ffnbench.models.configs import LeftOut, read_file, read_groups
from ffnbench.models.families import families
from ffnbench.models.foreign import class_named, code_note, refuse_foreign_keys
from ffnbench.models.model import CountedLayers, CountedModel, OwnMLP
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
CORRECTION = "e_score_correction_bias"  # a buffer that training moves, from zero; it corrects the choice alone
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
# a key of older files, found in the source of a class that turns it into another key
OLD_NAME = re.compile(r'kwargs\.(?:pop|get)\(\s*"(\w+)"|kwargs\["(\w+)"\]|"(\w+)" (?:not )?in kwargs')
SET = re.compile(r"self\.(\w+)[^=\n]* = ")
PARTIAL = re.compile(r"(Encoder|Decoder|Stack|Wrapper)$")
Shapes = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One FFN of a model: where it stands, its class, its parameters. `pair` names projections that are the layer's."""

    path: str
    module: Any
    shapes: Shapes
    pair: tuple[str, ...] = ()

    @property
    def own(self) -> bool:
        """Whether the model has a class for it."""
        return not self.pair

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


def load_config(source: str) -> Any:
    """transformers' config object of a config.json, of its folder, or of a model type with its defaults."""
    return load(source)[0]


def load(source: str) -> tuple[Any, Any, str]:
    """The same, the class of transformers that the file names or None, and a note about what the file leaves out.

    Raises FfnbenchError also where the file has keys, or a class, that are another model type's.
    """
    transformers = _transformers()
    path = Path(source).expanduser()
    left_out = LeftOut()
    try:
        if not path.exists() and source in transformers.CONFIG_MAPPING:
            return transformers.CONFIG_MAPPING[source](), None, ""
        data, _ = read_file(config_path(source))
        model_type = families().alias.get(data["model_type"], data["model_type"])
        kind = transformers.CONFIG_MAPPING[model_type]
        classes = classes_of(kind)
        named = class_named(data, model_type, classes.keys())
        if named and named not in classes:
            raise FfnbenchError(f"transformers has no class {named}", "give the config.json of a class that it has")
        own = next((classes[name] for name in data.get("architectures") or () if name in classes), None)
        config = kind.from_dict(json.loads(json.dumps(data | {"model_type": model_type})))
        _read_by(config, data, left_out)
    except FfnbenchError:
        raise
    except Exception as problem:
        raise FfnbenchError(
            f"transformers can't read {source!r}: {type(problem).__name__}: {problem}",
            "give a config.json, the folder that holds one, or a model type such as llama",
        ) from problem
    return config, own, "; ".join(filter(None, (left_out.note(), code_note(data, f"transformers' {model_type}"))))


def classes_of(kind: Any) -> dict[str, Any]:
    """The models that have a config class for theirs, by name; not their parts, which no file names.

    None where they stand in the file of another type, or need a package that is not here.
    """
    from transformers import PreTrainedModel

    try:
        module = importlib.import_module(kind.__module__.replace("configuration_", "modeling_"))
    except ImportError:
        return {}
    models = [each for each in vars(module).values() if isinstance(each, type) and issubclass(each, PreTrainedModel)]
    found = {
        each.__name__: each for each in models
        if getattr(each, "config_class", None) is kind and "pretrained" not in each.__name__.lower()
    }  # fmt: skip
    whole = {name for name in found if not PARTIAL.search(name)}
    return {name: found[name] for name in (whole if any(name.endswith("Model") for name in whole) else found)}


def keys_of_class(kind: Any) -> set[str]:
    """Every key that a config class takes: its fields and properties, other names, and what its source sets or asks."""
    found = {each.name for each in dataclasses.fields(kind)} | {*kind.attribute_map, *kind.attribute_map.values()}
    found |= {name for name in dir(kind) if isinstance(inspect.getattr_static(kind, name), property)}
    for each in kind.__mro__:
        if each.__module__.startswith("transformers.models."):
            source = inspect.getsource(each)
            found |= {next(filter(None, groups)) for groups in OLD_NAME.findall(source)} | {*SET.findall(source)}
    return found


def _read_by(config: Any, data: dict[str, Any], left_out: LeftOut) -> dict[str, set[Any]]:
    """What a built config says, its nested ones with it; refuses keys of the file that its class passes over."""
    speaking = families().speaking
    said: dict[str, set[Any]] = {"layout": {1}}
    own, other = keys_of_class(type(config)), {name: key for key, name in config.attribute_map.items()}
    for name in sorted(own & speaking.keys()):
        value = getattr(config, name, None)
        if isinstance(value, int | float):
            for field in speaking[name]:
                said.setdefault(field, set()).add(value)
        if name not in config.attribute_map and value is not None and not {name, other.get(name)} & data.keys():
            left_out.add(name)
    for key in config.sub_configs:
        part = getattr(config, key, None)
        if part is not None and hasattr(part, "sub_configs"):
            nested = data[key] if isinstance(data.get(key), dict) else {}
            for field, values in _read_by(part, nested, left_out.within(key)).items():
                said.setdefault(field, set()).update(values)
    refuse_foreign_keys(data, config.model_type, own | set(config.sub_configs), said)
    return said


def build_empty(config: Any, kind: Any = None, tied: bool = False) -> Any:
    """The model of a config on torch's meta device: shapes and no data. The bare model, unless a class is given.

    `tied` makes one parameter of weights that the model shares. Raises FfnbenchError where it can't be built.
    """
    import torch
    from transformers import initialization

    with torch.device("meta"), _quiet():
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


def feed_forwards(model: Any) -> list[Found]:
    """Every FFN of a model's numbered layers, in their order; what stands inside one is part of it."""
    found: list[Found] = []
    modules = dict(model.named_modules())
    for path, module in modules.items():
        if not below_layer(path, modules) or elsewhere(path, modules):
            continue
        if found and found[-1].own and path.startswith(f"{found[-1].path}."):
            continue
        if _is_ffn(path, module, modules):
            if shapes := _shapes(module):
                found.append(Found(path=path, module=module, shapes=shapes))
        else:
            found += [Found(path=path, module=module, shapes=shapes, pair=pair) for pair, shapes in _pairs(module)]
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


def left_over(model: Any, found: Iterable[Found]) -> list[str]:
    """What stands in a numbered layer and is nothing known: neither part of an FFN that was found nor another part.

    Paths without the numbers of layers, each once: such a model can't be counted by names.
    """
    claimed = {f"{one.path}.{name}" for one in found for name, _ in one.shapes}
    modules = dict(model.named_modules())
    names = [name for name, _ in model.named_parameters() if name not in claimed and below_layer(name, modules)]
    return list(dict.fromkeys(NUMBER.sub("*", name) for name in names if not elsewhere(name, modules)))


def count_layers(source: str) -> CountedModel:
    """The FFNs of a config.json's model as transformers builds it, equal ones together.

    Raises FfnbenchError where no FFN is found, or something is left over that may belong to one.
    """
    transformers = _transformers()
    config, kind, note = load(source)
    model = build_empty(config, kind)
    all_of_them = feed_forwards(model)
    if left := left_over(model, all_of_them):
        shown = ", ".join(left[:3]) + (f" and {len(left) - 3} more" if len(left) > 3 else "")
        raise FfnbenchError(
            f"the layers of {config.model_type} hold what may be FFNs under names that nobody declared: {shown}",
            "count them by hand, or name the FFN's class as a variant",
        )
    kinds = Counter((found.stack, found.name, found.params, active_params(found)) for found in all_of_them)
    if not kinds:
        raise FfnbenchError(
            f"the {config.model_type} model of transformers has no FFN that can be told by its name",
            "looked for modules called " + ", ".join(sorted(NAMES)),
        )
    return CountedModel(
        name=config.model_type,
        source=source,
        counted_by=f"transformers {transformers.__version__}, which built it",
        note=note,
        layers=tuple(
            CountedLayers(kind=stack, count=count, params=total, params_active=active, name=name)
            for (stack, name, total, active), count in kinds.items()
        ),
    )


def active_params(found: Found) -> int | None:
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


def own_mlp(target: str) -> OwnMLP:
    """What `hf:CONFIG` is, found without data: the MLP of the kind of layer that the model has most of."""
    config = load_config(target.removeprefix(HF))
    found = _main(config)
    form, module = _form(config, found), _module(found)
    checkable = form is not None and as_ours(module, form) is not None
    d_model = form.d_model if form else _input_width(config, module)
    widths = {size for _, shape in found.shapes if len(shape) > 1 for size in shape[-2:]} - {d_model}
    d_ff = form.d_ff if form else max(widths, default=d_model)
    return OwnMLP(name=found.name, d_model=d_model, d_ff=d_ff, form=form if checkable else None)


def build_own(target: str) -> Any:
    """That MLP with data: its own class and shapes, weights drawn from torch's generator."""
    import torch

    module = _module(_main(load_config(target.removeprefix(HF))))
    if buffers := [name for name, _ in module.named_buffers() if not name.endswith(CORRECTION)]:
        raise FfnbenchError(
            f"{target} is {type(module).__name__}, whose buffer {buffers[0]!r} can't be made without its model",
            "name the class itself: transformers.models...:Class",
        )
    module = module.to_empty(device="meta" if torch.empty(0).is_meta else "cpu")
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=0.02)
        for part in module.modules():
            if hasattr(part, "reset_parameters"):
                part.reset_parameters()
        for _, buffer in module.named_buffers():
            buffer.zero_()
    return module


def _module(found: Found) -> Any:
    """An FFN as a module of one input: without a residual, which some classes add themselves (bloom, mpt)."""
    from ffnbench.models.alone import Projections, WithoutResidual

    if found.own:
        takes = [each.name for each in inspect.signature(found.module.forward).parameters.values() if _must_be(each)]
        return WithoutResidual(found.module) if takes[1:] == ["residual"] else found.module
    halves = [getattr(found.module, name) for name in found.pair]
    linear = [
        [part for part in half.modules() if getattr(part, "weight", None) is not None and part.weight.ndim > 1]
        for half in halves
    ]
    acts = [getattr(owner, name) for owner in (halves[0], found.module) for name in ACTS if hasattr(owner, name)]
    if [len(each) for each in linear] != [1, 1] or not acts:
        raise FfnbenchError(
            f"the projections of {type(found.module).__name__} are no pair with an activation between them",
            "name a class that has one",
        )
    return Projections(linear[0][0], acts[0], linear[1][0])


def _must_be(parameter: inspect.Parameter) -> bool:
    return parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD


def _main(config: Any) -> Found:
    """One of the FFNs that the model has most of, the later kind of equals, as ModelSpec.main has it."""
    found = feed_forwards(build_empty(config))
    kinds = Counter((each.stack, each.shapes) for each in found)
    if not found:
        raise FfnbenchError(f"the {config.model_type} model has no FFN that can be told by its name", "name its class")
    stack, shapes = max(reversed(list(kinds)), key=lambda kind: kinds[kind])
    return next(each for each in found if (each.stack, each.shapes) == (stack, shapes))


def _form(config: Any, found: Found) -> FFNSpec | None:
    """The same FFN by the table of families; None where it has none, or another count."""
    try:
        groups = read_groups(json.loads(config.to_json_string()))
    except FfnbenchError:
        return None
    forms = [group.ffn for group in groups if params(group.ffn) == found.params]
    return forms[0] if forms else None


def _input_width(config: Any, module: Any) -> int:
    linear = [part for part in module.modules() if hasattr(part, "in_features")]
    return int(linear[0].in_features if linear else config.get_text_config().hidden_size)


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


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as problem:
        raise FfnbenchError("transformers is not installed", "pip install 'ffnbench[hf]'") from problem
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    return transformers


@contextmanager
def _quiet() -> Iterator[None]:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


ACTS = ("activation_fn", "intermediate_act_fn", "act", "activation", "act_fn", "activation_func", "hidden_act_fn")
ROUTER = ("gate", "router")
SHARED = ("shared_expert", "shared_experts")
Weights = dict[str, tuple[Any, Any]]  # name of ours -> weight (rows: outputs) and bias


def as_ours(module: Any, form: FFNSpec) -> Any:
    """Our module of the form, on the very weights of theirs; None where its projections have other names.

    Also None where the activation is trained and its scalars can't be told: those of nn.PReLU can, if there is one.
    """
    from torch import nn

    from ffnbench.ffn.modules import build_module
    from ffnbench.models.alone import WithoutResidual

    module = module.mlp if isinstance(module, WithoutResidual) else module
    found = _projections(module, form.gate) if form.moe is None else _mixture(module, form.moe)
    slopes = [p.weight.detach() for p in module.modules() if isinstance(p, nn.PReLU) and p.weight.numel() == 1]
    shared = form.moe is not None and form.moe.shared_d_ff > 0  # whose activation has a scalar of its own
    if found is None or (form.row.learned and (len(form.row.learned) != len(slopes) or shared)):
        return None
    ours = build_module(form, device="meta")
    home = ours if form.moe is None else ours.experts
    for (name, _), slope in zip(form.row.learned, slopes, strict=False):
        setattr(home, name, nn.Parameter(slope.view(()), requires_grad=False))
    for name, (weight, bias) in found.items():
        layer = ours.get_submodule(name)
        if layer.weight.shape != weight.shape or (layer.bias is None) != (bias is None):
            raise FfnbenchError(f"its {name} is {tuple(weight.shape)}, {'no bias' if bias is None else 'with a bias'}")
        layer.weight = nn.Parameter(weight, requires_grad=False)
        layer.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)
    return ours


def _mixture(module: Any, moe: MoESpec) -> Weights | None:
    """Router, experts, shared expert and its gate; None where one of them is not found."""
    router, experts, shared = _child(module, ROUTER), getattr(module, "experts", None), None
    packed, down = (getattr(experts, name, None) for name in ("gate_up_proj", "down_proj"))
    if moe.shared_d_ff:
        inner = next((getattr(module, name) for name in SHARED if hasattr(module, name)), None)
        shared = inner and _projections(inner, Gate.INNER)
        if not shared:
            return None
    if router is None or packed is None or down is None or packed.ndim != 3 or down.ndim != 3:
        return None
    biases = [getattr(experts, f"{name}_bias", None) for name in ("gate_up_proj", "down_proj")]
    found = {"router": _weights(router)} | _stacked(experts, packed.detach(), down.detach(), *biases)
    if moe.shared_gate:
        found["shared_gate"] = _weights(module.shared_expert_gate)
    return found | {f"shared.{name}": pair for name, pair in (shared or {}).items()}


def _stacked(experts: Any, packed: Any, down: Any, packed_bias: Any, down_bias: Any) -> Weights:
    """The weights (experts, out, in) and biases (experts, out) of all experts."""
    if getattr(experts, "is_transposed", False):
        packed, down = packed.mT, down.mT

    def half(tensor: Any, which: int) -> Any:
        if tensor is None:
            return None
        in_turns = not getattr(experts, "is_concatenated", True)
        return tensor.detach()[:, which::2] if in_turns else tensor.detach().chunk(2, dim=1)[which]

    named = {name: (half(packed, i), half(packed_bias, i)) for i, name in enumerate(("gate", "up"))}
    named["down"] = (down, None if down_bias is None else down_bias.detach())
    return {f"experts.{name}": pair for name, pair in named.items()}


def _projections(module: Any, form: Gate) -> Weights | None:
    down, up, packed = (_child(module, names) for names in (DOWN, UP, PACKED))
    if down is None:
        return None
    found = {"down": _weights(down)}
    if form is Gate.NONE:
        return found | {"up": _weights(up)} if up is not None else None
    gate = _child(module, GATE)
    if gate is not None and up is not None:
        return found | {"gate": _weights(gate), "up": _weights(up)}
    if packed is None:
        return None
    weight, bias = _weights(packed)
    halves = weight.chunk(2), (None, None) if bias is None else bias.chunk(2)
    return found | {name: (halves[0][i], halves[1][i]) for i, name in enumerate(("gate", "up"))}


def _child(module: Any, names: tuple[str, ...]) -> Any:
    return next((getattr(module, name) for name in names if hasattr(getattr(module, name, None), "weight")), None)


def _weights(layer: Any) -> tuple[Any, Any]:
    weight = layer.weight.detach()
    bias = getattr(layer, "bias", None)
    turned = type(layer).__name__ == "Conv1D"
    return weight.T if turned else weight, None if bias is None else bias.detach()
