"""`hf:CONFIG`: the MLP class of a model of transformers, as a module and as a form of ours. Runs in a worker."""

from __future__ import annotations

import inspect
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ffnbench.errors import FfnbenchError
from ffnbench.ffn.cost import params
from ffnbench.ffn.modules import build_module
from ffnbench.ffn.moe import MoESpec
from ffnbench.ffn.spec import HF, FFNSpec, Gate
from ffnbench.ffn.weight_names import DOWN, GATE, PACKED, UP
from ffnbench.models.configs import read_groups
from ffnbench.models.model import OwnMLP
from ffnbench.models.transformers import FoundFFN, build_empty, feed_forwards, load

CORRECTION = "e_score_correction_bias"  # a buffer that training moves, from zero; it corrects the choice alone
ACTS = ("activation_fn", "intermediate_act_fn", "act", "activation", "act_fn", "activation_func", "hidden_act_fn")
ROUTER = ("gate", "router")
SHARED = ("shared_expert", "shared_experts")
Weights = dict[str, tuple[Any, Any]]  # name of ours -> weight (rows: outputs) and bias


class Projections(nn.Module):
    """The FFN of a layer that has no class for it (BERT, BART): maps (..., d_model) to (..., d_model).

    The layer's own projections with its activation between them; no dropout, no residual, no norm.
    """

    def __init__(self, fc1: nn.Module, act: Callable[[Tensor], Tensor], fc2: nn.Module) -> None:
        super().__init__()
        self.fc1, self.fc2, self.act = fc1, fc2, act

    def forward(self, x: Tensor) -> Tensor:
        """x: (..., d_model)."""
        return self.fc2(self.act(self.fc1(x)))


def own_mlp(target: str) -> OwnMLP:
    """What `hf:CONFIG` is, found without data: the MLP of the kind of layer that the model has most of."""
    config = load(target.removeprefix(HF))[0]
    found = _main(config)
    form, module = _form(config, found), _module(found)
    checkable = form is not None and as_ours(module, form) is not None
    d_model = form.d_model if form else _input_width(config, module)
    widths = {size for _, shape in found.shapes if len(shape) > 1 for size in shape[-2:]} - {d_model}
    d_ff = form.d_ff if form else max(widths, default=d_model)
    return OwnMLP(name=found.name, d_model=d_model, d_ff=d_ff, form=form if checkable else None)


def build_own(target: str) -> Any:
    """That MLP with data: its own class and shapes, weights drawn from torch's generator."""
    module = _module(_main(load(target.removeprefix(HF))[0]))
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


def _module(found: FoundFFN) -> Any:
    """An FFN as a module of one input; raises FfnbenchError where it takes more (bloom's and mpt's, a residual)."""
    if not found.pair:
        takes = inspect.signature(found.module.forward).parameters.values()
        if sum(each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD for each in takes) > 1:
            raise FfnbenchError(f"{found.name} takes more than one input", "name a class that takes one")
        return found.module
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


def _main(config: Any) -> FoundFFN:
    """One of the FFNs that the model has most of, the later kind of equals, as ModelSpec.main has it."""
    found = feed_forwards(build_empty(config))
    kinds = Counter((each.stack, each.shapes) for each in found)
    if not found:
        raise FfnbenchError(f"the {config.model_type} model has no FFN that can be told by its name", "name its class")
    stack, shapes = max(reversed(list(kinds)), key=lambda kind: kinds[kind])
    return next(each for each in found if (each.stack, each.shapes) == (stack, shapes))


def _form(config: Any, found: FoundFFN) -> FFNSpec | None:
    """The FFN by the table of families; None where it has none, or another count."""
    try:
        groups = read_groups(json.loads(config.to_json_string(use_diff=False)))
    except FfnbenchError:
        return None
    forms = [group.ffn for group in groups if params(group.ffn) == found.params]
    return forms[0] if forms else None


def _input_width(config: Any, module: Any) -> int:
    linear = [part for part in module.modules() if hasattr(part, "in_features")]
    return int(linear[0].in_features if linear else config.get_text_config().hidden_size)


def as_ours(module: Any, form: FFNSpec) -> Any:
    """Our module of the form, on the very weights of theirs; None where its projections have other names.

    Also None where the activation is trained.
    """
    found = _projections(module, form.gate) if form.moe is None else _mixture(module, form.moe)
    if found is None or form.row.learned:
        return None
    ours = build_module(form, device="meta")
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
