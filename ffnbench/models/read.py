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
from ffnbench.models.model import AttentionWindow, LayerGroup, ModelSpec

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]
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
# transformers' mappings of a config's class to a model, those with an output layer
# before the bare one: the first that has the class is taken
MAPPINGS = (
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING",
    "MODEL_FOR_CAUSAL_LM_MAPPING",
    "MODEL_MAPPING",
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
# keys of a config.json that have sizes
SIZE_KEY = re.compile(
    r"^(hidden_size|d_model|n_embd|dim|hidden_dim|n_layers|n_heads|\w*intermediate_size|d_ff|\w*ffn_dim|n_inner|num_hidden_layers|num_layers|n_layer|"
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
    shapes: Shapes
    d_model: int
    gated: bool
    d_ff: int
    experts: int = 0
    unused: int = 0

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
    parameters: dict[str, list[Any]] = field(default_factory=dict)
    parts: list[FFNPart] = field(default_factory=list)
    loose: dict[str, Shape] = field(default_factory=dict)

    @property
    def number(self) -> int:
        """Its number in the model's list of layers."""
        return int(A_NUMBER.findall(self.path)[0])

    @property
    def attentions(self) -> list[Any]:
        """The modules in it that are attentions."""
        modules = self.module.modules()
        return [each for each in modules if ATTENTION_CLASS.search(class_of(each))]


def class_of(module: Any) -> str:
    """The name of a module's class."""
    return type(module).__name__


def prefixes_of(path: str) -> list[str]:
    """The paths of the modules around a module or parameter, the outermost first."""
    names = path.split(".")[:-1]
    return [".".join(names[:end]) for end in range(1, len(names) + 1)]


def last_name(path: str) -> str:
    """The name of a module or parameter in the module around it."""
    return path.rpartition(".")[2]


def layers_of(model: Any, config: Any) -> list[Layer]:
    """The numbered layers of a model that have an FFN; raises FfnbenchError for none.

    A layer is the innermost numbered module around a parameter that has an attention in
    it; where none has, the outermost.
    """
    classes = {path: class_of(module) for path, module in model.named_modules()}
    attentions = [
        path for path, each in classes.items() if ATTENTION_CLASS.search(each)
    ]
    around_attention = {prefix for path in attentions for prefix in prefixes_of(path)}
    layers: dict[str, Layer] = {}
    for name, parameter in model.named_parameters():
        around = prefixes_of(name)
        numbered = [path for path in around if last_name(path).isdigit()]
        if not numbered:
            continue
        with_attention = [path for path in numbered if path in around_attention]
        path = with_attention[-1] if with_attention else numbered[0]
        inside = [each for each in around if len(each) > len(path)]
        is_other = any(NO_FFN_CLASS.search(classes[each]) for each in inside)
        if is_other or any(NO_FFN.search(last_name(each)) for each in (*inside, name)):
            continue
        layer = layers.setdefault(path, Layer(path, model.get_submodule(path)))
        in_layer = EXPERT.sub(r"\1*", name[len(path) + 1 :], count=1)
        layer.parameters.setdefault(in_layer, []).append(parameter)
    for layer in layers.values():
        find_parts(layer, widths(config, layer.module))
    found = [layer for layer in layers.values() if layer.parts]
    if not found:
        raise FfnbenchError(
            f"no FFN was found in the layers of {class_of(model)}",
            "count it from --d-model and --d-ff",
        )
    return found


def widths(config: Any, layer: Any) -> list[int]:
    """The widths that tokens may have in a layer: those of its norms, the commonest
    first, and the config's, which comes first where a norm has it.
    """
    norms = Counter(
        parameter.shape[0]
        for name, parameter in layer.named_parameters()
        if "norm" in name.lower() and parameter.ndim == 1
    )
    of_config = attribute(config, "hidden_size")
    of_norms = [width for width, _ in norms.most_common()]
    of_norms.sort(key=lambda width: width != of_config)
    return [*of_norms, of_config]


def has_experts(shape: Shape) -> bool:
    """Whether it is the shape of the stacked matrices of experts."""
    return len(shape) == 3 and min(shape[1:]) > 1


def find_parts(layer: Layer, d_models: list[int]) -> None:
    """Find the FFNs among the parameters of a layer, in the innermost modules first,
    around the first of the model's widths that fits; experts also around a latent
    width, which a matrix beside them has. Leave out what stands beside FFNs and their
    routers.
    """
    loose = {}
    for name, parameters in layer.parameters.items():
        shape = tuple(parameters[0].shape)
        loose[name] = (len(parameters), *shape) if "*" in name else shape
    owners = dict.fromkeys(prefix for name in loose for prefix in prefixes_of(name))
    innermost_first = sorted(owners, key=lambda path: path.count("."), reverse=True)
    matrices = [shape for shape in loose.values() if len(shape) == 2]
    latents = sorted({size for shape in matrices for size in shape})
    for d_model in (*d_models, *latents):
        has_more = any(map(has_experts, loose.values()))
        if not has_more and (layer.parts or d_model not in d_models):
            break
        for owner in (*innermost_first, ""):
            part = part_in(owner, loose, d_model)
            if part is not None:
                layer.parts.append(part)
                loose = {n: s for n, s in loose.items() if n not in part.shapes}
    of_ffns = {"router", *(part.path.partition(".")[0] for part in layer.parts)}
    for name, shape in loose.items():
        if name.partition(".")[0] in of_ffns:
            layer.loose[name] = shape
        else:
            del layer.parameters[name]


def part_in(owner: str, shapes: Shapes, d_model: int) -> FFNPart | None:
    """All matrices below a module as one FFN around a width, or as its experts; None
    where they are no such. Beside stacked matrices of experts flat ones are those of
    a router.
    """
    below = {n: s for n, s in shapes.items() if not owner or owner in prefixes_of(n)}
    experts = {n: s for n, s in below.items() if has_experts(s)}
    matrices = experts or {n: s for n, s in below.items() if len(s) == 2}
    inner = []
    for *_, rows, columns in matrices.values():
        if d_model not in (rows, columns):
            return None
        inner.append(rows if columns == d_model else columns)
    is_packed = len(inner) == 2 and max(inner) == 2 * min(inner)
    if len(inner) not in (2, 3) or not (is_packed or len(set(inner)) == 1):
        return None
    biases = {}
    for name, shape in below.items():
        if "bias" in name and len(shape) == 2 if experts else len(shape) == 1:
            biases[name] = shape
    numbers = {shape[0] for shape in experts.values()} or {0}
    return FFNPart(
        path=owner,
        shapes=matrices | biases,
        d_model=d_model,
        gated=is_packed or len(inner) == 3,
        d_ff=min(inner),
        experts=min(numbers),
        unused=max(numbers) - min(numbers),
    )


def module_of(layer: Layer, part: FFNPart) -> Any:
    """The module that computes a part, or one of its experts; None where there is none.

    Where its two projections stand in the layer itself they are one module: the first
    has its activation in the module around it, or the layer has one.
    """
    if part.path:
        return layer.module.get_submodule(part.path.replace("*", "0"))
    if part.gated or part.experts:
        return None
    first, second = [prefixes_of(n)[-1] for n, s in part.shapes.items() if len(s) == 2]
    modules = [layer.module.get_submodule(first.partition(".")[0])]
    if isinstance(modules[0], nn.Linear):
        modules += [
            child for name, child in layer.module.named_children() if "act" in name
        ][:1]
    return nn.Sequential(*modules, layer.module.get_submodule(second))


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
    raise FfnbenchError(f"{class_of(module)} can't be called alone")


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
    return [
        HF_ACTIVATIONS[value]
        for value in vars(config).values()
        if isinstance(value, str) and value in HF_ACTIVATIONS
    ]


def prove_part(layer: Layer, part: FFNPart, config: Any) -> Proof | None:
    """The proof of a part's form on a small copy; None where it can't be proven."""
    try:
        copied = small_copy(
            module_of(layer, part), small_sizes(part.d_model, part.d_ff)
        )
        return prove(copied, candidates(part, config, copied), call_alone)
    except Exception:  # a module of its own ways
        return None


def form_of(layer: Layer, config: Any) -> tuple[FFNSpec | None, list[Proof | None]]:
    """All parts of a layer as one form, None where they are none of ours; and the proof
    of each part. Beside experts the other parts are the shared expert.
    """
    proofs = [prove_part(layer, part, config) for part in layer.parts]
    experts = [part for part in layer.parts if part.experts]
    part = (experts or layer.parts)[0]
    others = [each for each in layer.parts if each is not part]
    forms = [proof.form for proof in proofs if proof is not None]
    if not forms and activations_of(config):
        forms = [next(candidates(part, config, nn.Module()))]
    is_one = len(experts) == 1 if experts else not (others or layer.loose)
    if not is_one or part.unused or len({form.activation for form in forms}) != 1:
        return None, proofs
    vectors = 2 if experts else 1
    form = replace(
        forms[0],
        gate=Gate.INNER if part.gated else Gate.NONE,
        d_model=part.d_model,
        d_ff=part.d_ff,
        bias=any(len(s) == vectors and s[-1] > 1 for s in part.shapes.values()),
    )
    if not experts:
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
    with suppress(FfnbenchError):  # so many experts a token are not there
        return MoESpec(
            experts=part.experts,
            top_k=experts_of_token(layer, config) or 0,
            shared_d_ff=sum(other.d_ff for other in others),
            shared_gate=bool(counts[gate] and others),
            router_bias=bool(counts[bias]),
            scores=Scores.SIGMOID if has_sigmoid else Scores.SOFTMAX,
            normalised=attribute(config, "norm_topk_prob") is not False,
            routed_scale=attribute(config, "routed_scaling_factor") or 1.0,
            groups=attribute(config, "n_group") or 1,
            top_groups=attribute(config, "topk_group") or 1,
        )
    return None


def attribute(place: Any, name: str) -> Any:
    """An attribute of a module or a config; None where it has none, or where it differs
    by layer.
    """
    try:
        return getattr(place, name, None)
    except Exception:  # a config's own error
        return None


def number_in(places: Iterable[Any], *names: str) -> int | None:
    """The first positive number that one of the modules or configs has under one of
    the names.
    """
    for place in places:
        for name in names:
            value = attribute(place, name)
            if type(value) is int and value > 0:
                return value
    return None


def experts_of_token(layer: Layer, config: Any) -> int | None:
    """How many experts a token goes to; None where it is not known."""
    return number_in([*layer.module.modules(), config], *TOP_K)


def attention_of(layer: Layer, config: Any) -> AttentionSpec | None:
    """The attention of a layer, by its own attributes and the config's, where its
    matrices have just these sizes; None where they have others.
    """
    if not layer.attentions:
        return None
    places = (layer.attentions[0], config)
    shapes = [
        tuple(parameter.shape)
        for name, parameter in places[0].named_parameters()
        if not re.search("norm|sink|relative|rel_", name.lower())
    ]
    vectors = sum(prod(shape) for shape in shapes if len(shape) == 1)
    matrices = sum(prod(shape) for shape in shapes if len(shape) == 2)
    heads = number_in(places, "num_heads", "num_attention_heads", "n_heads", "n_head")
    if heads is None:
        return None
    d_model = layer.parts[0].d_model
    mla = None
    if kv_lora := number_in(places, "kv_lora_rank"):
        mla = MLASpec(
            q_lora=number_in(places, "q_lora_rank"),
            kv_lora=kv_lora,
            nope=number_in(places, "qk_nope_head_dim") or 0,
            rope=number_in(places, "qk_rope_head_dim") or 0,
            v=number_in(places, "v_head_dim") or 0,
        )
    head_dim = number_in(places, "head_dim", "attention_head_size") or d_model // heads
    for qkv_bias, out_bias in product((False, True), repeat=2):
        with suppress(FfnbenchError):  # no such heads
            spec = AttentionSpec(
                d_model=d_model,
                heads=heads,
                kv_heads=number_in(places, "num_key_value_heads", "num_kv_heads")
                or heads,
                head_dim=head_dim,
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
    counts: Counter[tuple[int, str]] = Counter()
    kinds = attribute(config, "layer_types") or []
    for layer in layers:
        kind = kinds[layer.number] if layer.number < len(kinds) else "sliding"
        window = (0, kind)
        if kind.startswith(("sliding", "local")):
            tokens = number_in([config, *layer.attentions], "sliding_window")
            window = (tokens or 0, "")
        elif kind.startswith(("full", "global")) or kind == "attention":
            window = (0, "")
        if layer.attentions or "attention" in kind:
            counts[window] += 1
    if not counts.keys() - {(0, "")}:
        return ()
    return tuple(
        AttentionWindow(count=count, tokens=tokens or None, other=other)
        for (tokens, other), count in sorted(counts.items())
    )


def group_of(layers: list[Layer], config: Any) -> LayerGroup:
    """A row of equal layers: their FFN as a form where it is one, its parameters, and
    the attention beside it.
    """
    layer = layers[0]
    # all tokens go to shared experts
    routed = [
        each for each in layer.parts if each.experts and "shared" not in each.path
    ]
    params = sum(part.params for part in layer.parts)
    params += sum(map(prod, layer.loose.values()))
    others = [tuple(p.shape) for each in layer.attentions for p in each.parameters()]
    elsewhere = any(map(has_experts, [*layer.loose.values(), *others]))
    active: int | None = params
    if routed:
        top_k = experts_of_token(layer, config)
        is_known = top_k is not None and len(routed) == 1 and not elsewhere
        active = params - idle_params(routed[0], top_k or 0) if is_known else None
    # the masks that the model's code makes; where it makes both, a module tells which
    code = vars(sys.modules[type(layer.module).__module__])
    masks = {attribute(module, "is_causal") for module in layer.module.modules()}
    is_causal = "create_causal_mask" in code and masks != {False, None}
    stack = ""
    if "create_bidirectional_mask" in code and not is_causal:
        stack = "encoder"
    if attribute(config, "is_encoder_decoder"):
        stack = "decoder" if "decoder" in layer.path else "encoder"
    kind = f"{stack} moe".strip() if routed else stack or "dense"
    spec, proofs = form_of(layer, config)
    owners = [
        layer.module.get_submodule(part.path.replace("*", "0")) for part in layer.parts
    ]
    return LayerGroup(
        kind=kind,
        count=len(layers),
        params=params,
        params_active=active,
        ffn=spec,
        module=" and ".join(dict.fromkeys(map(class_of, owners))),
        proven=spec is not None and None not in proofs,
        attention=attention_of(layer, config),
        windows=windows_of(layers, config),
    )


def idle_params(part: FFNPart, top_k: int) -> int:
    """The parameters of the experts that a token does not go to. Where some experts do
    nothing, this is an expectation over all of them, chosen alike.
    """
    chosen = top_k * part.experts / (part.experts + part.unused)
    return round(part.params * (1 - chosen / part.experts))


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
    try:
        try:
            return config_class.from_dict(data)
        except Exception:  # the class is stricter than published files
            return config_class.from_dict(plain(data, config_class))
    except Exception as problem:  # what a config class raises is its own
        raise unreadable(f"read it as {model_type}", problem) from problem


def plain(data: Mapping[str, Any], config_class: Any) -> dict[str, Any]:
    """The content with one number for a list of equal ones, and without what its class
    has from other keys, such as the number of layers beside their pattern.
    """
    plain = {}
    for key, value in data.items():
        if isinstance(value, list) and value and value.count(value[0]) == len(value):
            value = value[0]
        if not isinstance(getattr(config_class, key, None), property):
            plain[key] = value
    return plain


def unreadable(what: str, problem: Exception) -> FfnbenchError:
    """The error for what transformers raises, in one line."""
    text = " ".join(str(problem).split())[:200]
    return FfnbenchError(
        f"transformers can't {what}: {type(problem).__name__}: {text}",
        "correct that value in the file, or give the config.json as it was published",
    )


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
                model = model_class(config)(config)
            model.tie_weights()
            return model.eval()
        except Exception as problem:
            raise unreadable(f"build {config.model_type!r}", problem) from problem


def model_class(config: Any) -> Any:
    """The class of a config's model: with an output layer, where there is one; an
    encoder that fills masks is taken bare.
    """
    from transformers.models.auto import modeling_auto

    kind = type(config)
    for name in MAPPINGS:
        fills_masks = kind in modeling_auto.MODEL_FOR_MASKED_LM_MAPPING
        mapping = getattr(modeling_auto, name)
        if kind in mapping and not (fills_masks and "_FOR_CAUSAL_LM" in name):
            found = mapping[kind]
            return found[0] if isinstance(found, tuple) else found
    modeling = import_module(kind.__module__.replace("configuration_", "modeling_"))
    for found in vars(modeling).values():
        is_of_config = getattr(found, "config_class", None) is kind
        if is_of_config and "PreTrained" not in found.__name__:
            return found
    raise LookupError(f"no model class for {kind.__name__}")


@dataclass(frozen=True, slots=True)
class Opened:
    """A model on the meta device, and its language part, `model` with the config
    `text`: all of it, with the path "", unless it is made of several.
    """

    config: Any
    whole: Any
    path: str
    text: Any
    model: Any


def open_model(data: Mapping[str, Any]) -> Opened:
    """Build the model of a config.json's content without data; raises FfnbenchError."""
    config = load_config(json.loads(json.dumps(data)))  # its class may change it
    whole = model = build_empty(config)
    text, path = config.get_text_config(), ""
    if text is not config:
        for name, module in whole.named_modules():
            if name and not path and getattr(module, "config", None) is text:
                model, path = module, name
    return Opened(config, whole, path, text, model)


def read_model(data: dict[str, Any], source: str) -> ModelSpec:
    """Read the model of a config.json's content; raises FfnbenchError."""
    import transformers

    opened = open_model(data)
    config, text, path = opened.config, opened.text, opened.path
    layers = layers_of(opened.model, text)
    kinds: dict[Any, list[Layer]] = {}
    for layer in layers:
        shapes = [(part.path, *part.shapes.items()) for part in layer.parts]
        attention = attention_of(layer, text)
        key = (A_NUMBER.sub("*", layer.path), *shapes, *layer.loose.items(), attention)
        kinds.setdefault(key, []).append(layer)
    counts, tied = other_parts(opened, layers, data)
    notes = []
    if path:
        notes.append(
            f"the language part of {config.model_type}: {path}, {text.model_type}"
        )
    if "auto_map" in data:
        notes.append("auto_map: the code that comes with the file is never run")
    return ModelSpec(
        key=config.model_type,
        name=config.model_type,
        groups=tuple(group_of(equal, text) for equal in kinds.values()),
        other_parts=counts,
        tied=tied,
        source=source,
        counted_by=f"transformers {transformers.__version__}, which built {class_of(opened.whole)}",
        note="; ".join(notes),
        defaults=sizes_not_of_the_file(data, text),
    )


def sizes_not_of_the_file(data: Mapping[str, Any], config: Any) -> str:
    """The sizes that a file leaves to its class, and those in it that its class does
    not read, in words; "" for none.
    """
    model_type, own = config.model_type, inspect.signature(type(config)).parameters
    known = {
        *own,
        *dir(type(config)),
        *config.attribute_map,
        *config.attribute_map.values(),
    }
    written = json.dumps(data)
    left_out = []
    for name in filter(SIZE_KEY.search, sorted(own)):
        value = attribute(config, name)
        # the file may set it by another name, which its class knows
        is_written = re.search(rf'"{name}"|\b{value}\b', written)
        if type(value) is int and value > 1 and not is_written:
            left_out.append(f"{name} {value:,}")
    unread = [key for key in filter(SIZE_KEY.search, data) if key not in known]
    texts = []
    if left_out:
        texts.append(
            f"defaults of {model_type}, which the file does not set: {', '.join(left_out)}"
        )
    if unread:
        texts.append(f"{model_type} does not read {', '.join(unread)}")
    return "; ".join(texts)


def other_parts(
    opened: Opened, layers: list[Layer], data: Mapping[str, Any]
) -> tuple[dict[str, int], int]:
    """All parameters that are not those of FFNs, by part; what other models a composite
    has are `other`. And those of the embedding that are the output layer too.
    """
    whole, path = opened.whole, opened.path
    of_ffns = {
        id(parameter)
        for layer in layers
        for parameters in layer.parameters.values()
        for parameter in parameters
    }
    classes = {name: class_of(module) for name, module in whole.named_modules()}
    output = attribute(whole.get_output_embeddings(), "weight")
    counts: Counter[str] = Counter()
    for name, parameter in whole.named_parameters():
        around = ["", *(classes[prefix] for prefix in prefixes_of(name))]
        is_output = parameter is output and "Embed" not in around[-1]
        if id(parameter) in of_ffns:
            continue
        elif is_output or (HEAD.search(name) and "attn" not in name):
            part = "head"
        elif path and not name.startswith(f"{path}."):
            part = "other"
        elif "norm" in around[-1].lower() and "Embed" not in around[-1]:
            part = "norms"
        elif any(map(ATTENTION_CLASS.search, around)):
            part = "attention"
        else:
            part = "embeddings" if "Embed" in "".join(around) else "other"
        counts[part] += parameter.numel()
    tied = 0 if output is None or counts["head"] else output.numel()
    # a class may tie them until it has read the weights, or be the bare model's
    written = " ".join([class_of(whole), *(data.get("architectures") or ())])
    keys = {**(data.get("text_config") or {}), **data}
    is_untied = keys.get("tie_word_embeddings") is False
    if is_untied and not counts["head"] and WRITES_TEXT.search(written):
        counts["head"], tied = whole.get_input_embeddings().weight.numel(), 0
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
