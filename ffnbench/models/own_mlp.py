"""`hf:CONFIG`: the MLP class of a model of transformers, as a module and as a form of ours. Runs in a worker."""

from __future__ import annotations

import inspect
import json
from collections import Counter
from typing import Any

import torch
from torch import Tensor

from ffnbench.errors import FfnbenchError
from ffnbench.ffn.cost import params
from ffnbench.ffn.like import as_form
from ffnbench.ffn.modules import OwnForm, build_module
from ffnbench.ffn.moe import MoESpec
from ffnbench.ffn.spec import HF, FFNSpec
from ffnbench.models.configs import read_groups
from ffnbench.models.model import OwnMLP
from ffnbench.models.transformers import FoundFFN, build_empty, feed_forwards, load
from ffnbench.targets import one_line

CORRECTION = "e_score_correction_bias"  # a buffer that training moves, from zero; it corrects the choice alone
ROUTER = ("router", "gate")
SHARED = ("shared_expert", "shared_experts")


def own_mlp(target: str) -> OwnMLP:
    """What `hf:CONFIG` is, found without data: the MLP of the kind of layer that the model has most of."""
    loaded = load(target.removeprefix(HF))
    config = _language(loaded.config)
    found = _main(config)
    form, module = _form(config, found), _module(found)
    d_model = form.d_model if form else _input_width(config, module)
    widths = {size for _, shape in found.shapes if len(shape) > 1 for size in shape[-2:]} - {d_model}
    d_ff = form.d_ff if form else max(widths, default=d_model)
    if form is not None:
        try:
            as_ours(module, form, torch.zeros(1, 1, d_model, device="meta"))
        except FfnbenchError:
            form = None
    name = found.name if config is loaded.config else f"the language model's {found.name}"
    return OwnMLP(name=name, d_model=d_model, d_ff=d_ff, form=form, defaults=loaded.defaults)


def build_own(target: str) -> Any:
    """That MLP with data: its own class and shapes, weights drawn from torch's generator."""
    module = _module(_main(_language(load(target.removeprefix(HF)).config)))
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


def _language(config: Any) -> Any:
    """The config of the language model where a model has a tower that sees as well; else the model's own."""
    return config.text_config if hasattr(config, "text_config") and hasattr(config, "vision_config") else config


def _module(found: FoundFFN) -> Any:
    """An FFN as a module of one input. Raises FfnbenchError where it takes more (bloom's and mpt's, a residual), and
    where the layer itself holds its projections (BERT's, BART's).
    """
    if found.pair:
        raise FfnbenchError(f"{type(found.module).__name__} has its FFN without a class of its own", "name a class")
    takes = inspect.signature(found.module.forward).parameters.values()
    if sum(each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD for each in takes) > 1:
        raise FfnbenchError(f"{found.name} takes more than one input", "name a class that takes one")
    return found.module


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


def as_ours(module: Any, form: FFNSpec, x: Tensor) -> OwnForm:
    """Our module of the form, on the very weights of theirs; x as for `as_form`. Raises FfnbenchError where they are
    no such form's.
    """
    return as_form(module, form, x) if form.moe is None else _mixture(module, form, form.moe)


def _mixture(module: Any, form: FFNSpec, moe: MoESpec) -> OwnForm:
    """Router, experts, shared expert and its gate, by the names that transformers has for them."""
    try:
        found = {f"router.{name}": value for name, value in _child(module, ROUTER).named_parameters()}
        found |= {f"experts.{name}": value for name, value in _stacked(module.experts).items()}
        shared = _child(module, SHARED) if moe.shared_d_ff else None
        for name in ("gate", "up", "down") if shared is not None else ():
            found[f"shared.{name}.weight"] = getattr(shared, f"{name}_proj").weight
        if moe.shared_gate:
            found["shared_gate.weight"] = module.shared_expert_gate.weight
        ours = build_module(form, device="meta")
        ours.load_state_dict({name: value.detach() for name, value in found.items()}, assign=True)
    except (AttributeError, RuntimeError) as problem:
        raise FfnbenchError(f"its weights are none of such experts: {one_line(problem)}") from problem
    return ours.requires_grad_(False)


def _child(module: Any, names: tuple[str, ...]) -> Any:
    return getattr(module, next((name for name in names if hasattr(module, name)), names[0]))


def _stacked(experts: Any) -> dict[str, Tensor]:
    """The weights (experts, out, in) and biases (experts, out) of all experts; gate and up are one tensor of theirs."""
    found: dict[str, Tensor] = {}
    kinds = {"weight": "proj", "bias": "proj_bias"}
    for kind, end in kinds.items() if hasattr(experts, "gate_up_proj_bias") else (("weight", "proj"),):
        packed, down = getattr(experts, f"gate_up_{end}"), getattr(experts, f"down_{end}")
        if kind == "weight" and getattr(experts, "is_transposed", False):
            packed, down = packed.mT, down.mT
        halves = packed.chunk(2, dim=1)
        if not getattr(experts, "is_concatenated", True):  # their rows are in turns
            halves = packed[:, 0::2], packed[:, 1::2]
        found |= {f"gate.{kind}": halves[0], f"up.{kind}": halves[1], f"down.{kind}": down}
    return found
